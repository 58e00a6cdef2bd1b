//! `leasehold retry`.

use std::collections::HashSet;
use std::process::ExitCode;
use std::time::Duration;

use leasehold::domain::notation;
use leasehold::domain::redrive::NewTry;
use leasehold::domain::status::Status;
use leasehold::{Config, Error, Queue};

use super::adapters::KindOption;
use super::allow::AllowOption;
use super::failure::{self, Failure};
use super::store::StoreOption;
use super::when::WhenOptions;
use super::{list, out};

const EXAMPLES: &str = "\
Examples:
  leasehold retry 15df84e0-b0a6-4920-9401-8165acdc8aab
  leasehold retry --status failed --status timed_out --since 1h
  leasehold retry 15df84e0-b0a6-4920-9401-8165acdc8aab --key report:2026-11-30:again --after 10m";

/// Submit tasks again that have ended, and print the new ids
///
/// The new task has the kind, the arguments, the needs, the target, the origin, the settings and the input of the old
/// one, which never changes and is its parent: `show` names both. All checks of a submit are made again, so a command that
/// is not allowed any more is refused. Start, expiry and priority are not taken over, and neither is an idempotency key:
/// that stays the old task's. Of several tasks either all can be submitted again, or none is.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Retry {
    /// The ids of the tasks, as `submit` printed them
    #[arg(value_name = "ID", required_unless_present = "statuses", conflicts_with = "statuses")]
    ids: Vec<String>,
    /// All tasks that ended with this status and of which no retry was submitted yet; may be given more than once
    ///
    /// So the same call again goes on where it was interrupted. What cannot be submitted again is named and left out, and
    /// the exit code is 1 then. Tasks of schedules are left out.
    #[arg(long = "status", value_name = "STATUS", value_parser = list::status())]
    statuses: Vec<Status>,
    /// Only those that ended so long ago at the most, such as 90s or 2h
    #[arg(long, value_name = "LENGTH", value_parser = notation::length, requires = "statuses")]
    since: Option<Duration>,
    /// A key that stands for the new task: the same retry again prints its id. Only for one task
    #[arg(long, value_name = "K", conflicts_with = "statuses")]
    key: Option<String>,
    #[command(flatten)]
    when: WhenOptions,
    #[command(flatten)]
    allow: AllowOption,
    #[command(flatten)]
    kinds: KindOption,
}

impl Retry {
    pub(super) fn run(&self, store: &StoreOption) -> Result<ExitCode, Failure> {
        if self.key.is_some() && self.ids.len() > 1 {
            let words =
                "--key stands for one task, and several ids are given: retry them one by one";
            return Err(Failure::WrongWord(words.into()));
        }
        let mut seen = HashSet::new();
        if let Some(twice) = self.ids.iter().find(|id| !seen.insert(id.as_str())) {
            return Err(Failure::Refused(format!(
                "the task {twice:?} is given twice: give it once"
            )));
        }
        let config = Config {
            allow_commands: self.allow.list()?,
            own_kinds: self.kinds.read()?,
            ..Config::daemon()
        };
        let new = NewTry { key: self.key.clone(), when: self.when.read() };
        let mut queue = store.write_existing(config)?;
        match self.statuses.is_empty() {
            true => each(&mut queue, &self.ids, &new),
            false => self.all(&mut queue, &new),
        }
    }

    fn all(&self, queue: &mut Queue, new: &NewTry) -> Result<ExitCode, Failure> {
        let within = self.since.map(|length| length.as_secs_f64());
        let mut left = 0;
        for id in queue.not_retried(&self.statuses, within)? {
            match queue.retry(&id, new) {
                Ok(new_id) => say(&id, &new_id)?,
                Err(error @ (Error::Store(_) | Error::Settings(_))) => return Err(error.into()),
                Err(error) => {
                    left += 1;
                    failure::say(&format!("not submitted again: {id}: {error}"));
                }
            }
        }
        Ok(if left == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn each(queue: &mut Queue, ids: &[String], new: &NewTry) -> Result<ExitCode, Failure> {
    for id in ids {
        queue.check_retry(id, new)?;
    }
    for id in ids {
        let new_id = queue.retry(id, new)?;
        say(id, &new_id)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn say(id: &str, new_id: &str) -> Result<(), Failure> {
    out::write(&format!("{new_id}\n")).map_err(|error| {
        Failure::Refused(format!(
            "the task {new_id}, made from {id}, is stored, but its id cannot be written: {error}"
        ))
    })
}
