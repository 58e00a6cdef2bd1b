//! How the runtime ends: no more claims, time to drain, then TERM and KILL.

use std::time::Duration;

use actix::{AsyncContext, Context, Handler};
use tracing::{info, warn};

use super::{CheckIdle, Root, Shutdown};
use crate::actors::exit::ExitReason;

/// What is left for the last writes after the last task has been killed.
const LAST_WRITES: Duration = Duration::from_secs(10);

/// How long a runtime in which nothing runs waits for notices that are being sent, and for a store that is silent.
///
/// Whoever comes next sends the notices, takes over what this one could not, and gives back what a claim brought that
/// got no answer.
const NOTHING_RUNS: Duration = Duration::from_secs(5);

impl Root {
    fn finish(&mut self) {
        info!("the runtime ends");
        self.exit.end(ExitReason::Shutdown);
    }

    fn nothing_runs(&self) -> bool {
        self.executors.is_empty() && self.departing == 0
    }

    fn stop_tasks(&mut self, grace: Duration, ctx: &mut Context<Self>) {
        if !self.executors.is_empty() {
            info!(tasks = self.executors.len(), ?grace, "stopping what still runs");
            self.stop_all(grace);
        }
        self.stop_sending();
        self.stopping_tasks = Some(self.stopping_tasks.map_or(grace, |before| before.min(grace)));
        self.finish_after(grace, ctx);
        ctx.notify(CheckIdle);
    }

    /// Ends, whatever is left, when the last writes have had their time.
    fn finish_after(&self, grace: Duration, ctx: &mut Context<Self>) {
        let _ = self;
        ctx.run_later(grace + LAST_WRITES, |root, _| {
            let _in = root.span.clone().entered();
            warn!(
                tasks = root.executors.len(),
                "the store does not answer; what is not written there is left to its lease"
            );
            root.finish();
        });
    }
}

impl Handler<Shutdown> for Root {
    type Result = ();

    fn handle(&mut self, shutdown: Shutdown, ctx: &mut Self::Context) {
        let Shutdown { drain, grace, detach } = shutdown;
        let _in = self.span.clone().entered();
        info!(?drain, ?grace, tasks = self.executors.len(), "shutting down");
        if self.detaching {
            // Said again: whatever has no guardian has had its chance.
            return self.finish();
        }
        if !self.stopping {
            self.stopping = true;
            self.stop_claiming();
        }
        #[cfg(target_os = "linux")]
        if detach && self.parts.guards.is_some() {
            info!("running tasks are left to their guardians");
            self.detaching = true;
            // What has none goes back to the queue.
            self.stop_what_dies_with_us(grace);
            self.finish_after(grace, ctx);
            return ctx.notify(CheckIdle);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = detach;
        if drain.is_zero() {
            self.stop_tasks(grace, ctx);
        } else {
            ctx.run_later(drain, move |root, ctx| {
                let _in = root.span.clone().entered();
                root.stop_tasks(grace, ctx);
            });
        }
        if self.nothing_runs() {
            ctx.run_later(NOTHING_RUNS, |root, _| {
                let _in = root.span.clone().entered();
                // A task that has been taken over meanwhile has the whole time to drain.
                if root.nothing_runs() {
                    info!("what it still waits for is left to whoever comes next");
                    root.finish();
                }
            });
        }
        ctx.notify(CheckIdle);
    }
}

impl Handler<CheckIdle> for Root {
    type Result = ();

    fn handle(&mut self, _: CheckIdle, _: &mut Self::Context) {
        let _in = self.span.clone().entered();
        if self.detaching && self.dying_with_us.is_empty() {
            return self.finish();
        }
        if self.is_idle() {
            self.waiting_for_idle.drain(..).for_each(|waiter| waiter.send(()).unwrap_or_default());
            if self.stopping {
                self.finish();
            }
        }
    }
}
