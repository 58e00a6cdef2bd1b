//! Starting the loops, and starting them again.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use actix::{Actor, AsyncContext, Context, Handler};
use tracing::{error, info, warn};

use super::Root;
use crate::actors::Links;
use crate::actors::claim::ClaimActor;
use crate::actors::db::{DbActor, Writer};
use crate::actors::dispatch::DispatchActor;
use crate::actors::exit::ExitReason;
use crate::actors::heartbeat::HeartbeatActor;
use crate::actors::reaper::ReaperActor;
use crate::actors::scheduler::SchedulerActor;
use crate::actors::supervise::{Child, ChildDown, DeathWatch, Halt};
use crate::actors::worker::WorkerActor;
use crate::domain::restart::AfterDeath;

impl Root {
    /// Starts the loops anew. They keep no durable state, so all of them go when one has died.
    pub(super) fn start_loops(&mut self, ctx: &mut Context<Self>) {
        self.stop_loops();
        self.incarnation += 1;
        let root = ctx.address();
        let db = self.start_writer(ctx);
        let deaths = root.clone().recipient::<ChildDown>();
        let watch = |child| DeathWatch::new(&deaths, child, self.incarnation);
        let parts = || self.parts.clone();
        let heartbeat =
            HeartbeatActor::new(parts(), root.clone(), db.clone(), watch(Child::Heartbeat)).start();
        if self.adopting {
            // It renews what is taken over.
            self.loops = vec![heartbeat.recipient()];
            return;
        }
        let reader = || self.reader.clone();
        let dispatch =
            DispatchActor::new(parts(), root.clone(), db.clone(), reader(), watch(Child::Dispatch))
                .start();
        let reaper = ReaperActor::new(
            parts(),
            root.clone(),
            db.clone(),
            reader(),
            Rc::clone(&self.jumps),
            watch(Child::Reaper),
        )
        .start();
        let claim =
            ClaimActor::new(parts(), root.clone(), db.clone(), reader(), watch(Child::Claim))
                .start();
        let worker = WorkerActor::new(
            parts(),
            root,
            heartbeat.clone(),
            reaper.clone(),
            claim.clone(),
            watch(Child::Worker),
        )
        .start();
        let scheduler =
            SchedulerActor::new(parts(), worker.clone(), watch(Child::Scheduler)).start();
        // These two are the first: they go on while the runtime drains.
        self.loops = vec![
            heartbeat.recipient(),
            dispatch.clone().recipient(),
            scheduler.clone().recipient(),
            worker.clone().recipient(),
            claim.recipient(),
            reaper.recipient(),
        ];
        self.links = Some(Links { db, scheduler, worker });
        self.dispatch = Some(dispatch);
    }

    /// The way to the writer, which is started if there is none. It outlives restarts of the loops.
    pub(super) fn start_writer(&mut self, ctx: &mut Context<Self>) -> Writer {
        let incarnation = self.incarnation;
        let (actor, _) = self.db.get_or_insert_with(|| {
            let (store, parts) = ((self.store)(), Arc::clone(&self.parts));
            let on_change = ctx.address().recipient();
            let deaths = ctx.address().recipient::<ChildDown>();
            let watch = DeathWatch::new(&deaths, Child::Db, incarnation);
            let actor = DbActor::start_in_arbiter(&self.writer.handle(), move |_| {
                DbActor::new(parts, store, on_change, watch)
            });
            (actor, incarnation)
        });
        Writer::new(actor.clone(), self.parts.config.mailbox)
    }

    fn stop_loops(&mut self) {
        self.links = None;
        self.dispatch = None;
        self.loops.drain(..).for_each(|actor| actor.do_send(Halt));
    }

    /// Stops everything that could claim, and leaves what renews and what sends notices.
    pub(super) fn stop_claiming(&mut self) {
        self.keep_loops(2);
    }

    /// Leaves only what renews.
    pub(super) fn stop_sending(&mut self) {
        self.dispatch = None;
        self.keep_loops(1);
    }

    fn keep_loops(&mut self, count: usize) {
        self.loops.drain(count.min(self.loops.len())..).for_each(|actor| actor.do_send(Halt));
    }

    fn bury(&mut self, child: &Child, panicked: bool, ctx: &mut Context<Self>) {
        if *child == Child::Db {
            self.db = None;
        }
        // The survivors work no longer with the dead one.
        self.stop_loops();
        self.incarnation += 1;
        let name = child.name();
        match self.budget.record(Instant::now()) {
            AfterDeath::RestartAfter(delay) => {
                warn!(actor = name, panicked, ?delay, "an actor died, restarting");
                ctx.run_later(delay, |root, ctx| {
                    let _in = root.span.clone().entered();
                    root.start_loops(ctx);
                    if root.stopping {
                        root.stop_claiming();
                    }
                    if root.stopping_tasks.is_some() {
                        root.stop_sending();
                    }
                    info!("restarted");
                });
            }
            AfterDeath::GiveUp => {
                error!(actor = name, "actors die too often, the runtime ends");
                self.exit.end(ExitReason::RestartsSpent { actor: name });
            }
        }
    }
}

impl Handler<ChildDown> for Root {
    type Result = ();

    fn handle(&mut self, down: ChildDown, ctx: &mut Self::Context) {
        let _in = self.span.clone().entered();
        match &down.child {
            // The whole system is being taken down.
            _ if self.exit.is_ending() => {}
            Child::Executor(epoch) => self.executor_died(epoch.clone(), ctx),
            // The writer outlives restarts of the loops, so its incarnation may be an older one.
            Child::Db => {
                if self.db.as_ref().is_some_and(|(_, incarnation)| *incarnation == down.incarnation)
                {
                    self.bury(&down.child, down.panicked, ctx);
                }
            }
            _ if down.incarnation != self.incarnation => {}
            // Halted on purpose, while the runtime ends.
            _ if self.stopping && !down.panicked => {}
            _ => self.bury(&down.child, down.panicked, ctx),
        }
    }
}
