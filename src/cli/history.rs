//! `leasehold history`.

use leasehold::db::ops;

use super::failure::Failure;
use super::store::StoreOption;
use super::{out, text};

/// List the changes of one task, oldest first
///
/// Each change of a task's status is one fact. A task that still waits as it was submitted has none. Times are UTC.
#[derive(Debug, clap::Args)]
pub(super) struct History {
    /// The task's id, as `submit` printed it
    id: String,
    /// Print a JSON array of facts, with the column names of the table status_transitions
    ///
    /// Times are seconds since the epoch there.
    #[arg(long)]
    json: bool,
}

impl History {
    pub(super) fn run(&self, store: &StoreOption) -> Result<(), Failure> {
        let mut queue = store.read()?;
        let facts = queue.read(&ops::History { run_id: self.id.clone() })?;
        if facts.is_empty() {
            // A task without facts and no task at all are told apart.
            queue.run(&self.id)?;
        }
        if self.json {
            return out::print(&text::json_array(&facts)?);
        }
        let rows = facts.into_iter().map(|fact| {
            [
                text::time(fact.created_at),
                text::or_none(fact.previous_status.as_deref()).to_owned(),
                fact.status,
                fact.reason_code,
                fact.source,
                text::or_none(fact.actor.as_deref()).to_owned(),
                text::or_none(fact.reason_summary.as_deref()).to_owned(),
            ]
        });
        let headings = ["TIME", "FROM", "TO", "REASON", "SOURCE", "ACTOR", "SUMMARY"];
        out::print(&text::table(headings, rows))
    }
}
