//! The registry of executors: who runs what, and what becomes of a run whose executor is gone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::{Actor, ActorFutureExt, Addr, AsyncContext, Context, Handler, WrapFuture};
use tracing::{Instrument, error, warn};

use super::{
    AskLeave, CheckIdle, ExecutorDone, FreeSlots, Launch, LeasesRenewed, Leave, Root, RunningRuns,
};
use crate::actors::ending::{depart, exception};
use crate::actors::executor::{ExecutorActor, Renewed, StopTask, Work};
use crate::actors::root::Ended;
use crate::actors::supervise::{Child, DeathWatch};
use crate::db::ops::{CancelRequests, Way};
use crate::domain::ending::EndedBy;
use crate::domain::reason::{Reason, ReasonCode};
use crate::domain::run::RunEpoch;
use crate::process::BootTime;

/// How long nothing is claimed after this machine had nothing left to run a task with.
const PAUSE: Duration = Duration::from_secs(1);

impl Root {
    /// Starts an executor and registers it. The lease was claimed or taken over by a request sent at `requested`.
    pub(super) fn start_executor(
        &mut self,
        work: Work,
        epoch: RunEpoch,
        requested: BootTime,
        ctx: &mut Context<Self>,
    ) {
        let deaths = ctx.address().recipient();
        let watch = DeathWatch::new(&deaths, Child::Executor(epoch.clone()), self.incarnation);
        let (parts, root) = (Arc::clone(&self.parts), ctx.address());
        // One that starts its task reads what was asked before; this one finds its task running.
        let is_attached = work.is_attached();
        let executor =
            ExecutorActor::new(work, epoch.clone(), requested, parts, root, watch).start();
        if let Some(grace) = self.stopping_tasks {
            executor.do_send(StopTask { reason: EndedBy::Stop, grace: Some(grace) });
        }
        let run_id = epoch.run_id.clone();
        self.executors.insert(epoch, executor);
        if is_attached {
            self.ask_for_cancels(vec![run_id], ctx);
        }
    }

    /// An executor that did not say goodbye. Its task was stopped when it died; its run fails.
    pub(super) fn executor_died(&mut self, epoch: RunEpoch, ctx: &mut Context<Self>) {
        if self.executors.remove(&epoch).is_some() {
            self.dying_with_us.remove(&epoch);
            #[cfg(target_os = "linux")]
            if self.parts.guards.is_some() {
                return self.attach_again(epoch, ctx);
            }
            error!(run_id = %epoch.run_id, epoch = epoch.epoch, "an executor died, its task was stopped");
            let way = exception("the executor of this run died; its process group was killed");
            self.depart_without_executor(epoch, way, ctx);
        }
    }

    /// Writes where a run goes that has no executor. Its slot is taken until that is stored.
    pub(super) fn depart_without_executor(
        &mut self,
        epoch: RunEpoch,
        way: Way,
        ctx: &mut Context<Self>,
    ) {
        self.departing += 1;
        let (root, parts) = (ctx.address(), Arc::clone(&self.parts));
        let span = tracing::info_span!("task", run_id = %epoch.run_id, epoch = epoch.epoch);
        let written = async move {
            let status = depart(&root, &parts, &epoch, way, None).await;
            parts.launcher.left(&epoch);
            let run_id = epoch.run_id;
            let ended = |status| Ended { run_id, status, exit_code: None };
            status.filter(|status| status.is_terminal()).map(ended)
        };
        let done = written.instrument(span).into_actor(self).map(|ended, root: &mut Root, ctx| {
            root.departing -= 1;
            if let Some(ended) = ended {
                root.announce(ended);
            }
            root.wake();
            ctx.notify(CheckIdle);
        });
        ctx.spawn(done);
    }

    /// Stops those of the running tasks that somebody wants to be stopped.
    pub(super) fn look_for_cancels(&mut self, ctx: &mut Context<Self>) {
        if self.executors.is_empty() {
            return;
        }
        let run_ids = self.executors.keys().map(|run| run.run_id.clone()).collect();
        self.ask_for_cancels(run_ids, ctx);
    }

    fn ask_for_cancels(&self, run_ids: Vec<String>, ctx: &mut Context<Self>) {
        let reader = self.reader.clone();
        let asked = async move { reader.read(CancelRequests { run_ids }).await };
        let stop = asked.into_actor(self).map(|asked, root: &mut Root, _| match asked {
            Ok(run_ids) => root.cancel(&run_ids),
            Err(error) => warn!(%error, "cannot look for requested cancels"),
        });
        ctx.spawn(stop);
    }

    fn cancel(&self, run_ids: &[String]) {
        let asked = |run: &&RunEpoch| run_ids.contains(&run.run_id);
        for run in self.executors.keys().filter(asked) {
            self.executors[run].do_send(StopTask { reason: EndedBy::Cancel, grace: None });
        }
    }

    pub(super) fn stop_all(&self, grace: Duration) {
        self.executors.values().for_each(|executor| stop(executor, grace));
    }

    /// Stops those that nobody could take over.
    pub(super) fn stop_what_dies_with_us(&self, grace: Duration) {
        let runs = self.dying_with_us.iter();
        runs.filter_map(|run| self.executors.get(run)).for_each(|executor| stop(executor, grace));
    }
}

fn stop(executor: &Addr<ExecutorActor>, grace: Duration) {
    executor.do_send(StopTask { reason: EndedBy::Stop, grace: Some(grace) });
}

impl Handler<FreeSlots> for Root {
    type Result = usize;

    fn handle(&mut self, _: FreeSlots, _: &mut Self::Context) -> usize {
        let paused = self.paused_until.is_some_and(|until| Instant::now() < until);
        if self.stopping || paused {
            return 0;
        }
        self.parts.config.concurrency.saturating_sub(self.executors.len() + self.departing)
    }
}

impl Handler<AskLeave> for Root {
    type Result = Option<Leave>;

    fn handle(&mut self, _: AskLeave, ctx: &mut Self::Context) -> Self::Result {
        (!self.stopping).then(|| Leave::new(&self.claiming, ctx.address()))
    }
}

impl Handler<Launch> for Root {
    type Result = ();

    fn handle(&mut self, launch: Launch, ctx: &mut Self::Context) {
        let Launch { run, requested, refused, locks } = launch;
        let _in = self.span.clone().entered();
        let epoch = run.run_epoch();
        if self.stopping {
            // Granted after the end had begun.
            let reason =
                Reason::new(ReasonCode::SHUTDOWN, "the worker was shut down before the start");
            return self.depart_without_executor(epoch, Way::Back(reason), ctx);
        }
        if self.parts.launcher.dies_with_us(&run.action_kind) {
            self.dying_with_us.insert(epoch.clone());
        }
        let work = refused.map_or(Work::Claimed(run, locks), Work::Refused);
        self.start_executor(work, epoch, requested, ctx);
    }
}

impl Handler<RunningRuns> for Root {
    type Result = Vec<RunEpoch>;

    fn handle(&mut self, _: RunningRuns, _: &mut Self::Context) -> Self::Result {
        self.executors.keys().cloned().collect()
    }
}

impl Handler<LeasesRenewed> for Root {
    type Result = ();

    fn handle(&mut self, renewal: LeasesRenewed, ctx: &mut Self::Context) {
        let _in = self.span.clone().entered();
        // Should every wake-up have been lost.
        self.look_for_cancels(ctx);
        let grace = Duration::from_secs_f64(self.parts.times.grace);
        for epoch in &renewal.asked {
            let Some(executor) = self.executors.get(epoch) else { continue };
            if renewal.kept.contains(epoch) {
                executor.do_send(Renewed { requested: renewal.requested });
            } else {
                // If the end of this run was being written meanwhile, the stop finds nothing to stop.
                warn!(run_id = %epoch.run_id, epoch = epoch.epoch, "the lease is lost");
                let grace = Some(grace);
                executor.do_send(StopTask { reason: EndedBy::Fence, grace });
            }
        }
    }
}

impl Handler<ExecutorDone> for Root {
    type Result = ();

    fn handle(&mut self, done: ExecutorDone, ctx: &mut Self::Context) {
        let _in = self.span.clone().entered();
        self.executors.remove(&done.epoch);
        self.dying_with_us.remove(&done.epoch);
        #[cfg(target_os = "linux")]
        self.executor_deaths.remove(&done.epoch);
        if let Some(ended) = done.ended {
            self.announce(ended);
        }
        if done.no_resources {
            warn!("this machine has nothing left to run tasks with: claims pause");
            self.paused_until = Some(Instant::now() + PAUSE);
            ctx.run_later(PAUSE, |root, _| root.wake());
        }
        self.wake();
        ctx.notify(CheckIdle);
    }
}
