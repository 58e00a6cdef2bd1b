//! What a worker that has died left of a run: looked at, and cleared away where its guardian was killed.

use tracing::{info, warn};

use crate::actors::ending::unkillable;
use crate::db::ops::{Loss, Way};
use crate::domain::reason::{Reason, ReasonCode};
use crate::process::guardian::{
    ConnectError, ExitRecord, Guardian, LeftoversError, RunDir, kill_leftovers,
};

/// What was seen of a run's guardian, and the way to it.
pub(super) enum Found {
    Ended(Box<ExitRecord>),
    Answers(Box<Guardian>),
    Silent,
}

pub(super) async fn look(dir: &RunDir) -> Found {
    if dir.is_in_process() {
        // There is no guardian, and the process is dead: its slot is ours.
        return Found::Silent;
    }
    if let Ok(Some(record)) = dir.exit_record() {
        return Found::Ended(Box::new(record));
    }
    match Guardian::connect(dir).await {
        Ok(guardian) => Found::Answers(Box::new(guardian)),
        Err(ConnectError::Ended(record)) => Found::Ended(record),
        Err(_) => Found::Silent,
    }
}

/// Kills what a silent guardian left, once it is proved that it lives no more. Answers how the run goes on; nothing when
/// it has to be looked at again: the guardian is just starting, or has written its record meanwhile.
pub(super) async fn clean(dir: &RunDir, max: i32) -> Option<Way> {
    if dir.is_in_process() {
        info!("it ran inside a worker, which has died");
        return Some(Way::Lost { loss: Loss::Worker, max });
    }
    match kill_leftovers(dir).await {
        Ok(left) if !left.unkillable.is_empty() => Some(unkillable(&left.unkillable)),
        Ok(_) if matches!(dir.exit_record(), Ok(Some(_))) => None,
        Ok(left) if !left.begun => {
            Some(Way::Back(Reason::new(ReasonCode::START_FAILED, "its guardian was never started")))
        }
        Ok(left) => {
            info!(killed = left.killed, "its guardian was killed");
            Some(Way::Lost { loss: Loss::Guardian, max })
        }
        Err(LeftoversError::GuardianLives) => {
            warn!(
                "its guardian lives and does not answer; if it is stopped, let it run or kill it"
            );
            None
        }
        Err(error) => {
            warn!(%error, "cannot kill what is left");
            None
        }
    }
}
