//! Pauses. A run is *held* if and only if it is queued, and the whole queue, its kind or its target is paused: then
//! nobody claims it.
//!
//! A pause stops no run that is running and refuses no submit. It holds for every worker on the store.

use std::collections::BTreeSet;
use std::fmt;

use thiserror::Error;

use super::task::{ACTION_KINDS, COMMAND, EXECUTION_TARGETS, PLAY_ALIAS};
use super::transition::Principal;

/// What can be paused.
///
/// ```
/// use leasehold::domain::pause::Scope;
/// assert_eq!(Scope::kind("playbook").unwrap(), Scope::Kind("play".into()));
/// assert!(Scope::target("moon").is_err());
/// assert_eq!(Scope::Queue.to_string(), "the whole queue");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// All runs.
    Queue,
    /// The runs of a kind.
    Kind(String),
    /// The runs that are to be executed on a target.
    Target(String),
}

/// A pause that makes no sense. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PauseRefusal {
    /// No task has such a kind or target.
    #[error("no task has the {what} {given:?}: use one of {known}")]
    Unknown {
        /// `kind` or `target`.
        what: &'static str,
        /// Its value.
        given: String,
        /// The names that there are.
        known: String,
    },
    /// PostgreSQL's `text` cannot hold it.
    #[error("the {what} of a pause holds the character U+0000: leave it out")]
    Nul {
        /// `reason` or `actor`.
        what: &'static str,
    },
}

impl Scope {
    /// A kind, or its other name.
    ///
    /// # Errors
    /// [`PauseRefusal::Unknown`] for a kind that no task can have: a pause of it would hold nothing.
    pub fn kind(name: &str) -> Result<Scope, PauseRefusal> {
        let name = if name == PLAY_ALIAS { "play" } else { name };
        let mut known = ACTION_KINDS.to_vec();
        known.push(COMMAND);
        one_of("kind", name, known).map(Scope::Kind)
    }

    /// A kind, or one of the host's own.
    ///
    /// # Errors
    /// As [`Scope::kind`], for a name that is not among `own` either.
    pub fn kind_or_own(name: &str, own: &BTreeSet<String>) -> Result<Scope, PauseRefusal> {
        match own.contains(name) {
            true => Ok(Scope::Kind(name.into())),
            false => Scope::kind(name),
        }
    }

    /// An execution target.
    ///
    /// # Errors
    /// [`PauseRefusal::Unknown`] for a target that no task can have.
    pub fn target(name: &str) -> Result<Scope, PauseRefusal> {
        one_of("target", name, EXECUTION_TARGETS.to_vec()).map(Scope::Target)
    }

    /// The scope that is stored as these two.
    pub fn parse(word: &str, value: &str) -> Option<Scope> {
        match word {
            "queue" => Some(Scope::Queue),
            "kind" => Some(Scope::Kind(value.into())),
            "target" => Some(Scope::Target(value.into())),
            _ => None,
        }
    }

    /// The word that is stored.
    pub const fn word(&self) -> &'static str {
        match self {
            Scope::Queue => "queue",
            Scope::Kind(_) => "kind",
            Scope::Target(_) => "target",
        }
    }

    /// The kind or the target; empty for the queue.
    pub fn value(&self) -> &str {
        match self {
            Scope::Queue => "",
            Scope::Kind(value) | Scope::Target(value) => value,
        }
    }

    /// Whether a run of this kind and target is in it. A run without a target is of none.
    pub fn has(&self, kind: &str, target: &str) -> bool {
        match self {
            Scope::Queue => true,
            Scope::Kind(paused) => paused == kind,
            Scope::Target(paused) => paused == target,
        }
    }
}

fn one_of(
    what: &'static str,
    name: &str,
    mut known: Vec<&'static str>,
) -> Result<String, PauseRefusal> {
    if known.contains(&name) {
        return Ok(name.into());
    }
    known.sort_unstable();
    Err(PauseRefusal::Unknown { what, given: name.into(), known: known.join(", ") })
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Queue => f.write_str("the whole queue"),
            Scope::Kind(kind) => write!(f, "the kind {kind:?}"),
            Scope::Target(target) => write!(f, "the target {target:?}"),
        }
    }
}

/// A pause as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Pause {
    /// What is paused.
    pub scope: Scope,
    /// Since when, in seconds since the epoch.
    pub since: f64,
    /// Who has paused it.
    pub by: Principal,
    /// Why, in the words of whoever did.
    pub reason: Option<String>,
}

impl Pause {
    /// A pause that can be stored.
    ///
    /// # Errors
    /// [`PauseRefusal::Nul`] for words that no store could hold.
    pub fn new(
        scope: Scope,
        since: f64,
        by: Principal,
        reason: Option<String>,
    ) -> Result<Pause, PauseRefusal> {
        let nul = |text: &str| text.contains('\0');
        if reason.as_deref().is_some_and(nul) {
            return Err(PauseRefusal::Nul { what: "reason" });
        }
        if nul(&by.id) {
            return Err(PauseRefusal::Nul { what: "actor" });
        }
        Ok(Pause { scope, since, by, reason })
    }
}

/// All that is paused.
///
/// ```
/// use leasehold::domain::pause::{Pauses, Scope};
/// let pauses: Pauses = [Scope::Kind("flow".into())].into_iter().collect();
/// assert!(pauses.hold("flow", "host") && !pauses.hold("agent", "host"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pauses(BTreeSet<Scope>);

impl FromIterator<Scope> for Pauses {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Pauses {
        Pauses(scopes.into_iter().collect())
    }
}

impl Pauses {
    /// Whether the whole queue is paused.
    pub fn are_of_all(&self) -> bool {
        self.0.contains(&Scope::Queue)
    }

    /// Whether a queued run of this kind and target is held.
    pub fn hold(&self, kind: &str, target: &str) -> bool {
        self.0.iter().any(|scope| scope.has(kind, target))
    }

    /// The kinds that are paused.
    pub fn kinds(&self) -> impl Iterator<Item = &String> {
        self.0.iter().filter_map(|scope| match scope {
            Scope::Kind(kind) => Some(kind),
            _ => None,
        })
    }

    /// The targets that are paused.
    pub fn targets(&self) -> impl Iterator<Item = &String> {
        self.0.iter().filter_map(|scope| match scope {
            Scope::Target(target) => Some(target),
            _ => None,
        })
    }
}

impl fmt::Display for Pauses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(Scope::to_string).collect();
        f.write_str(if words.is_empty() { "nothing" } else { "" })?;
        f.write_str(&words.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str) -> Scope {
        Scope::kind(name).unwrap()
    }

    #[test]
    fn only_what_a_task_can_have_is_paused() {
        assert_eq!(kind("command"), Scope::Kind("command".into()));
        let error = Scope::kind("agnet").unwrap_err().to_string();
        assert!(error.starts_with("no task has the kind \"agnet\": use one of agent, command, "));
        assert!(Scope::target("Host").is_err());
        let by = Principal::operator("ada");
        assert!(Pause::new(Scope::Queue, 1.0, by.clone(), Some("a\0".into())).is_err());
        assert!(Pause::new(Scope::Queue, 1.0, Principal::operator("\0"), None).is_err());
        assert!(Pause::new(Scope::Queue, 1.0, by, None).is_ok());
    }

    #[test]
    fn a_scope_is_read_as_it_is_stored() {
        for scope in [Scope::Queue, kind("flow"), Scope::target("host").unwrap()] {
            assert_eq!(Scope::parse(scope.word(), scope.value()), Some(scope));
        }
        assert_eq!(Scope::parse("host", "vm"), None);
    }

    #[test]
    fn a_pause_holds_its_own_and_says_what_it_is() {
        let none = Pauses::default();
        let flows: Pauses = [kind("flow")].into_iter().collect();
        let more: Pauses = [kind("flow"), Scope::Target("host".into())].into_iter().collect();
        let all: Pauses = [Scope::Queue].into_iter().collect();
        assert!(!none.hold("flow", "") && flows.hold("flow", "") && !flows.hold("play", "host"));
        assert!(more.hold("play", "host") && !more.hold("play", "") && all.hold("x", ""));
        assert_eq!(more.to_string(), "the kind \"flow\", the target \"host\"");
        assert_eq!(none.to_string(), "nothing");
    }
}
