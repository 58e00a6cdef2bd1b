//! A claimed run becomes a child process: [`launch`](crate::launch) says which argv,
//! [`process`](crate::process) runs it.

mod adapter;
pub mod artifact;
#[cfg(target_os = "linux")]
mod runner;
mod workflow;

use std::ffi::{OsStr, OsString};

pub(crate) use adapter::AnyAdapter;
pub use adapter::{Adapter, AdapterTask, Adapters};
#[cfg(target_os = "linux")]
pub(crate) use runner::runner_entry;
use serde_json::{Map, Value};
pub(crate) use workflow::{Launching, Workflows};

use crate::domain::allow::AllowList;
use crate::domain::ending::{ExecuteError, Execution};
use crate::domain::json_text;
use crate::domain::run::ClaimedRun;
use crate::launch::{
    Argument, Argv, LaunchContext, LaunchError, LiSearch, build_argv, find_li, needs_li,
};
use crate::process::direct::run_to_end;
use crate::process::{Inherit, RunIdentity, SpawnError, TaskCommand, TempFile};

/// Where the original's own state is, which its `li` needs and an allow-listed command must not see.
const STATE_URL: &str = "LIONAGI_STATE_DB_URL";

/// What running tasks as processes takes.
#[derive(Debug, Clone, Default)]
pub struct LaunchSettings {
    /// The commands that tasks of kind `command` may run; asked again at each launch.
    pub allow_commands: AllowList,
    /// Where `li` is looked for, at each launch.
    pub li: LiSearch,
    /// Which variables of this process a task inherits.
    pub inherit: Inherit,
    /// Variables added to a task's environment.
    pub env: Vec<(OsString, OsString)>,
    /// How kinds of the host's own are run.
    pub adapters: Adapters,
}

/// The command of a claimed run.
///
/// # Errors
/// An [`ExecuteError`] when `li` cannot be found, or when the arguments make no argv: the run then fails with these
/// words.
pub fn command_for(
    run: &ClaimedRun,
    invocation_id: String,
    settings: &LaunchSettings,
) -> Result<TaskCommand, ExecuteError> {
    let program = program_for(&run.action_kind, &run.action_args, settings)?;
    let identity =
        RunIdentity { run_id: run.id.clone(), epoch: i64::from(run.lease_attempts), invocation_id };
    let inherit = settings.inherit.clone();
    Ok(TaskCommand { identity, inherit, ..program })
}

/// What a task of this kind becomes, whoever's it is: argv, variables, a file, an input.
fn program_for(
    kind: &str,
    args: &Map<String, Value>,
    settings: &LaunchSettings,
) -> Result<TaskCommand, ExecuteError> {
    let is_for_li = |name: &OsStr| name.eq_ignore_ascii_case(STATE_URL);
    if let Some(argv) = settings.adapters.program_of(kind) {
        let argv = argv?.iter().map(OsString::from).collect();
        let stdin = Some(json_text::object(args).into_bytes());
        let env = settings.env.iter().filter(|(name, _)| !is_for_li(name)).cloned().collect();
        return Ok(TaskCommand { argv, stdin, env, ..TaskCommand::default() });
    }
    let prefix = match needs_li(kind) {
        true => find_li(&settings.li).map_err(|error| failure("LiNotFound", &error))?,
        false => Vec::new(),
    };
    let context = LaunchContext {
        executable_prefix: &prefix,
        allow_commands: &settings.allow_commands,
        trigger: &Map::new(),
    };
    let argv = build_argv(kind, args, &context)
        .and_then(|argv| argv.check_exec().map(|()| argv))
        .map_err(|error: LaunchError| failure("LaunchError", &error))?;
    let mut command = command(&argv);
    let is_for_it = |name: &OsStr| needs_li(kind) || !is_for_li(name);
    let env = settings.env.iter().filter(|(name, _)| is_for_it(name));
    command.env.extend(env.cloned());
    Ok(command)
}

/// Runs a claimed task as a child of this process, to its end. It blocks; this is what
/// [`Queue::claim_and_execute`](crate::Queue::claim_and_execute) is given when nothing else is.
///
/// # Errors
/// As [`command_for`], and when the child cannot be started.
pub fn run_as_child(
    run: &ClaimedRun,
    invocation_id: String,
    settings: &LaunchSettings,
) -> Result<Execution, ExecuteError> {
    let command = command_for(run, invocation_id, settings)?;
    let ending = run_to_end(&command).map_err(|error| spawn_failure(&error))?;
    let (exit_code, detail) = ending.into();
    Ok(Execution { exit_code, detail })
}

/// The words with which a run fails whose process could not be started.
pub fn spawn_failure(error: &SpawnError) -> ExecuteError {
    failure("SpawnError", error)
}

fn command(argv: &Argv) -> TaskCommand {
    let mut temp_file = None;
    let arguments =
        argv.arguments().iter().enumerate().map(|(argv_index, argument)| match argument {
            Argument::Text(text) => OsString::from(text),
            Argument::YamlFile(contents) => {
                temp_file = Some(TempFile { argv_index, contents: contents.clone().into_bytes() });
                OsString::new()
            }
        });
    let argv = arguments.collect();
    TaskCommand { argv, temp_file, ..TaskCommand::default() }
}

fn failure(kind: &str, error: &dyn std::error::Error) -> ExecuteError {
    ExecuteError { kind: kind.into(), message: error.to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::run::QueuedRun;

    fn run(kind: &str, args: serde_json::Value) -> ClaimedRun {
        let queued = QueuedRun {
            id: "r1".into(),
            action_kind: kind.into(),
            action_args: args.to_string(),
            lease_attempts: 0,
            required_capabilities: None,
            execution_target: None,
            concurrency_key: None,
            queued_at: None,
        };
        queued.claimed(3).unwrap()
    }

    fn settings(allowed: &str) -> LaunchSettings {
        LaunchSettings { allow_commands: AllowList::parse(allowed), ..LaunchSettings::default() }
    }

    fn execute(run: &ClaimedRun, settings: &LaunchSettings) -> Result<Execution, ExecuteError> {
        run_as_child(run, "0123456789ab".into(), settings)
    }

    #[test]
    fn an_allowed_command_sees_its_run_and_epoch() {
        let script = "echo $LEASEHOLD_RUN_ID $LEASEHOLD_EPOCH $LIONAGI_INVOCATION_ID; exit 7";
        let run =
            run("command", json!({"action_command": "sh", "action_command_args": ["-c", script]}));
        let execution = execute(&run, &settings("sh")).unwrap();
        assert_eq!(execution.exit_code, 7);
        assert_eq!(execution.detail, "[stdout]\nr1 3 0123456789ab\n");
    }

    #[test]
    fn a_command_that_left_the_list_since_its_submit_is_not_run() {
        let run = run("command", json!({"action_command": "sh", "action_command_args": []}));
        let error = execute(&run, &settings("true")).unwrap_err();
        assert_eq!(error.kind, "LaunchError");
    }

    #[test]
    fn the_kind_of_the_row_wins_over_one_in_the_arguments() {
        let mut settings = settings("true");
        settings.li.path = Some("/nowhere".into());
        let run = run("agent", json!({"action_kind": "command", "action_command": "true"}));
        assert_eq!(execute(&run, &settings).unwrap_err().kind, "LiNotFound");
    }

    #[test]
    fn only_li_gets_the_address_of_the_original_s_state() {
        let mut settings = settings("true");
        settings.env.push(("LIONAGI_STATE_DB_URL".into(), "x".into()));
        let names = |run: &ClaimedRun| {
            let command = command_for(run, String::new(), &settings);
            command.map(|command| command.env.len())
        };
        assert_eq!(names(&run("command", json!({"action_command": "true"}))), Ok(0));
    }
}
