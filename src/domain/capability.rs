//! Capability tokens: where a task may run, in which order, and beside what (ADR-0071 D5).
//!
//! A token *routes*; it never authorizes.

use std::collections::{BTreeMap, BTreeSet, HashSet};

/// What a token does. A token that nobody classified is for eligibility.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapabilityClass {
    /// A worker must advertise it.
    Eligibility,
    /// A worker must advertise it, and tasks that need it run one at a time on a host.
    Serialization,
    /// A worker that advertises it is preferred; none is excluded.
    Affinity,
}

/// Which token has which class.
///
/// ```
/// use leasehold::domain::capability::{CapabilityClass, CapabilityClasses};
/// let classes = CapabilityClasses::default();
/// assert_eq!(classes.class_of("gpu-exclusive"), CapabilityClass::Serialization);
/// assert_eq!(classes.class_of("anything-else"), CapabilityClass::Eligibility);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapabilityClasses(BTreeMap<String, CapabilityClass>);

impl Default for CapabilityClasses {
    fn default() -> Self {
        CapabilityClasses(BTreeMap::from([
            ("gpu-exclusive".into(), CapabilityClass::Serialization),
            ("warmed-cache".into(), CapabilityClass::Affinity),
        ]))
    }
}

impl CapabilityClasses {
    /// The same map with one more token classified.
    #[must_use]
    pub fn with(mut self, token: impl Into<String>, class: CapabilityClass) -> Self {
        self.0.insert(token.into(), class);
        self
    }

    /// The class of `token`. Letter case counts.
    pub fn class_of(&self, token: &str) -> CapabilityClass {
        self.0.get(token).copied().unwrap_or(CapabilityClass::Eligibility)
    }

    /// The tokens a worker must advertise: all but affinity, in order, duplicates kept.
    pub fn matching_tokens<'a>(&self, tokens: &'a [String]) -> Vec<&'a str> {
        let counts = |token: &&str| self.class_of(token) != CapabilityClass::Affinity;
        tokens.iter().map(String::as_str).filter(counts).collect()
    }

    /// Whether every token that filters is among the advertised ones.
    pub fn can_serve(&self, required: &[String], advertised: &HashSet<String>) -> bool {
        self.matching_tokens(required).into_iter().all(|token| advertised.contains(token))
    }

    /// How many affinity tokens of the requirement are advertised; a token required twice counts twice.
    pub fn affinity_score(&self, required: &[String], advertised: &HashSet<String>) -> usize {
        let matches = |token: &&String| {
            self.class_of(token) == CapabilityClass::Affinity && advertised.contains(*token)
        };
        required.iter().filter(matches).count()
    }

    /// The serialization tokens of a requirement, each once.
    pub fn serialization_tokens(&self, required: &[String]) -> BTreeSet<String> {
        let serializes = |token: &&String| self.class_of(token) == CapabilityClass::Serialization;
        required.iter().filter(serializes).cloned().collect()
    }

    /// `<host>:<token+token...>` of the serialization tokens in code point order, or nothing when there are none.
    /// Duplicates stay: keys must equal those that Python wrote into a shared store.
    pub fn concurrency_key(&self, host: &str, required: &[String]) -> Option<String> {
        let mut tokens: Vec<&str> = required
            .iter()
            .map(String::as_str)
            .filter(|token| self.class_of(token) == CapabilityClass::Serialization)
            .collect();
        tokens.sort_unstable();
        (!tokens.is_empty()).then(|| format!("{host}:{}", tokens.join("+")))
    }
}
