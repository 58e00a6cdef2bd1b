//! Why a submission is refused.

use serde_json::Value;
use thiserror::Error;

use super::{
    ACTION_KINDS, COMMAND, EXECUTION_TARGETS, PLAY_ALIAS, Place, Step, SubmitRules, workflow,
};
use crate::domain::allow::AllowList;
use crate::domain::json_text::MAX_DEPTH;
use crate::domain::payload::LONGEST_KEY;
use crate::domain::workflow::PlanRefusal;

/// The rule of ADR-0071 D1 that a submission breaks. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SubmitRefusal {
    /// A key was given, and would promise a deduplication that does not happen.
    #[error(
        "idempotency_key is not supported here: a repeated submit would insert a second task; leave the key out"
    )]
    IdempotencyKey,
    /// The key has not the form of one.
    #[error(
        "an idempotency key has 1 to {LONGEST_KEY} visible characters and no spaces: {problem}"
    )]
    KeyForm {
        /// What is wrong with it.
        problem: String,
    },
    /// The kind is none that is accepted.
    #[error("unknown action_kind {given}: use one of {known} ('{PLAY_ALIAS}' means 'play')")]
    ActionKind {
        /// The value, quoted.
        given: String,
        /// The accepted names, sorted and quoted.
        known: String,
    },
    /// The target is none of the five.
    #[error("unknown execution_target {given}: use one of {known}")]
    ExecutionTarget {
        /// The value, quoted.
        given: String,
        /// The five names, sorted and quoted.
        known: String,
    },
    /// The capabilities are not a list of non-empty strings.
    #[error("required_capabilities must be a list of non-empty strings, not {given}")]
    RequiredCapabilities {
        /// The value.
        given: String,
    },
    /// The arguments are not an object.
    #[error("args must be a dict (a JSON object), not {given}")]
    Args {
        /// What they are instead.
        given: &'static str,
    },
    /// The text is not strict JSON.
    #[error(
        "args are not valid JSON ({problem}); Out of range float values are not JSON compliant, so NaN and infinities are refused"
    )]
    NotJson {
        /// The parser's words.
        problem: String,
    },
    /// A number is larger than any double.
    #[error(
        "args hold the number {number}: Out of range float values are not JSON compliant; send it as a string"
    )]
    NumberOutOfRange {
        /// The number as it was given.
        number: String,
    },
    /// The arguments nest deeper than anybody could read again.
    #[error(
        "args nest deeper than {MAX_DEPTH} levels: make them flatter, or send a part as a string"
    )]
    TooDeep,
    /// The command is not on the operator's list.
    #[error(
        "the command {given} is not allowed: allow it with --allow-command, or use one of {known}"
    )]
    CommandNotAllowed {
        /// The value, quoted.
        given: String,
        /// The listed names, sorted and quoted.
        known: String,
    },
    /// The arguments of a workflow are no plan.
    #[error(transparent)]
    Plan(#[from] PlanRefusal),
    /// A step of a workflow would be refused by itself.
    #[error("{place}: {refusal}")]
    Step {
        /// Which step.
        place: String,
        /// Why.
        refusal: Box<SubmitRefusal>,
    },
    /// A field that is stored as text holds U+0000.
    #[error("{field} holds the character U+0000, which no store can keep there: leave it out")]
    Nul {
        /// The field.
        field: &'static str,
    },
    /// A field of a JSON submission is no string.
    #[error("{field} must be a string or null, not {given}")]
    NotText {
        /// The field.
        field: &'static str,
        /// What it is instead.
        given: &'static str,
    },
    /// A JSON submission has a field that no task has.
    #[error("unknown field {field}: a task has {known}")]
    UnknownField {
        /// The field, quoted.
        field: String,
        /// The fields there are.
        known: &'static str,
    },
}

impl SubmitRefusal {
    /// A stable name of the broken rule, for programs.
    pub fn check(&self) -> &'static str {
        match self {
            SubmitRefusal::IdempotencyKey | SubmitRefusal::KeyForm { .. } => "idempotency_key",
            SubmitRefusal::ActionKind { .. } => "action_kind",
            SubmitRefusal::ExecutionTarget { .. } => "execution_target",
            SubmitRefusal::RequiredCapabilities { .. } => "required_capabilities",
            SubmitRefusal::Args { .. } => "args",
            SubmitRefusal::NotJson { .. }
            | SubmitRefusal::NumberOutOfRange { .. }
            | SubmitRefusal::TooDeep => "args_not_json",
            SubmitRefusal::CommandNotAllowed { .. } => "command_not_allowlisted",
            SubmitRefusal::Plan(_) => "workflow_plan",
            SubmitRefusal::Step { refusal, .. } => refusal.check(),
            SubmitRefusal::Nul { .. } => "nul",
            SubmitRefusal::NotText { .. } => "not_text",
            SubmitRefusal::UnknownField { .. } => "unknown_field",
        }
    }

    pub(super) fn in_step(self, index: usize, step: &Step) -> SubmitRefusal {
        let place = Place { step: workflow::number(index), of: None, name: step.name.as_deref() };
        SubmitRefusal::Step { place: place.to_string(), refusal: Box::new(self) }
    }

    pub(super) fn kind(given: &str, rules: &SubmitRules) -> SubmitRefusal {
        SubmitRefusal::kind_literal(quoted(given), rules)
    }

    pub(super) fn kind_literal(given: String, rules: &SubmitRules) -> SubmitRefusal {
        let command = (!rules.allow_commands.is_empty()).then_some(COMMAND);
        let own = rules.own_kinds.iter().map(String::as_str);
        let mut names: Vec<_> =
            ACTION_KINDS.into_iter().chain(command).chain([PLAY_ALIAS]).chain(own).collect();
        names.sort_unstable();
        SubmitRefusal::ActionKind { given, known: quoted_list(names) }
    }

    pub(super) fn target(given: &str) -> SubmitRefusal {
        SubmitRefusal::target_literal(quoted(given))
    }

    pub(super) fn target_literal(given: String) -> SubmitRefusal {
        SubmitRefusal::ExecutionTarget { given, known: quoted_list(EXECUTION_TARGETS) }
    }

    pub(super) fn capabilities(given: &[String]) -> SubmitRefusal {
        let given = quoted_list(given.iter().map(String::as_str));
        SubmitRefusal::RequiredCapabilities { given: format!("[{given}]") }
    }

    pub(in crate::domain) fn command(given: &str, allow: &AllowList) -> SubmitRefusal {
        SubmitRefusal::CommandNotAllowed { given: quoted(given), known: quoted_list(allow.names()) }
    }
}

/// What a JSON value is called in a sentence.
pub(in crate::domain) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// A value as Python would show it, since its users know these messages: `'text'`, `None`, `True`.
pub(in crate::domain) fn literal(value: &Value) -> String {
    match value {
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::String(text) => quoted(text),
        other => other.to_string(),
    }
}

/// `text` in single quotes, on one line whatever it holds.
fn quoted(text: &str) -> String {
    let mut out = String::from("'");
    for c in text.chars() {
        match c {
            '\'' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out.push('\'');
    out
}

fn quoted_list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(quoted).collect::<Vec<_>>().join(", ")
}
