//! What becomes of a task with a contract once it has ended by itself: a check judges what it has left.
//!
//! The check is a tree of its own, with a guardian and a fence. It runs while the run is owned and its lease is renewed, so
//! that no other attempt begins beside it; an heir takes the lease first, also one that has run out: nobody else has the
//! run as long as the row still says so. A check whose daemon died is made again by the next one.

use super::flaws::Flaw;
use super::protocol::Protocol;
use super::world::{Check, End, Epoch, Guardian, Held, Inc, Phase, World};

impl Protocol {
    /// Whether the task of this epoch has ended by itself, and its end waits for a judgement.
    pub fn is_to_be_judged(&self, w: &World, epoch: Epoch) -> bool {
        let has_ended = |g: &Guardian| g.phase == Phase::Ended(End::Own);
        self.contract && w.guardian(epoch).is_some_and(has_ended)
    }

    /// The start of a daemon finds a task that has ended.
    pub fn judge_inherited(&self, w: &mut World, inc: Inc, epoch: Epoch) {
        if self.has(Flaw::JudgedWithoutLease) && w.row.runs(epoch) {
            let fence = self.fence(w, inc, w.now);
            if let Some(g) = w.guardian_mut(epoch) {
                g.check = Some(Check { by: inc, fence });
            }
            return w.hold(inc, epoch, Some(Held::Judging { fresh: true }));
        }
        self.adopt(w, inc, epoch, None);
    }

    /// The task of a run that is owned has ended. What the fence has reached is not judged any more.
    pub fn begin_check(&self, w: &mut World, inc: Inc, epoch: Epoch) {
        let now = w.now;
        if let Some(g) = w.guardian_mut(epoch).filter(|g| now < g.fence) {
            g.check = Some(Check { by: inc, fence: g.fence });
        }
        w.hold(inc, epoch, Some(Held::Judging { fresh: false }));
    }

    pub fn check_fence_is_due(&self, w: &World, g: &Guardian) -> bool {
        let is_due = |check: Check| w.now >= check.fence;
        g.check.is_some_and(is_due) && !self.has(Flaw::CheckWithoutFence)
    }

    pub fn end_check(&self, w: &mut World, epoch: Epoch) {
        if let Some(g) = w.guardian_mut(epoch) {
            g.check = None;
        }
    }

    /// The check is over, for this reason: `Own` says that it has judged.
    pub fn stop_check(&self, w: &mut World, inc: Inc, epoch: Epoch, end: End) {
        self.end_check(w, epoch);
        w.hold(inc, epoch, Some(Held::Ended { end, owned: true }));
        self.finish(w, inc, epoch, end, true);
    }
}
