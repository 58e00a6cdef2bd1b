//! A task as somebody submits it, and what is left to insert once it has been checked (ADR-0071 D1).

mod door;
mod refusal;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde_json::{Map, Value};

pub use refusal::SubmitRefusal;
pub(super) use refusal::{literal, type_name};

use super::allow::AllowList;
use super::capability::CapabilityClasses;
use super::payload::IdempotencyKey;
use super::workflow::{self, Place, Step};

/// The kinds of action that ADR-0071 accepts. `command` exists too, once the operator allows a command.
pub const ACTION_KINDS: [&str; 7] =
    ["agent", "engine", "fanout", "flow", "flow_yaml", "play", "workflow"];
/// The kind that runs an allow-listed program.
pub const COMMAND: &str = "command";
/// The kind whose tasks are steps of other kinds, one after another.
pub const WORKFLOW: &str = "workflow";
/// Another name for the kind `play`, accepted at submission only.
pub const PLAY_ALIAS: &str = "playbook";
/// Where a task may ask to be executed.
pub const EXECUTION_TARGETS: [&str; 5] =
    ["daytona", "host", "local_worktree", "process", "remote_agent"];

/// A task as it is submitted. Nothing changes it: an alias is resolved in the [`TaskSpec`] made from it.
///
/// ```
/// use leasehold::domain::task::TaskApplication;
/// let mut app = TaskApplication::new("agent", "host");
/// app.args.insert("action_prompt".into(), "say hi".into());
/// assert!(app.required_capabilities.is_empty());
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct TaskApplication {
    /// The kind of action, or the alias `playbook`.
    pub action_kind: String,
    /// The action's arguments. What they must hold is checked when the task is launched.
    pub args: Map<String, Value>,
    /// Where it should be executed.
    pub execution_target: String,
    /// Tokens that route the task; duplicates are kept.
    pub required_capabilities: Vec<String>,
    /// Where the definition came from; stored as given.
    pub library_ref: Option<String>,
    /// The hash of that definition; stored as given.
    pub library_content_hash: Option<String>,
    /// A repeated submit of the same task with the same key answers the task there is. Refused unless
    /// [`SubmitRules::idempotency`] is on.
    pub idempotency_key: Option<String>,
}

impl TaskApplication {
    /// An application with no arguments, capabilities or provenance.
    pub fn new(action_kind: impl Into<String>, execution_target: impl Into<String>) -> Self {
        TaskApplication {
            action_kind: action_kind.into(),
            args: Map::new(),
            execution_target: execution_target.into(),
            required_capabilities: Vec::new(),
            library_ref: None,
            library_content_hash: None,
            idempotency_key: None,
        }
    }
}

/// What a submission is checked against.
#[derive(Debug, Clone)]
pub struct SubmitRules {
    /// The host named in concurrency keys.
    pub key_host: String,
    /// What each capability token means.
    pub classes: CapabilityClasses,
    /// The commands that may be submitted.
    pub allow_commands: AllowList,
    /// Whether a task may have an idempotency key.
    pub idempotency: bool,
    /// Kinds of the host's own that are accepted too.
    pub own_kinds: BTreeSet<String>,
    /// Whether the plan of a workflow is checked. Otherwise one that is none fails when it is launched.
    pub plans: bool,
}

/// A checked task: every field can be inserted as it is.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskSpec {
    /// The canonical kind.
    pub action_kind: String,
    /// The arguments.
    pub args: Map<String, Value>,
    /// One of [`EXECUTION_TARGETS`].
    pub execution_target: String,
    /// Non-empty tokens, in the order given.
    pub required_capabilities: Vec<String>,
    /// The key that keeps tasks with serialization tokens apart on their host.
    pub concurrency_key: Option<String>,
    /// Stored as given.
    pub library_ref: Option<String>,
    /// Stored as given.
    pub library_content_hash: Option<String>,
    /// Stands for this task, for good.
    pub idempotency_key: Option<IdempotencyKey>,
}

impl TaskSpec {
    /// Checks an application, in the order of ADR-0071 D1: key, kind, target, capabilities, arguments.
    ///
    /// # Errors
    /// The first rule that does not hold. Nothing has been written then.
    pub fn check(app: &TaskApplication, rules: &SubmitRules) -> Result<TaskSpec, SubmitRefusal> {
        let idempotency_key = match &app.idempotency_key {
            None => None,
            Some(_) if !rules.idempotency => return Err(SubmitRefusal::IdempotencyKey),
            Some(key) => Some(IdempotencyKey::check(key)?),
        };
        let action_kind = canonical_kind(&app.action_kind, rules)?;
        let execution_target = known_target(&app.execution_target)?;
        if app.required_capabilities.iter().any(String::is_empty) {
            return Err(SubmitRefusal::capabilities(&app.required_capabilities));
        }
        if super::json_text::too_deep(&app.args) {
            return Err(SubmitRefusal::TooDeep);
        }
        if let Some(number) = super::json_text::number_out_of_range_in(&app.args) {
            return Err(SubmitRefusal::NumberOutOfRange { number });
        }
        if action_kind == COMMAND {
            permitted_command(&app.args, &rules.allow_commands)?;
        }
        if action_kind == WORKFLOW && rules.plans {
            for (index, step) in workflow::plan(&app.args)?.iter().enumerate() {
                check_step(step, rules).map_err(|refusal| refusal.in_step(index, step))?;
            }
        }
        refuse_nul(app)?;
        Ok(TaskSpec {
            concurrency_key: rules
                .classes
                .concurrency_key(&rules.key_host, &app.required_capabilities),
            action_kind,
            execution_target,
            args: app.args.clone(),
            required_capabilities: app.required_capabilities.clone(),
            library_ref: app.library_ref.clone(),
            library_content_hash: app.library_content_hash.clone(),
            idempotency_key,
        })
    }
}

fn canonical_kind(kind: &str, rules: &SubmitRules) -> Result<String, SubmitRefusal> {
    match kind {
        PLAY_ALIAS => Ok("play".into()),
        COMMAND if !rules.allow_commands.is_empty() => Ok(COMMAND.into()),
        known if ACTION_KINDS.contains(&known) || rules.own_kinds.contains(known) => {
            Ok(known.into())
        }
        unknown => Err(SubmitRefusal::kind(unknown, rules)),
    }
}

/// A step is accepted as the task that it would be by itself.
fn check_step(step: &Step, rules: &SubmitRules) -> Result<(), SubmitRefusal> {
    match canonical_kind(&step.kind, rules)?.as_str() {
        COMMAND => permitted_command(&step.args, &rules.allow_commands),
        _ => Ok(()),
    }
}

fn known_target(target: &str) -> Result<String, SubmitRefusal> {
    let known = EXECUTION_TARGETS.contains(&target);
    if known { Ok(target.into()) } else { Err(SubmitRefusal::target(target)) }
}

fn permitted_command(args: &Map<String, Value>, allow: &AllowList) -> Result<(), SubmitRefusal> {
    let name = args.get("action_command").and_then(Value::as_str).unwrap_or_default();
    if allow.allows(name) { Ok(()) } else { Err(SubmitRefusal::command(name, allow)) }
}

/// U+0000 is accepted inside the arguments, where JSON escapes it; PostgreSQL's `text` cannot hold it anywhere else.
fn refuse_nul(app: &TaskApplication) -> Result<(), SubmitRefusal> {
    let fields = app
        .required_capabilities
        .iter()
        .map(|token| ("required_capabilities", token))
        .chain(app.library_ref.iter().map(|text| ("library_ref", text)))
        .chain(app.library_content_hash.iter().map(|text| ("library_content_hash", text)));
    match fields.into_iter().find(|(_, text)| text.contains('\0')) {
        Some((field, _)) => Err(SubmitRefusal::Nul { field }),
        None => Ok(()),
    }
}
