//! The argv of each kind.
//!
//! | kind | argv after the executable |
//! |---|---|
//! | `agent` | `agent [--agent A] [--project J] -- [MODEL] PROMPT extra…` |
//! | `flow`, `fanout` | `o flow\|fanout [--project J] -- MODEL PROMPT extra…` |
//! | `play` | `play [NAME [--key value]… [PROMPT]] extra…` |
//! | `flow_yaml` | `o flow -f FILE [--project J] --` |
//! | `engine` | `engine run [--model M] [--max-depth n] [--max-agents n] [--test-cmd s] [--export-dir s] -- KIND SPEC` |
//! | `command` | the command itself, without the executable, and its arguments |
//!
//! ADR-0071 names the launcher that these shapes belong to and leaves their details to it.

use serde_json::{Map, Value};

use super::argv::Argv;
use super::check::{
    Checked, EngineOptions, LaunchKind, Own, option_of, rendered_args, rendered_prompt,
    stored_fields,
};
use super::error::LaunchError;
use super::fields::Fields;
use super::flow_yaml::with_model;
use super::text::python_str;
use crate::domain::allow::AllowList;

/// What a launch needs besides the task.
#[derive(Debug, Clone, Copy)]
pub struct LaunchContext<'a> {
    /// How `li` is started: an absolute path, or an interpreter and its arguments
    /// ([`find_li`](super::find_li)). Unused, and may be empty, for kinds that do not run `li`
    /// ([`needs_li`]).
    pub executable_prefix: &'a [String],
    /// The commands the kind `command` may start, as allowed now: the list is asked at each launch,
    /// whatever it said when the task was submitted.
    pub allow_commands: &'a AllowList,
    /// Where placeholders get their values; empty for a task that no trigger started.
    pub trigger: &'a Map<String, Value>,
}

/// Whether this kind runs `li`, so that its executable must be found first. True for an unknown
/// kind, which [`build_argv`] refuses anyway.
pub fn needs_li(kind: &str) -> bool {
    kind != "command"
}

/// Builds the argv of a task from its kind and its `action_args`.
///
/// The kind is the run's own. A key `action_kind` inside `args` means nothing: it must not make a
/// run of one kind start as another.
///
/// ```
/// use leasehold::launch::{AllowList, Argv, LaunchContext, build_argv};
/// use serde_json::{Map, json};
///
/// let args = json!({"action_model": "m", "action_prompt": "ping"});
/// let prefix = ["/opt/li".to_owned()];
/// let context = LaunchContext {
///     executable_prefix: &prefix,
///     allow_commands: &AllowList::default(),
///     trigger: &Map::new(),
/// };
/// let argv = build_argv("agent", args.as_object().unwrap(), &context)?;
/// assert_eq!(argv, Argv::from_iter(["/opt/li", "agent", "--", "m", "ping"]));
/// # Ok::<(), leasehold::launch::LaunchError>(())
/// ```
///
/// # Errors
/// The first rule the task breaks, in a fixed order: what is stored is checked before what is
/// rendered. [`Argv::check_exec`] says, separately, whether the kernel would take the result.
pub fn build_argv(
    kind: &str,
    args: &Map<String, Value>,
    context: &LaunchContext<'_>,
) -> Result<Argv, LaunchError> {
    let kind = LaunchKind::parse(kind)?;
    let fields = Fields(args);
    let task = stored_fields(kind, fields, context.allow_commands)?;
    let prompt = rendered_prompt(kind, fields, context.trigger)?;
    if let Own::Command { name, args } = task.own {
        let mut argv = Argv::from_iter([name]);
        argv.extend(rendered_args(args, context.trigger)?);
        return Ok(argv);
    }
    if context.executable_prefix.is_empty() {
        return Err(LaunchError::ExecutableMissing);
    }
    let mut argv: Argv = context.executable_prefix.iter().cloned().collect();
    match &task.own {
        Own::Agent => agent(&mut argv, &task, prompt),
        Own::Flow => orchestrate(&mut argv, "flow", &task, prompt),
        Own::Fanout => orchestrate(&mut argv, "fanout", &task, prompt),
        Own::Play { args } => play(&mut argv, &task, *args, prompt),
        Own::FlowYaml => flow_file(&mut argv, &task, fields)?,
        Own::Engine { name, options } => engine(&mut argv, task.model, name, options, prompt),
        Own::Command { .. } => {}
    }
    Ok(argv)
}

/// The model is left out if there is none, so that `li` takes the agent profile's.
fn agent(argv: &mut Argv, task: &Checked<'_>, prompt: String) {
    argv.push("agent");
    push_option(argv, "--agent", task.agent);
    push_option(argv, "--project", task.project);
    argv.push("--");
    argv.extend(task.model);
    argv.push(prompt);
    argv.extend(&task.extra);
}

/// Both positionals are always there, empty ones too.
fn orchestrate(argv: &mut Argv, pattern: &str, task: &Checked<'_>, prompt: String) {
    argv.extend(["o", pattern]);
    push_option(argv, "--project", task.project);
    argv.push("--");
    argv.push(task.model.unwrap_or_default());
    argv.push(prompt);
    argv.extend(&task.extra);
}

/// Without a playbook there is nothing that could take arguments or a prompt.
fn play(argv: &mut Argv, task: &Checked<'_>, args: Option<&Map<String, Value>>, prompt: String) {
    argv.push("play");
    if let Some(playbook) = task.playbook {
        argv.push(playbook);
        for (key, value) in args.into_iter().flatten() {
            match value {
                Value::Bool(true) => argv.push(option_of(key)),
                Value::Bool(false) => {}
                other => argv.extend([option_of(key), python_str(other)]),
            }
        }
        argv.extend((!prompt.is_empty()).then_some(prompt));
    }
    argv.extend(&task.extra);
}

/// A model is written into the file: beside `-f`, `li` would read a lone positional as the prompt.
fn flow_file(argv: &mut Argv, task: &Checked<'_>, fields: Fields<'_>) -> Result<(), LaunchError> {
    let text = fields.text("action_flow_yaml")?.unwrap_or_default();
    let contents = match task.model {
        Some(model) => with_model(text, model)?,
        None => text.to_owned(),
    };
    argv.extend(["o", "flow", "-f"]);
    argv.push_yaml_file(contents);
    push_option(argv, "--project", task.project);
    argv.push("--");
    Ok(())
}

fn engine(
    argv: &mut Argv,
    model: Option<&str>,
    name: &str,
    options: &EngineOptions<'_>,
    prompt: String,
) {
    argv.extend(["engine", "run"]);
    push_option(argv, "--model", model);
    push_option(argv, "--max-depth", options.max_depth);
    push_option(argv, "--max-agents", options.max_agents);
    push_option(argv, "--test-cmd", options.test_cmd);
    push_option(argv, "--export-dir", options.export_dir);
    argv.extend(["--", name]);
    argv.push(prompt);
}

fn push_option(argv: &mut Argv, option: &str, value: Option<&str>) {
    if let Some(value) = value {
        argv.extend([option, value]);
    }
}

#[cfg(test)]
mod tests;
