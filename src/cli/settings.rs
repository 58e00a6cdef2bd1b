//! What a run starts with beside its arguments.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use leasehold::domain::notation;
use leasehold::domain::settings::{RunSettings, TaskLimits};

use super::contract::ContractOptions;
use super::failure::Failure;
use super::notify::NotifyOptions;
use super::when::{RetryOptions, WhenOptions};

/// The most that a task is given to read.
const MOST_BYTES: u64 = 64 << 20;

#[derive(Debug, clap::Args)]
pub(super) struct SettingsOptions {
    /// How long the task may run, such as 90s or 2h; it ends timed_out then
    #[arg(long, value_name = "LENGTH", value_parser = notation::length)]
    timeout: Option<Duration>,
    /// How long it has between TERM and KILL when it is stopped [default: 5s]
    #[arg(long, value_name = "LENGTH", value_parser = notation::length)]
    grace: Option<Duration>,
    /// The directory in which it starts; an absolute path [default: the worker's]
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// Set a variable for it; may be given more than once
    #[arg(long = "env", value_name = "K=V")]
    variables: Vec<String>,
    #[command(flatten)]
    when: WhenOptions,
    #[command(flatten)]
    retry: RetryOptions,
    /// How many descriptors each of its processes may have open
    #[arg(long = "nofile", value_name = "N")]
    open_files: Option<u64>,
    /// How much address space each of them may have, in bytes or with K, M, G or T for powers of 1024
    #[arg(long = "as", value_name = "BYTES", value_parser = notation::bytes)]
    address_space: Option<u64>,
    /// How much processor time each of them may use, in seconds: then SIGXCPU, and KILL five seconds later
    #[arg(long = "cpu", value_name = "SECONDS")]
    cpu_seconds: Option<u64>,
    #[command(flatten)]
    notify: NotifyOptions,
    /// What it reads from its standard input: a file, or - for this program's own [default: nothing]
    #[arg(long, value_name = "FILE|-")]
    stdin: Option<String>,
    #[command(flatten)]
    contract: ContractOptions,
}

impl SettingsOptions {
    /// The settings, and what the task reads. All of it is read and checked before the store is opened.
    pub(super) fn read(&self) -> Result<(RunSettings, Option<Vec<u8>>), Failure> {
        let settings = RunSettings {
            cwd: self.cwd.clone(),
            env: self.variables()?,
            timeout: self.timeout.map(|length| length.as_secs_f64()),
            grace: self.grace.map(|length| length.as_secs_f64()),
            limits: self.limits(),
            retry: self.retry.read(),
            when: self.when.read(),
            contract: self.contract.read()?,
            notify: self.notify.read(),
        };
        settings.check()?;
        let stdin = self.stdin.as_deref().map(bytes).transpose()?;
        Ok((settings, stdin))
    }

    fn limits(&self) -> Option<TaskLimits> {
        let limits = TaskLimits {
            open_files: self.open_files,
            address_space: self.address_space,
            cpu_seconds: self.cpu_seconds,
        };
        (limits != TaskLimits::default()).then_some(limits)
    }

    fn variables(&self) -> Result<BTreeMap<String, String>, Failure> {
        let mut variables = BTreeMap::new();
        for pair in &self.variables {
            let Some((name, value)) = pair.split_once('=') else {
                return Err(Failure::Refused(format!(
                    "--env {pair:?} has no '=': give NAME=VALUE"
                )));
            };
            if variables.insert(name.to_owned(), value.to_owned()).is_some() {
                return Err(Failure::Refused(format!("--env sets {name:?} twice: give it once")));
            }
        }
        Ok(variables)
    }
}

fn bytes(source: &str) -> Result<Vec<u8>, Failure> {
    let unreadable = |problem: &dyn std::fmt::Display| {
        Failure::Refused(format!("cannot read --stdin {source:?}: {problem}"))
    };
    let reader: Box<dyn Read> = match source {
        "-" => Box::new(io::stdin()),
        file => Box::new(File::open(file).map_err(|error| unreadable(&error))?),
    };
    let mut bytes = Vec::new();
    reader.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(|error| unreadable(&error))?;
    match bytes.len() as u64 {
        length if length > MOST_BYTES => Err(unreadable(&"it has more than 64 MiB")),
        _ => Ok(bytes),
    }
}
