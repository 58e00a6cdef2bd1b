//! Writes where a run went, until it is known to be stored or known to be nobody's business any more.

use std::time::Duration;

use actix::Addr;
use tracing::{debug, info, warn};

use super::db::Lane;
use super::launcher::TaskEnd;
use super::root::{Read, ResolveWriter, Root};
use super::{CallError, Parts};
use crate::db::StoreError;
use crate::db::ops::{AttemptEnd, Depart, FindRun, IsStored, Loss, Way};
use crate::domain::ending::{EndedBy, Ending};
use crate::domain::reason::{Reason, ReasonCode};
use crate::domain::run::RunEpoch;
use crate::domain::status::Status;

/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Moves a run of this worker out of `running`, guarded by owner and epoch. Answers its status, or nothing when it was
/// no longer this worker's.
///
/// A finished result is kept for as long as it takes: a store that is busy, full or out of reach is tried again. An
/// answer that was lost is asked for by the fact's id, which all tries share.
pub(super) async fn depart(
    root: &Addr<Root>,
    parts: &Parts,
    run: &RunEpoch,
    way: Way,
    attempt: Option<AttemptEnd>,
) -> Option<Status> {
    let mut depart = Depart {
        run: run.clone(),
        owner: parts.worker_id.clone(),
        way,
        attempt,
        at: parts.clock.now(),
        fact_id: parts.ids.fact_id(),
    };
    let (mut pause, mut waits) = (Duration::from_millis(20), false);
    loop {
        match write_once(root, &depart).await {
            Ok(Some(status)) => {
                info!(%status, "ended");
                return Some(status);
            }
            Ok(None) => match stored_before(root, &depart).await {
                Ok(Some(status)) => return Some(status),
                Ok(None) => {
                    warn!("conflict: the lease was lost, the result is dropped");
                    return None;
                }
                Err(error) => debug!(%error, "cannot look whether the end was stored"),
            },
            Err(CallError::Store(StoreError::Sql { detail, .. })) => {
                warn!(detail, "the store refused the run's own words; it ends without them");
                depart.way = wordless(depart.way);
            }
            Err(error) => {
                warn!(%error, "cannot store the end yet");
                if !std::mem::replace(&mut waits, true) {
                    parts.launcher.waits(run);
                }
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

impl From<&TaskEnd> for AttemptEnd {
    fn from(end: &TaskEnd) -> AttemptEnd {
        let TaskEnd { execution, ended_by, usage, .. } = end;
        AttemptEnd { ended_by: *ended_by, exit_code: execution.exit_code, usage: *usage }
    }
}

/// Where a run goes whose task ended like this. `timeout` is how long it had, in seconds, if that is known; after `max` leases that ran out
/// it fails.
pub(super) fn way_of(end: &TaskEnd, timeout: Option<f64>, max: i32) -> Way {
    if !end.unkillable.is_empty() {
        return unkillable(&end.unkillable);
    }
    match end.ended_by {
        EndedBy::Task => Way::Ended(Ending::from(end.execution.clone()).after(&end.usage)),
        EndedBy::Cancel => Way::Cancelled,
        EndedBy::Timeout => Way::TimedOut { timeout },
        // If somebody else has the run by now, the guard refuses this.
        EndedBy::Fence => Way::Lost { loss: Loss::Lease, max },
        EndedBy::Stop => Way::Back(Reason::new(ReasonCode::SHUTDOWN, "the worker was shut down")),
    }
}

/// What cannot be killed may still be at work, so the run is not started again.
pub(super) fn unkillable(pids: &[i32]) -> Way {
    let words = format!("processes of this run cannot be killed: {pids:?}");
    Way::Ended(Ending {
        status: Status::Failed,
        reason: Reason::new(ReasonCode::UNKILLABLE, words.as_str()),
        exit_code: 1,
        error_detail: Some(words),
    })
}

/// The end of a run through a fault of this program.
pub(super) fn exception(summary: &str) -> Way {
    Way::Ended(Ending {
        status: Status::Failed,
        reason: Reason::new(ReasonCode::EXCEPTION, summary),
        exit_code: 1,
        error_detail: Some(summary.into()),
    })
}

async fn write_once(root: &Addr<Root>, depart: &Depart) -> Result<Option<Status>, CallError> {
    let writer = root.send(ResolveWriter).await?.ok_or(CallError::Gone)?;
    writer.write(depart.clone(), Lane::First).await
}

/// The status that an earlier try gave the run, its answer having been lost.
async fn stored_before(root: &Addr<Root>, depart: &Depart) -> Result<Option<Status>, CallError> {
    if !root.send(Read(IsStored::fact(&depart.fact_id))).await?? {
        return Ok(None);
    }
    let run = root.send(Read(FindRun { run_id: depart.run.run_id.clone() })).await??;
    Ok(run.and_then(|run| Status::parse(&run.status)))
}

fn wordless(way: Way) -> Way {
    match way {
        Way::Ended(mut ending) => {
            ending.reason.summary = "the store refused this run's own words".into();
            ending.error_detail = None;
            Way::Ended(ending)
        }
        other => other,
    }
}
