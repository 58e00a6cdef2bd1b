//! What a guardian does: it starts the task, kills it at the fence, obeys its newest connection.

use super::flaws::Flaw;
use super::protocol::Protocol;
use super::world::{End, Epoch, Guardian, Inc, Phase, Time, World};

impl Protocol {
    pub fn new_guardian(&self, inc: Inc, epoch: Epoch, fence: Time) -> Guardian {
        Guardian {
            epoch,
            spawned_by: inc,
            controller: inc,
            phase: Phase::Starting,
            fence,
            fence_before_adoption: None,
            ended_after_old_fence: false,
            leftover: false,
            check: None,
        }
    }

    /// The guardian takes the run's lock and, as its last act before that, looks at the fence.
    pub fn start_task(&self, w: &mut World, epoch: Epoch) -> Option<()> {
        let now = w.now;
        let g = w.guardian_mut(epoch)?;
        let too_late = now >= g.fence && !self.has(Flaw::NoFenceCheckAtStart);
        g.phase = if too_late { Phase::Ended(End::Fence) } else { Phase::Running };
        Some(())
    }

    /// The task ends by itself.
    pub fn task_exits(&self, w: &mut World, epoch: Epoch) -> Option<()> {
        let now = w.now;
        let g = w.guardian_mut(epoch)?;
        g.phase = Phase::Ended(End::Own);
        g.ended_after_old_fence = g.fence_before_adoption.is_some_and(|f| f < now);
        Some(())
    }

    pub fn guardian_is_killed(&self, w: &mut World, epoch: Epoch) -> Option<()> {
        let watched = Inc::ALL.iter().any(|&i| {
            w.daemon(i).can_act() && w.held(i, epoch).is_some_and(|held| held.is_connected())
        });
        let g = w.guardian_mut(epoch)?;
        g.phase = Phase::Gone;
        // Its daemon sees the closed socket and kills what is left within a second.
        g.leftover = !watched;
        Some(())
    }

    /// STOP sent by `inc`: the tree dies and the record is written, or it had ended before. Answers
    /// how it ended.
    pub fn stop_tree(&self, w: &mut World, inc: Inc, epoch: Epoch, why: End) -> End {
        let has_live_lease = w.row.runs(epoch) && w.row.expires >= w.now;
        let obeyed_anyway = self.has(Flaw::NoStateLockAndOldOneObeyed);
        let Some(g) = w.guardian_mut(epoch) else {
            return why;
        };
        match g.phase {
            Phase::Ended(end) => end,
            // Wherever a guardian is found dead, what it left is killed before the run ends.
            Phase::Gone => {
                g.leftover = false;
                End::Lost
            }
            Phase::Starting | Phase::Running => {
                if g.controller == inc || obeyed_anyway {
                    let was_running = g.phase == Phase::Running;
                    g.phase = Phase::Ended(why);
                    w.broken.killed_needlessly |=
                        was_running && has_live_lease && why == End::Stopped;
                }
                why
            }
        }
    }

    /// EXTEND sent by `inc`. A fence only moves forward, and only while the tree lives.
    pub fn extend(&self, w: &mut World, inc: Inc, epoch: Epoch, fence: Time) {
        let obeys_all =
            self.has(Flaw::OldExtendObeyed) || self.has(Flaw::NoStateLockAndOldOneObeyed);
        if let Some(g) = w.guardian_mut(epoch)
            && (g.controller == inc || obeys_all)
            && (g.is_live() || self.contract)
        {
            g.fence = g.fence.max(fence);
            if let Some(check) = g.check.as_mut().filter(|check| check.by == inc) {
                check.fence = check.fence.max(fence);
            }
        }
    }

    /// EXTEND after a renewal or takeover that was sent at `sent` and changed the row.
    pub fn extend_from(&self, w: &mut World, inc: Inc, epoch: Epoch, sent: Time) {
        let adopted = w.guardian(epoch).is_some_and(|g| g.spawned_by != inc);
        if !(adopted && self.has(Flaw::NoExtendAfterTakeover)) {
            let fence = self.fence(w, inc, sent);
            self.extend(w, inc, epoch, fence);
        }
    }
}
