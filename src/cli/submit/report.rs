//! What is said of many tasks: ids on standard output, what is refused on standard error, and there too how far it is.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use leasehold::Error;
use leasehold::domain::submission::SubmissionRefusal;
use leasehold::domain::task::SubmitRefusal;
use serde_json::json;

use super::explained;
use super::lines::Unreadable;
use crate::cli::failure::{self, Failure};
use crate::cli::harmless::harmless_json;
use crate::cli::out;

/// How often it is said how far it is.
const EVERY: Duration = Duration::from_millis(250);
/// Back to the beginning of a line that is then empty.
const CLEAR: &str = "\r\u{1b}[K";

/// Why a line is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    /// A stable name, for programs.
    pub code: &'static str,
    pub reason: String,
}

impl Refused {
    pub(super) fn new(code: &'static str, reason: impl ToString) -> Refused {
        Refused { code, reason: reason.to_string() }
    }
}

impl From<Unreadable> for Refused {
    fn from(unreadable: Unreadable) -> Refused {
        Refused::new("unreadable", unreadable)
    }
}

impl From<SubmissionRefusal> for Refused {
    fn from(refusal: SubmissionRefusal) -> Refused {
        match refusal {
            SubmissionRefusal::Task(refusal) => refusal.into(),
            other => Refused::new(other.code(), other),
        }
    }
}

impl From<SubmitRefusal> for Refused {
    fn from(refusal: SubmitRefusal) -> Refused {
        Refused::new(refusal.check(), explained(&refusal))
    }
}

impl From<&Error> for Refused {
    fn from(error: &Error) -> Refused {
        Refused::new(error.code(), error)
    }
}

#[derive(Debug)]
pub(super) struct Report {
    as_json: bool,
    /// What has not been written yet.
    text: String,
    stored: u64,
    refused: u64,
    is_terminal: bool,
    said: Instant,
}

impl Report {
    pub(super) fn new(as_json: bool) -> Report {
        Report {
            as_json,
            text: String::new(),
            stored: 0,
            refused: 0,
            is_terminal: stderr().is_terminal(),
            said: Instant::now(),
        }
    }

    /// The task of a line is stored.
    pub(super) fn stored(&mut self, line: u64, id: &str) {
        self.stored += 1;
        if self.as_json {
            self.json(&json!({ "line": line, "id": id }));
        } else {
            self.text.extend([id, "\n"]);
        }
    }

    /// The task of a line is not, and why.
    pub(super) fn refused(&mut self, line: u64, refused: &Refused) {
        self.refused += 1;
        self.clear();
        failure::say(&format!("line {line}: {}", refused.reason));
        self.withheld(line, refused);
    }

    /// The task of a line is not, for no fault of its own.
    pub(super) fn withheld(&mut self, line: u64, refused: &Refused) {
        if self.as_json {
            self.json(&json!({ "line": line, "error": refused.reason, "code": refused.code }));
        }
    }

    fn json(&mut self, value: &serde_json::Value) {
        self.text.extend([harmless_json(&value.to_string()).as_str(), "\n"]);
    }

    /// Writes what has come together.
    pub(super) fn write(&mut self) -> Result<(), Failure> {
        let text = std::mem::take(&mut self.text);
        out::write(&text).map_err(|error| {
            self.clear();
            Failure::Refused(format!(
                "tasks are stored whose ids cannot be written: {error}; nothing after them was submitted"
            ))
        })
    }

    /// Says how far it is, to somebody who is looking, from time to time.
    pub(super) fn progress(&mut self, line: u64) {
        if self.is_terminal && self.said.elapsed() >= EVERY {
            self.said = Instant::now();
            let Report { stored, refused, .. } = self;
            let _ = write!(stderr(), "{CLEAR}line {line}: {stored} stored, {refused} refused");
        }
    }

    pub(super) fn clear(&self) {
        if self.is_terminal {
            let _ = write!(stderr(), "{CLEAR}");
        }
    }

    /// Writes the rest, and says how it ended.
    pub(super) fn end(mut self, none_is_stored: bool) -> Result<(), Failure> {
        self.write()?;
        self.clear();
        let (refused, all) = (self.refused, self.refused + self.stored);
        match (refused, none_is_stored) {
            (0, _) => Ok(()),
            (_, true) => Err(Failure::Refused(format!(
                "tasks are refused: {refused}; so none is stored, as --atomic asks"
            ))),
            (_, false) => Err(Failure::Refused(format!(
                "tasks are refused: {refused} of {all}; the others are stored"
            ))),
        }
    }
}
