//! The protocol as it is checked: its parameters, the decision that is flipped, and how far to look.

use stateright::{Model, Property};

use super::actions::Action;
use super::bounds::Bounds;
use super::flaws::Flaw;
use super::properties::{possibilities, promises};
use super::world::{Budget, Epoch, Guardian, Host, Inc, Life, Time, World};

/// The length of a lease.
pub const TTL: Time = 2;

#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    pub flaw: Flaw,
    /// Lease length of A2 and A3: an upgrade may change the configuration.
    pub later_ttl: Time,
    /// The reaper's clock is fast by so much.
    pub skew: Time,
    /// The fence falls due so much before the lease ends.
    pub margin: Time,
    /// The task has a contract: what it has left is judged, under its lease, before its end is written.
    pub contract: bool,
    pub bounds: Bounds,
}

impl Protocol {
    pub fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    pub fn has_no_state_lock(&self) -> bool {
        self.has(Flaw::NoStateLock) || self.has(Flaw::NoStateLockAndOldOneObeyed)
    }

    pub fn ttl(&self, inc: Inc) -> Time {
        match inc {
            Inc::A2 | Inc::A3 => self.later_ttl,
            Inc::A1 | Inc::B1 => TTL,
        }
    }

    /// The fence that a claim, renewal or takeover gives which was sent at `sent` and is answered now.
    /// Grace and kill take no time here: it is the end of the lease, less the margin.
    pub fn fence(&self, w: &World, inc: Inc, sent: Time) -> Time {
        let from = if self.has(Flaw::FenceFromAnswer) { w.now } else { sent };
        from + self.ttl(inc) - self.margin
    }

    /// Does the guardian act on its fence? Always; the flaw ties it to a daemon that is there.
    pub fn fence_works(&self, w: &World, g: &Guardian) -> bool {
        !self.has(Flaw::NoFenceWhileAlone) || w.daemon(g.controller).can_act()
    }

    /// Adoptable: running in the epoch of the run directory, unexpired unless the task has ended and is to
    /// be judged, and owned by an incarnation of this host. Which one does not matter: the epoch proves that the claim came from this state
    /// directory, and the directory's lock proves that every other incarnation of it is dead.
    pub fn is_adoptable(&self, w: &World, epoch: Epoch) -> bool {
        let unexpired = w.row.expires >= w.now || self.has(Flaw::TakeoverAfterExpiry);
        let lease_ok = unexpired || self.is_to_be_judged(w, epoch);
        let ours = match w.row.owner {
            Some(owner) if self.has(Flaw::OwnerFromRunDirectory) => {
                w.guardian(epoch).is_some_and(|g| g.spawned_by == owner)
            }
            Some(owner) => owner.host() == Host::A,
            None => false,
        };
        w.row.runs(epoch) && lease_ok && ours
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let mut world = World::new(Budget {
            faults: self.bounds.faults,
            pauses: self.bounds.pauses.into(),
            lost_answers: self.bounds.lost_answers.into(),
            guardian_kills: self.bounds.guardian_kills.into(),
            cancels: self.bounds.cancels.into(),
        });
        if !self.bounds.rival {
            world.daemon_mut(Inc::B1).life = Life::Down;
        }
        vec![world]
    }

    fn actions(&self, w: &World, actions: &mut Vec<Action>) {
        self.actions_in(w, actions);
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        self.after(last, action)
    }

    fn properties(&self) -> Vec<Property<Protocol>> {
        promises().into_iter().chain(possibilities()).collect()
    }
}
