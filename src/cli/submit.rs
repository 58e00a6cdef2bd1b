//! `leasehold submit`.

mod lines;
mod many;
mod report;

use std::process::ExitCode;

use clap::Arg;
use leasehold::Config;
use leasehold::domain::allow::AllowList;
use leasehold::domain::settings::RunSettings;
use leasehold::domain::task::{
    COMMAND, SubmitRefusal, SubmitRules, TaskApplication, TaskSpec, WORKFLOW,
};
use leasehold::domain::workflow::{self, Place};
use leasehold::launch::{LaunchContext, LaunchError, build_argv};
use serde_json::{Map, Value};

use super::adapters::KindOption;
use super::allow::AllowOption;
use super::failure::{self, Failure};
use super::settings::SettingsOptions;
use super::store::StoreOption;
use super::{out, task_args, wait};
use many::FromOptions;

const EXAMPLES: &str = "\
Examples:
  leasehold submit agent --arg action_agent=reviewer --arg action_prompt='say hi'
  leasehold submit play --arg action_playbook=review --arg 'action_playbook_args:={\"depth\":2}'
  leasehold submit flow_yaml --args @task.json --needs repo_write --target local_worktree
  leasehold submit agent --arg action_prompt='tidy up' --timeout 2h --cwd /srv/repo --env MODE=fast
  leasehold submit agent --arg action_prompt='the report' --key report:2026-11-30
  leasehold submit agent --arg action_prompt='the report' --cwd /srv/repo --expect-filled report.md \\
      --expect-json report.json --schema @report.schema.json --check '[\"test\", \"-s\", \"log\"]'
  leasehold submit command --allow-command git -- git fetch --all
  leasehold submit workflow --args @steps.json
  leasehold submit --from tasks.jsonl
  echo '{\"action_kind\": \"agent\", \"args\": {\"action_prompt\": \"hi\"}, \"timeout\": \"2h\"}' | leasehold submit --from -

A workflow has steps, {\"steps\": [{\"name\": \"build\", \"kind\": \"command\", \"args\": {...}}, ...]}: tasks of other kinds,
run one after another under one lease. The first that fails ends it; tried again, it goes on with that step.";

/// Submit a task, or the tasks of a file, and print their ids
///
/// Only the id stands on standard output, once the task is stored. The arguments are one JSON object: --args gives it,
/// and each --arg then sets one more key in it. What the keys must hold is checked when the task is launched, but a
/// task that could never be started, since one of its program arguments has 131072 bytes or more or holds a NUL, is
/// refused at once.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, mut_args(of_submit))]
pub(super) struct Submit {
    #[command(flatten)]
    task: TaskOptions,
    #[command(flatten)]
    many: FromOptions,
}

/// An argument as one of `submit`: what is said of one task is not said beside a file of many.
fn of_submit(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "from" | "atomic" | "json" | "allow_command" | "accept_kind" => arg,
        "kind" => arg.required_unless_present("from").conflicts_with("from"),
        _ => arg.conflicts_with("from"),
    }
}

/// What is said of one task.
#[derive(Debug, clap::Args)]
pub(super) struct TaskOptions {
    /// What kind of task: agent, engine, fanout, flow, flow_yaml, play (or playbook), workflow; or command
    ///
    /// A command runs one program, which must be allowed by name: see --allow-command. A kind of your own must be accepted
    /// by name: see --accept-kind.
    kind: Option<String>,
    /// Set one key of the arguments: K=V to a string, K:=JSON to any JSON value
    #[arg(long = "arg", value_name = "K=V|K:=JSON")]
    pairs: Vec<String>,
    /// The arguments as a JSON object: the text itself, @FILE to read a file, or - for standard input
    ///
    /// At most 64 MiB. A key that --arg sets must not stand in it too.
    #[arg(long = "args", value_name = "JSON|@FILE|-")]
    object: Option<String>,
    /// Where to execute it: daytona, host, local_worktree, process or remote_agent
    #[arg(long, default_value = "host")]
    target: String,
    /// A capability that a worker must advertise to be given the task; may be given more than once
    ///
    /// Of gpu-exclusive there is one on each machine: the task waits until no other task, of whatever store, and no
    /// other program has its lock (see worker --lock-dir), and then has it until its last process is gone.
    #[arg(long, value_name = "TOKEN")]
    needs: Vec<String>,
    /// A key that stands for this task, of 1 to 255 visible characters: submitted again with it, the same task is not
    /// stored again, and the id that there is is printed
    ///
    /// A key stays taken when the task has ended. For another task it is refused.
    #[arg(long, value_name = "K")]
    key: Option<String>,
    /// Where the task's definition came from; stored as given
    #[arg(long, value_name = "R")]
    library_ref: Option<String>,
    /// The hash of that definition; stored as given
    #[arg(long, value_name = "H")]
    library_hash: Option<String>,
    #[command(flatten)]
    allow: AllowOption,
    #[command(flatten)]
    kinds: KindOption,
    /// Wait for the end, and exit with the task's code
    ///
    /// 128+N for an end by signal N, 3 for a cancelled task, 4 for one that timed out or was skipped. The reason of a
    /// failure goes to standard error.
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    settings: SettingsOptions,
    /// The program of a command and its arguments, after --
    ///
    /// They become the keys action_command and action_command_args. PROG is looked up on the worker's PATH, so it is
    /// a name and no path.
    #[arg(last = true, value_name = "PROG ARG")]
    words: Vec<String>,
}

/// A task that can be submitted.
pub(super) struct Draft {
    pub(super) config: Config,
    pub(super) app: TaskApplication,
    pub(super) settings: RunSettings,
    pub(super) stdin: Option<Vec<u8>>,
}

impl Submit {
    pub(super) fn run(&self, store: &StoreOption) -> Result<ExitCode, Failure> {
        if let Some(source) = self.many.source() {
            return self.many.run(source, store, self.task.config()?);
        }
        let Draft { config, app, settings, stdin } = self.task.draft()?;
        let mut queue = store.write(config)?;
        let id = queue.submit_task_with(&app, settings, stdin)?;
        out::write(&format!("{id}\n")).map_err(|error| {
            Failure::Refused(format!(
                "the task {id} is stored, but its id cannot be written: {error}"
            ))
        })?;
        // A key outlives its task.
        if self.task.key.is_some() && queue.run(&id).is_err_and(|error| error.is_not_found()) {
            let words = format!(
                "the key stands for the task {id}, which has ended and was removed since: nothing is stored"
            );
            return if self.task.wait { Err(Failure::Refused(words)) } else { Ok(note(&words)) };
        }
        if self.task.wait { wait::for_end(&mut queue, &id) } else { Ok(ExitCode::SUCCESS) }
    }
}

impl TaskOptions {
    /// The first word: it is there, unless the verb can do without.
    pub(super) fn kind(&self) -> &str {
        self.kind.as_deref().unwrap_or_default()
    }

    /// What tasks are checked against.
    fn config(&self) -> Result<Config, Failure> {
        let (allow_commands, own_kinds) = (self.allow.list()?, self.kinds.read()?);
        Ok(Config { allow_commands, own_kinds, ..Config::daemon() })
    }

    /// The task, with all checked that can be before the store is opened, which would make it.
    pub(super) fn draft(&self) -> Result<Draft, Failure> {
        if self.kind() != COMMAND && !self.words.is_empty() {
            return Err(Failure::WrongWord(format!(
                "only the kind command takes words after --: a task of kind {:?} gets its arguments with --arg",
                self.kind()
            )));
        }
        let config = self.config()?;
        let app = self.checked(&config.submit_rules())?;
        let (settings, stdin) = self.settings.read()?;
        settings.permit(&config.allow_commands)?;
        Ok(Draft { config, app, settings, stdin })
    }

    fn checked(&self, rules: &SubmitRules) -> Result<TaskApplication, Failure> {
        let application = Value::from_iter([
            ("action_kind", Value::from(self.kind())),
            ("args", task_args::combined(self.object.as_deref(), &self.pairs, &self.words)?),
            ("execution_target", self.target.clone().into()),
            ("required_capabilities", self.needs.clone().into()),
            ("idempotency_key", self.key.clone().into()),
            ("library_ref", self.library_ref.clone().into()),
            ("library_content_hash", self.library_hash.clone().into()),
        ]);
        let refused = |refusal| Failure::Refused(explained(&refusal));
        let app = TaskApplication::from_json(application, rules).map_err(refused)?;
        let spec = TaskSpec::check(&app, rules).map_err(refused)?;
        refuse_what_never_starts(&spec, &rules.allow_commands).map_err(Failure::Refused)?;
        Ok(app)
    }
}

/// The kind `command` is unknown until something is allowed: the sentence about kinds does not say so.
fn explained(refusal: &SubmitRefusal) -> String {
    match refusal {
        SubmitRefusal::ActionKind { given, .. } if given == "'command'" => {
            format!("{refusal}; a command needs --allow-command NAME")
        }
        other => other.to_string(),
    }
}

fn note(words: &str) -> ExitCode {
    failure::say(words);
    ExitCode::SUCCESS
}

/// Builds the argv as a worker would, with a word in the place of `li`. Only what no worker could ever start is
/// refused: what is merely wrong, such as a missing prompt, is queued and fails when it is launched (ADR-0071). A
/// command is wholly known here, so all that is wrong with one is refused. Each step of a workflow is looked at so.
fn refuse_what_never_starts(spec: &TaskSpec, allow_commands: &AllowList) -> Result<(), String> {
    if spec.action_kind != WORKFLOW {
        return refuse_launch(&spec.action_kind, &spec.args, allow_commands);
    }
    for (index, step) in workflow::plan(&spec.args).unwrap_or_default().into_iter().enumerate() {
        let refused = refuse_launch(&step.kind, &step.args, allow_commands);
        refused.map_err(|reason| {
            let name = step.name.as_deref();
            let place = Place { step: workflow::number(index), of: None, name };
            format!("{place}: {reason}")
        })?;
    }
    Ok(())
}

fn refuse_launch(
    kind: &str,
    args: &Map<String, Value>,
    allow_commands: &AllowList,
) -> Result<(), String> {
    let executable_prefix = &["li".to_owned()];
    let context = LaunchContext { executable_prefix, allow_commands, trigger: &Map::new() };
    match build_argv(kind, args, &context).and_then(|argv| argv.check_exec()) {
        Err(
            error @ (LaunchError::ArgTooLong { .. }
            | LaunchError::ArgHasNul { .. }
            | LaunchError::PromptTooLong { .. }),
        ) => Err(format!("no worker could start this task: {error}")),
        Err(error) if kind == COMMAND => Err(error.to_string()),
        _ => Ok(()),
    }
}
