//! Owns every other actor: starts them, hears of their deaths, starts them again within a budget.
//!
//! Root, not the worker, has the registry of executors, so a restart of the loops loses neither a running task nor a
//! slot.

#[cfg(target_os = "linux")]
mod adopt;
#[cfg(target_os = "linux")]
mod attach;
mod executors;
#[cfg(target_os = "linux")]
mod found;
#[cfg(target_os = "linux")]
mod kept;
mod lives;
mod messages;
mod stopping;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::{Actor, Addr, Arbiter, AsyncContext, Context, Handler, Recipient, ResponseFuture};
use tokio::sync::{broadcast, oneshot};
use tracing::{Instrument, Span};

pub use messages::*;

use super::db::{DbActor, Writer};
use super::dispatch::{DispatchActor, Look};
use super::executor::ExecutorActor;
use super::exit::ExitSlot;
use super::reader::Reader;
use super::scheduler::Wake;
use super::supervise::Halt;
use super::{CallError, Links, Parts};
use crate::db::{Query, Store};
use crate::domain::clocks::JumpGuard;
use crate::domain::restart::RestartBudget;
use crate::domain::run::RunEpoch;

/// The owner of all actors.
pub(crate) struct Root {
    parts: Arc<Parts>,
    /// Opens the writer's connection; the store itself is never used here.
    store: Box<dyn Fn() -> Store>,
    reader: Reader,
    writer: Arbiter,
    /// The writer, and with which start of the loops it was started.
    db: Option<(Addr<DbActor>, u64)>,
    links: Option<Links>,
    /// The loops of this start, to be stopped together.
    loops: Vec<Recipient<Halt>>,
    /// Which start of the loops this is.
    incarnation: u64,
    budget: RestartBudget,
    /// What the reaper has seen of the wall clock; it outlives restarts of the loops.
    jumps: Rc<RefCell<JumpGuard>>,
    executors: HashMap<RunEpoch, Addr<ExecutorActor>>,
    /// Those of them whose tasks run inside this process.
    dying_with_us: HashSet<RunEpoch>,
    /// How often the executor of a run has died.
    #[cfg(target_os = "linux")]
    executor_deaths: HashMap<RunEpoch, u32>,
    /// Runs without an executor whose way back is still being written.
    departing: usize,
    /// Whether what an older worker left is still being taken over.
    adopting: bool,
    /// Tasks are being stopped, with this grace: whichever is taken over now is stopped as well.
    stopping_tasks: Option<Duration>,
    /// Shared by every [`Leave`] to claim that is out,
    claiming: Arc<()>,
    /// and by every one to send notices.
    sending: Arc<()>,
    dispatch: Option<Addr<DispatchActor>>,
    /// Nothing is claimed before, since this machine had nothing left to run it with.
    paused_until: Option<Instant>,
    stopping: bool,
    /// Tasks are left to their guardians: nothing else is waited for than what has none.
    detaching: bool,
    waiting_for_idle: Vec<oneshot::Sender<()>>,
    endings: broadcast::Sender<Ended>,
    exit: ExitSlot,
    span: Span,
}

impl Root {
    pub fn new(
        parts: Arc<Parts>,
        store: Box<dyn Fn() -> Store>,
        reader: Reader,
        endings: broadcast::Sender<Ended>,
        exit: ExitSlot,
    ) -> Root {
        Root {
            budget: RestartBudget::new(parts.config.restarts),
            jumps: Rc::new(RefCell::new(JumpGuard::new(parts.times.margin))),
            parts,
            store,
            reader,
            writer: Arbiter::new(),
            db: None,
            links: None,
            loops: Vec::new(),
            incarnation: 0,
            executors: HashMap::new(),
            dying_with_us: HashSet::new(),
            #[cfg(target_os = "linux")]
            executor_deaths: HashMap::new(),
            departing: 0,
            adopting: false,
            stopping_tasks: None,
            claiming: Arc::default(),
            sending: Arc::default(),
            dispatch: None,
            paused_until: None,
            stopping: false,
            detaching: false,
            waiting_for_idle: Vec::new(),
            endings,
            exit,
            span: tracing::info_span!("runtime", actor = "root"),
        }
    }

    /// Whether nothing runs or may turn out to run, nothing is being written about what ran, no claim is on its way, and no notice.
    fn is_idle(&self) -> bool {
        self.executors.is_empty()
            && !self.adopting
            && self.departing == 0
            && Arc::strong_count(&self.claiming) == 1
            && (self.stopping_tasks.is_some() || !self.is_sending())
    }

    /// Whether notices are being sent, or looked for.
    fn is_sending(&self) -> bool {
        Arc::strong_count(&self.sending) > 1
    }

    fn look_for_notices(&self) {
        if let Some(dispatch) = &self.dispatch {
            // A full mailbox holds one already.
            let _ = dispatch.try_send(Look(Arc::clone(&self.sending)));
        }
    }

    /// Something that may have made room, or work.
    fn wake(&self) {
        if let Some(links) = &self.links {
            // A full mailbox holds a wake-up already.
            let _ = links.scheduler.try_send(Wake);
        }
        self.look_for_notices();
    }

    fn announce(&self, ended: Ended) {
        // Nobody may be listening.
        let _ = self.endings.send(ended);
    }
}

impl Actor for Root {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let _in = self.span.clone().entered();
        #[cfg(target_os = "linux")]
        if let Some(guards) = self.parts.guards.clone() {
            return self.adopt_and_start(guards, ctx);
        }
        self.start_loops(ctx);
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        // Whatever ends Root ends the runtime; unless a reason was given before, it died.
        self.exit.root_is_gone();
    }
}

impl Handler<Resolve> for Root {
    type Result = Option<Links>;

    fn handle(&mut self, _: Resolve, _: &mut Self::Context) -> Self::Result {
        self.links.clone()
    }
}

impl Handler<ResolveWriter> for Root {
    type Result = Option<Writer>;

    fn handle(&mut self, _: ResolveWriter, _: &mut Self::Context) -> Self::Result {
        self.db.as_ref().map(|(actor, _)| Writer::new(actor.clone(), self.parts.config.mailbox))
    }
}

impl<Q> Handler<Read<Q>> for Root
where
    Q: Query + Send + 'static,
    Q::Output: Send,
{
    type Result = ResponseFuture<Result<Q::Output, CallError>>;

    fn handle(&mut self, Read(query): Read<Q>, _: &mut Self::Context) -> Self::Result {
        let reader = self.reader.clone();
        Box::pin(async move { reader.read(query).await }.instrument(self.span.clone()))
    }
}

impl Handler<Wake> for Root {
    type Result = ();

    fn handle(&mut self, _: Wake, ctx: &mut Self::Context) {
        self.look_for_cancels(ctx);
        self.wake();
    }
}

impl Handler<RunEnded> for Root {
    type Result = ();

    fn handle(&mut self, RunEnded(ended): RunEnded, _: &mut Self::Context) {
        self.announce(ended);
    }
}

impl Handler<LookForNotices> for Root {
    type Result = ();

    fn handle(&mut self, _: LookForNotices, _: &mut Self::Context) {
        self.look_for_notices();
    }
}

impl Handler<WhenIdle> for Root {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: WhenIdle, ctx: &mut Self::Context) -> Self::Result {
        let (sender, receiver) = oneshot::channel();
        self.waiting_for_idle.push(sender);
        // Behind what is in the mailbox already.
        ctx.notify(CheckIdle);
        Box::pin(async { receiver.await.unwrap_or_default() })
    }
}

impl Handler<Sleep> for Root {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, Sleep(length): Sleep, _: &mut Self::Context) -> Self::Result {
        Box::pin(tokio::time::sleep(length))
    }
}
