//! What the database does: each statement is atomic, and every one after the claim is guarded.

use super::flaws::Flaw;
use super::protocol::Protocol;
use super::requests::{Op, Outcome, Request};
use super::world::{End, Host, Inc, MAX_ATTEMPTS, Phase, Status, Story, World};

impl Protocol {
    /// Applies a request and says whether it changed the row.
    pub fn apply(&self, w: &mut World, request: Request) -> bool {
        let from = request.from;
        let expires = w.now + self.ttl(from);
        match request.op {
            Op::Claim => {
                if w.row.status != Status::Queued {
                    return false;
                }
                w.broken.claimed_after_cancel |= w.row.cancel_requested;
                w.row.status = Status::Running;
                w.row.owner = Some(from);
                w.row.expires = expires;
                w.row.epoch += 1;
                true
            }
            Op::Renew { epoch } => {
                let ours = w.row.is_owned_in(epoch, from);
                let unguarded = self.has(Flaw::RenewUnguarded) && w.row.status == Status::Running;
                if !ours && !unguarded {
                    return false;
                }
                w.broken.foreign_extension |= !ours;
                w.row.expires = w.row.expires.max(expires);
                true
            }
            Op::Takeover { epoch, old, ended } => {
                let expired = w.row.expires < w.now;
                let owner_ok = w.row.owner == Some(old) || self.has(Flaw::TakeoverWithoutOwnerCas);
                let lease_ok = !expired || ended || self.has(Flaw::TakeoverAfterExpiry);
                if !w.row.runs(epoch) || !owner_ok || !lease_ok {
                    return false;
                }
                w.broken.revived |= expired && !ended;
                w.judged_late |= expired && ended;
                w.row.owner = Some(from);
                let lowers = self.has(Flaw::TakeoverLowersExpiry);
                w.row.expires = if lowers { expires } else { w.row.expires.max(expires) };
                true
            }
            Op::Finish { .. } => self.apply_finish(w, request),
        }
    }

    /// Guarded by owner and epoch. Whether the lease has expired is not asked.
    fn apply_finish(&self, w: &mut World, request: Request) -> bool {
        let Op::Finish { epoch, owner, outcome, heir, end } = request.op else {
            return false;
        };
        let ours = w.row.is_owned_in(epoch, owner);
        let allowed = match self.flaw {
            Flaw::FinishByOwnerOnly => {
                w.row.status == Status::Running && w.row.owner == Some(owner)
            }
            Flaw::FinishNeedsLiveLease => ours && w.row.expires >= w.now,
            Flaw::RecordUnguarded => ours || heir, // by id only
            _ => ours,
        };
        if !allowed {
            return false;
        }
        w.broken.foreign_result |= !w.row.runs(epoch);
        w.broken.false_result |= outcome == Outcome::Completed && end != End::Own;
        let started = w.guardian(epoch).is_some() || w.held(request.from, epoch).is_some();
        w.unstarted_requeued |= !started && w.row.expires >= w.now;
        let story = story_of(w, request.from, owner, epoch, outcome);
        match outcome {
            Outcome::Completed => self.set_status(w, Status::Completed),
            Outcome::Cancelled => self.set_status(w, Status::Cancelled),
            Outcome::Requeue => self.requeue(w, self.has(Flaw::RequeueIgnoresCancel)),
        }
        if w.row.status.is_terminal() {
            w.story = story;
        }
        true
    }

    /// A user cancels: queued ends at once, running records the request.
    pub fn cancel(&self, w: &mut World) {
        if w.row.status == Status::Queued || self.has(Flaw::CancelledBeforeTreeIsDead) {
            self.set_status(w, Status::Cancelled);
            w.story = Story::Plain;
        } else {
            w.row.cancel_requested = true;
            let owned_on_a = w.row.owner.is_some_and(|o| o.host() == Host::A);
            w.cancelled_while_down = w.host_a_is_down() && owned_on_a;
        }
    }

    /// The reaper's write: guarded by the expiry that it saw, since each renewal, takeover and new
    /// claim changes it.
    pub fn reap(&self, w: &mut World) -> Option<()> {
        let seen = w.reaper.take()?;
        let unchanged = w.row.epoch == seen.epoch && w.row.expires == seen.expires;
        let running = w.row.status == Status::Running;
        if running && (unchanged || self.has(Flaw::ReaperIgnoresExpiry)) {
            w.broken.live_lease_reaped |= w.row.expires >= w.now + self.skew;
            let has_own_record = w
                .guardian(w.row.epoch)
                .is_some_and(|g| g.phase == Phase::Ended(End::Own) && g.host() == seen.by.host());
            w.broken.result_lost |= has_own_record;
            self.requeue(w, self.has(Flaw::ReaperIgnoresCancel));
            if w.row.status.is_terminal() {
                w.story = Story::Plain;
            }
        }
        Some(())
    }

    /// Every way from running back to the queue: a requested cancel and the bound of attempts come
    /// first.
    fn requeue(&self, w: &mut World, ignores_cancel: bool) {
        let spent = w.row.epoch >= MAX_ATTEMPTS && !self.has(Flaw::AttemptsUnbounded);
        let status = if w.row.cancel_requested && !ignores_cancel {
            Status::Cancelled
        } else if spent {
            Status::Failed
        } else {
            Status::Queued
        };
        self.set_status(w, status);
    }

    fn set_status(&self, w: &mut World, status: Status) {
        w.broken.terminal_changed |= w.row.status.is_terminal() && w.row.status != status;
        w.row.status = status;
        w.row.owner = None;
        w.row.expires = 0;
    }
}

fn story_of(w: &World, from: Inc, owner: Inc, epoch: u8, outcome: Outcome) -> Story {
    match w.guardian(epoch) {
        Some(g) if outcome == Outcome::Completed && g.spawned_by != from => {
            if owner == from {
                Story::Adopted {
                    after_old_fence: g.ended_after_old_fence,
                    third_incarnation: from == Inc::A3,
                }
            } else {
                Story::Inherited
            }
        }
        _ => Story::Plain,
    }
}
