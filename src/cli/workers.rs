//! `leasehold workers`.

use leasehold::db::ops::ListWorkers;

use super::failure::Failure;
use super::store::StoreOption;
use super::{out, text};

/// List the workers that have sent a heartbeat, by name
///
/// LAST SEEN is the time of the last heartbeat, in UTC; a worker that stopped long ago is listed as well.
#[derive(Debug, clap::Args)]
pub(super) struct Workers {
    /// Print a JSON array of rows, with the column names of the table workers
    ///
    /// Times are seconds since the epoch there.
    #[arg(long)]
    json: bool,
}

impl Workers {
    pub(super) fn run(&self, store: &StoreOption) -> Result<(), Failure> {
        let workers = store.read()?.read(&ListWorkers)?;
        if self.json {
            return out::print(&text::json_array(&workers)?);
        }
        let rows = workers.into_iter().map(|worker| {
            [
                worker.worker_id,
                text::time(worker.last_heartbeat_at),
                worker.execution_targets.value().to_string(),
                worker.advertised_capabilities.value().to_string(),
                text::or_none(worker.leased_run_id.as_deref()).to_owned(),
            ]
        });
        let headings = ["WORKER", "LAST SEEN", "TARGETS", "CAPABILITIES", "TASK"];
        out::print(&text::table(headings, rows))
    }
}
