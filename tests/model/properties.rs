//! What must never happen, and what must be able to.

use stateright::Property;

use super::protocol::Protocol;
use super::world::{Guardian, Host, Inc, Life, MAX_ATTEMPTS, Phase, Status, Story, World};

/// "P": held in every state, by the protocol as it is.
pub fn promises() -> Vec<Property<Protocol>> {
    vec![
        Property::always("P1 at most one live tree per row", |_, w: &World| {
            w.guardians().filter(|g| runs(g)).count() <= 1
        }),
        Property::always("P2 no tree outlives its lease", |_, w: &World| {
            w.guardians().all(|g| !runs(g) || !w.row.runs(g.epoch) || w.now <= w.row.expires)
        }),
        Property::always("P3 a row leaves running only after its tree is dead", |_, w: &World| {
            w.guardians().all(|g| !runs(g) || w.row.runs(g.epoch))
        }),
        Property::always("P4 a terminal row never changes", |_, w: &World| {
            !w.broken.terminal_changed
        }),
        Property::always("P5 a result comes from the owning epoch", |_, w: &World| {
            !w.broken.foreign_result
        }),
        Property::always("P6 only the task's own end is stored as its result", |_, w: &World| {
            !w.broken.false_result
        }),
        Property::always("P7 a live lease is never reaped", |_, w: &World| {
            !w.broken.live_lease_reaped
        }),
        Property::always(
            "P8 a true result is never dropped while its epoch still runs",
            |_, w: &World| !w.broken.result_lost,
        ),
        Property::always("P9 attempts are bounded", |_, w: &World| w.row.epoch <= MAX_ATTEMPTS),
        Property::always("P10 renewal and takeover extend only their own epoch", |_, w: &World| {
            !w.broken.foreign_extension
        }),
        Property::always(
            "P11 a takeover never revives an expired lease of what has not ended",
            |_, w: &World| !w.broken.revived,
        ),
        Property::always("P12 no claim after a cancel was requested", |_, w: &World| {
            !w.broken.claimed_after_cancel
        }),
        Property::always("P13 a run with a live lease is not killed as lost", |_, w: &World| {
            !w.broken.killed_needlessly
        }),
        Property::always(
            "P14 nothing starts on a host beside leftovers of a killed run",
            |_, w: &World| !w.broken.started_beside_leftover,
        ),
        Property::always("P15 a draining daemon starts nothing", |_, w: &World| {
            !w.broken.started_while_draining
        }),
        Property::always(
            "P16 beside a daemon that is up, each run directory is in hand",
            |_, w: &World| {
                let is_up = |&i: &Inc| w.daemon(i).life == Life::Up;
                let in_hand =
                    |g: &Guardian| Inc::ON_A.iter().any(|&i| w.held(i, g.epoch).is_some());
                !Inc::ON_A.iter().any(is_up)
                    || w.guardians().filter(|g| g.host() == Host::A).all(in_hand)
            },
        ),
        Property::always("P17 no check outlives its lease, or its row's epoch", |_, w: &World| {
            let lasts = |g: &Guardian| w.row.runs(g.epoch) && w.now <= w.row.expires;
            w.guardians().all(|g| g.check.is_none() || lasts(g))
        }),
    ]
}

/// "S", reached in some state: without these a protocol that does nothing would break no promise.
pub fn possibilities() -> Vec<Property<Protocol>> {
    vec![
        Property::sometimes("S1 adopted, and completed after its old fence", |_, w: &World| {
            matches!(w.story, Story::Adopted { after_old_fence: true, .. })
        }),
        Property::sometimes("S2 adopted twice, and completed", |_, w: &World| {
            matches!(w.story, Story::Adopted { third_incarnation: true, .. })
        }),
        Property::sometimes("S3 finished while down, and recorded", |protocol, w: &World| {
            // What is judged has to be taken over first.
            let judged = Story::Adopted { after_old_fence: false, third_incarnation: false };
            w.story == Story::Inherited || protocol.contract && w.story == judged
        }),
        Property::sometimes("S4 cancel requested while down, and cancelled", |_, w: &World| {
            w.cancelled_while_down && w.row.status == Status::Cancelled
        }),
        Property::sometimes("S5 completion wins over a requested cancel", |_, w: &World| {
            w.row.cancel_requested && w.row.status == Status::Completed
        }),
        Property::sometimes("S6 done in the second epoch", |_, w: &World| {
            w.row.epoch == 2 && w.row.status == Status::Completed
        }),
        Property::sometimes("S7 attempts exhausted, failed", |_, w: &World| {
            w.row.status == Status::Failed
        }),
        // At time 0 and with one fault, only the drain can have queued it again.
        Property::sometimes("S8 drained away, and queued again at once", |protocol, w: &World| {
            w.row.status == Status::Queued
                && w.row.epoch > 0
                && w.now == 0
                && w.budget.faults + 1 == protocol.bounds.faults
                && w.daemon(Inc::A1).life == Life::Down
        }),
        Property::sometimes(
            "S9 never started, and queued again while its lease runs",
            |_, w: &World| w.unstarted_requeued && w.row.status == Status::Queued,
        ),
        Property::sometimes("S10 judged after its lease had run out", |protocol, w: &World| {
            !protocol.contract || w.judged_late && w.row.status == Status::Completed
        }),
        // A known hole, stated openly: guardian AND daemon killed, descendants that did not die with
        // the task live on until the next start on that host, and another host does not know.
        Property::sometimes(
            "H1 (known hole) leftover on A beside the next epoch on B",
            |_, w: &World| {
                w.guardians().any(|g| g.leftover)
                    && w.guardians().any(|g| runs(g) && g.host() == Host::B)
            },
        ),
    ]
}

fn runs(g: &Guardian) -> bool {
    g.phase == Phase::Running
}
