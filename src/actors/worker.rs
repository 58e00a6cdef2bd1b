//! A tick: heartbeat, then reaping, then claiming, in that order (ADR-0071 D4).

use std::sync::Arc;

use actix::{
    Actor, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message, ResponseFuture,
    WrapFuture,
};
use tokio::sync::oneshot;
use tracing::{Instrument, Span, debug, warn};

use super::claim::{Claim, ClaimActor};
use super::heartbeat::{Beat, HeartbeatActor};
use super::reaper::{Reap, Reaped, ReaperActor};
use super::root::{FreeSlots, Root};
use super::supervise::{DeathWatch, halts};
use super::{CallError, Parts};

/// Makes a tick. One that comes while another is running is folded, with all others like it, into the one after.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "Result<Ticked, CallError>")]
pub(crate) struct Tick;

/// What a tick did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ticked {
    /// Runs whose expired lease sent them back to the queue.
    pub requeued: usize,
    /// Runs that failed because their leases had run out too often.
    pub failed: usize,
    /// Runs that were claimed and handed to an executor.
    pub claimed: usize,
}

type Waiter = oneshot::Sender<Result<Ticked, CallError>>;

/// Coordinates a tick.
pub(crate) struct WorkerActor {
    parts: Arc<Parts>,
    root: Addr<Root>,
    heartbeat: Addr<HeartbeatActor>,
    reaper: Addr<ReaperActor>,
    claim: Addr<ClaimActor>,
    /// Who waits for the tick that is running; nothing when none is.
    running: Option<Vec<Waiter>>,
    /// The tick after that one.
    next: Option<Vec<Waiter>>,
    span: Span,
    _watch: DeathWatch,
}

impl WorkerActor {
    pub fn new(
        parts: Arc<Parts>,
        root: Addr<Root>,
        heartbeat: Addr<HeartbeatActor>,
        reaper: Addr<ReaperActor>,
        claim: Addr<ClaimActor>,
        watch: DeathWatch,
    ) -> Self {
        let span = tracing::info_span!("runtime", actor = "worker");
        WorkerActor {
            parts,
            root,
            heartbeat,
            reaper,
            claim,
            running: None,
            next: None,
            span,
            _watch: watch,
        }
    }

    fn start_tick(&mut self, waiters: Vec<Waiter>, ctx: &mut Context<Self>) {
        self.running = Some(waiters);
        let steps = Steps {
            limit: self.parts.config.limit,
            root: self.root.clone(),
            heartbeat: self.heartbeat.clone(),
            reaper: self.reaper.clone(),
            claim: self.claim.clone(),
        };
        let tick = async move { steps.tick().await }.instrument(self.span.clone());
        ctx.spawn(tick.into_actor(self).map(|result, actor, ctx| actor.end_tick(result, ctx)));
    }

    fn end_tick(&mut self, result: Result<Ticked, CallError>, ctx: &mut Context<Self>) {
        let _in = self.parts.enter("worker", &self.span);
        match &result {
            Ok(ticked) => debug!(?ticked, "tick"),
            Err(error) => warn!(%error, "tick"),
        }
        let mut waiters = self.running.take().unwrap_or_default().into_iter();
        // Errors cannot be copied: the first who waits gets it, the others hear that there is no answer.
        match result {
            Ok(ticked) => waiters.for_each(|waiter| drop(waiter.send(Ok(ticked)))),
            Err(error) => drop(waiters.next().map(|waiter| waiter.send(Err(error)))),
        }
        if let Some(waiters) = self.next.take() {
            self.start_tick(waiters, ctx);
        }
    }
}

halts!(WorkerActor);

impl Actor for WorkerActor {
    type Context = Context<Self>;
}

impl Handler<Tick> for WorkerActor {
    type Result = ResponseFuture<Result<Ticked, CallError>>;

    fn handle(&mut self, _: Tick, ctx: &mut Self::Context) -> Self::Result {
        let _in = self.parts.enter("worker", &self.span);
        let (waiter, answer) = oneshot::channel();
        if self.running.is_some() {
            self.next.get_or_insert_default().push(waiter);
        } else {
            self.start_tick(vec![waiter], ctx);
        }
        Box::pin(async { answer.await.unwrap_or(Err(CallError::Gone)) })
    }
}

struct Steps {
    limit: usize,
    root: Addr<Root>,
    heartbeat: Addr<HeartbeatActor>,
    reaper: Addr<ReaperActor>,
    claim: Addr<ClaimActor>,
}

impl Steps {
    async fn tick(&self) -> Result<Ticked, CallError> {
        self.heartbeat.send(Beat).await??;
        let Reaped { requeued, failed } = self.reaper.send(Reap).await??;
        let claimed = self.claim_rounds().await?;
        Ok(Ticked { requeued, failed, claimed })
    }

    /// Pass after pass, until a whole round has met nothing to claim or the slots are full. What was lost to somebody else
    /// is met no more, so this ends.
    async fn claim_rounds(&self) -> Result<usize, CallError> {
        let (mut claimed, mut has_met, mut after) = (0, false, None);
        loop {
            let limit = self.limit.min(self.root.send(FreeSlots).await?);
            if limit == 0 {
                return Ok(claimed);
            }
            let pass = self.claim.send(Claim { limit, after }).await??;
            claimed += pass.won;
            has_met |= pass.won + pass.lost > 0;
            after = pass.next;
            if after.is_none() && !std::mem::take(&mut has_met) {
                return Ok(claimed);
            }
        }
    }
}
