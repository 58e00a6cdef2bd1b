//! Classes of queued runs: those that wait for the same thing.
//!
//! Whether a worker may claim a run is decided by its kind, target, requirement and key. The store has the queue in the
//! order of these, so a pass looks at each class once, however many runs are in it: a head of a million runs for somebody
//! else, on a busy key or under a pause costs it nothing.

use std::collections::HashSet;

use super::claim_plan::Offer;
use super::pause::Pauses;
use super::run::QueuedRun;

/// Between the parts of a name. No JSON text has it, and of the other parts only the last may.
const SEPARATOR: char = '\u{1f}';
/// Names are cut at so many characters: PostgreSQL's indexes take no long rows.
pub const NAME_CHARS: usize = 600;

/// A class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyClass {
    name: String,
}

impl ReadyClass {
    /// The class that the store gives this name to.
    pub fn new(name: String) -> ReadyClass {
        ReadyClass { name }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether its name was cut: runs of several kinds of need may be in it, and each has to be looked at.
    pub fn is_cut(&self) -> bool {
        self.name.chars().count() >= NAME_CHARS
    }

    /// Whether a worker with this offer may claim its runs now, or some of them.
    ///
    /// ```
    /// use leasehold::domain::capability::CapabilityClasses;
    /// use leasehold::domain::claim_plan::Offer;
    /// use leasehold::domain::pause::Pauses;
    /// use leasehold::domain::ready::ReadyClass;
    ///
    /// let offer = Offer::new(&["gpu-exclusive".into()], &[], CapabilityClasses::default());
    /// let class = ReadyClass::new("agent\u{1f}host\u{1f}[\"gpu-exclusive\"]\u{1f}gpu-exclusive:here".into());
    /// let (free, busy) = (Default::default(), ["gpu-exclusive:here".to_owned()].into());
    /// assert!(class.is_claimable(&offer, &free, &Pauses::default()));
    /// assert!(!class.is_claimable(&offer, &busy, &Pauses::default()));
    /// ```
    pub fn is_claimable(&self, offer: &Offer, busy: &HashSet<String>, pauses: &Pauses) -> bool {
        if self.is_cut() {
            return true;
        }
        let mut parts = self.name.splitn(4, SEPARATOR);
        let mut part = || parts.next().unwrap_or_default();
        let (kind, target, capabilities, key) = (part(), part(), part(), part());
        !busy.contains(key) && is_open(offer, pauses, [kind, target, capabilities])
    }
}

/// The same of one run, but for its key. Where the name of its class was cut, that alone tells.
pub fn may_claim(run: &QueuedRun, offer: &Offer, pauses: &Pauses) -> bool {
    let target = run.execution_target.as_deref().unwrap_or_default();
    let capabilities = run.required_capabilities.as_deref().unwrap_or_default();
    is_open(offer, pauses, [&run.action_kind, target, capabilities])
}

fn is_open(offer: &Offer, pauses: &Pauses, [kind, target, capabilities]: [&str; 3]) -> bool {
    !pauses.hold(kind, target) && offer.serves(kind, Some(capabilities), Some(target)).is_some()
}

#[cfg(test)]
mod tests {
    use super::super::capability::CapabilityClasses;
    use super::super::kinds::Kinds;
    use super::super::pause::Scope;
    use super::*;

    fn class(parts: [&str; 4]) -> ReadyClass {
        ReadyClass::new(parts.join("\u{1f}"))
    }

    #[test]
    fn a_class_is_claimable_if_its_runs_are() {
        let mut offer = Offer::new(&["a".into()], &[], CapabilityClasses::default());
        offer.kinds = Kinds::of(["agent"]);
        let is = |parts, pauses: &Pauses| {
            let busy = HashSet::from(["held".to_owned()]);
            class(parts).is_claimable(&offer, &busy, pauses)
        };
        let none = Pauses::default();
        for right in [
            ["agent", "host", "[]", ""],
            ["agent", "", "", ""],
            ["agent", "host", "null", ""],
            ["agent", "host", r#"["a"]"#, "free"],
            ["agent", "host", r#"["a"]"#, "held\u{1f}by whom"],
        ] {
            assert!(is(right, &none), "{right:?}");
        }
        for wrong in [
            ["flow", "host", "[]", ""],
            ["agent", "daytona", "[]", ""],
            ["agent", "host", r#"["b"]"#, ""],
            ["agent", "host", "no json", ""],
            ["agent", "host", "[]", "held"],
        ] {
            assert!(!is(wrong, &none), "{wrong:?}");
        }
        let paused = |scope| [scope].into_iter().collect::<Pauses>();
        let plain = ["agent", "host", "[]", ""];
        assert!(is(plain, &paused(Scope::kind("flow").unwrap())));
        assert!(!is(plain, &paused(Scope::kind("agent").unwrap())));
        assert!(!is(plain, &paused(Scope::target("host").unwrap())));
        assert!(!is(plain, &paused(Scope::Queue)));
    }

    #[test]
    fn what_was_cut_has_to_be_looked_at() {
        let (offer, none) = (Offer::new(&[], &[], CapabilityClasses::default()), HashSet::new());
        let long = class(["agent", "host", &"é".repeat(NAME_CHARS), ""]).name;
        let cut: String = long.chars().take(NAME_CHARS).collect();
        assert!(ReadyClass::new(cut.clone()).is_claimable(&offer, &none, &Pauses::default()));
        let whole = ReadyClass::new(cut.chars().skip(1).collect());
        assert!(!whole.is_claimable(&offer, &none, &Pauses::default()));
    }
}
