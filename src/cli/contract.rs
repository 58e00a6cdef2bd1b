//! What a task must leave behind to have done its work.

use std::time::Duration;

use leasehold::domain::contract::{CHECK_SECONDS, Check, Contract, ExpectedFile, ExpectedJson};
use leasehold::domain::notation;
use serde_json::Value;

use super::failure::Failure;
use super::task_args;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What it must leave behind, besides exit code 0")]
pub(super) struct ContractOptions {
    /// A file that it must have made; a relative path is taken from --cwd. May be given more than once
    ///
    /// If a part of all this does not hold, the task fails with run.failed.contract_unmet and says which part. It is judged
    /// when the last process of the task is gone. A regular file, or a symbolic link to one, counts if it was made, changed
    /// or put there since the task was started: see --expect-old.
    #[arg(long = "expect-file", value_name = "PATH")]
    files: Vec<String>,
    /// The same for a file that is not empty
    #[arg(long = "expect-filled", value_name = "PATH")]
    filled: Vec<String>,
    /// Let files count that were there before and were not changed
    #[arg(long = "expect-old")]
    old_files: bool,
    /// A file of at most 1 MiB that must hold one JSON document; or stdout, for what it writes there and nothing else
    #[arg(long = "expect-json", value_name = "PATH|stdout")]
    document: Option<String>,
    /// The JSON Schema that the document must fit: the text itself, or @FILE. The keywords of 2020-12 but for
    /// unevaluated... and $dynamic...; references within it, and patterns without look-around
    #[arg(long, value_name = "JSON|@FILE", requires = "document")]
    schema: Option<String>,
    /// A command that must end with exit code 0 after it, as a JSON array of strings: program, arguments
    ///
    /// The program must be allowed like that of any command (see --allow-command). It runs in the task's directory and
    /// environment, and reads nothing; what it leaves running is killed.
    #[arg(long, value_name = "JSON")]
    check: Option<String>,
    /// How long the check may take [default: 60s]
    #[arg(long, value_name = "LENGTH", value_parser = notation::length, requires = "check")]
    check_timeout: Option<Duration>,
    /// No process of it may be left when its first one exits
    ///
    /// Whatever is left is killed in any case, and `show` and `history` say how many there were. It takes a worker with
    /// guardians.
    #[arg(long = "expect-no-leftovers")]
    no_leftovers: bool,
}

impl ContractOptions {
    pub(super) fn read(&self) -> Result<Option<Contract>, Failure> {
        let file = |not_empty| move |path: &String| ExpectedFile { path: path.clone(), not_empty };
        let contract = Contract {
            files: self
                .files
                .iter()
                .map(file(false))
                .chain(self.filled.iter().map(file(true)))
                .collect(),
            json: self.json()?,
            check: self.check()?,
            no_leftovers: self.no_leftovers,
            old_files: self.old_files,
        };
        let demands_nothing = Contract { old_files: self.old_files, ..Contract::default() };
        match contract == demands_nothing {
            false => Ok(Some(contract)),
            true if self.old_files => Err(Failure::WrongWord(
                "--expect-old is about files that are expected: give --expect-file or --expect-json too".into(),
            )),
            true => Ok(None),
        }
    }

    fn json(&self) -> Result<Option<ExpectedJson>, Failure> {
        let Some(source) = &self.document else { return Ok(None) };
        let path = (source != "stdout").then(|| source.clone());
        let schema = match &self.schema {
            Some(source) => task_args::json_of("--schema", source)?,
            None => Value::Bool(true),
        };
        Ok(Some(ExpectedJson { path, schema }))
    }

    fn check(&self) -> Result<Option<Check>, Failure> {
        let Some(text) = &self.check else { return Ok(None) };
        let argv = serde_json::from_str(text).map_err(|error| {
            Failure::Refused(format!(
                "--check is no JSON array of strings ({error}): write --check '[\"test\", \"-s\", \"out\"]'"
            ))
        })?;
        let timeout = self.check_timeout.map_or(CHECK_SECONDS, |length| length.as_secs_f64());
        Ok(Some(Check { argv, timeout }))
    }
}
