//! When there is a tick: by the timer, and at once when something has happened.

use std::sync::Arc;

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message};
use tracing::Span;

use super::Parts;
use super::supervise::{DeathWatch, halts};
use super::worker::{Tick, WorkerActor};

/// Something has happened: a submit, an end, a change by another process. It is a hint; the timer is the truth.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub(crate) struct Wake;

/// Sends ticks.
pub(crate) struct SchedulerActor {
    parts: Arc<Parts>,
    worker: Addr<WorkerActor>,
    span: Span,
    _watch: DeathWatch,
}

impl SchedulerActor {
    pub fn new(parts: Arc<Parts>, worker: Addr<WorkerActor>, watch: DeathWatch) -> Self {
        let span = tracing::info_span!("runtime", actor = "scheduler");
        SchedulerActor { parts, worker, span, _watch: watch }
    }

    fn tick(&self) {
        let _in = self.parts.enter("scheduler", &self.span);
        // A full mailbox holds a tick already, and a worker that is gone is started again with one.
        let _ = self.worker.try_send(Tick);
    }
}

halts!(SchedulerActor);

impl Actor for SchedulerActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        if !self.parts.config.own_ticks {
            return;
        }
        self.tick();
        ctx.run_interval(self.parts.config.tick, |actor, _| actor.tick());
    }
}

impl Handler<Wake> for SchedulerActor {
    type Result = ();

    fn handle(&mut self, _: Wake, _: &mut Self::Context) {
        if self.parts.config.own_ticks {
            self.tick();
        }
    }
}
