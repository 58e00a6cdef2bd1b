//! Which of the tasks that have ended are removed.

use thiserror::Error;

use super::status::Status;

/// What is to be removed: tasks that have ended, never one that waits or runs.
///
/// ```
/// use leasehold::domain::pruning::Pruning;
/// use leasehold::domain::status::Status;
/// let month = Pruning { older_than: 30.0 * 86_400.0, statuses: vec![], keep_failed: true };
/// assert_eq!(month.chosen().unwrap(), [Status::Completed, Status::Skipped, Status::Cancelled]);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Pruning {
    /// How long ago they must have ended at the least, in seconds.
    pub older_than: f64,
    /// Only tasks that ended like this; none means all.
    pub statuses: Vec<Status>,
    /// Whether those that did not end well, failed and timed out, are kept.
    pub keep_failed: bool,
}

/// Why nothing is removed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PruneRefusal {
    /// The age is none.
    #[error("the age {given} s is no length of time: give how long ago the tasks must have ended")]
    Age {
        /// What was given.
        given: String,
    },
    /// A status that is no end.
    #[error("a task that is {status} has not ended, and is never removed: cancel it first")]
    NotAnEnd {
        /// The status.
        status: Status,
    },
    /// Nothing is left to remove.
    #[error(
        "of what was chosen everything is to be kept: leave out the choice of failed and timed_out tasks, or that they are kept"
    )]
    Nothing,
}

impl PruneRefusal {
    /// A stable name, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            PruneRefusal::Age { .. } => "older_than",
            PruneRefusal::NotAnEnd { .. } => "status",
            PruneRefusal::Nothing => "keep_failed",
        }
    }
}

impl Pruning {
    /// The ends whose tasks are removed.
    ///
    /// # Errors
    /// [`PruneRefusal`] for what makes no sense.
    pub fn chosen(&self) -> Result<Vec<Status>, PruneRefusal> {
        if !(self.older_than.is_finite() && self.older_than >= 0.0) {
            return Err(PruneRefusal::Age { given: self.older_than.to_string() });
        }
        if let Some(status) = self.statuses.iter().find(|status| !status.is_terminal()) {
            return Err(PruneRefusal::NotAnEnd { status: *status });
        }
        let is_chosen = |status: &Status| {
            let named = self.statuses.is_empty() || self.statuses.contains(status);
            let kept = self.keep_failed && matches!(status, Status::Failed | Status::TimedOut);
            status.is_terminal() && named && !kept
        };
        let chosen: Vec<Status> = Status::ALL.into_iter().filter(is_chosen).collect();
        if chosen.is_empty() { Err(PruneRefusal::Nothing) } else { Ok(chosen) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(older_than: f64, statuses: &[Status], keep_failed: bool) -> Result<usize, String> {
        let pruning = Pruning { older_than, statuses: statuses.to_vec(), keep_failed };
        pruning.chosen().map(|chosen| chosen.len()).map_err(|refusal| refusal.code().into())
    }

    #[test]
    fn only_ends_are_chosen() {
        assert_eq!(chosen(0.0, &[], false), Ok(5));
        assert_eq!(chosen(0.0, &[], true), Ok(3));
        assert_eq!(chosen(0.0, &[Status::Failed, Status::Skipped], true), Ok(1));
        assert_eq!(chosen(0.0, &[Status::Failed], true), Err("keep_failed".into()));
        for status in Status::ALL.into_iter().filter(|status| !status.is_terminal()) {
            assert_eq!(chosen(0.0, &[Status::Failed, status], false), Err("status".into()));
        }
        for age in [-1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(chosen(age, &[], false), Err("older_than".into()));
        }
    }
}
