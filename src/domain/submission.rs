//! A task with everything that it is submitted with, and its JSON door.
//!
//! The door takes what [`TaskApplication::from_json_text`] takes, and beside it the settings of the run, named as the
//! options of `leasehold submit` with `_` for `-`: `timeout`, `grace`, `cwd`, `env`, `stdin`, `after`, `expires`,
//! `priority`, `max_failures`, `backoff`, `backoff_cap`, `retry_on`, `final`, `nofile`, `as`, `cpu`, `notify`,
//! `notify_attempts`, `notify_within`. Lengths of time are texts such as `"90s"` or numbers of seconds; `after` and `expires` are texts: a time, or a length from now on;
//! ends are exit codes or names of signals; `as` is a number of bytes, or a text such as `"4G"`; `stdin` is the text
//! that the task reads. An `execution_target` that is left out is `host`, and `args` are none.

mod fields;

use serde_json::Value;
use thiserror::Error;

use super::json_text;
use super::settings::{RunSettings, SettingsRefusal};
use super::task::{SubmitRefusal, SubmitRules, TaskApplication, type_name};
use fields::Fields;

/// Where a task is executed that does not say so.
const DEFAULT_TARGET: &str = "host";

/// A task, the settings of its run, and what it reads from its standard input.
///
/// ```
/// use leasehold::domain::submission::Submission;
/// use leasehold::domain::task::TaskApplication;
/// let plain: Submission = TaskApplication::new("agent", "host").into();
/// assert!(plain.settings.is_empty());
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Submission {
    /// The task.
    pub app: TaskApplication,
    /// What its run starts with.
    pub settings: RunSettings,
    /// What it reads; absent means nothing.
    pub stdin: Option<Vec<u8>>,
}

impl From<TaskApplication> for Submission {
    fn from(app: TaskApplication) -> Submission {
        Submission { app, settings: RunSettings::default(), stdin: None }
    }
}

/// Why JSON text is no task that can be submitted. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SubmissionRefusal {
    /// The text is not strict JSON, holds more than one value, or an object that has a member twice.
    #[error("it is not valid JSON: {problem}")]
    NotJson {
        /// The parser's words.
        problem: String,
    },
    /// The text is JSON, but no object.
    #[error("a task is a JSON object, not {given}")]
    NoObject {
        /// What it is instead.
        given: &'static str,
    },
    /// A setting has not the form of one.
    #[error("{field} cannot be {given}: {rule}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value, or what it is.
        given: String,
        /// What to give instead.
        rule: String,
    },
    /// The task breaks a rule.
    #[error(transparent)]
    Task(#[from] SubmitRefusal),
    /// A worker could not follow the settings.
    #[error(transparent)]
    Settings(#[from] SettingsRefusal),
}

impl SubmissionRefusal {
    /// A stable name of what is wrong, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            SubmissionRefusal::NotJson { .. } => "not_json",
            SubmissionRefusal::NoObject { .. } => "not_an_object",
            SubmissionRefusal::Field { field, .. } => field,
            SubmissionRefusal::Task(refusal) => refusal.check(),
            SubmissionRefusal::Settings(refusal) => refusal.setting,
        }
    }
}

impl Submission {
    /// Reads a task with its settings from JSON text. Lengths from now on count from `now`, in seconds since the epoch.
    ///
    /// # Errors
    /// The first thing that is wrong, with what to give instead. What [`TaskSpec::check`](super::task::TaskSpec::check)
    /// refuses beside the form is refused when the task is submitted.
    ///
    /// ```
    /// use leasehold::Config;
    /// use leasehold::domain::submission::Submission;
    /// let rules = Config::daemon().submit_rules();
    /// let text = r#"{"action_kind": "agent", "args": {"action_prompt": "hi"}, "timeout": "2h", "idempotency_key": "k"}"#;
    /// let task = Submission::from_json_text(text, &rules, 0.0).unwrap();
    /// assert_eq!((task.settings.timeout, task.app.execution_target.as_str()), (Some(7200.0), "host"));
    /// ```
    pub fn from_json_text(
        text: &str,
        rules: &SubmitRules,
        now: f64,
    ) -> Result<Submission, SubmissionRefusal> {
        let not_json = |error| SubmissionRefusal::NotJson { problem: problem_of(&error) };
        json_text::refuse_repeated_members(text).map_err(not_json)?;
        let members = match json_text::parse(text).map_err(not_json)? {
            Value::Object(members) => members,
            other => return Err(SubmissionRefusal::NoObject { given: type_name(&other) }),
        };
        let mut fields = Fields::new(members)?;
        let (settings, stdin) = (fields.settings(now)?, fields.text("stdin")?);
        let mut task = fields.rest();
        task.entry("execution_target").or_insert_with(|| DEFAULT_TARGET.into());
        task.entry("args").or_insert_with(|| Value::Object(serde_json::Map::new()));
        let app = TaskApplication::from_json(Value::Object(task), rules)?;
        settings.check()?;
        Ok(Submission { app, settings, stdin: stdin.map(String::into_bytes) })
    }
}

/// The parser's words. It counts lines of its own, which are none of the file that a text is a line of.
fn problem_of(error: &serde_json::Error) -> String {
    let words = error.to_string();
    match words.rfind(" at line 1 column ") {
        Some(end) => format!("{} at byte {}", &words[..end], error.column()),
        None => words,
    }
}

#[cfg(test)]
mod tests;
