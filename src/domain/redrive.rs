//! A task that has ended is submitted again: what the new one takes over from the old one, and what keeps it from being
//! made. (Queues call that a redrive.)

use serde_json::{Map, Value};
use thiserror::Error;

use super::claim_plan::required_tokens;
use super::json_text;
use super::settings::{RunSettings, When};
use super::status::Status;
use super::task::TaskApplication;

/// A task as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredTask {
    /// Its id.
    pub id: String,
    /// Its status, as the word that is stored.
    pub status: String,
    /// Whether a schedule has made it.
    pub is_scheduled: bool,
    /// Its kind.
    pub action_kind: String,
    /// Its arguments, as JSON text.
    pub action_args: String,
    /// Where it was to be executed; absent means anywhere.
    pub execution_target: Option<String>,
    /// The tokens that it needs, as JSON text.
    pub required_capabilities: Option<String>,
    /// Where its definition came from.
    pub library_ref: Option<String>,
    /// The hash of that definition.
    pub library_content_hash: Option<String>,
    /// What its run starts with; the text itself when this version cannot read it.
    pub settings: Result<RunSettings, String>,
}

/// What is new about the new task.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NewTry {
    /// An idempotency key: the old task keeps its own. With it, the same retry again answers the task there is.
    pub key: Option<String>,
    /// When it is to be started, when it is not worth starting any more, and its priority. None of it is taken over.
    pub when: When,
}

/// Why a task cannot be submitted again. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RedriveRefusal {
    /// It has not ended.
    #[error(
        "the task {id} is {status}: only a task that has ended can be submitted again; wait for its end, or cancel it first"
    )]
    NotEnded {
        /// The task.
        id: String,
        /// Its status.
        status: String,
    },
    /// A schedule has made it.
    #[error(
        "the task {id} was made by a schedule, which makes the next one itself: submit a task of your own instead"
    )]
    Scheduled {
        /// The task.
        id: String,
    },
    /// Another program has stored what nobody can read.
    #[error("the task {id} cannot be submitted again: {what}; submit a new one instead")]
    Unreadable {
        /// The task.
        id: String,
        /// What is wrong.
        what: &'static str,
    },
}

impl RedriveRefusal {
    /// A stable name, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            RedriveRefusal::NotEnded { .. } => "not_ended",
            RedriveRefusal::Scheduled { .. } => "scheduled",
            RedriveRefusal::Unreadable { .. } => "unreadable",
        }
    }
}

/// The task that is submitted from an ended one, and what its run starts with: the same kind, arguments, needs, target,
/// origin and settings. It has yet to be checked like any other.
///
/// # Errors
/// The task has not ended, belongs to a schedule, or cannot be read.
pub fn again(
    task: StoredTask,
    new: &NewTry,
) -> Result<(TaskApplication, RunSettings), RedriveRefusal> {
    let StoredTask { id, status, .. } = task;
    if !Status::parse(&status).is_some_and(Status::is_terminal) {
        return Err(RedriveRefusal::NotEnded { id, status });
    }
    if task.is_scheduled {
        return Err(RedriveRefusal::Scheduled { id });
    }
    let unreadable = |what| RedriveRefusal::Unreadable { id: id.clone(), what };
    let args = match task.action_args.as_str() {
        "" => Map::new(),
        text => match json_text::parse(text) {
            Ok(Value::Object(args)) => args,
            _ => return Err(unreadable("its stored arguments are no JSON object")),
        },
    };
    let required_capabilities = required_tokens(task.required_capabilities.as_deref())
        .ok_or_else(|| unreadable("the tokens that it needs cannot be read"))?;
    let execution_target = task
        .execution_target
        .filter(|target| !target.is_empty())
        .ok_or_else(|| unreadable("it has no execution target"))?;
    let settings =
        task.settings.map_err(|_| unreadable("a later version has written its settings"))?;
    let app = TaskApplication {
        action_kind: task.action_kind,
        args,
        execution_target,
        required_capabilities,
        library_ref: task.library_ref,
        library_content_hash: task.library_content_hash,
        idempotency_key: new.key.clone(),
    };
    Ok((app, RunSettings { when: new.when, ..settings }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> StoredTask {
        StoredTask {
            id: "r1".into(),
            status: "failed".into(),
            is_scheduled: false,
            action_kind: "agent".into(),
            action_args: r#"{"b": 1.50, "a": "x"}"#.into(),
            execution_target: Some("host".into()),
            required_capabilities: Some(r#"["t", "t"]"#.into()),
            library_ref: Some("ref".into()),
            library_content_hash: Some("hash".into()),
            settings: Ok(RunSettings { timeout: Some(5.0), ..RunSettings::default() }),
        }
    }

    #[test]
    fn the_new_task_is_the_old_one_with_another_key_and_time() {
        let when = When { expires: Some(9.0), priority: 3, ..When::default() };
        let new = NewTry { key: Some("k".into()), when };
        let (app, settings) = again(stored(), &new).unwrap();
        assert_eq!(json_text::object(&app.args), stored().action_args);
        assert_eq!(app.required_capabilities, ["t", "t"], "duplicates too");
        assert_eq!((app.action_kind.as_str(), app.execution_target.as_str()), ("agent", "host"));
        let origin = (app.library_ref.as_deref(), app.library_content_hash.as_deref());
        assert_eq!(origin, (Some("ref"), Some("hash")));
        assert_eq!(app.idempotency_key.as_deref(), Some("k"));
        assert_eq!(settings, RunSettings { timeout: Some(5.0), when, ..RunSettings::default() });
    }

    #[test]
    fn what_has_not_ended_or_is_not_ours_is_refused() {
        for status in Status::ALL {
            let task = StoredTask { status: status.as_str().into(), ..stored() };
            let done = again(task, &NewTry::default());
            assert_eq!(done.is_ok(), status.is_terminal(), "{status}");
        }
        let code = |task| again(task, &NewTry::default()).unwrap_err().code();
        assert_eq!(code(StoredTask { status: "asleep".into(), ..stored() }), "not_ended");
        assert_eq!(code(StoredTask { is_scheduled: true, ..stored() }), "scheduled");
        for unreadable in [
            StoredTask { action_args: "[]".into(), ..stored() },
            StoredTask { action_args: "{".into(), ..stored() },
            StoredTask { required_capabilities: Some("3".into()), ..stored() },
            StoredTask { execution_target: None, ..stored() },
            StoredTask { settings: Err("{}".into()), ..stored() },
        ] {
            assert_eq!(code(unreadable.clone()), "unreadable", "{unreadable:?}");
        }
    }
}
