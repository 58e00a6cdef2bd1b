//! What a daemon does: it starts, adopts, ends and forgets runs.

use super::flaws::Flaw;
use super::protocol::Protocol;
use super::requests::{Op, Outcome};
use super::world::{EPOCHS, End, Epoch, Held, Host, Inc, Life, Phase, Status, Time, World};

impl Protocol {
    /// After a granted claim: starts the guardian, or gives the run back if it is too late or the
    /// daemon drains.
    pub fn spawn(&self, w: &mut World, inc: Inc, epoch: Epoch) -> Option<()> {
        let Some(Held::Claimed { fence }) = w.held(inc, epoch) else {
            return None;
        };
        let draining = w.daemon(inc).life == Life::Draining;
        let too_late = w.now >= fence;
        if too_late || (draining && !self.has(Flaw::DrainStillStarts)) {
            w.hold(inc, epoch, Some(Held::Ended { end: End::Stopped, owned: true }));
            return Some(());
        }
        let beside_leftover = w.guardians().any(|g| g.leftover && g.host() == inc.host());
        w.broken.started_beside_leftover |= beside_leftover;
        w.broken.started_while_draining |= draining;
        w.guardians[epoch as usize - 1] = Some(self.new_guardian(inc, epoch, fence));
        w.hold(inc, epoch, Some(Held::Attached { fresh: true }));
        Some(())
    }

    /// One run directory of the host, at the start of a daemon.
    pub fn sweep(&self, w: &mut World, inc: Inc, epoch: Epoch) {
        let Some(g) = w.guardian_mut(epoch) else {
            return;
        };
        g.check = None; // one that was left is killed
        let ended = |end| Some(Held::Ended { end, owned: false });
        match g.phase {
            Phase::Ended(End::Own) if self.contract => self.judge_inherited(w, inc, epoch),
            Phase::Ended(end) => w.hold(inc, epoch, ended(end)),
            // No guardian holds the run's lock: what is left of the tree is found by its marker and
            // killed.
            Phase::Gone => {
                g.leftover = false;
                w.hold(inc, epoch, ended(End::Lost));
            }
            // Nobody answers at the socket. Taking the run's lock keeps this guardian from ever
            // starting its task; without that lock it is only believed to be dead.
            Phase::Starting => {
                if !self.has(Flaw::NoRunLock) {
                    g.phase = Phase::Gone;
                }
                w.hold(inc, epoch, ended(End::Lost));
            }
            Phase::Running => self.adopt(w, inc, epoch, None),
        }
    }

    /// The heart of adoption: read the row, then take over, attach, or stop the tree. It is used for
    /// the first look, after an unknown outcome, and after a takeover that changed 0 rows. `unanswered`
    /// is the request time of the oldest takeover that got no answer.
    pub fn adopt(&self, w: &mut World, inc: Inc, epoch: Epoch, unanswered: Option<Time>) {
        if let Some(g) = w.guardian_mut(epoch) {
            g.controller = inc; // it connects
        }
        match (unanswered, w.row.owner) {
            // One of those did succeed. It was applied at `oldest` or later.
            (Some(oldest), _) if w.row.is_owned_in(epoch, inc) => {
                let from = if self.has(Flaw::TakeoverFenceFromReread) { w.now } else { oldest };
                self.attach(w, inc, epoch, from);
            }
            (_, Some(old)) if self.is_adoptable(w, epoch) => {
                if self.has(Flaw::ExtendBeforeTakeover) {
                    let fence = self.fence(w, inc, w.now);
                    self.extend(w, inc, epoch, fence);
                }
                let ended = self.is_to_be_judged(w, epoch);
                w.send(inc, Op::Takeover { epoch, old, ended });
                w.hold(inc, epoch, Some(Held::Taking { unanswered }));
            }
            // Not adoptable: stop the tree. It may have ended by itself meanwhile: the record decides.
            _ => self.stop_and_inherit(w, inc, epoch),
        }
    }

    /// The takeover that was sent at `sent` has succeeded.
    pub fn attach(&self, w: &mut World, inc: Inc, epoch: Epoch, sent: Time) {
        if let Some(g) = w.guardian_mut(epoch) {
            g.fence_before_adoption.get_or_insert(g.fence);
        }
        let from = if self.has(Flaw::TakeoverFenceFromAnswer) { w.now } else { sent };
        self.extend_from(w, inc, epoch, from);
        w.hold(inc, epoch, Some(Held::Attached { fresh: sent == w.now }));
    }

    pub fn stop_and_inherit(&self, w: &mut World, inc: Inc, epoch: Epoch) {
        let end = self.stop_tree(w, inc, epoch, End::Stopped);
        if self.has(Flaw::StopDropsRecord) {
            self.close(w, inc, epoch);
        } else {
            w.hold(inc, epoch, Some(Held::Ended { end, owned: false }));
        }
    }

    /// EXITED, or the guardian's socket closed: sends the end of a run that is owned.
    pub fn notice_end(&self, w: &mut World, inc: Inc, epoch: Epoch) -> Option<()> {
        let g = w.guardian_mut(epoch)?;
        g.leftover = false;
        let end = match g.phase {
            Phase::Ended(end) => end,
            _ => End::Lost,
        };
        if self.contract && end == End::Own {
            self.begin_check(w, inc, epoch);
            return Some(());
        }
        w.hold(inc, epoch, Some(Held::Ended { end, owned: true }));
        self.finish(w, inc, epoch, end, true);
        Some(())
    }

    /// Sends the end of a run, guarded by owner and epoch. An heir names the owner that it reads in
    /// the row.
    pub fn finish(&self, w: &mut World, inc: Inc, epoch: Epoch, end: End, owned: bool) {
        let mut owner = inc;
        if !owned && !self.has(Flaw::RecordUnguarded) {
            match w.row.owner {
                Some(old) if w.row.runs(epoch) => owner = old,
                _ => return self.close(w, inc, epoch), // the row has moved on
            }
            if self.has(Flaw::OwnerFromRunDirectory) {
                owner = w.guardian(epoch).map_or(owner, |g| g.spawned_by);
            }
        }
        let outcome = match end {
            End::Own => Outcome::Completed,
            End::Cancel => Outcome::Cancelled,
            End::Fence if self.has(Flaw::RecordWithoutReason) => Outcome::Completed,
            End::Fence | End::Stopped | End::Lost => Outcome::Requeue,
        };
        w.send(inc, Op::Finish { epoch, owner, outcome, heir: !owned, end });
    }

    /// Whether the row runs for an incarnation of this state directory that has neither executor nor
    /// run directory: it was claimed, and never started. (The daemon waits for no answer: a claim that
    /// is on its way is not one that was lost.)
    pub fn sees_unstarted(&self, w: &World, inc: Inc) -> bool {
        let epoch = w.row.epoch;
        inc.host() == Host::A
            && w.row.status == Status::Running
            && w.row.owner.is_some_and(|owner| owner.host() == Host::A)
            && w.guardian(epoch).is_none()
            && (w.held(inc, epoch).is_none() || self.has(Flaw::UnstartedInHand))
    }

    pub fn requeue_unstarted(&self, w: &mut World, inc: Inc) -> Option<()> {
        let (epoch, owner) = (w.row.epoch, w.row.owner?);
        let (outcome, end, heir) = (Outcome::Requeue, End::Stopped, false);
        w.send(inc, Op::Finish { epoch, owner, outcome, heir, end });
        Some(())
    }

    /// Leaves a run for good; its directory, if there is one, is still to be removed.
    pub fn close(&self, w: &mut World, inc: Inc, epoch: Epoch) {
        let has_directory = w.guardian(epoch).is_some();
        w.hold(inc, epoch, has_directory.then_some(Held::Closed));
    }

    /// With the run directory goes the exit record. The row must not wait for it any more.
    pub fn remove_directory(&self, w: &mut World, inc: Inc, epoch: Epoch) {
        let has_own_record = w.guardian(epoch).is_some_and(|g| g.phase == Phase::Ended(End::Own));
        w.broken.result_lost |= has_own_record && w.row.runs(epoch);
        w.guardians[epoch as usize - 1] = None;
        w.hold(inc, epoch, None);
    }

    /// Whether the lock of the state directory lets `inc` start. The lock goes with its holder's
    /// process: SIGSTOP keeps it.
    pub fn may_start(&self, w: &World, inc: Inc) -> bool {
        let Some(predecessor) = inc.predecessor() else {
            return false;
        };
        let before = w.daemon(predecessor).life;
        let still_inherited = self.has(Flaw::LockInherited) && !w.nothing_lives();
        (before == Life::Down && !still_inherited)
            || (self.has_no_state_lock() && before != Life::NotStarted)
    }

    /// Once every run directory of its host is in hand, a new daemon may claim and reap.
    pub fn end_sweeps(&self, w: &mut World) {
        for inc in Inc::ON_A {
            let in_hand = |epoch| {
                let held = w.held(inc, epoch);
                matches!(
                    held,
                    Some(
                        Held::Attached { .. }
                            | Held::Judging { .. }
                            | Held::Ended { .. }
                            | Held::Closed
                    )
                )
            };
            if w.daemon(inc).life == Life::Sweeping
                && w.guardians().all(|g| g.host() != Host::A || in_hand(g.epoch))
            {
                w.daemon_mut(inc).life = Life::Up;
            }
        }
    }

    /// SIGCONT: it first sees the closed socket of a guardian that was killed meanwhile.
    pub fn resume(&self, w: &mut World, inc: Inc) {
        w.daemon_mut(inc).paused = false;
        for n in 0..EPOCHS {
            let connected = w.daemon(inc).held[n].is_some_and(Held::is_connected);
            if let Some(g) = w.guardians[n].as_mut().filter(|_| connected) {
                g.leftover = false;
            }
        }
    }

    /// A daemon's process is gone: its memory, its locks, its sockets. What it sent may still be
    /// applied.
    pub fn process_is_gone(&self, w: &mut World, inc: Inc) {
        let d = w.daemon_mut(inc);
        d.life = Life::Down;
        d.paused = false;
        d.held = [None; EPOCHS];
        w.wire.retain(|r| r.from != inc || r.answer.is_none() || r.may_have_become_extend());
        for r in w.wire.iter_mut().filter(|r| r.from == inc) {
            r.awaited = false;
        }
    }
}
