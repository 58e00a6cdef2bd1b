//! `leasehold prune`.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use leasehold::Config;
use leasehold::clock::{Clock, SystemClock};
use leasehold::domain::notation;
use leasehold::domain::pruning::Pruning;
use leasehold::domain::status::Status;
use leasehold::queue::FactsFate;

use super::archive::Archive;
use super::failure::Failure;
use super::store::StoreOption;
use super::{list, out};

const EXAMPLES: &str = "\
Examples:
  leasehold prune --older-than 720h --dry-run
  leasehold prune --older-than 720h --keep-failed --facts archive --archive /var/backups/facts.jsonl
  leasehold prune --older-than 24h --status completed --status skipped --facts drop
  leasehold prune --older-than 720h --events";

/// Remove tasks that ended long ago, and print how many
///
/// Never one that waits or runs, and none of a schedule: those are their scheduler's. They go in small transactions beside
/// working workers; whatever interrupts that, the same call again goes on. Attempts and settings go with their task; what
/// was made from it by `retry` loses its parent; its idempotency key stays taken. What tasks have written is not in the
/// store: their workers remove it (worker --keep-for).
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Prune {
    /// How long ago they must have ended at the least, such as 720h
    #[arg(long, value_name = "LENGTH", value_parser = notation::length)]
    older_than: Duration,
    /// Only tasks that ended with this status; may be given more than once [default: all five ends]
    #[arg(long = "status", value_name = "STATUS", value_parser = list::status())]
    statuses: Vec<Status>,
    /// Keep those that did not end well: failed and timed_out
    #[arg(long)]
    keep_failed: bool,
    /// What becomes of their facts: keep them (`history` still lists them), drop them, or put them into the archive first
    #[arg(long, value_name = "FATE", default_value = "keep")]
    facts: Fate,
    /// The file to which facts are appended, as one JSON object on each line, before they go
    ///
    /// It is on the disk before the tasks go. After a crash in between the facts that stand at its end are not written
    /// again. Use one file for one store.
    #[arg(long, value_name = "FILE", required_if_eq("facts", "archive"))]
    archive: Option<PathBuf>,
    /// Remove events of that age as well, whatever tasks they are of
    ///
    /// `events --after` one that is gone says so; who reads on regularly misses none. The newest stays.
    #[arg(long)]
    events: bool,
    /// Only count the tasks
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Fate {
    Keep,
    Drop,
    Archive,
}

impl Prune {
    pub(super) fn run(&self, store: &StoreOption) -> Result<(), Failure> {
        if self.archive.is_some() && self.facts != Fate::Archive {
            let words =
                "--archive names a file for facts that --facts archive puts there: give both";
            return Err(Failure::WrongWord(words.into()));
        }
        let pruning = Pruning {
            older_than: self.older_than.as_secs_f64(),
            statuses: self.statuses.clone(),
            keep_failed: self.keep_failed,
        };
        // Before anything is opened, which would make it.
        pruning.chosen()?;
        let mut queue = store.read()?;
        if self.dry_run {
            let count = queue.count_prunable(&pruning)?;
            let events = if self.events { ", and events of that age" } else { "" };
            return out::print(&format!("{count} tasks would be removed{events}\n"));
        }
        drop(queue);
        let mut archive = self.archive.as_deref().map(Archive::open).transpose()?;
        let mut queue = store.write(Config::default())?;
        let mut append;
        let facts = match (&mut archive, self.facts) {
            (Some(archive), _) => {
                append = |facts: &[leasehold::db::Fact]| archive.append(facts);
                FactsFate::Archive(&mut append)
            }
            (None, Fate::Drop) => FactsFate::Drop,
            (None, _) => FactsFate::Keep,
        };
        let removed = queue.prune(&pruning, facts)?;
        let what = match self.facts {
            Fate::Keep => "their facts are kept".to_owned(),
            Fate::Drop => format!("and {} facts", removed.facts),
            Fate::Archive => format!("and {} facts archived", removed.facts),
        };
        let mut said = format!("{} tasks removed, {what}\n", removed.runs);
        if self.events {
            let before = SystemClock.now() - pruning.older_than;
            said += &format!("{} events removed\n", queue.remove_events(before)?);
        }
        out::print(&said)
    }
}
