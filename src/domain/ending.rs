//! How an execution ended, and what that makes of its run (ADR-0071 D4).

use super::contract::Unmet;
use super::reason::{Reason, ReasonCode};
use super::status::Status;
use super::workflow::Place;

/// The longest reason summary taken from a program's own words, in characters.
const SUMMARY_CHARS: usize = 500;

/// What an executor reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execution {
    /// The exit code as the kernel gave it; `-N` for an end by signal N.
    pub exit_code: i32,
    /// What the program had to say, usually the tail of its output. May be empty.
    pub detail: String,
}

impl Execution {
    /// A success with nothing to say.
    pub const OK: Execution = Execution { exit_code: 0, detail: String::new() };
}

/// An execution that could not be carried out; its run fails with `<kind>: <message>` as the detail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecuteError {
    /// The kind of trouble, such as a type's name.
    pub kind: String,
    /// What happened.
    pub message: String,
}

impl ExecuteError {
    /// The error for a run whose stored arguments nobody can read.
    pub fn unreadable_args() -> ExecuteError {
        let message = "the stored action_args are no JSON object".into();
        ExecuteError { kind: "ArgsUnreadable".into(), message }
    }
}

impl From<ExecuteError> for Execution {
    fn from(error: ExecuteError) -> Execution {
        Execution { exit_code: 1, detail: format!("{}: {}", error.kind, error.message) }
    }
}

/// Who ended a task. Only its own end is a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EndedBy {
    /// The task itself.
    Task,
    /// Somebody who cancelled it.
    Cancel,
    /// Its timeout.
    Timeout,
    /// Its fence: the lease is lost, or could not be renewed in time.
    Fence,
    /// Its worker, which was shut down.
    Stop,
}

impl EndedBy {
    /// The word that is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            EndedBy::Task => "task",
            EndedBy::Cancel => "cancel",
            EndedBy::Timeout => "timeout",
            EndedBy::Fence => "fence",
            EndedBy::Stop => "stop",
        }
    }
}

/// What a task used, and left behind.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// Whether it left a core.
    pub core_dumped: Option<bool>,
    /// Processor time in user mode, in seconds.
    pub user_seconds: Option<f64>,
    /// Processor time in the kernel, in seconds.
    pub system_seconds: Option<f64>,
    /// The most memory that one of its processes had, in KiB.
    pub max_rss_kib: Option<i64>,
    /// How many processes it left behind, which were killed.
    pub leftovers: Option<i32>,
}

/// The terminal change that an execution asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Ending {
    /// `completed` or `failed`.
    pub status: Status,
    /// Why.
    pub reason: Reason,
    /// The exit code to store.
    pub exit_code: i32,
    /// The whole detail of a failure; a success stores none.
    pub error_detail: Option<String>,
}

impl From<Execution> for Ending {
    fn from(execution: Execution) -> Ending {
        let Execution { exit_code, detail } = execution;
        if exit_code == 0 {
            let reason = Reason::new(ReasonCode::COMPLETED, "task execution completed");
            return Ending { status: Status::Completed, reason, exit_code, error_detail: None };
        }
        let detail = if detail.is_empty() { format!("exit code {exit_code}") } else { detail };
        Ending::failed(exit_code, storable(&detail))
    }
}

impl Ending {
    fn failed(exit_code: i32, detail: String) -> Ending {
        let summary: String = detail.chars().take(SUMMARY_CHARS).collect();
        let reason = Reason::new(ReasonCode::EXIT_NONZERO, summary);
        Ending { status: Status::Failed, reason, exit_code, error_detail: Some(detail) }
    }

    /// The same failure of a workflow, with the step that has failed before its words.
    ///
    /// ```
    /// use leasehold::domain::ending::{Ending, Execution};
    /// use leasehold::domain::workflow::Place;
    /// let ending = Ending::from(Execution { exit_code: 7, detail: String::new() });
    /// let ending = ending.at(&Place { step: 2, of: None, name: Some("build") });
    /// assert_eq!(ending.reason.summary, "step 2 \"build\": exit code 7");
    /// ```
    #[must_use]
    pub fn at(self, place: &Place<'_>) -> Ending {
        let words = self.error_detail.unwrap_or(self.reason.summary);
        Ending::failed(self.exit_code, format!("{place}: {words}"))
    }
}

impl Ending {
    /// The same, of a task that left processes behind: an exit code alone does not tell that.
    #[must_use]
    pub fn after(mut self, usage: &Usage) -> Ending {
        if let (Status::Completed, Some(words)) = (self.status, usage.leftovers_in_words()) {
            self.reason.summary = format!("exit code 0, but {words}");
        }
        self
    }

    /// The end of a task that has exited with code 0 and not left what it was to leave.
    pub fn unmet(unmet: &Unmet) -> Ending {
        let why = storable(&format!("exit code 0, but the contract is not met: {}", unmet.why));
        let summary: String = why.chars().take(SUMMARY_CHARS).collect();
        let detail = match unmet.detail.is_empty() {
            true => why,
            false => format!("{why}\n{}", storable(&unmet.detail)),
        };
        let reason = Reason::new(ReasonCode::CONTRACT_UNMET, summary);
        Ending { status: Status::Failed, reason, exit_code: 0, error_detail: Some(detail) }
    }
}

impl Usage {
    /// What it left behind, if it is known to have left anything.
    pub fn leftovers_in_words(&self) -> Option<String> {
        match self.leftovers? {
            ..=0 => None,
            1 => Some("a process of it was still running and was killed".into()),
            many => Some(format!("{many} processes of it were still running and were killed")),
        }
    }
}

/// `text` with every U+0000 replaced by U+FFFD: PostgreSQL's `text` cannot hold the former, and a run must not stay
/// `running` because of what it printed.
pub fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_success_drops_its_detail() {
        let ending = Ending::from(Execution { exit_code: 0, detail: "warning".into() });
        assert_eq!((ending.status, ending.error_detail), (Status::Completed, None));
    }

    #[test]
    fn a_failure_without_words_names_its_exit_code() {
        let ending = Ending::from(Execution { exit_code: -15, detail: String::new() });
        assert_eq!(ending.reason.summary, "exit code -15");
        assert_eq!(ending.exit_code, -15);
    }

    #[test]
    fn summaries_are_cut_at_500_characters_and_details_are_not() {
        let ending = Ending::from(Execution { exit_code: 1, detail: "é".repeat(600) });
        assert_eq!(ending.reason.summary, "é".repeat(500));
        assert_eq!(ending.error_detail, Some("é".repeat(600)));
    }

    #[test]
    fn a_success_that_left_processes_behind_says_so_and_a_failure_keeps_its_words() {
        let left = |leftovers| Usage { leftovers: Some(leftovers), ..Usage::default() };
        let summary = |execution: Execution, usage: &Usage| {
            Ending::from(execution).after(usage).reason.summary
        };
        assert_eq!(summary(Execution::OK, &left(0)), "task execution completed");
        assert_eq!(summary(Execution::OK, &Usage::default()), "task execution completed");
        let two = "exit code 0, but 2 processes of it were still running and were killed";
        assert_eq!(summary(Execution::OK, &left(2)), two);
        let failed = Execution { exit_code: 3, detail: "no".into() };
        assert_eq!(summary(failed, &left(2)), "no");
    }

    #[test]
    fn an_unmet_contract_is_a_failure_that_says_which_part() {
        let unmet = Unmet { why: "the file \"a\" is not there".into(), detail: "said\0".into() };
        let ending = Ending::unmet(&unmet);
        assert_eq!((ending.status, ending.exit_code), (Status::Failed, 0));
        let summary = "exit code 0, but the contract is not met: the file \"a\" is not there";
        assert_eq!(ending.reason.summary, summary);
        assert_eq!(ending.error_detail.unwrap(), format!("{summary}\nsaid\u{fffd}"));
    }

    #[test]
    fn nul_characters_become_replacement_characters() {
        let ending = Ending::from(Execution { exit_code: 1, detail: "a\0b".into() });
        assert_eq!(ending.reason.summary, "a\u{fffd}b");
    }
}
