//! Who does what, when.
//!
//! ```text
//! SchedulerActor --Tick--> WorkerActor --Beat-->  HeartbeatActor --.
//!                           |  --Reap-->  ReaperActor     --+--> DbActor   (every write)
//!                           |  --Claim--> ClaimActor      --'
//!                           '--Launch--> Root --> ExecutorActor (one per subprocess) --> the task
//!                                        '--Look--> DispatchActor --> the receiver
//! ```
//!
//! Requests go down, replies and facts go up, and no two actors ever wait for each other. [`Root`](root::Root) owns
//! them all: it starts them, hears of their deaths, and starts them again within a budget. A handler unpacks, calls a
//! pure function or one database operation, and replies; what is decided is decided in
//! [`domain`](crate::domain).

mod awaited;
#[cfg(target_os = "linux")]
mod checks;
pub(crate) mod claim;
mod contract;
pub(crate) mod db;
pub(crate) mod dispatch;
mod ending;
pub(crate) mod executor;
pub(crate) mod exit;
#[cfg(target_os = "linux")]
mod forks;
#[cfg(target_os = "linux")]
pub(crate) mod guarded;
pub(crate) mod heartbeat;
pub(crate) mod in_process;
pub(crate) mod launcher;
mod lease_clock;
pub(crate) mod reader;
pub(crate) mod reaper;
pub(crate) mod root;
pub(crate) mod scheduler;
mod stored;
pub(crate) mod supervise;
pub(crate) mod worker;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use actix::Addr;
use thiserror::Error;
use tracing::Span;
use tracing::span::EnteredSpan;

use crate::clock::Clock;
use crate::config::RuntimeConfig;
use crate::db::StoreError;
use crate::domain::claim_plan::Offer;
use crate::domain::fence::LeaseTimes;
use crate::domain::run::RunEpoch;
use crate::ids::IdSource;
use crate::notify::Sender;
#[cfg(target_os = "linux")]
use crate::process::guardian::RunDir;
use crate::process::machine_lock::LockDir;

/// What a daemon whose tasks run under guardians holds.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(crate) struct Guards {
    /// Its own slot first, then those that dead daemons left runs in.
    pub slots: Vec<crate::process::slot::Slot>,
    /// What is kept of runs that have ended.
    pub retention: crate::process::guardian::Retention,
}

#[cfg(target_os = "linux")]
impl Guards {
    /// Whether the run stands in one of the slots. What cannot be read is not known to be absent.
    pub fn have(&self, run_id: &str, epoch: i32) -> bool {
        self.slots
            .iter()
            .any(|slot| !matches!(RunDir::find(slot.path(), run_id, epoch.into()), Ok(None)))
    }

    /// The run's directory, if it stands in one of the slots and can be read.
    pub fn dir_of(&self, run: &RunEpoch) -> Option<RunDir> {
        self.slots
            .iter()
            .find_map(|slot| RunDir::find(slot.path(), &run.run_id, run.epoch.into()).ok()?)
    }

    /// Whether the run stands in any slot of the store on this host, whoever holds that.
    pub fn is_on_this_host(&self, run_id: &str, epoch: i32) -> bool {
        let slots = self.slots.first().map_or_else(|| Ok(Vec::new()), |slot| slot.siblings());
        slots.map_or(true, |slots| {
            slots.iter().any(|slot| !matches!(RunDir::find(slot, run_id, epoch.into()), Ok(None)))
        })
    }
}

/// Called with an actor's name when it begins to handle a message: where tests make an actor panic.
pub type ActorSeam = Arc<dyn Fn(&'static str) + Send + Sync>;

/// What every actor is given.
pub(crate) struct Parts {
    pub config: RuntimeConfig,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn IdSource>,
    pub launcher: Arc<dyn launcher::Launcher>,
    /// The name under which this start of the runtime owns its runs.
    pub worker_id: String,
    /// What sends notices.
    pub sender: Sender,
    pub offer: Offer,
    pub times: LeaseTimes,
    /// The locks behind serialization tokens, if any are taken.
    pub locks: Option<LockDir>,
    pub seam: Option<ActorSeam>,
    #[cfg(target_os = "linux")]
    pub guards: Option<Arc<Guards>>,
}

impl Parts {
    /// Whether the run stands in a directory of this daemon's. Without guardians none does.
    #[cfg(target_os = "linux")]
    pub fn have(&self, run_id: &str, epoch: i32) -> bool {
        self.guards.as_ref().is_some_and(|guards| guards.have(run_id, epoch))
    }

    /// Without guardians no run stands in a directory.
    #[cfg(not(target_os = "linux"))]
    pub fn have(&self, _: &str, _: i32) -> bool {
        false
    }

    /// Enters an actor's span, in which its log lines and its panics name it, and passes its seam.
    pub fn enter(&self, actor: &'static str, span: &Span) -> EnteredSpan {
        let entered = span.clone().entered();
        if let Some(seam) = &self.seam {
            seam(actor);
        }
        entered
    }
}

/// The span of a task, in which everything that is about it is logged.
pub(crate) fn task_span(actor: &'static str, run: &RunEpoch, kind: &str) -> Span {
    tracing::info_span!("task", run_id = %run.run_id, epoch = run.epoch, kind = %kind, actor)
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("worker_id", &self.worker_id).finish_non_exhaustive()
    }
}

/// The addresses of one start of the loops. They die with it; ask [`Root`](root::Root) for new ones.
#[derive(Debug, Clone)]
pub(crate) struct Links {
    pub db: db::Writer,
    pub scheduler: Addr<scheduler::SchedulerActor>,
    pub worker: Addr<worker::WorkerActor>,
}

/// Why a message between actors brought no answer.
#[derive(Debug, Clone, Error)]
pub enum CallError {
    /// The store answered with an error.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The other actor is gone. What was asked for may have been done, or not.
    #[error(
        "a part of the runtime was restarted before it answered; look again before you repeat the call"
    )]
    Gone,
    /// Too many writes are waiting.
    #[error("the queue is overloaded, nothing was written: try again a little later")]
    Overloaded,
}

impl From<actix::MailboxError> for CallError {
    fn from(_: actix::MailboxError) -> CallError {
        CallError::Gone
    }
}
