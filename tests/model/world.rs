//! What there is: one row, the daemons, their guardians, and what is on its way to the database.
//!
//! A [`World`] is one state of the search. What is marked as a *ghost* no part of the protocol reads: it
//! remembers what a property asks about.

use super::requests::{Op, Request};

/// Whole steps, the unit of every length of time here.
pub type Time = i8;
/// The epoch of a run: +1 at each claim, never reset, kept by a takeover.
pub type Epoch = u8;

pub const MAX_ATTEMPTS: Epoch = 2;
/// One more than may be spent, for the mode that starts too often.
pub const EPOCHS: usize = MAX_ATTEMPTS as usize + 1;

/// An incarnation of a daemon. A1, A2, A3 follow each other on host A and share its state directory.
/// B1 lives on another host, never fails, and is there to compete for the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Inc {
    A1,
    A2,
    A3,
    B1,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    A,
    B,
}

impl Inc {
    pub const ALL: [Inc; 4] = [Inc::A1, Inc::A2, Inc::A3, Inc::B1];
    pub const ON_A: [Inc; 3] = [Inc::A1, Inc::A2, Inc::A3];

    pub fn host(self) -> Host {
        if self == Inc::B1 { Host::B } else { Host::A }
    }

    /// Who has to be gone before this one starts.
    pub fn predecessor(self) -> Option<Inc> {
        match self {
            Inc::A2 => Some(Inc::A1),
            Inc::A3 => Some(Inc::A2),
            Inc::A1 | Inc::B1 => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    Queued,
    Running,
    Completed,
    Failed,
    Cancelled,
}

impl Status {
    pub fn is_terminal(self) -> bool {
        !matches!(self, Status::Queued | Status::Running)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    pub status: Status,
    /// `leased_by`: host and incarnation.
    pub owner: Option<Inc>,
    /// `lease_expires_at`
    pub expires: Time,
    /// `lease_attempts`
    pub epoch: Epoch,
    /// A cancel of a running row is recorded here first.
    pub cancel_requested: bool,
}

impl Row {
    pub fn runs(&self, epoch: Epoch) -> bool {
        self.status == Status::Running && self.epoch == epoch
    }

    pub fn is_owned_in(&self, epoch: Epoch, owner: Inc) -> bool {
        self.runs(epoch) && self.owner == Some(owner)
    }
}

/// How a tree ended; the durable exit record says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum End {
    /// The task ended by itself: this is a result.
    Own,
    /// Stopped because a cancel was requested.
    Cancel,
    /// Killed by the fence.
    Fence,
    /// Stopped by a daemon for another reason: shutdown, a lost lease, a row that is not adoptable.
    Stopped,
    /// The guardian was killed: there is no record.
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Has the run's spec, has neither taken the run's lock nor started the task.
    Starting,
    /// The task's tree is alive.
    Running,
    /// The tree is gone and the exit record is durable.
    Ended(End),
    /// Killed without leaving a record. The task itself died with it.
    Gone,
}

/// A guardian together with its run directory `<run id>.<epoch>`; they are removed as one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Guardian {
    pub epoch: Epoch,
    pub spawned_by: Inc,
    /// The newest incarnation that connected: the only one that is obeyed.
    pub controller: Inc,
    pub phase: Phase,
    pub fence: Time,
    /// Ghost: the fence at the moment of adoption.
    pub fence_before_adoption: Option<Time>,
    /// Ghost: the task ended by itself later than that.
    pub ended_after_old_fence: bool,
    /// The guardian was killed and descendants of the task are still there, without a fence.
    pub leftover: bool,
    /// What judges the ended task is alive: a tree under a guardian of its own, in the same directory.
    pub check: Option<Check>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Check {
    /// Who began it: the only one that its guardian obeys.
    pub by: Inc,
    pub fence: Time,
}

impl Guardian {
    pub fn host(&self) -> Host {
        self.spawned_by.host()
    }

    /// Has, or may yet get, a living tree.
    pub fn is_live(&self) -> bool {
        matches!(self.phase, Phase::Starting | Phase::Running)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Life {
    NotStarted,
    /// Started; handles the run directories of its host before it claims.
    Sweeping,
    Up,
    /// First SIGTERM with `drain`: no claims, waits for its runs.
    Draining,
    Down,
}

/// What a daemon has in hand of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Held {
    /// The claim was acknowledged; no guardian yet.
    Claimed { fence: Time },
    /// A takeover was sent. `unanswered` is the request time of the oldest one before it that got no
    /// answer.
    Taking { unanswered: Option<Time> },
    /// No answer to the takeover, or 0 rows changed: the row has to be read again.
    Unknown { unanswered: Option<Time> },
    /// Owns the run and talks to its guardian. `fresh`: it was renewed in this instant.
    Attached { fresh: bool },
    /// The task ended by itself, and what it has left is being judged. The run is owned, and its lease
    /// renewed.
    Judging { fresh: bool },
    /// The tree is dead; its end has to be written. `owned`: this incarnation is the owner, else it
    /// writes as the heir of the owner that the row names.
    Ended { end: End, owned: bool },
    /// Nothing is left to be written; the run directory can go.
    Closed,
}

impl Held {
    /// Holds the guardian's socket, and sees it close.
    pub fn is_connected(self) -> bool {
        matches!(self, Held::Taking { .. } | Held::Unknown { .. } | Held::Attached { .. })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Daemon {
    pub life: Life,
    pub paused: bool,
    /// By epoch - 1.
    pub held: [Option<Held>; EPOCHS],
}

impl Daemon {
    pub fn new(life: Life) -> Daemon {
        Daemon { life, paused: false, held: [None; EPOCHS] }
    }

    pub fn is_alive(&self) -> bool {
        !matches!(self.life, Life::NotStarted | Life::Down)
    }

    pub fn can_act(&self) -> bool {
        self.is_alive() && !self.paused
    }

    pub fn holds_nothing(&self) -> bool {
        self.held.iter().all(Option::is_none)
    }
}

/// What a reaper saw before it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Observed {
    pub by: Inc,
    pub epoch: Epoch,
    pub expires: Time,
}

/// What may still go wrong, or be asked for, in this history.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// All faults together.
    pub faults: u8,
    pub pauses: u8,
    pub lost_answers: u8,
    pub guardian_kills: u8,
    pub cancels: u8,
}

/// Ghost: how the row reached its terminal status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Story {
    Open,
    Plain,
    /// Completed by an incarnation that had taken the run over.
    Adopted {
        after_old_fence: bool,
        third_incarnation: bool,
    },
    /// The task ended while its daemon was down; the next incarnation recorded it without owning it.
    Inherited,
}

/// Ghost: set once, by a step that breaks a promise which a single state does not show.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Broken {
    pub terminal_changed: bool,
    pub foreign_result: bool,
    pub live_lease_reaped: bool,
    pub result_lost: bool,
    pub foreign_extension: bool,
    pub revived: bool,
    pub claimed_after_cancel: bool,
    pub killed_needlessly: bool,
    pub false_result: bool,
    pub started_beside_leftover: bool,
    pub started_while_draining: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub now: Time,
    pub row: Row,
    pub daemons: [Daemon; 4],
    /// By epoch - 1.
    pub guardians: [Option<Guardian>; EPOCHS],
    pub wire: Vec<Request>,
    pub reaper: Option<Observed>,
    pub budget: Budget,
    pub broken: Broken,
    pub story: Story,
    /// Ghost: a cancel was requested while host A, which ran the row, was down.
    pub cancelled_while_down: bool,
    /// Ghost: a run that was never started was given back before its lease had expired.
    pub unstarted_requeued: bool,
    /// Ghost: what had ended was taken over, to be judged, after its lease had run out.
    pub judged_late: bool,
}

impl World {
    /// A queued row, a daemon on each host, nothing under way.
    pub fn new(budget: Budget) -> World {
        let (up, not_started) = (Daemon::new(Life::Up), Daemon::new(Life::NotStarted));
        World {
            now: 0,
            row: Row {
                status: Status::Queued,
                owner: None,
                expires: 0,
                epoch: 0,
                cancel_requested: false,
            },
            daemons: [up.clone(), not_started.clone(), not_started, up],
            guardians: [None, None, None],
            wire: vec![],
            reaper: None,
            budget,
            broken: Broken::default(),
            story: Story::Open,
            cancelled_while_down: false,
            unstarted_requeued: false,
            judged_late: false,
        }
    }

    pub fn daemon(&self, inc: Inc) -> &Daemon {
        &self.daemons[inc as usize]
    }

    pub fn daemon_mut(&mut self, inc: Inc) -> &mut Daemon {
        &mut self.daemons[inc as usize]
    }

    pub fn held(&self, inc: Inc, epoch: Epoch) -> Option<Held> {
        self.daemon(inc).held[epoch as usize - 1]
    }

    pub fn hold(&mut self, inc: Inc, epoch: Epoch, held: Option<Held>) {
        self.daemon_mut(inc).held[epoch as usize - 1] = held;
    }

    /// `None` also for epoch 0, in which nothing runs.
    pub fn guardian(&self, epoch: Epoch) -> Option<&Guardian> {
        self.guardians.get((epoch as usize).wrapping_sub(1))?.as_ref()
    }

    pub fn guardian_mut(&mut self, epoch: Epoch) -> Option<&mut Guardian> {
        self.guardians.get_mut((epoch as usize).wrapping_sub(1))?.as_mut()
    }

    /// Every guardian whose run directory is still there.
    pub fn guardians(&self) -> impl Iterator<Item = &Guardian> {
        self.guardians.iter().flatten()
    }

    pub fn send(&mut self, from: Inc, op: Op) {
        self.wire.push(Request { from, sent: self.now, op, answer: None, awaited: true });
    }

    pub fn awaits_answer(&self, inc: Inc) -> bool {
        self.wire.iter().any(|r| r.from == inc && r.awaited)
    }

    pub fn is_judging(&self, inc: Inc, epoch: Epoch) -> bool {
        matches!(self.held(inc, epoch), Some(Held::Judging { .. }))
    }

    pub fn nothing_lives(&self) -> bool {
        let claimed = |d: &Daemon| d.held.iter().any(|h| matches!(h, Some(Held::Claimed { .. })));
        !self.guardians().any(|g| g.is_live() || g.check.is_some())
            && !self.daemons.iter().any(claimed)
    }

    /// The row is terminal and no tree lives: time, pauses and lost answers make no difference now.
    pub fn is_over(&self) -> bool {
        self.row.status.is_terminal() && self.nothing_lives()
    }

    /// Nothing on host A that a fault could hit.
    pub fn host_a_is_idle(&self) -> bool {
        Inc::ON_A.iter().all(|&i| self.daemon(i).holds_nothing())
            && self.guardians().all(|g| g.host() == Host::B)
            && self.wire.iter().all(|r| r.from.host() == Host::B)
    }

    pub fn host_a_is_down(&self) -> bool {
        Inc::ON_A.iter().all(|&i| !self.daemon(i).is_alive())
    }
}
