//! What becomes of a run whose task has ended: what it has left is judged where that was asked for, and its end is written.

use std::sync::Arc;

use actix::{ActorContext, AsyncContext, Context, Handler, Message, WrapFuture};
use tracing::{Instrument, warn};

use super::{ExecutorActor, Finished, NotStarted};
use crate::actors::contract::{Case, Verdict};
use crate::actors::ending::{depart, exception, unkillable, way_of};
use crate::actors::launcher::{LaunchFailure, TaskEnd};
use crate::actors::root::{Ended, ExecutorDone};
use crate::db::ops::{AttemptEnd, Loss, Way};
use crate::domain::ending::{Ending, Execution};
use crate::domain::reason::{Reason, ReasonCode};

/// It is known whether a task that has ended well has left what it was to leave.
#[derive(Message)]
#[rtype(result = "()")]
struct Judged(Box<TaskEnd>, Verdict);

impl ExecutorActor {
    /// Where the run goes.
    fn way(&self, result: &Result<TaskEnd, LaunchFailure>) -> Way {
        match result {
            Ok(end) => self.way_of(end),
            Err(LaunchFailure::NoResources(what)) => {
                Way::Back(Reason::new(ReasonCode::START_FAILED, what.as_str()))
            }
            Err(LaunchFailure::GuardianLost) => {
                Way::Lost { loss: Loss::Guardian, max: self.parts.config.queue.max_lease_attempts }
            }
            Err(LaunchFailure::Unkillable(pids)) => unkillable(pids),
            Err(LaunchFailure::Exception(words)) => exception(words),
            Err(LaunchFailure::Failed(error)) => {
                Way::Ended(Ending::from(Execution::from(error.clone())))
            }
        }
    }

    fn way_of(&self, end: &TaskEnd) -> Way {
        way_of(end, self.timeout, self.parts.config.queue.max_lease_attempts)
    }

    /// Has it judged what a task has left that ended well. Its lease goes on being renewed, and its fence stands; how long it
    /// may take is another question now.
    fn judge(&mut self, end: TaskEnd, ctx: &mut Context<Self>) {
        if let Some(timer) = self.timeout_timer.take() {
            ctx.cancel_future(timer);
        }
        let case = Case {
            parts: Arc::clone(&self.parts),
            root: self.root.clone(),
            run: self.epoch.clone(),
            settings: self.settings.take(),
            end: end.clone(),
            launched_at: self.launched_at,
            orders: self.commands.orders(),
        };
        let address = ctx.address();
        let judged = async move { address.do_send(Judged(Box::new(end), case.judge().await)) };
        ctx.spawn(judged.instrument(self.span.clone()).into_actor(self));
    }

    /// Whether it may have to leave more than exit code 0. Of a task that another worker has started that is not known yet.
    fn may_have_contract(&self) -> bool {
        self.settings.as_ref().is_none_or(|settings| settings.contract.is_some())
    }

    /// Writes where the run goes: a fence has nothing left to stop.
    fn conclude(
        &mut self,
        way: Way,
        attempt: Option<AttemptEnd>,
        no_resources: bool,
        ctx: &mut Context<Self>,
    ) {
        if let Some(timer) = self.fence_timer.take() {
            ctx.cancel_future(timer);
        }
        self.leave(way, attempt, no_resources, ctx);
    }
}

impl Handler<Finished> for ExecutorActor {
    type Result = ();

    fn handle(&mut self, Finished(result): Finished, ctx: &mut Self::Context) {
        let _in = self.parts.enter("executor", &self.span);
        match result {
            Ok(end) if end.is_success() && self.may_have_contract() => self.judge(end, ctx),
            result => {
                let no_resources = matches!(result, Err(LaunchFailure::NoResources(_)));
                let attempt = result.as_ref().ok().map(AttemptEnd::from);
                self.conclude(self.way(&result), attempt, no_resources, ctx);
            }
        }
    }
}

impl Handler<Judged> for ExecutorActor {
    type Result = ();

    fn handle(&mut self, Judged(mut end, verdict): Judged, ctx: &mut Self::Context) {
        let _in = self.parts.enter("executor", &self.span);
        let way = match verdict {
            Verdict::Met => self.way_of(&end),
            Verdict::Unmet(unmet) => {
                // Why is in the row: it may name members of what the task has written.
                warn!("the contract is not met");
                Way::Ended(Ending::unmet(&unmet))
            }
            Verdict::Stopped(ended_by) => {
                end.ended_by = ended_by;
                self.way_of(&end)
            }
            Verdict::Unkillable(pids) => unkillable(&pids),
        };
        self.conclude(way, Some(AttemptEnd::from(&*end)), false, ctx);
    }
}

impl Handler<NotStarted> for ExecutorActor {
    type Result = ();

    fn handle(&mut self, NotStarted(ended_by): NotStarted, ctx: &mut Self::Context) {
        let _in = self.parts.enter("executor", &self.span);
        let way = self.way_of(&TaskEnd::new(Execution::OK, ended_by));
        self.leave(way, None, false, ctx);
    }
}

impl ExecutorActor {
    /// Writes where the run goes, and leaves.
    fn leave(
        &mut self,
        way: Way,
        attempt: Option<AttemptEnd>,
        no_resources: bool,
        ctx: &mut Context<Self>,
    ) {
        // What was not started holds no locks, however long the write takes.
        self.work = None;
        let (root, parts, epoch) = (self.root.clone(), Arc::clone(&self.parts), self.epoch.clone());
        let address = ctx.address();
        let exit_code = match &way {
            Way::Ended(ending) => Some(ending.exit_code),
            _ => None,
        };
        let written = async move {
            let status = depart(&root, &parts, &epoch, way, attempt).await;
            parts.launcher.left(&epoch);
            let run_id = epoch.run_id.clone();
            let ended = status.filter(|status| status.is_terminal()).map(|status| Ended {
                run_id,
                status,
                exit_code,
            });
            root.do_send(ExecutorDone { epoch, ended, no_resources });
            address.do_send(Leave);
        };
        ctx.spawn(written.instrument(self.span.clone()).into_actor(self));
    }
}

/// All is written.
#[derive(Message)]
#[rtype(result = "()")]
struct Leave;

impl Handler<Leave> for ExecutorActor {
    type Result = ();

    fn handle(&mut self, _: Leave, ctx: &mut Self::Context) {
        ctx.stop();
    }
}
