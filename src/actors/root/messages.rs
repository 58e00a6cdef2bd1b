//! What Root is asked and told.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use actix::{Addr, Message};

use super::Root;
use crate::actors::db::Writer;
use crate::actors::{CallError, Links};
use crate::db::Query;
use crate::domain::ending::ExecuteError;
use crate::domain::run::{ClaimedRun, RunEpoch};
use crate::domain::status::Status;
use crate::process::BootTime;

/// Asks for the addresses of this start of the loops; there are none while they are down.
#[derive(Debug, Message)]
#[rtype(result = "Option<Links>")]
pub(crate) struct Resolve;

/// Asks for the writer alone, which is there before the first claim.
#[derive(Debug, Message)]
#[rtype(result = "Option<Writer>")]
pub(crate) struct ResolveWriter;

/// Runs a query on the reading connection.
#[derive(Debug)]
pub(crate) struct Read<Q>(pub Q);

impl<Q: Query + Send + 'static> Message for Read<Q>
where
    Q::Output: Send,
{
    type Result = Result<Q::Output, CallError>;
}

/// Asks how many more runs may be started.
#[derive(Debug, Message)]
#[rtype(result = "usize")]
pub(crate) struct FreeSlots;

/// Asks for leave to send claims; there is none any more once the runtime ends.
#[derive(Debug, Message)]
#[rtype(result = "Option<Leave>")]
pub(crate) struct AskLeave;

/// Leave to do something that the end of the runtime waits for. A claim on its way may be granted, and somebody must then
/// give the run back; a notice that is being sent should be so once.
#[derive(Debug)]
pub(crate) struct Leave {
    _out: Arc<()>,
    root: Addr<Root>,
}

impl Leave {
    pub fn new(out: &Arc<()>, root: Addr<Root>) -> Leave {
        Leave { _out: Arc::clone(out), root }
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        // Root looks when this is done, on this same thread.
        self.root.do_send(CheckIdle);
    }
}

/// Gives a claimed run its executor.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Launch {
    pub run: ClaimedRun,
    /// When the claim was sent.
    pub requested: BootTime,
    /// Why the run cannot be executed at all, if it cannot.
    pub refused: Option<ExecuteError>,
    /// The locks of this machine that were taken for it.
    pub locks: Vec<OwnedFd>,
}

/// Asks which runs have an executor.
#[derive(Debug, Message)]
#[rtype(result = "Vec<RunEpoch>")]
pub(crate) struct RunningRuns;

/// The answer to a renewal.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct LeasesRenewed {
    /// When it was sent.
    pub requested: BootTime,
    /// The leases it asked for,
    pub asked: Vec<RunEpoch>,
    /// and those that were still this worker's.
    pub kept: HashSet<RunEpoch>,
}

/// A run has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The run.
    pub run_id: String,
    /// Its terminal status.
    pub status: Status,
    /// Its exit code, `-N` for signal N; absent when no executor ended it.
    pub exit_code: Option<i32>,
}

/// A run has ended without an executor of this runtime.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct RunEnded(pub Ended);

/// An executor has written all there is to write.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct ExecutorDone {
    pub epoch: RunEpoch,
    /// The end, if this executor wrote one.
    pub ended: Option<Ended>,
    /// Whether this machine had nothing left to run the task with.
    pub no_resources: bool,
}

/// Asks to be answered once nothing runs.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct WhenIdle;

/// Looks whether anybody who waits for idleness can be answered.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(super) struct CheckIdle;

/// Ends the runtime. Said again, it shortens what is left.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub(crate) struct Shutdown {
    /// How long running tasks may take to end by themselves.
    pub drain: Duration,
    /// How long they have between TERM and KILL after that.
    pub grace: Duration,
    /// Whether running tasks are left to their guardians instead, for the next worker on this host.
    pub detach: bool,
}

/// Has notices looked for that are due.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct LookForNotices;

/// Answers after a while. The caller may have no timer of its own: a host's executor can be any.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Sleep(pub Duration);
