//! Another executor for a run whose executor died while its task ran on under its guardian.

use std::time::Duration;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use tracing::error;

use super::Root;
use super::adopt::LOOK_AGAIN;
use super::found::{Found, clean, look};
use crate::actors::ending::{exception, way_of};
use crate::actors::executor::Work;
use crate::actors::guarded::task_end;
use crate::actors::stored::has_contract;
use crate::domain::run::RunEpoch;
use crate::process::BootTime;
use crate::process::guardian::StopReason;

/// A run whose executors die is attached again so many times; then it is stopped.
const MOST_DEATHS: u32 = 3;

impl Root {
    /// An executor died, and its task runs on under its guardian: another one takes its place.
    pub(super) fn attach_again(&mut self, run: RunEpoch, ctx: &mut Context<Self>) {
        let Some(guards) = self.parts.guards.clone() else { return };
        let deaths = self.executor_deaths.entry(run.clone()).or_default();
        *deaths += 1;
        let too_often = *deaths > MOST_DEATHS;
        error!(run_id = %run.run_id, epoch = run.epoch, "an executor died; its task runs on under its guardian");
        self.departing += 1;
        let grace = Duration::from_secs_f64(self.parts.times.grace);
        let max = self.parts.config.queue.max_lease_attempts;
        let reach = self.parts.times.reach_duration();
        let renewal = Duration::from_secs_f64(self.parts.times.renewal());
        let (sought, reader) = (run.clone(), self.reader.clone());
        let found = async move {
            let Some(dir) = guards.dir_of(&sought) else {
                return Err(exception("the executor of this run died before its start"));
            };
            if dir.is_in_process() {
                return Err(exception("the executor of this run died, and the run with it"));
            }
            loop {
                match look(&dir).await {
                    Found::Answers(mut guardian) if too_often => {
                        if guardian.stop(grace, StopReason::Stop).is_ok() {
                            guardian.exited().await;
                        }
                        return Err(exception(
                            "the executors of this run died too often; it was stopped",
                        ));
                    }
                    // The fence it has stands until the next renewal.
                    Found::Answers(guardian) => {
                        let fence = guardian.fence_at_connect();
                        return Ok((Work::Attached(guardian), before(fence, reach)));
                    }
                    Found::Ended(record) => {
                        let end = task_end(&record);
                        if !end.is_success() {
                            return Err(way_of(&end, None, max));
                        }
                        if too_often {
                            return Err(match has_contract(&reader, &sought.run_id).await {
                                false => way_of(&end, None, max),
                                true => exception("the executors of this run died too often"),
                            });
                        }
                        // What it has left may have to be judged. The lease was renewed a third of it ago at the earliest.
                        let requested = before(BootTime::now(), renewal);
                        return Ok((Work::Ended(Box::new(end)), requested));
                    }
                    Found::Silent => {
                        if let Some(way) = clean(&dir, max).await {
                            return Err(way);
                        }
                    }
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        let attached = found.into_actor(self).map(move |found, root: &mut Root, ctx| {
            let _in = root.span.clone().entered();
            root.departing -= 1;
            match found {
                Ok((work, requested)) => root.start_executor(work, run, requested, ctx),
                Err(way) => root.depart_without_executor(run, way, ctx),
            }
        });
        ctx.spawn(attached);
    }
}

fn before(moment: BootTime, length: Duration) -> BootTime {
    let nanos = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    BootTime::from_nanos(moment.as_nanos().saturating_sub(nanos))
}
