//! Takes back the leases that have expired, whoever held them, and does what time does to runs that wait.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message, ResponseFuture, SpawnHandle};
use futures_util::future::join_all;
use tracing::{Instrument, Span, info, warn};

use super::db::{Lane, Writer};
use super::reader::Reader;
use super::root::{Ended, Root, RunEnded};
use super::scheduler::Wake;
use super::supervise::{DeathWatch, halts};
use super::{CallError, Parts};
use crate::db::ops::{
    Counted, Due, DuePage, ExpiredLease, ExpiredPage, NextDue, Reap as ReapOne, Wake as WakeRun,
};
use crate::domain::clocks::{JumpGuard, SeenLease};
use crate::domain::status::Status;

/// How soon what the store does not take for due yet is looked for again, in seconds: clocks of hosts differ.
const LOOK_AGAIN: f64 = 0.25;

/// Takes back every expired lease, and does what is due.
#[derive(Debug, Message)]
#[rtype(result = "Result<Reaped, CallError>")]
pub(crate) struct Reap;

/// How many were taken back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Reaped {
    /// Runs that went back to the queue.
    pub requeued: usize,
    /// Runs that failed, since their bound was reached.
    pub failed: usize,
}

/// Returns expired leases to the queue. A lease is *expired* if and only if the run is running and its expiry is before
/// now.
pub(crate) struct ReaperActor {
    parts: Arc<Parts>,
    root: Addr<Root>,
    db: Writer,
    reader: Reader,
    jumps: Rc<RefCell<JumpGuard>>,
    timer: Option<SpawnHandle>,
    span: Span,
    _watch: DeathWatch,
}

impl ReaperActor {
    pub fn new(
        parts: Arc<Parts>,
        root: Addr<Root>,
        db: Writer,
        reader: Reader,
        jumps: Rc<RefCell<JumpGuard>>,
        watch: DeathWatch,
    ) -> Self {
        let span = tracing::info_span!("runtime", actor = "reaper");
        ReaperActor { parts, root, db, reader, jumps, timer: None, span, _watch: watch }
    }
}

halts!(ReaperActor);

impl Actor for ReaperActor {
    type Context = Context<Self>;
}

impl Handler<Reap> for ReaperActor {
    type Result = ResponseFuture<Result<Reaped, CallError>>;

    fn handle(&mut self, _: Reap, ctx: &mut Self::Context) -> Self::Result {
        let _in = self.parts.enter("reaper", &self.span);
        let (jumps, address) = (Rc::clone(&self.jumps), ctx.address());
        let (parts, root) = (Arc::clone(&self.parts), self.root.clone());
        let (db, reader) = (self.db.clone(), self.reader.clone());
        let reaped = async move {
            let mut counts = Reaped::default();
            let look = parts.look_at_clock(&reader).await?;
            if let Some(jump) = jumps.borrow_mut().look(look) {
                warn!(seconds = jump, "the clock has jumped: leases of others are waited for");
            }
            let mut next = Some(ExpiredPage { now: parts.lease_now(), after: None });
            while let Some(page) = next {
                let leases = reader.read(page.clone()).await?;
                next = page.next(&leases);
                // The end of a run that stands here is known here, or will be, and is not to be lost because it could not
                // be written in time.
                let takeable = leases.into_iter().filter(|lease| {
                    !parts.have(&lease.run_id, lease.lease_attempts)
                        && jumps.borrow_mut().may_take(seen_lease(lease, &parts), look.after)
                });
                let verdicts = takeable.map(|lease| take_back(lease, &parts, &root, &db));
                for verdict in join_all(verdicts).await {
                    match verdict? {
                        Some(Status::Queued) => counts.requeued += 1,
                        Some(Status::Failed) => counts.failed += 1,
                        _ => {}
                    }
                }
            }
            counts.requeued += wake(&parts, &root, &db, &reader).await?;
            address.do_send(DueNext(reader.read(NextDue).await?));
            Ok(counts)
        };
        Box::pin(reaped.instrument(self.span.clone()))
    }
}

/// When something is due next, in seconds since the epoch.
#[derive(Message)]
#[rtype(result = "()")]
struct DueNext(Option<f64>);

impl Handler<DueNext> for ReaperActor {
    type Result = ();

    /// The timer of ticks would be late for it.
    fn handle(&mut self, DueNext(moment): DueNext, ctx: &mut Self::Context) {
        if let Some(timer) = self.timer.take() {
            ctx.cancel_future(timer);
        }
        let Some(moment) = moment else { return };
        let left = moment - self.parts.clock.now();
        // What is due by this host's clock and was left alone is not due yet by the store's.
        let left = if left > 0.0 { left } else { LOOK_AGAIN };
        if left < self.parts.config.tick.as_secs_f64() {
            let root = self.root.clone();
            let wake = move |_: &mut Self, _: &mut Context<Self>| root.do_send(Wake);
            self.timer = Some(ctx.run_later(Duration::from_secs_f64(left), wake));
        }
    }
}

/// Does what is due. Answers how many runs came back to the queue.
async fn wake(
    parts: &Parts,
    root: &Addr<Root>,
    db: &Writer,
    reader: &Reader,
) -> Result<usize, CallError> {
    let mut queued = 0;
    loop {
        let page = reader.read(DuePage { now: parts.lease_now() }).await?;
        let is_full = DuePage::is_full(&page);
        let done = page.into_iter().map(|(run_id, due)| wake_one(run_id, due, parts, root, db));
        for status in join_all(done).await {
            queued += usize::from(status? == Some(Status::Queued));
        }
        if !is_full {
            return Ok(queued);
        }
    }
}

async fn wake_one(
    run_id: String,
    due: Due,
    parts: &Parts,
    root: &Addr<Root>,
    db: &Writer,
) -> Result<Option<Status>, CallError> {
    let (at, fact_id) = (parts.clock.now(), parts.ids.fact_id());
    let wake = WakeRun { run_id: run_id.clone(), due, at, fact_id };
    let status = db.write(wake, Lane::Second).await?;
    if let Some(status) = status {
        info!(%run_id, %status, "its time has come");
        if status.is_terminal() {
            root.do_send(RunEnded(Ended { run_id, status, exit_code: None }));
        }
    }
    Ok(status)
}

/// At its claim a lease was given no longer than from then to its expiry.
fn seen_lease<'a>(lease: &'a ExpiredLease, parts: &Parts) -> SeenLease<'a> {
    let longest = lease.lease_expires_at - lease.claimed_at.unwrap_or(f64::NEG_INFINITY);
    SeenLease {
        run_id: &lease.run_id,
        epoch: lease.lease_attempts,
        expires_at: lease.lease_expires_at,
        ttl: longest.max(parts.times.ttl),
    }
}

async fn take_back(
    seen: ExpiredLease,
    parts: &Parts,
    root: &Addr<Root>,
    db: &Writer,
) -> Result<Option<Status>, CallError> {
    let (run_id, attempts) = (seen.run_id.clone(), seen.lease_attempts);
    let reap = ReapOne {
        seen,
        counted: Counted::Expiries,
        max_attempts: parts.config.queue.max_lease_attempts,
        at: parts.clock.now(),
        fact_id: parts.ids.fact_id(),
    };
    let taken = db.write(reap, Lane::Second).await?;
    if let Some(status) = taken {
        info!(%run_id, attempts, %status, "an expired lease was taken back");
        if status.is_terminal() {
            root.do_send(RunEnded(Ended { run_id, status, exit_code: None }));
        }
    }
    Ok(taken)
}
