//! One actor per run: it has the task executed, and writes how that ended.

mod finish;

use std::future::Future;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message, SpawnHandle, WrapFuture};
use tracing::{Instrument, Span, debug, info, warn};

#[cfg(target_os = "linux")]
use super::guarded;
use super::launcher::{
    Commands, LaunchFailure, Orders, Part, StopOrder, TaskEnd, TaskStart, orders,
};
use super::root::Root;
use super::stored::{Stored, read_settings};
use super::supervise::DeathWatch;
use super::{Parts, task_span};
use crate::domain::ending::{EndedBy, ExecuteError};
use crate::domain::run::{ClaimedRun, RunEpoch};
use crate::domain::settings::RunSettings;
use crate::process::BootTime;
#[cfg(target_os = "linux")]
use crate::process::guardian::Guardian;

/// How long a task has between TERM and KILL unless its settings say otherwise.
pub(super) const GRACE: Duration = Duration::from_secs(5);

/// Stops the task.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub(crate) struct StopTask {
    /// Why; it decides what becomes of its run.
    pub reason: EndedBy,
    /// How long it may take; absent means the task's own grace.
    pub grace: Option<Duration>,
}

/// The lease was renewed by a request that was sent then.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub(crate) struct Renewed {
    pub requested: BootTime,
}

/// The task was stopped before it was started.
#[derive(Message)]
#[rtype(result = "()")]
struct NotStarted(EndedBy);

/// What the run starts with has been read.
#[derive(Message)]
#[rtype(result = "()")]
struct Start(Result<Stored, ExecuteError>);

/// The task has ended, or was never started.
#[derive(Message)]
#[rtype(result = "()")]
struct Finished(Result<TaskEnd, LaunchFailure>);

/// What an executor begins with.
pub(crate) enum Work {
    /// A run that was just claimed, and the locks of this machine that were taken for it.
    Claimed(ClaimedRun, Vec<OwnedFd>),
    /// A run that cannot be executed at all: only its end is to be written.
    Refused(ExecuteError),
    /// A task that runs already, under a guardian that has been taken over.
    #[cfg(target_os = "linux")]
    Attached(Box<Guardian>),
    /// A task that has ended well, under a lease that has been taken over: what it has left is to be judged.
    #[cfg(target_os = "linux")]
    Ended(Box<TaskEnd>),
}

/// Supervises one subprocess.
pub(crate) struct ExecutorActor {
    work: Option<Work>,
    epoch: RunEpoch,
    parts: Arc<Parts>,
    root: Addr<Root>,
    commands: Commands,
    /// What the task listens to, until it is started.
    orders: Option<Orders>,
    stopped_for: Option<EndedBy>,
    /// How long the task has between TERM and KILL.
    grace: Duration,
    /// How long the run may take, in seconds.
    timeout: Option<f64>,
    timeout_timer: Option<SpawnHandle>,
    /// What it was started with, if this executor has started it.
    settings: Option<RunSettings>,
    /// When, in seconds since the epoch.
    launched_at: f64,
    /// The kill begins then.
    fence: BootTime,
    fence_timer: Option<SpawnHandle>,
    span: Span,
    _watch: DeathWatch,
}

impl ExecutorActor {
    /// An executor for a run whose claim, or takeover, was sent at `requested`.
    pub fn new(
        work: Work,
        epoch: RunEpoch,
        requested: BootTime,
        parts: Arc<Parts>,
        root: Addr<Root>,
        watch: DeathWatch,
    ) -> ExecutorActor {
        let fence = requested.saturating_add(parts.times.reach_duration());
        let (commands, orders) = orders(fence);
        let span = task_span("executor", &epoch, work.kind());
        ExecutorActor {
            work: Some(work),
            epoch,
            parts,
            root,
            commands,
            orders: Some(orders),
            stopped_for: None,
            grace: GRACE,
            timeout: None,
            timeout_timer: None,
            settings: None,
            launched_at: 0.0,
            fence,
            fence_timer: None,
            span,
            _watch: watch,
        }
    }

    /// Sets the moment at which the task is stopped unless its lease is renewed before.
    fn set_fence(&mut self, fence: BootTime, ctx: &mut Context<Self>) {
        self.fence = fence;
        // The task's guardian, if it has one, keeps it too.
        self.commands.move_fence(fence);
        let new = ctx.run_later(fence.saturating_since(BootTime::now()), |actor, _| {
            let _in = actor.parts.enter("executor", &actor.span);
            warn!("the lease could not be renewed in time");
            let grace = Duration::from_secs_f64(actor.parts.times.grace);
            actor.stop_task(EndedBy::Fence, Some(grace));
        });
        if let Some(old) = self.fence_timer.replace(new) {
            ctx.cancel_future(old);
        }
    }

    fn stop_task(&mut self, reason: EndedBy, grace: Option<Duration>) {
        let grace = grace.unwrap_or(self.grace);
        match self.stopped_for {
            None => info!(?reason, ?grace, "stopping the task"),
            // Each renewal says again that a lease is lost.
            Some(_) => debug!(?reason, ?grace, "stopping the task already"),
        }
        // The first reason stands: a lost lease stays lost when the runtime ends after it.
        let ended_by = *self.stopped_for.get_or_insert(reason);
        self.commands.stopper.stop(StopOrder { ended_by, grace });
    }

    fn launch(&mut self, settings: RunSettings, stdin: Option<Vec<u8>>, ctx: &mut Context<Self>) {
        let Some(orders) = self.orders.take() else { return };
        let Some(Work::Claimed(run, locks)) = self.work.take() else { return };
        let settings = match self.parts.config.defaults.get(&run.action_kind) {
            Some(defaults) => settings.or(defaults),
            None => settings,
        };
        if let Some(seconds) = settings.grace {
            self.grace = Duration::from_secs_f64(seconds);
        }
        if let Some(seconds) = settings.timeout {
            self.timeout = Some(seconds);
            let timer = ctx.run_later(Duration::from_secs_f64(seconds), |actor, _| {
                let _in = actor.parts.enter("executor", &actor.span);
                actor.stop_task(EndedBy::Timeout, None);
            });
            self.timeout_timer = Some(timer);
        }
        info!("launch");
        self.settings = Some(settings.clone());
        self.launched_at = self.parts.clock.now();
        let start = TaskStart { run, settings, stdin, grace: self.grace, locks, part: Part::Task };
        let launched = self.parts.launcher.launch(start, orders);
        self.wait_for(launched, ctx);
    }

    /// The future belongs to this actor: if the actor dies, it is dropped.
    fn wait_for(
        &self,
        launched: impl Future<Output = Result<TaskEnd, LaunchFailure>> + 'static,
        ctx: &mut Context<Self>,
    ) {
        let address = ctx.address();
        let watched = async move { address.do_send(Finished(launched.await)) };
        ctx.spawn(watched.instrument(self.span.clone()).into_actor(self));
    }
}

impl Work {
    /// Whether the task runs already.
    pub fn is_attached(&self) -> bool {
        #[cfg(target_os = "linux")]
        return matches!(self, Work::Attached(_) | Work::Ended(_));
        #[cfg(not(target_os = "linux"))]
        false
    }

    fn kind(&self) -> &str {
        match self {
            Work::Claimed(run, _) => &run.action_kind,
            _ => "",
        }
    }
}

impl Actor for ExecutorActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let _in = self.parts.enter("executor", &self.span);
        match self.work.take() {
            Some(Work::Refused(error)) => return ctx.notify(Finished(Err(error.into()))),
            #[cfg(target_os = "linux")]
            Some(Work::Attached(guardian)) => {
                let Some(orders) = self.orders.take() else { return };
                info!("attached to a task that runs already");
                self.set_fence(self.fence, ctx);
                return self.wait_for(guarded::attend(*guardian, orders), ctx);
            }
            #[cfg(target_os = "linux")]
            Some(Work::Ended(end)) => {
                self.set_fence(self.fence, ctx);
                return ctx.notify(Finished(Ok(*end)));
            }
            work => self.work = work,
        }
        if self.fence <= BootTime::now() {
            warn!("the lease ran out before the task could be started");
            return ctx.notify(NotStarted(EndedBy::Fence));
        }
        self.set_fence(self.fence, ctx);
        let (root, run_id, address) = (self.root.clone(), self.epoch.run_id.clone(), ctx.address());
        let read = async move { address.do_send(Start(read_settings(&root, run_id).await)) };
        ctx.spawn(read.instrument(self.span.clone()).into_actor(self));
    }
}

impl Handler<Start> for ExecutorActor {
    type Result = ();

    fn handle(&mut self, Start(settings): Start, ctx: &mut Self::Context) {
        let _in = self.parts.enter("executor", &self.span);
        match settings {
            // Stopped before it was started.
            _ if self.stopped_for.is_some() => {
                let ended_by = self.stopped_for.unwrap_or(EndedBy::Stop);
                ctx.notify(NotStarted(ended_by));
            }
            Ok(Stored { is_cancel_requested: true, .. }) => {
                ctx.notify(NotStarted(EndedBy::Cancel));
            }
            Ok(Stored { settings, stdin, .. }) => self.launch(settings, stdin, ctx),
            Err(error) => ctx.notify(Finished(Err(error.into()))),
        }
    }
}

impl Handler<StopTask> for ExecutorActor {
    type Result = ();

    fn handle(&mut self, StopTask { reason, grace }: StopTask, _: &mut Self::Context) {
        let _in = self.parts.enter("executor", &self.span);
        self.stop_task(reason, grace);
    }
}

impl Handler<Renewed> for ExecutorActor {
    type Result = ();

    fn handle(&mut self, Renewed { requested }: Renewed, ctx: &mut Self::Context) {
        if self.fence_timer.is_some() && self.stopped_for.is_none() {
            self.set_fence(requested.saturating_add(self.parts.times.reach_duration()), ctx);
        }
    }
}
