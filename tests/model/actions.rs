//! What can happen next, in each state.

use super::flaws::Flaw;
use super::protocol::Protocol;
use super::requests::Request;
use super::world::{Daemon, Epoch, Guardian, Held, Host, Inc, Life};
use super::world::{MAX_ATTEMPTS, Phase, Status, World};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Time passes, unless a fence is due.
    Tick,
    /// A user cancels: queued ends at once, running records the request.
    Cancel,
    /// SIGKILL of a daemon.
    Crash(Inc),
    /// SIGTERM with `detach`: it leaves, and its runs go on.
    Detach(Inc),
    /// SIGTERM with `drain`.
    Drain(Inc),
    /// A drained daemon has no run left and leaves.
    Leave(Inc),
    /// A new incarnation on host A, once the lock of the state directory is free.
    Start(Inc),
    Pause(Inc),
    Resume(Inc),
    KillGuardian(Epoch),

    /// The database applies a request.
    Apply(Request),
    /// The answer reaches the sender; or, if that has died, the guardian reads the EXTEND it had sent.
    Deliver(Request),
    /// The sender gives up waiting.
    GiveUp(Request),

    Claim(Inc),
    /// Starts the guardian, or gives the run back if it is too late or the daemon drains.
    Spawn(Inc, Epoch),
    Renew(Inc, Epoch),
    /// EXITED, or the guardian's socket closed: sends the end of the run.
    NoticeEnd(Inc, Epoch),
    /// The owner sees the requested cancel and stops the tree.
    StopCancelled(Inc, Epoch),
    /// The drain limit is reached.
    StopForShutdown(Inc, Epoch),
    /// One run directory at start.
    Sweep(Inc, Epoch),
    /// Resolves an unknown takeover.
    Reread(Inc, Epoch),
    /// Sends the end of a run that is inherited, or that got no answer the first time.
    Finish(Inc, Epoch),
    RemoveDirectory(Inc, Epoch),
    /// Gives back the run that was claimed but never started.
    RequeueUnstarted(Inc),

    ReapSelect(Inc),
    ReapApply,

    /// The guardian takes the run's lock and starts the task, or finds its fence passed.
    StartTask(Epoch),
    TaskExit(Epoch),
    Fence(Epoch),
    CheckEnds(Inc, Epoch),
    CheckFence(Epoch),
    GiveBackUnjudged(Inc, Epoch),
}

impl Protocol {
    pub fn actions_in(&self, w: &World, actions: &mut Vec<Action>) {
        let over = w.is_over();
        if over && w.guardians().next().is_none() && w.wire.is_empty() {
            return; // nothing can change any more
        }
        // Nor does time matter while the row waits and nothing is under way.
        let idle = w.row.status == Status::Queued && w.wire.is_empty() && w.nothing_lives();
        let fence_is_due = w.guardians().any(|g| self.fence_is_due(w, g));
        if w.now < self.bounds.horizon && !over && !idle && !fence_is_due {
            actions.push(Action::Tick);
        }
        if w.budget.cancels > 0 && !w.row.status.is_terminal() {
            actions.push(Action::Cancel);
        }
        for g in w.guardians() {
            self.guardian_actions(w, g, actions);
        }
        for &request in &w.wire {
            self.wire_actions(w, request, actions);
        }
        if w.reaper.is_some() {
            actions.push(Action::ReapApply);
        }
        for inc in Inc::ALL {
            self.daemon_actions(w, inc, actions);
        }
    }

    fn fence_is_due(&self, w: &World, g: &Guardian) -> bool {
        g.phase == Phase::Running && w.now >= g.fence && self.fence_works(w, g)
            || self.check_fence_is_due(w, g)
    }

    fn guardian_actions(&self, w: &World, g: &Guardian, actions: &mut Vec<Action>) {
        match g.phase {
            Phase::Starting => actions.push(Action::StartTask(g.epoch)),
            Phase::Running => {
                actions.push(Action::TaskExit(g.epoch));
                if self.fence_is_due(w, g) {
                    actions.push(Action::Fence(g.epoch));
                }
                if g.host() == Host::A && w.budget.faults > 0 && w.budget.guardian_kills > 0 {
                    actions.push(Action::KillGuardian(g.epoch));
                }
            }
            Phase::Ended(_) | Phase::Gone => {
                if self.check_fence_is_due(w, g) {
                    actions.push(Action::CheckFence(g.epoch));
                }
            }
        }
    }

    fn wire_actions(&self, w: &World, request: Request, actions: &mut Vec<Action>) {
        let sender = w.daemon(request.from);
        if request.answer.is_some() {
            if sender.can_act() || !request.awaited {
                actions.push(Action::Deliver(request));
            }
            return;
        }
        actions.push(Action::Apply(request));
        let may_fail = request.from.host() == Host::A
            && w.budget.faults > 0
            && w.budget.lost_answers > 0
            && !w.is_over();
        if request.awaited && may_fail && sender.can_act() {
            actions.push(Action::GiveUp(request));
        }
    }

    fn daemon_actions(&self, w: &World, inc: Inc, actions: &mut Vec<Action>) {
        let d = w.daemon(inc);
        match d.life {
            Life::NotStarted if self.may_start(w, inc) => actions.push(Action::Start(inc)),
            Life::NotStarted | Life::Down => {}
            Life::Sweeping | Life::Up | Life::Draining => {
                let waits = w.awaits_answer(inc);
                self.fault_actions(w, inc, waits, actions);
                if d.paused {
                    actions.push(Action::Resume(inc));
                    return;
                }
                self.queue_actions(w, inc, waits, actions);
                for epoch in 1..=MAX_ATTEMPTS {
                    if let Some(held) = w.held(inc, epoch) {
                        self.run_actions(w, inc, epoch, held, waits, actions);
                    }
                }
            }
        }
    }

    /// Faults hit only host A, and only where something is at stake. A crash of A3 would show nothing
    /// new.
    fn fault_actions(&self, w: &World, inc: Inc, waits: bool, actions: &mut Vec<Action>) {
        if inc.host() == Host::B || w.budget.faults == 0 || w.host_a_is_idle() {
            return;
        }
        let d = w.daemon(inc);
        if inc != Inc::A3 {
            if self.bounds.crashes {
                actions.push(Action::Crash(inc));
            }
            if self.bounds.stops && d.can_act() && d.life == Life::Up && !w.is_over() {
                actions.push(Action::Drain(inc));
                if !waits {
                    actions.push(Action::Detach(inc));
                }
            }
        }
        if d.can_act() && w.budget.pauses > 0 && !w.is_over() {
            actions.push(Action::Pause(inc));
        }
    }

    /// Claim, leave, give back, reap, sweep.
    fn queue_actions(&self, w: &World, inc: Inc, waits: bool, actions: &mut Vec<Action>) {
        let d = w.daemon(inc);
        let may_claim = d.life == Life::Up
            || (d.life == Life::Draining && self.has(Flaw::DrainStillStarts))
            || (d.life == Life::Sweeping && self.has(Flaw::ClaimBeforeSweep));
        let attempts_left = w.row.epoch < MAX_ATTEMPTS || self.has(Flaw::AttemptsUnbounded);
        if may_claim && !waits && w.row.status == Status::Queued && attempts_left {
            actions.push(Action::Claim(inc));
        }
        if d.life == Life::Draining && !waits && d.holds_nothing() {
            actions.push(Action::Leave(inc));
        }
        if !waits && self.sees_unstarted(w, inc) {
            actions.push(Action::RequeueUnstarted(inc));
        }
        if self.may_reap(w, inc, d) {
            actions.push(Action::ReapSelect(inc));
        }
        if d.life == Life::Sweeping && !waits {
            for g in w.guardians().filter(|g| g.host() == Host::A) {
                if w.held(inc, g.epoch).is_none() {
                    actions.push(Action::Sweep(inc, g.epoch));
                }
            }
        }
    }

    /// The reaper of a daemon leaves out the runs that it has in hand, or has yet to sweep.
    fn may_reap(&self, w: &World, inc: Inc, d: &Daemon) -> bool {
        let takes_own = self.has(Flaw::ReaperTakesOwnRuns);
        let in_hand = w.guardian(w.row.epoch).is_some_and(|g| g.host() == inc.host());
        let spared = in_hand && !takes_own;
        let expired = w.row.status == Status::Running && w.row.expires < w.now + self.skew;
        let reaps = d.life == Life::Up || (d.life == Life::Sweeping && takes_own);
        reaps && expired && !spared && w.reaper.is_none()
    }

    /// Why a daemon stops what it runs.
    fn stop_actions(&self, w: &World, inc: Inc, epoch: Epoch, actions: &mut Vec<Action>) {
        if w.row.is_owned_in(epoch, inc) && w.row.cancel_requested {
            actions.push(Action::StopCancelled(inc, epoch));
        }
        if w.daemon(inc).life == Life::Draining {
            actions.push(Action::StopForShutdown(inc, epoch));
        }
    }

    /// What a daemon can do with one run that it has in hand. It waits for one answer at a time.
    fn run_actions(
        &self,
        w: &World,
        inc: Inc,
        epoch: Epoch,
        held: Held,
        waits: bool,
        actions: &mut Vec<Action>,
    ) {
        match held {
            Held::Claimed { .. } => actions.push(Action::Spawn(inc, epoch)),
            Held::Taking { .. } => {}
            Held::Unknown { .. } if !waits => actions.push(Action::Reread(inc, epoch)),
            Held::Attached { fresh } => {
                if !w.guardian(epoch).is_none_or(Guardian::is_live) {
                    // A renewal in flight is awaited before the terminal write.
                    if !waits {
                        actions.push(Action::NoticeEnd(inc, epoch));
                    }
                    return;
                }
                if !waits && !fresh && inc.host() == Host::A {
                    actions.push(Action::Renew(inc, epoch));
                }
                self.stop_actions(w, inc, epoch, actions);
            }
            Held::Judging { fresh } => {
                if waits {
                    return;
                }
                if w.guardian(epoch).is_none_or(|g| g.check.is_none()) {
                    return actions.push(Action::GiveBackUnjudged(inc, epoch));
                }
                actions.push(Action::CheckEnds(inc, epoch));
                if !fresh && inc.host() == Host::A {
                    actions.push(Action::Renew(inc, epoch));
                }
                self.stop_actions(w, inc, epoch, actions);
            }
            Held::Ended { .. } if !waits => actions.push(Action::Finish(inc, epoch)),
            Held::Unknown { .. } | Held::Ended { .. } => {}
            Held::Closed => actions.push(Action::RemoveDirectory(inc, epoch)),
        }
    }
}
