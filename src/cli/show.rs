//! `leasehold show`.

use std::fmt::Write;

use leasehold::Queue;
use leasehold::clock::{Clock, SystemClock};
use leasehold::db::ops::{Attempts, Children, FindSettings, History, NoticeOf};
use leasehold::db::{Fact, Run};
use leasehold::domain::ending::Usage;

use super::failure::Failure;
use super::harmless::harmless;
use super::notices::shown;
use super::store::StoreOption;
use super::{out, text};

/// Show one task: every column, its latest changes, and its attempts
///
/// Times are UTC; a column that holds nothing shows `-`. `chain_parent_id` names the task that this one is a retry of,
/// `children` the retries of this one.
#[derive(Debug, clap::Args)]
pub(super) struct Show {
    /// The task's id, as `submit` printed it
    id: String,
    /// Print a JSON object with the column names of the table schedule_runs
    ///
    /// Times are seconds since the epoch there. The history is left to `leasehold history ID --json`.
    #[arg(long)]
    json: bool,
}

/// So many facts are shown.
const LATEST: usize = 5;

impl Show {
    pub(super) fn run(&self, store: &StoreOption) -> Result<(), Failure> {
        let mut queue = store.read()?;
        let run = queue.run(&self.id)?;
        if self.json {
            return out::print(&text::json_object(&run)?);
        }
        let facts = queue.read(&History { run_id: run.id.clone() })?;
        let mut lines = described(&run, &facts)?;
        let children = queue.read(&Children { run_id: run.id.clone() })?;
        if !children.is_empty() {
            writeln!(lines, "children: {}", harmless(&children.join(", ")))?;
        }
        if queue.is_complete() {
            lines += &beside(&mut queue, &run.id)?;
            lines += &steps(&mut queue, &run)?;
        }
        out::print(&lines)
    }
}

/// What a run starts with, and how its attempts ended.
fn beside(queue: &mut Queue, run_id: &str) -> Result<String, Failure> {
    let mut lines = String::new();
    if let Some(stored) = queue.read(&FindSettings { run_id: run_id.to_owned() })? {
        let settings = stored.settings.map_or_else(|text| text, |settings| settings.text());
        // A run that was only asked to stop has a row without any.
        if settings != "{}" {
            writeln!(lines, "settings: {}", harmless(&settings))?;
        }
        for (what, moment) in
            [("back in the queue", stored.wake_at), ("expires", stored.expires_at)]
        {
            if let Some(moment) = moment {
                writeln!(lines, "{what}: {}", text::time(moment))?;
            }
        }
        if stored.failures > 0 {
            writeln!(lines, "failures: {}", stored.failures)?;
        }
        if let Some(stdin) = stored.stdin {
            writeln!(lines, "stdin: {} bytes", stdin.len())?;
        }
    }
    if let Some(notice) = queue.read(&NoticeOf { run_id: run_id.to_owned() })? {
        let (to, error) = (shown(&notice.deliver_to), notice.last_error);
        let why = error.map(|error| format!(": {error}")).unwrap_or_default();
        let line = format!(
            "notice: {}, attempt {} of {}, to {to}{why}",
            notice.status, notice.attempt, notice.max_attempts
        );
        writeln!(lines, "{}", harmless(&line))?;
    }
    for attempt in queue.read(&Attempts { run_id: run_id.to_owned() })? {
        let how = match (attempt.signal, attempt.exit_code) {
            (Some(signal), _) => format!("signal {signal}"),
            (None, Some(code)) => format!("exit code {code}"),
            (None, None) => text::NONE.to_owned(),
        };
        let left = Usage { leftovers: attempt.leftovers, ..Usage::default() };
        let how = match left.leftovers_in_words() {
            Some(words) => format!("{how}, but {words},"),
            None => format!("{how},"),
        };
        let (epoch, at) = (attempt.epoch, text::time(attempt.ended_at));
        let line = format!(
            "attempt {epoch}: {at} {how} ended by {}, on {}",
            attempt.ended_by, attempt.owner
        );
        writeln!(lines, "{}", harmless(&line))?;
    }
    Ok(lines)
}

/// How far a workflow has come.
fn steps(queue: &mut Queue, run: &Run) -> Result<String, Failure> {
    let Some(progress) = queue.progress(run)? else { return Ok(String::new()) };
    Ok(harmless(&format!("steps: {}", progress.words(SystemClock.now()))) + "\n")
}

fn described(run: &Run, facts: &[Fact]) -> Result<String, Failure> {
    let mut lines = text::columns(run)?;
    let latest = &facts[facts.len().saturating_sub(LATEST)..];
    let note = match facts.len() - latest.len() {
        0 => String::new(),
        earlier => format!(" ({earlier} earlier: leasehold history {})", harmless(&run.id)),
    };
    writeln!(lines, "facts: {}{note}", facts.len())?;
    for fact in latest {
        let from = text::or_none(fact.previous_status.as_deref());
        let by = text::or_none(fact.actor.as_deref());
        let line = format!(
            "{} {from} -> {} {} by {} {by}",
            text::time(fact.created_at),
            fact.status,
            fact.reason_code,
            fact.source
        );
        writeln!(lines, "  {}", harmless(&line))?;
    }
    Ok(lines)
}
