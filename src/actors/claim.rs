//! One claim pass at a time: read the queue, take the locks, claim what this worker may serve, hand it over.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use actix::{
    Actor, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message, ResponseFuture,
    WrapFuture,
};
use futures_util::future::join_all;
use tracing::{Instrument, Span, debug, info, warn};

use super::awaited::{Awaited, LOOK_AGAIN};
use super::db::{Lane, Writer};
use super::reader::Reader;
use super::root::{AskLeave, Launch, Root};
use super::scheduler::Wake;
use super::supervise::{DeathWatch, halts};
use super::{CallError, Parts, task_span};
use crate::db::ops::{
    BusyKeys, Claim as ClaimOne, ClaimOutcome, LastHeartbeat, ListPauses, ReadyClasses, ReadyPage,
};
use crate::domain::claim_plan::{ClaimPass, ClaimPlan, PAGE_ROWS, in_queue_order};
use crate::domain::clocks;
use crate::domain::ending::ExecuteError;
use crate::domain::lease;
use crate::domain::pause::Pauses;
use crate::domain::ready::{ReadyClass, may_claim};
use crate::domain::run::{ClaimedRun, QueuedRun, RunEpoch};
use crate::process::BootTime;

/// Classes that a pass looks at: where there are more, the next pass of the round goes on behind them.
const MOST_CLASSES: usize = 10_000;

/// Makes one pass.
#[derive(Debug, Message)]
#[rtype(result = "Result<Claimed, CallError>")]
pub(crate) struct Claim {
    /// At most so many runs are claimed.
    pub limit: usize,
    /// Behind which class the pass begins: the last one of the pass before; nothing at the beginning of a round.
    pub after: Option<String>,
}

/// What a pass did.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Claimed {
    /// Runs that are this worker's now, and on their way to an executor.
    pub won: usize,
    /// Runs that somebody else was first to claim, or to pause: there may be others behind them.
    pub lost: usize,
    /// Behind which class the next pass of this round begins; nothing when all were looked at.
    pub next: Option<String>,
}

impl Claimed {
    const NOTHING: Claimed = Claimed { won: 0, lost: 0, next: None };
}

/// Locks are awaited: they are to be looked at again.
#[derive(Message)]
#[rtype(result = "()")]
struct LookAgain;

/// Claims runs.
pub(crate) struct ClaimActor {
    pass: Pass,
    /// Whether a look at the awaited locks is due.
    looking: bool,
    span: Span,
    _watch: DeathWatch,
}

/// What a pass needs, and what it leaves to the next one.
#[derive(Clone)]
struct Pass {
    parts: Arc<Parts>,
    root: Addr<Root>,
    db: Writer,
    reader: Reader,
    /// What was paused at the last look.
    paused: Rc<RefCell<Pauses>>,
    /// Whether this host's clock was found to be off.
    off: Rc<Cell<bool>>,
    awaited: Awaited,
}

impl ClaimActor {
    pub fn new(
        parts: Arc<Parts>,
        root: Addr<Root>,
        db: Writer,
        reader: Reader,
        watch: DeathWatch,
    ) -> Self {
        let pass = Pass {
            parts,
            root,
            db,
            reader,
            paused: Rc::default(),
            off: Rc::default(),
            awaited: Awaited::default(),
        };
        let span = tracing::info_span!("runtime", actor = "claim");
        ClaimActor { pass, looking: false, span, _watch: watch }
    }
}

halts!(ClaimActor);

impl Actor for ClaimActor {
    type Context = Context<Self>;
}

impl Handler<Claim> for ClaimActor {
    type Result = ResponseFuture<Result<Claimed, CallError>>;

    fn handle(&mut self, Claim { limit, after }: Claim, ctx: &mut Self::Context) -> Self::Result {
        let pass = self.pass.clone();
        let _in = pass.parts.enter("claim", &self.span);
        if after.is_none() {
            pass.awaited.begin_round();
        }
        let now = pass.parts.clock.now();
        let address = ctx.address();
        let claimed = async move {
            if pass.is_stale(now).await? {
                info!("this worker's heartbeat is stale: it claims nothing");
                return Ok(Claimed::NOTHING);
            }
            if pass.is_out_of_time().await? {
                return Ok(Claimed::NOTHING);
            }
            let pauses = pass.pauses().await?;
            if pauses.are_of_all() {
                return Ok(Claimed::NOTHING);
            }
            let (candidates, next) = pass.plan(after, &pauses, limit).await?;
            // Only now: a look at a store that has fallen silent keeps nobody from ending. It is held until all that
            // was claimed has been handed over.
            let Some(_leave) = pass.root.send(AskLeave).await? else {
                return Ok(Claimed::NOTHING);
            };
            let claimed = pass.claim_all(candidates).await;
            pass.look_at_locks().await;
            address.do_send(LookAgain);
            claimed.map(|(won, lost)| Claimed { won, lost, next })
        };
        Box::pin(claimed.instrument(self.span.clone()))
    }
}

impl Handler<LookAgain> for ClaimActor {
    type Result = ();

    fn handle(&mut self, _: LookAgain, ctx: &mut Self::Context) {
        let Some(locks) = self.pass.parts.locks.clone() else { return };
        if self.looking || self.pass.awaited.is_empty() {
            return;
        }
        self.looking = true;
        let awaited = self.pass.awaited.clone();
        let look = async move {
            tokio::time::sleep(LOOK_AGAIN).await;
            awaited.look(&locks).await
        };
        let looked = look.instrument(self.span.clone()).into_actor(self);
        ctx.spawn(looked.map(|any_free, actor, ctx| {
            actor.looking = false;
            if any_free {
                actor.pass.root.do_send(Wake);
            }
            ctx.notify(LookAgain);
        }));
    }
}

impl Pass {
    async fn is_stale(&self, now: f64) -> Result<bool, CallError> {
        let heartbeat = LastHeartbeat { worker_id: self.parts.worker_id.clone() };
        let seen = self.reader.read(heartbeat).await?;
        Ok(lease::is_stale(seen, now, self.parts.config.queue.heartbeat_ttl))
    }

    /// Whether this host's clock is not that of the server. Leases do not depend on it, but all else that is written
    /// does: whose turn it is, when a task was started, whether a worker lives.
    async fn is_out_of_time(&self) -> Result<bool, CallError> {
        let Some(look) = self.parts.compare_clocks(&self.reader).await? else { return Ok(false) };
        let seconds = clocks::offset(look);
        let off = seconds.abs() > self.parts.times.margin;
        if self.off.replace(off) != off {
            match off {
                true => warn!(
                    "this host's clock is {:.1} s {} that of the database server: it claims nothing; set the clock",
                    seconds.abs(),
                    if seconds > 0.0 { "behind" } else { "ahead of" },
                ),
                false => info!("this host's clock is right again: it claims"),
            }
        }
        Ok(off)
    }

    /// All that is paused; a change is logged.
    async fn pauses(&self) -> Result<Pauses, CallError> {
        let pauses = self.reader.read(ListPauses).await?;
        let pauses: Pauses = pauses.into_iter().map(|pause| pause.scope).collect();
        if self.paused.replace(pauses.clone()) != pauses {
            info!("paused: {pauses}");
        }
        Ok(pauses)
    }

    /// What can be claimed, the oldest first: the classes are looked at, and those of which this worker can claim something
    /// are read.
    async fn plan(
        &self,
        after: Option<String>,
        pauses: &Pauses,
        limit: usize,
    ) -> Result<(ClaimPass, Option<String>), CallError> {
        let busy = self.reader.read(BusyKeys).await?;
        let (mut runs, mut looked) = (Vec::new(), 0);
        let mut page = Some(ReadyClasses { after: after.unwrap_or_default() });
        while let Some(classes) = page.take_if(|_| looked < MOST_CLASSES) {
            let found = self.reader.read(classes).await?;
            looked += found.len();
            page = ReadyClasses::next(&found);
            for class in found {
                if class.is_claimable(&self.parts.offer, &busy, pauses) {
                    self.read_class(class, pauses, &mut runs).await?;
                }
            }
        }
        in_queue_order(&mut runs);
        let mut plan = ClaimPlan::new(&self.parts.offer, limit, busy);
        let mut runs = runs.into_iter();
        while plan.wants_more() && runs.len() > 0 {
            plan.take_page(runs.by_ref().take(PAGE_ROWS).collect());
        }
        Ok((plan.into_pass(), page.map(|page| page.after)))
    }

    async fn read_class(
        &self,
        class: ReadyClass,
        pauses: &Pauses,
        runs: &mut Vec<QueuedRun>,
    ) -> Result<(), CallError> {
        let offer = &self.parts.offer;
        let (mut mine, mut page) = (0, Some(ReadyPage { class, after: None }));
        while let Some(next) = page.take_if(|_| mine < PAGE_ROWS) {
            let found = self.reader.read(next.clone()).await?;
            page = next.next(&found);
            // One whose name was cut has runs for others, too, and such as are paused.
            let served = found.into_iter().filter(|run| may_claim(run, offer, pauses));
            let before = runs.len();
            runs.extend(served);
            mine += runs.len() - before;
        }
        Ok(())
    }

    /// Sends all claims at once, so that they share a transaction. A key is spoken for by the first run that has it;
    /// should that one be lost, the next round finds the other. A run whose locks are not to be had is not claimed: it
    /// stays where it is in the queue and spends no epoch. Answers how many were won, and how many lost.
    async fn claim_all(&self, mut pass: ClaimPass) -> Result<(usize, usize), CallError> {
        let (mut chosen, mut taken) = (Vec::new(), BTreeSet::new());
        while let Some(run) = pass.next_candidate() {
            match self.take_locks(&run, &taken) {
                Ok(locks) => {
                    pass.claimed(&run);
                    chosen.push((run, locks));
                }
                Err(token) => {
                    self.awaited.meet(&token, &run.id);
                    taken.insert(token);
                    pass.put_off();
                }
            }
        }
        let claims = chosen.into_iter().map(|(run, locks)| self.claim_one(run, locks));
        let (mut won, mut lost) = (0, 0);
        for claim in join_all(claims).await {
            match claim? {
                true => won += 1,
                false => lost += 1,
            }
        }
        Ok((won, lost))
    }

    /// The locks of this machine that the run needs, or the first that is not to be had; `taken` are those of which that
    /// is known.
    fn take_locks(
        &self,
        run: &QueuedRun,
        taken: &BTreeSet<String>,
    ) -> Result<Vec<OwnedFd>, String> {
        let Some(dir) = &self.parts.locks else { return Ok(Vec::new()) };
        let tokens = self.parts.offer.serialization_tokens(run);
        match tokens.intersection(taken).next() {
            Some(token) => Err(token.clone()),
            None => dir.take(&tokens),
        }
    }

    /// Where ticks do not come by themselves nobody may be there later; elsewhere it can wait.
    async fn look_at_locks(&self) {
        if let Some(dir) = self.parts.locks.as_ref().filter(|_| !self.parts.config.own_ticks) {
            self.awaited.look(dir).await;
        }
    }

    /// The locks are freed if the claim is not won.
    async fn claim_one(&self, run: QueuedRun, locks: Vec<OwnedFd>) -> Result<bool, CallError> {
        // Each claim has the time at which it is made: no lease starts expired, and the fence counts from before it.
        let (requested, now) = (BootTime::now(), self.parts.clock.now());
        let claim = ClaimOne {
            run_id: run.id.clone(),
            concurrency_key: run.concurrency_key.clone(),
            worker_id: self.parts.worker_id.clone(),
            lease_expires_at: self.parts.lease_end(),
            at: now,
            fact_id: self.parts.ids.fact_id(),
        };
        match self.db.write(claim, Lane::Second).await? {
            ClaimOutcome::Won { epoch } => {
                let epoch = RunEpoch { run_id: run.id.clone(), epoch };
                task_span("claim", &epoch, &run.action_kind).in_scope(|| info!("claimed"));
                self.hand_over(run, epoch.epoch, requested, locks).await?;
                Ok(true)
            }
            lost => {
                debug!(run_id = %run.id, ?lost, "not claimed");
                Ok(false)
            }
        }
    }

    async fn hand_over(
        &self,
        run: QueuedRun,
        epoch: i32,
        requested: BootTime,
        locks: Vec<OwnedFd>,
    ) -> Result<(), CallError> {
        let unreadable = ClaimedRun::without_args(&run, epoch);
        let run = run.claimed(epoch).ok_or_else(ExecuteError::unreadable_args);
        let launch = match run {
            Ok(run) => Launch { run, requested, refused: None, locks },
            Err(error) => Launch { run: unreadable, requested, refused: Some(error), locks },
        };
        Ok(self.root.send(launch).await?)
    }
}
