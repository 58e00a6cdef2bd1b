//! Which variables a task sees: those of this process, without our own secrets, and with the run's
//! identity.
//!
//! Agents need their keys and their `PATH`, so the rule takes away by name. It does not try to
//! guess what else may be secret.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::RunIdentity;

/// Which variables of this process a task inherits.
///
/// ```
/// use leasehold::process::Inherit;
///
/// let inherit = Inherit::only(["PATH", "LC_*"]).unwrap();
/// assert!(inherit.admits("LC_ALL".as_ref()));
/// assert!(!inherit.admits("HOME".as_ref()));
/// assert!(Inherit::only(["A=1"]).is_err());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Inherit {
    /// All but our own secrets.
    #[default]
    All,
    /// Of those only the ones with these names; a name that ends in `*` stands for all that begin so.
    Only(Vec<String>),
}

/// Why a word is no name of a variable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{word:?} is no name of a variable: give a name such as PATH, or LC_* for all that begin so"
)]
pub struct NoVariableName {
    word: String,
}

impl Inherit {
    /// An allow-list.
    ///
    /// # Errors
    /// The first word that is no name.
    pub fn only<W: Into<String>>(
        words: impl IntoIterator<Item = W>,
    ) -> Result<Inherit, NoVariableName> {
        let checked = |word: W| {
            let word = word.into();
            let name = word.strip_suffix('*').unwrap_or(&word);
            match word.is_empty() || name.contains(['=', '*', '\0']) {
                true => Err(NoVariableName { word }),
                false => Ok(word),
            }
        };
        words.into_iter().map(checked).collect::<Result<_, _>>().map(Inherit::Only)
    }

    /// Whether a variable of this name is inherited.
    pub fn admits(&self, name: &OsStr) -> bool {
        let name = name.as_bytes();
        match self {
            Inherit::All => true,
            Inherit::Only(words) => words.iter().any(|word| match word.strip_suffix('*') {
                Some(start) => name.starts_with(start.as_bytes()),
                None => name == word.as_bytes(),
            }),
        }
    }

    /// The variables of this process that are inherited.
    pub(super) fn variables(&self) -> impl Iterator<Item = (OsString, OsString)> {
        std::env::vars_os().filter(|(name, _)| self.admits(name))
    }
}

/// The variables of this process by which a database is found and opened. A task sees none of libpq's.
pub(crate) fn connection_variables() -> impl Iterator<Item = (OsString, OsString)> {
    // Where libpq looks for its files.
    std::env::vars_os().filter(|(name, _)| is_of_libpq(name) || name == "HOME")
}

/// The whole environment of a task.
///
/// Inherited variables that are ours alone are left out: `LEASEHOLD_STORE`; every `LEASEHOLD_*`
/// with `TOKEN` or `SECRET` in its name; every `PG*`, which libpq reads; and `LIONAGI_STATE_DB_URL`
/// in any letter case. What `extra` names was meant for this task, so it is kept, and it wins over
/// what is inherited. `LEASEHOLD_RUN_ID`, `LEASEHOLD_EPOCH` and `LIONAGI_INVOCATION_ID` are set
/// last: nothing can forge them.
///
/// ```
/// use leasehold::process::{RunIdentity, child_environment};
///
/// let identity =
///     RunIdentity { run_id: "r1".into(), epoch: 3, invocation_id: "0123456789ab".into() };
/// let inherited = [("PATH", "/bin"), ("PGPASSWORD", "x")].map(|(k, v)| (k.into(), v.into()));
/// let env = child_environment(inherited, &[], &identity);
/// let names: Vec<_> = env.keys().collect();
/// assert_eq!(names, ["LEASEHOLD_EPOCH", "LEASEHOLD_RUN_ID", "LIONAGI_INVOCATION_ID", "PATH"]);
/// ```
pub fn child_environment(
    inherited: impl IntoIterator<Item = (OsString, OsString)>,
    extra: &[(OsString, OsString)],
    identity: &RunIdentity,
) -> BTreeMap<OsString, OsString> {
    let mut env: BTreeMap<OsString, OsString> =
        inherited.into_iter().filter(|(name, _)| !is_ours_alone(name)).collect();
    env.extend(extra.iter().cloned());
    env.insert("LEASEHOLD_RUN_ID".into(), identity.run_id.clone().into());
    env.insert("LEASEHOLD_EPOCH".into(), identity.epoch.to_string().into());
    env.insert("LIONAGI_INVOCATION_ID".into(), identity.invocation_id.clone().into());
    env
}

fn is_of_libpq(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b"PG")
}

fn is_ours_alone(variable: &OsStr) -> bool {
    let name = variable.as_bytes();
    name == b"LEASEHOLD_STORE"
        || name.starts_with(b"LEASEHOLD_")
            && (contains(name, b"TOKEN") || contains(name, b"SECRET"))
        || is_of_libpq(variable)
        || name.eq_ignore_ascii_case(b"LIONAGI_STATE_DB_URL")
}

fn contains(name: &[u8], word: &[u8]) -> bool {
    name.windows(word.len()).any(|window| window == word)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn identity() -> RunIdentity {
        RunIdentity { run_id: "run-1".into(), epoch: 7, invocation_id: "0123456789ab".into() }
    }

    fn names_kept(names: &[&str]) -> Vec<String> {
        let inherited = names.iter().map(|name| ((*name).into(), "x".into()));
        let ours = ["LEASEHOLD_RUN_ID", "LEASEHOLD_EPOCH", "LIONAGI_INVOCATION_ID"];
        child_environment(inherited, &[], &identity())
            .into_keys()
            .filter_map(|name| name.into_string().ok())
            .filter(|name| !ours.contains(&name.as_str()))
            .collect()
    }

    #[test]
    fn our_secrets_are_left_out_and_nothing_else() {
        let gone = [
            "LEASEHOLD_STORE",
            "LEASEHOLD_TOKEN",
            "LEASEHOLD_HTTP_TOKEN_FILE",
            "LEASEHOLD_SECRET",
            "LEASEHOLD_SIGNING_SECRET",
            "PGPASSWORD",
            "PGHOST",
            "PGSERVICEFILE",
            "LIONAGI_STATE_DB_URL",
            "lionagi_state_db_url",
            "Lionagi_State_Db_Url",
        ];
        assert_eq!(names_kept(&gone), Vec::<String>::new());
        let kept = [
            "ANTHROPIC_API_KEY",
            "GITHUB_TOKEN",
            "HOME",
            "LEASEHOLD_HOST",
            "LEASEHOLD_STORES",
            "PATH",
            "pg",
        ];
        assert_eq!(names_kept(&kept), kept);
    }

    #[test]
    fn additional_variables_win_but_not_over_the_identity() {
        let inherited =
            [("A", "inherited"), ("LEASEHOLD_RUN_ID", "outer")].map(|(k, v)| (k.into(), v.into()));
        let extra = [("A", "extra"), ("PGHOST", "meant"), ("LEASEHOLD_EPOCH", "99")]
            .map(|(k, v)| (k.into(), v.into()));
        let env = child_environment(inherited, &extra, &identity());
        let seen: Vec<_> =
            env.iter().map(|(k, v)| (k.to_string_lossy(), v.to_string_lossy())).collect();
        let seen: Vec<_> = seen.iter().map(|(k, v)| (k.as_ref(), v.as_ref())).collect();
        assert_eq!(
            seen,
            [
                ("A", "extra"),
                ("LEASEHOLD_EPOCH", "7"),
                ("LEASEHOLD_RUN_ID", "run-1"),
                ("LIONAGI_INVOCATION_ID", "0123456789ab"),
                ("PGHOST", "meant"),
            ]
        );
    }

    #[test]
    fn names_and_values_that_are_not_text_pass_unchanged() {
        let pair = (OsString::from_vec(vec![b'A', 0xff]), OsString::from_vec(vec![0xc7]));
        let env = child_environment([pair.clone()], &[], &identity());
        assert_eq!(env.get(&pair.0), Some(&pair.1));
    }
}
