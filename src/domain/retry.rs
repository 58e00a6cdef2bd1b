//! Whether a run that has failed is tried again, and when.

use serde::{Deserialize, Serialize};

/// When a task that fails by itself is tried again. What is not its own fault, a lost lease or a shutdown, counts for
/// nothing here.
///
/// ```
/// use leasehold::domain::retry::RetryPolicy;
/// let policy = RetryPolicy { max_failures: 3, base: 2.0, ..RetryPolicy::default() };
/// assert_eq!(policy.next_try(1, 75, 0.5), Some(1.0), "half of two seconds");
/// assert_eq!(policy.next_try(2, 75, 0.5), Some(2.0));
/// assert_eq!(policy.next_try(3, 75, 0.5), None);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryPolicy {
    /// So many failures end the run; with 1 it is never tried again.
    pub max_failures: u32,
    /// The longest pause after the first failure, in seconds; it doubles with each one.
    pub base: f64,
    /// No pause is longer, in seconds.
    pub cap: f64,
    /// Only these ends are tried again: exit codes, and `-N` for signal N. None means all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<i32>,
    /// These never are.
    #[serde(rename = "final", skip_serializing_if = "Vec::is_empty")]
    pub never: Vec<i32>,
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        RetryPolicy { max_failures: 1, base: 1.0, cap: 300.0, only: Vec::new(), never: Vec::new() }
    }
}

/// The most failures that a policy may allow: beyond it a number means "for ever", which nobody should.
const MOST_FAILURES: u32 = 1000;

impl RetryPolicy {
    /// What is wrong with it: a setting, its value, and what it must be.
    pub(crate) fn problem(&self) -> Option<(&'static str, String, &'static str)> {
        if !(1..=MOST_FAILURES).contains(&self.max_failures) {
            return Some((
                "max_failures",
                self.max_failures.to_string(),
                "give a number from 1 to 1000",
            ));
        }
        for (setting, length) in [("backoff", self.base), ("backoff_cap", self.cap)] {
            if !(length.is_finite() && length >= 0.0) {
                return Some((setting, format!("{length} s"), "give a length of time"));
            }
        }
        let all = self.only.iter().chain(&self.never);
        let code = all.copied().find(|code| *code == 0 || !(-64..=255).contains(code))?;
        Some(("an end to retry", code.to_string(), "give an exit code from 1 to 255, or a signal"))
    }

    /// How long to wait, in seconds, after so many failures, the last one with this exit code; nothing when that was the
    /// end. `fraction` is a random number from 0 to 1: of the whole pause, so that what failed together is not tried
    /// again together.
    pub fn next_try(&self, failures: u32, exit_code: i32, fraction: f64) -> Option<f64> {
        let is_wanted = self.only.is_empty() || self.only.contains(&exit_code);
        if failures >= self.max_failures || !is_wanted || self.never.contains(&exit_code) {
            return None;
        }
        let doublings = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
        let pause = (self.base * 2f64.powi(doublings)).min(self.cap);
        Some(pause * fraction.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_up_to_its_cap_and_is_drawn_from_the_whole_of_it() {
        let policy =
            RetryPolicy { max_failures: 1000, base: 1.0, cap: 10.0, ..RetryPolicy::default() };
        let pauses: Vec<_> =
            [1, 2, 3, 4, 5, 999].map(|failures| policy.next_try(failures, 1, 1.0).unwrap()).into();
        assert_eq!(pauses, [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]);
        assert_eq!(policy.next_try(3, 1, 0.0), Some(0.0));
        let without = RetryPolicy { base: 0.0, ..policy };
        assert_eq!(without.next_try(999, 1, 1.0), Some(0.0));
    }

    #[test]
    fn ends_are_chosen_by_code_and_signal() {
        let only = RetryPolicy { max_failures: 9, only: vec![75, -9], ..RetryPolicy::default() };
        let never = RetryPolicy { max_failures: 9, never: vec![2, -6], ..RetryPolicy::default() };
        let tried = |policy: &RetryPolicy, code| policy.next_try(1, code, 1.0).is_some();
        assert_eq!([75, -9, 1, -15].map(|code| tried(&only, code)), [true, true, false, false]);
        assert_eq!([75, -9, 2, -6].map(|code| tried(&never, code)), [true, true, false, false]);
        assert!(!tried(&RetryPolicy::default(), 1), "the default never tries again");
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let bad = [
            RetryPolicy { max_failures: 0, ..RetryPolicy::default() },
            RetryPolicy { max_failures: 1001, ..RetryPolicy::default() },
            RetryPolicy { base: f64::NAN, ..RetryPolicy::default() },
            RetryPolicy { cap: -1.0, ..RetryPolicy::default() },
            RetryPolicy { only: vec![0], ..RetryPolicy::default() },
            RetryPolicy { never: vec![256], ..RetryPolicy::default() },
            RetryPolicy { never: vec![-65], ..RetryPolicy::default() },
        ];
        assert!(bad.iter().all(|policy| policy.problem().is_some()));
        assert_eq!(RetryPolicy::default().problem(), None);
    }
}
