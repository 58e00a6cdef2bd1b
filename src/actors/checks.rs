//! Checks under guardians. They have directories of their own, beside those of the runs: what is in them is never
//! adopted, since a check whose worker died is made again by the next one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tracing::{debug, warn};

use crate::domain::run::RunEpoch;
use crate::process::guardian::{Guardian, RunDir, StopReason, kill_leftovers};

/// Below a slot, and laid out like one.
const CHECKS: &str = "checks";

/// Where the checks of the runs in a slot are.
pub(super) fn checks_of(slot: &Path) -> PathBuf {
    slot.join(CHECKS)
}

/// Ends the check of this run that an executor or a worker that has died left behind, if there is one.
pub(super) async fn end_left_check(checks: &Path, run: &RunEpoch) {
    match RunDir::find(checks, &run.run_id, run.epoch.into()) {
        Ok(None) => {}
        Ok(Some(dir)) => end_check(dir).await,
        Err(error) => warn!(%error, "cannot look for an earlier check of this run"),
    }
}

/// Ends every check that a worker which has died left in a slot.
pub(super) async fn end_left_checks(slot: &Path) {
    match RunDir::list(&checks_of(slot)) {
        Ok(found) => {
            for path in found.unreadable {
                let _ = RunDir::remove_at(&path);
            }
            futures_util::future::join_all(found.runs.into_iter().map(end_check)).await;
        }
        Err(error) => warn!(%error, "cannot look for checks that a dead worker has left"),
    }
}

async fn end_check(dir: RunDir) {
    if let Ok(mut guardian) = Guardian::connect(&dir).await
        && guardian.stop(Duration::ZERO, StopReason::Stop).is_ok()
    {
        guardian.exited().await;
    }
    match kill_leftovers(&dir).await {
        Ok(left) => {
            debug!(run_id = dir.run_id(), killed = left.killed, "ended a check whose worker died");
            if let Err(error) = dir.remove() {
                debug!(%error, "cannot remove the directory of a check");
            }
        }
        Err(error) => warn!(%error, "cannot end a check whose worker died; its fence ends it"),
    }
}
