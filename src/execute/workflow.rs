//! A workflow becomes a process: the *runner*, this same program again, which starts the steps one after another.
//!
//! Here is what its worker tells it, the *script*: the program of each step, and the way to the store. It goes through
//! the runner's standard input, which no step inherits, since it holds what steps must not see.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

use super::{LaunchSettings, failure, program_for};
use crate::db::StoreUrl;
use crate::domain::ending::ExecuteError;
use crate::domain::run::ClaimedRun;
use crate::domain::settings::TaskLimits;
use crate::domain::workflow::{self, Place};
use crate::process::{RunIdentity, TaskCommand, TempFile, connection_variables};

/// The verb that makes a runner of a program.
pub(super) const VERB: &str = "__workflow";
/// A script is for a runner of the same version.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// How many bytes say how long the script is; what follows it is the input of each step.
const LENGTH: usize = 8;

/// How tasks become processes of a worker.
#[derive(Debug, Clone)]
pub(crate) struct Launching {
    /// How the tasks of one program do.
    pub settings: LaunchSettings,
    /// How workflows do, where they can.
    pub workflows: Option<Workflows>,
}

/// What a worker needs to have workflows run.
#[derive(Debug, Clone)]
pub(crate) struct Workflows {
    /// Where the steps are noted.
    store: StoreUrl,
}

/// What a runner does.
#[derive(Serialize, Deserialize)]
pub(super) struct Script {
    version: String,
    store: Address,
    /// The variables of the worker by which it finds and opens the store.
    pub variables: Vec<(OsString, OsString)>,
    pub run_id: String,
    pub epoch: i32,
    invocation_id: String,
    pub limits: TaskLimits,
    pub steps: Vec<ScriptStep>,
}

/// One step of a script.
#[derive(Serialize, Deserialize)]
pub(super) struct ScriptStep {
    pub name: Option<String>,
    pub kind: String,
    argv: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    /// The argument that is the path of a file, and what is in that.
    file: Option<(usize, String)>,
    input: Option<String>,
}

#[derive(Serialize, Deserialize)]
enum Address {
    Sqlite(OsString),
    Postgres(String),
}

impl Workflows {
    pub fn new(store: StoreUrl) -> Workflows {
        Workflows { store }
    }

    /// The command of a claimed workflow. All of its steps are looked at before the first one runs.
    ///
    /// # Errors
    /// The arguments are no plan, or a step could not be launched as a task by itself: the run fails with these words.
    pub fn command_for(
        &self,
        run: &ClaimedRun,
        invocation_id: String,
        settings: &LaunchSettings,
        limits: Option<TaskLimits>,
        stdin: Option<Vec<u8>>,
    ) -> Result<TaskCommand, ExecuteError> {
        let plan =
            workflow::plan(&run.action_args).map_err(|error| failure("PlanError", &error))?;
        let step = |(index, step): (usize, workflow::Step)| {
            let place =
                Place { step: workflow::number(index), of: None, name: step.name.as_deref() };
            let program = program_for(&step.kind, &step.args, settings);
            let program = program.map_err(|error| ExecuteError {
                message: format!("{place}: {}", error.message),
                kind: error.kind,
            })?;
            let file = program.temp_file.map(|TempFile { argv_index, contents }| {
                (argv_index, String::from_utf8_lossy(&contents).into_owned())
            });
            let input = program.stdin.map(|input| String::from_utf8_lossy(&input).into_owned());
            let (argv, env) = (program.argv, program.env);
            Ok(ScriptStep { name: step.name, kind: step.kind, argv, env, file, input })
        };
        let script = Script {
            version: VERSION.into(),
            store: Address::of(&self.store)?,
            variables: connection_variables().collect(),
            run_id: run.id.clone(),
            epoch: run.lease_attempts,
            invocation_id: invocation_id.clone(),
            limits: limits.unwrap_or_default(),
            steps: plan.into_iter().enumerate().map(step).collect::<Result<_, _>>()?,
        };
        let identity = RunIdentity {
            run_id: run.id.clone(),
            epoch: i64::from(run.lease_attempts),
            invocation_id,
        };
        let mut command = TaskCommand::new(["leasehold", VERB], identity);
        // In a guardian this is the guardian's program, and in a worker the worker's: as it was when that was started.
        command.executable = Some("/proc/self/exe".into());
        command.inherit.clone_from(&settings.inherit);
        command.stdin = Some(script.with_input(stdin.as_deref())?);
        Ok(command)
    }
}

impl Address {
    /// The runner may be in another directory.
    fn of(url: &StoreUrl) -> Result<Address, ExecuteError> {
        match url {
            StoreUrl::Sqlite(path) => {
                let path = std::path::absolute(path);
                let path = path.map_err(|error| failure("StoreAddress", &error))?;
                Ok(Address::Sqlite(path.into()))
            }
            StoreUrl::Postgres(url) => Ok(Address::Postgres(url.clone())),
        }
    }
}

impl Script {
    /// The script as bytes, and behind it what each step reads.
    fn with_input(&self, input: Option<&[u8]>) -> Result<Vec<u8>, ExecuteError> {
        let script = serde_json::to_vec(self).map_err(|error| failure("ScriptError", &error))?;
        let mut bytes = (script.len() as u64).to_le_bytes().to_vec();
        bytes.extend(script);
        // One byte says whether there is any, since an empty input is one too.
        bytes.push(input.is_some().into());
        bytes.extend(input.unwrap_or_default());
        Ok(bytes)
    }

    /// Reads what [`Workflows::command_for`] has written; else says what is wrong.
    pub fn read(bytes: &[u8]) -> Result<(Script, Option<Vec<u8>>), String> {
        let cut = || "what it was told is cut off".to_owned();
        let (length, rest) = bytes.split_first_chunk::<LENGTH>().ok_or_else(cut)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| cut())?;
        let (script, rest) = rest.split_at_checked(length).ok_or_else(cut)?;
        let other = |version: &str| {
            format!(
                "its worker is of version {version:?} and it is of {VERSION:?}: install one version"
            )
        };
        #[derive(Deserialize)]
        struct Head {
            version: String,
        }
        let head: Head = serde_json::from_slice(script).map_err(|error| error.to_string())?;
        if head.version != VERSION {
            return Err(other(&head.version));
        }
        let script = serde_json::from_slice(script).map_err(|error| error.to_string())?;
        let (has_input, input) = rest.split_first().ok_or_else(cut)?;
        Ok((script, (*has_input != 0).then(|| input.to_vec())))
    }

    pub fn store(&self) -> StoreUrl {
        match &self.store {
            Address::Sqlite(path) => StoreUrl::Sqlite(path.into()),
            Address::Postgres(url) => StoreUrl::Postgres(url.clone()),
        }
    }

    /// The command of the step at `index`, which sees these variables and its own.
    pub fn command(
        &self,
        index: usize,
        step: &ScriptStep,
        inherited: &[(OsString, OsString)],
        input: Option<&[u8]>,
    ) -> TaskCommand {
        let identity = RunIdentity {
            run_id: self.run_id.clone(),
            epoch: i64::from(self.epoch),
            invocation_id: self.invocation_id.clone(),
        };
        let mut command = TaskCommand::new(step.argv.iter().cloned(), identity);
        let number = workflow::number(index).to_string();
        // The runner's own variables are what the whole run was given: nothing is taken away here, and they win.
        command.env = step.env.iter().chain(inherited).cloned().collect();
        command.env.push(("LEASEHOLD_STEP".into(), number.into()));
        command.temp_file = step.file.as_ref().map(|(argv_index, contents)| TempFile {
            argv_index: *argv_index,
            contents: contents.clone().into_bytes(),
        });
        let own = step.input.as_ref().map(|text| text.as_bytes());
        command.stdin = own.or(input).map(<[u8]>::to_vec);
        command
    }
}
