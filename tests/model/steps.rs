//! One step of the search: an action happens, and what follows from it at once.

use super::actions::Action;
use super::flaws::Flaw;
use super::protocol::Protocol;
use super::requests::{Answer, Op, Request};
use super::world::{End, Epoch, Guardian, Held, Life, MAX_ATTEMPTS, Observed, Phase, World};

impl Protocol {
    /// `None`: the action leads nowhere.
    pub fn after(&self, last: &World, action: Action) -> Option<World> {
        let mut w = last.clone();
        self.step(&mut w, action)?;
        self.end_sweeps(&mut w);
        self.answer_b1_at_once(&mut w);
        self.forget_what_nobody_reads(&mut w);
        Some(w)
    }

    fn step(&self, w: &mut World, action: Action) -> Option<()> {
        match action {
            Action::Tick => tick(w),
            Action::Cancel => {
                w.budget.cancels -= 1;
                self.cancel(w);
            }
            Action::Crash(inc) | Action::Detach(inc) => {
                w.budget.faults -= 1;
                self.process_is_gone(w, inc);
            }
            Action::Drain(inc) => {
                w.budget.faults -= 1;
                w.daemon_mut(inc).life = Life::Draining;
            }
            Action::Leave(inc) => self.process_is_gone(w, inc),
            Action::Start(inc) => w.daemon_mut(inc).life = Life::Sweeping,
            Action::Pause(inc) => {
                w.budget.faults -= 1;
                w.budget.pauses -= 1;
                w.daemon_mut(inc).paused = true;
            }
            Action::Resume(inc) => self.resume(w, inc),
            Action::KillGuardian(epoch) => {
                w.budget.faults -= 1;
                w.budget.guardian_kills -= 1;
                self.guardian_is_killed(w, epoch)?;
            }

            Action::Apply(request) => {
                let changed = self.apply(w, request);
                let epoch = w.row.epoch;
                let n = position(w, request)?;
                if request.awaited {
                    w.wire[n].answer = Some(Answer { changed, epoch });
                } else {
                    w.wire.remove(n);
                }
            }
            Action::Deliver(request) => {
                let n = position(w, request)?;
                w.wire.remove(n);
                self.deliver(w, request, request.answer?);
            }
            Action::GiveUp(request) => {
                w.budget.faults -= 1;
                w.budget.lost_answers -= 1;
                let n = position(w, request)?;
                w.wire[n].awaited = false;
                self.give_up(w, request);
            }

            Action::Claim(inc) => w.send(inc, Op::Claim),
            Action::Spawn(inc, epoch) => self.spawn(w, inc, epoch)?,
            Action::Renew(inc, epoch) => {
                let held = match w.held(inc, epoch)? {
                    Held::Judging { .. } => Held::Judging { fresh: true },
                    _ => Held::Attached { fresh: true },
                };
                w.hold(inc, epoch, Some(held));
                w.send(inc, Op::Renew { epoch });
            }
            Action::NoticeEnd(inc, epoch) => self.notice_end(w, inc, epoch)?,
            Action::StopCancelled(inc, epoch) if w.is_judging(inc, epoch) => {
                self.stop_check(w, inc, epoch, End::Cancel);
            }
            Action::StopForShutdown(inc, epoch) if w.is_judging(inc, epoch) => {
                self.stop_check(w, inc, epoch, End::Stopped);
            }
            Action::StopCancelled(inc, epoch) => {
                self.stop_tree(w, inc, epoch, End::Cancel);
            }
            Action::StopForShutdown(inc, epoch) => {
                // Asked for by the operator, hence not "needless".
                let needless = w.broken.killed_needlessly;
                self.stop_tree(w, inc, epoch, End::Stopped);
                w.broken.killed_needlessly = needless;
            }
            Action::Sweep(inc, epoch) => self.sweep(w, inc, epoch),
            Action::Reread(inc, epoch) => {
                let Some(Held::Unknown { unanswered }) = w.held(inc, epoch) else {
                    return None;
                };
                self.adopt(w, inc, epoch, unanswered);
            }
            Action::Finish(inc, epoch) => {
                let Some(Held::Ended { end, owned }) = w.held(inc, epoch) else {
                    return None;
                };
                self.finish(w, inc, epoch, end, owned);
            }
            Action::RemoveDirectory(inc, epoch) => self.remove_directory(w, inc, epoch),
            Action::RequeueUnstarted(inc) => self.requeue_unstarted(w, inc)?,

            Action::ReapSelect(by) => {
                w.reaper = Some(Observed { by, epoch: w.row.epoch, expires: w.row.expires });
            }
            Action::ReapApply => self.reap(w)?,

            Action::StartTask(epoch) => self.start_task(w, epoch)?,
            Action::TaskExit(epoch) => self.task_exits(w, epoch)?,
            Action::Fence(epoch) => w.guardian_mut(epoch)?.phase = Phase::Ended(End::Fence),
            Action::CheckEnds(inc, epoch) => self.stop_check(w, inc, epoch, End::Own),
            Action::CheckFence(epoch) => self.end_check(w, epoch),
            Action::GiveBackUnjudged(inc, epoch) => self.stop_check(w, inc, epoch, End::Stopped),
        }
        Some(())
    }

    /// Makes worlds equal that differ only in what nobody reads any more: the search gets smaller,
    /// what can happen stays the same.
    fn forget_what_nobody_reads(&self, w: &mut World) {
        for g in w.guardians.iter_mut().flatten().filter(|g| !g.is_live()) {
            if g.check.is_some() || self.contract && g.phase == Phase::Ended(End::Own) {
                continue;
            }
            g.fence = 0;
            g.fence_before_adoption = None;
            g.controller = g.spawned_by;
        }
        for r in &mut w.wire {
            let is_finish = matches!(r.op, Op::Finish { .. });
            if is_finish || (!r.awaited && r.answer.is_none()) {
                r.sent = 0;
            }
        }
        self.forget_hopeless_requests(w);
        w.wire.sort_unstable();
        // A reaper whose observation is stale.
        let row = &w.row;
        if !self.has(Flaw::ReaperIgnoresExpiry) {
            w.reaper = w.reaper.filter(|o| row.runs(o.epoch) && row.expires == o.expires);
        }
        if w.budget.faults == 0 {
            (w.budget.pauses, w.budget.lost_answers, w.budget.guardian_kills) = (0, 0, 0);
        }
    }

    /// A request that nobody waits for and whose guard can never hold again.
    fn forget_hopeless_requests(&self, w: &mut World) {
        let guards_are_off = matches!(
            self.flaw,
            Flaw::RenewUnguarded
                | Flaw::FinishByOwnerOnly
                | Flaw::RecordUnguarded
                | Flaw::AttemptsUnbounded
        );
        if guards_are_off {
            return;
        }
        let World { row, guardians, wire, .. } = w;
        let lives = |epoch: Epoch| {
            let lives = |g: &Guardian| g.is_live() || self.contract;
            guardians[epoch as usize - 1].as_ref().is_some_and(lives)
        };
        wire.retain(|r| {
            let hopeless = match r.op {
                Op::Claim => row.status.is_terminal() || row.epoch >= MAX_ATTEMPTS,
                Op::Renew { epoch } | Op::Takeover { epoch, .. } | Op::Finish { epoch, .. } => {
                    !row.runs(epoch) || (r.answer.is_some() && !lives(epoch))
                }
            };
            r.awaited || !hopeless
        });
    }
}

fn tick(w: &mut World) {
    w.now += 1;
    for held in w.daemons.iter_mut().flat_map(|d| d.held.iter_mut().flatten()) {
        if let Held::Attached { fresh } | Held::Judging { fresh } = held {
            *fresh = false;
        }
    }
}

fn position(w: &World, request: Request) -> Option<usize> {
    w.wire.iter().position(|&r| r == request)
}
