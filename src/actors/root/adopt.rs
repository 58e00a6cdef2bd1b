//! Taking over what another daemon of this host left behind, before the first claim and the first reap.
//!
//! Each run directory of the slots that this process holds is attached, or its end is known, before the loops start.
//! What is to be done is decided in [`domain::adoption`](crate::domain::adoption); here it is done.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use actix::{Addr, AsyncContext, Context, Handler, Message, MessageResult, WrapFuture};
use futures_util::future::join_all;
use tracing::{Instrument, info, warn};

use super::found::{Found, clean, look};
use super::{CheckIdle, Root};
use crate::actors::checks::end_left_checks;
use crate::actors::db::{Lane, Writer};
use crate::actors::ending::way_of;
use crate::actors::executor::Work;
use crate::actors::guarded::{ended_by, keep, task_end};
use crate::actors::reader::Reader;
use crate::actors::stored::has_contract;
use crate::actors::{CallError, Guards, Parts};
use crate::db::Moment;
use crate::db::ops::{AttemptEnd, Depart, Loss, RunningOf, SeeRun, TakeOver, Way};
use crate::domain::adoption::{SeenGuardian, SeenRun, Step, next_step};
use crate::domain::reason::{Reason, ReasonCode};
use crate::domain::run::RunEpoch;
use crate::domain::status::Status;
use crate::process::BootTime;
use crate::process::guardian::{ExitRecord, RunDir, StopReason};
use crate::process::slot::Slot;

/// How long it waits before it looks again.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A run has been taken over.
#[derive(Message)]
#[rtype(result = "()")]
struct TakenOver {
    run: RunEpoch,
    work: Work,
    /// When the takeover was sent: the fence counts from here.
    requested: BootTime,
}

/// The end of every other run is known, or it has been taken over before.
#[derive(Message)]
#[rtype(result = "()")]
struct AllAdopted;

impl Root {
    /// Adopts, and then starts the loops. What has been taken over has its executor and its renewals at once: it must
    /// not reach its fence because another run's guardian is slow to answer.
    pub(super) fn adopt_and_start(&mut self, guards: Arc<Guards>, ctx: &mut Context<Self>) {
        self.adopting = true;
        self.start_loops(ctx);
        let adoption = Adoption {
            parts: Arc::clone(&self.parts),
            guards,
            reader: self.reader.clone(),
            root: ctx.address(),
        };
        ctx.spawn(adoption.run().instrument(self.span.clone()).into_actor(self));
    }
}

/// Asks for the way to the writer.
#[derive(Message)]
#[rtype(result = "Writer")]
struct AskWriter;

impl Handler<AskWriter> for Root {
    type Result = MessageResult<AskWriter>;

    fn handle(&mut self, _: AskWriter, ctx: &mut Self::Context) -> Self::Result {
        MessageResult(self.start_writer(ctx))
    }
}

impl Handler<TakenOver> for Root {
    type Result = ();

    fn handle(&mut self, taken: TakenOver, ctx: &mut Self::Context) {
        let _in = self.span.clone().entered();
        let TakenOver { run, work, requested } = taken;
        self.start_executor(work, run, requested, ctx);
    }
}

impl Handler<AllAdopted> for Root {
    type Result = ();

    fn handle(&mut self, _: AllAdopted, ctx: &mut Self::Context) {
        let _in = self.span.clone().entered();
        self.adopting = false;
        self.start_loops(ctx);
        self.remove_old_runs_again_and_again(ctx);
        if self.stopping {
            self.stop_claiming();
        }
        ctx.notify(CheckIdle);
    }
}

struct Adoption {
    parts: Arc<Parts>,
    guards: Arc<Guards>,
    reader: Reader,
    root: Addr<Root>,
}

impl Adoption {
    async fn run(self) {
        let (mut runs, mut removed) = (Vec::new(), Vec::new());
        for slot in &self.guards.slots {
            match RunDir::list(slot.path()) {
                Ok(found) => {
                    removed.extend(found.unreadable.into_iter().filter(|path| remove(path)));
                    runs.extend(found.runs.into_iter().map(|dir| (slot, dir)));
                }
                Err(error) => warn!(%error, slot = %slot.path().display(), "cannot look for runs"),
            }
        }
        if !runs.is_empty() {
            info!(runs = runs.len(), "adopting what an earlier daemon left");
        }
        let adopted = runs.into_iter().map(|(slot, dir)| {
            let span = tracing::info_span!("task", run_id = %dir.run_id(), epoch = dir.epoch());
            self.adopt(slot, dir).instrument(span)
        });
        let left_checks =
            join_all(self.guards.slots.iter().map(|slot| end_left_checks(slot.path())));
        let (taken, _) = tokio::join!(join_all(adopted), left_checks);
        let taken: HashSet<RunEpoch> = taken.into_iter().flatten().collect();
        self.give_back_unstarted(&taken, &removed).await;
        // Behind whatever was taken over.
        self.root.do_send(AllAdopted);
    }

    /// Until the run is attached, or nothing is left to do about it. Answers it if it is attached.
    async fn adopt(&self, slot: &Slot, dir: RunDir) -> Option<RunEpoch> {
        let epoch = i32::try_from(dir.epoch()).unwrap_or(i32::MAX);
        let run = RunEpoch { run_id: dir.run_id().to_owned(), epoch };
        // The oldest takeover that got no answer: should it have succeeded, the fence counts from it.
        let mut unanswered: Option<BootTime> = None;
        loop {
            let row = match self
                .reader
                .read(SeeRun { run_id: run.run_id.clone(), now: self.parts.lease_now() })
                .await
            {
                Ok(row) => row,
                Err(error) => {
                    warn!(%error, "cannot read the row yet; the fence decides meanwhile");
                    tokio::time::sleep(LOOK_AGAIN).await;
                    continue;
                }
            };
            let max = self.parts.config.queue.max_lease_attempts;
            let found = look(&dir).await;
            let seen = match &found {
                Found::Ended(record) => SeenGuardian::Ended(ended_by(record.ended_by)),
                Found::Answers(_) => SeenGuardian::Answers,
                Found::Silent => SeenGuardian::Silent,
            };
            if let (Some(requested), Found::Answers(_), true) =
                (unanswered, &found, self.is_mine(row.as_ref(), epoch))
            {
                let Found::Answers(guardian) = found else { continue };
                return Some(self.attach(run, Work::Attached(guardian), requested));
            }
            match (next_step(row.as_ref(), epoch, seen), found) {
                (Step::WriteEnd { owner }, Found::Ended(record))
                    if self.is_to_be_judged(&run, &record).await =>
                {
                    // What judges it needs a lease, and nobody can start the run in this epoch any more.
                    let requested = BootTime::now();
                    match self.take_over(&run, owner, None).await {
                        Ok(true) => {
                            let work = Work::Ended(Box::new(task_end(&record)));
                            return Some(self.attach(run, work, requested));
                        }
                        Ok(false) => {}
                        Err(error) => warn!(%error, "no answer to the takeover"),
                    }
                }
                (Step::WriteEnd { owner }, Found::Ended(record)) => {
                    let end = task_end(&record);
                    let took = record.ended_at - record.started_at;
                    let way = way_of(&end, Some(took), max);
                    if self.depart(&run, owner, way, Some(AttemptEnd::from(&end))).await {
                        keep(slot.path(), &run);
                        return None;
                    }
                }
                (Step::TakeOver { from }, Found::Answers(guardian)) => {
                    let requested = BootTime::now();
                    match self.take_over(&run, from, Some(self.parts.lease_now())).await {
                        Ok(true) => {
                            return Some(self.attach(run, Work::Attached(guardian), requested));
                        }
                        Ok(false) => {}
                        Err(error) => {
                            warn!(%error, "no answer to the takeover");
                            unanswered.get_or_insert(requested);
                        }
                    }
                }
                (Step::StopAndLookAgain, Found::Answers(mut guardian)) => {
                    info!("its lease is not to be had: stopping it");
                    let grace = Duration::from_secs_f64(self.parts.times.grace);
                    if guardian.stop(grace, StopReason::Fence).is_ok() {
                        guardian.exited().await;
                        continue;
                    }
                }
                (Step::GiveBackAsLost { owner }, _) => {
                    if let Some(way) = clean(&dir, max).await
                        && self.depart(&run, owner, way, None).await
                    {
                        keep(slot.path(), &run);
                        return None;
                    }
                }
                (Step::OnlyClean, _) => {
                    if clean(&dir, max).await.is_some() {
                        keep(slot.path(), &run);
                        return None;
                    }
                }
                (Step::Done, _) => {
                    keep(slot.path(), &run);
                    return None;
                }
                (Step::Leave, Found::Ended(record)) if self.is_long_over(&record) => {
                    // Its row was removed, as old ones are; a store that was restored is put right within this time.
                    keep(slot.path(), &run);
                    return None;
                }
                (Step::Leave, _) => {
                    warn!("the store has no such run: nothing is touched, the fence decides");
                    return None;
                }
                // The guardian changed between the looks.
                (Step::WriteEnd { .. } | Step::TakeOver { .. } | Step::StopAndLookAgain, _) => {}
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    fn is_mine(&self, row: Option<&SeenRun>, epoch: i32) -> bool {
        row.is_some_and(|row| {
            row.status == Status::Running
                && row.epoch == epoch
                && row.owner.as_ref() == Some(&self.parts.worker_id)
        })
    }

    fn attach(&self, run: RunEpoch, work: Work, requested: BootTime) -> RunEpoch {
        info!("taken over");
        self.root.do_send(TakenOver { run: run.clone(), work, requested });
        run
    }

    /// The writer there is now: one that has died is started again.
    async fn writer(&self) -> Result<Writer, CallError> {
        Ok(self.root.send(AskWriter).await?)
    }

    /// Whether a run ended longer ago than outputs are kept.
    fn is_long_over(&self, record: &ExitRecord) -> bool {
        self.parts.clock.now() - record.ended_at > self.guards.retention.age.as_secs_f64()
    }

    /// Whether the run has a contract that its task may have met.
    async fn is_to_be_judged(&self, run: &RunEpoch, record: &ExitRecord) -> bool {
        task_end(record).is_success() && has_contract(&self.reader, &run.run_id).await
    }

    /// `now` is absent for a task that has ended: its lease is revived.
    async fn take_over(
        &self,
        run: &RunEpoch,
        from: String,
        now: Option<Moment>,
    ) -> Result<bool, CallError> {
        let take_over = TakeOver {
            run: run.clone(),
            from,
            to: self.parts.worker_id.clone(),
            now,
            lease_expires_at: self.parts.lease_end(),
        };
        self.writer().await?.write(take_over, Lane::First).await
    }

    /// Whether the run has left `running`; if not, it has to be looked at again.
    async fn depart(
        &self,
        run: &RunEpoch,
        owner: String,
        way: Way,
        attempt: Option<AttemptEnd>,
    ) -> bool {
        let depart = Depart {
            run: run.clone(),
            owner,
            way,
            attempt,
            at: self.parts.clock.now(),
            fact_id: self.parts.ids.fact_id(),
        };
        let written = match self.writer().await {
            Ok(writer) => writer.write(depart, Lane::First).await,
            Err(error) => Err(error),
        };
        match written {
            Ok(Some(status)) => {
                info!(%status, "ended while no daemon lived");
                true
            }
            Ok(None) => false,
            Err(error) => {
                warn!(%error, "cannot store the end yet");
                false
            }
        }
    }

    /// Running runs of this slot's owners that have neither an executor nor a directory were claimed and never started,
    /// unless their directory was one of those that had to be removed.
    async fn give_back_unstarted(&self, taken: &HashSet<RunEpoch>, removed: &[PathBuf]) {
        let mut owners = HashSet::new();
        for slot in &self.guards.slots {
            match slot.owners() {
                Ok(names) => owners.extend(names),
                Err(error) => warn!(%error, "cannot read who worked in this slot"),
            }
        }
        let running = match self.reader.read(RunningOf { owners }).await {
            Ok(running) => running,
            Err(error) => return warn!(%error, "cannot look for runs that were never started"),
        };
        for (run, owner) in running {
            // An owner that had taken a run over left its directory where it was: that slot may be another's by now,
            // who is taking the run over at this moment.
            if taken.contains(&run) || self.guards.is_on_this_host(&run.run_id, run.epoch) {
                continue;
            }
            let is_its = |path: &PathBuf| RunDir::is_place_of(path, &run.run_id, run.epoch.into());
            let way = if removed.iter().any(is_its) {
                let max = self.parts.config.queue.max_lease_attempts;
                Way::Lost { loss: Loss::Guardian, max }
            } else {
                Way::Back(Reason::new(ReasonCode::START_FAILED, "claimed, and never started"))
            };
            self.depart(&run, owner, way, None).await;
        }
    }
}

/// Removes a directory that does not say whose it is, unless a guardian lives in it.
fn remove(path: &Path) -> bool {
    match RunDir::remove_at(path) {
        Ok(()) => {
            warn!(path = %path.display(), "removed a directory that did not say which run it belonged to");
            true
        }
        Err(error) => {
            warn!(path = %path.display(), %error, "a directory does not say which run it belongs to; remove it");
            false
        }
    }
}
