//! Which kinds of tasks somebody can run.
//!
//! A worker has an *adapter* for a kind if it knows how a task of that kind is run. It claims those only: a task of
//! another kind stays queued, for whoever has an adapter for it, and is never run as something else.

use std::collections::BTreeSet;

use super::task::{ACTION_KINDS, COMMAND, PLAY_ALIAS, WORKFLOW};

/// The longest name of a kind of a host's own, in characters.
const LONGEST_NAME: usize = 64;

/// The kinds that become one program with arguments: those of ADR-0071 but the workflow, and the command.
pub fn launched() -> impl Iterator<Item = &'static str> {
    ACTION_KINDS.into_iter().filter(|kind| *kind != WORKFLOW).chain([COMMAND])
}

/// The kinds that somebody has adapters for.
///
/// ```
/// use leasehold::domain::kinds::Kinds;
/// let kinds = Kinds::of(["agent", "thumbnail"]);
/// assert!(kinds.have("agent") && !kinds.have("workflow"));
/// assert!(Kinds::Any.have("workflow"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kinds {
    /// Whatever comes: the caller of ADR-0071's own functions brings what executes it.
    Any,
    /// These.
    Only(BTreeSet<String>),
}

impl Kinds {
    /// These kinds.
    pub fn of<K: Into<String>>(kinds: impl IntoIterator<Item = K>) -> Kinds {
        Kinds::Only(kinds.into_iter().map(Into::into).collect())
    }

    /// Whether `kind` is among them.
    pub fn have(&self, kind: &str) -> bool {
        match self {
            Kinds::Any => true,
            Kinds::Only(kinds) => kinds.contains(kind),
        }
    }
}

/// Why `name` cannot be the name of a kind of a host's own, if it cannot.
///
/// ```
/// use leasehold::domain::kinds::name_problem;
/// assert_eq!(name_problem("thumbnail"), None);
/// assert!(name_problem("agent").is_some() && name_problem("Thumb nail").is_some());
/// ```
pub fn name_problem(name: &str) -> Option<&'static str> {
    if name == PLAY_ALIAS || name == WORKFLOW || launched().any(|kind| kind == name) {
        return Some("it has an adapter already: give the kind a name of its own");
    }
    let begins_well = name.starts_with(|c: char| c.is_ascii_lowercase());
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    match begins_well && name.chars().all(fits) && name.len() <= LONGEST_NAME {
        true => None,
        false => {
            Some("give 1 to 64 lower-case letters, digits, '_' and '-', beginning with a letter")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_a_host_s_own_has_a_plain_name_that_is_not_taken() {
        for name in ["a", "thumbnail", "render-3d", "x_1", &"a".repeat(64)] {
            assert_eq!(name_problem(name), None, "{name}");
        }
        for name in
            ["", "1a", "A", "a b", "é", "a.b", &"a".repeat(65), "command", "workflow", "playbook"]
        {
            assert!(name_problem(name).is_some(), "{name}");
        }
    }
}
