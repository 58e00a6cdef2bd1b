//! The modes: the protocol as chosen, which has to keep every promise, and every mutant of it that flips
//! one decision, which has to break one.

use super::bounds::Event::{self, *};
use super::bounds::{Bounds, SMALL_HORIZON, small, smallest};
use super::flaws::Flaw;
use super::protocol::{Protocol, TTL};

pub struct Mode {
    pub number: usize,
    /// What is decided otherwise.
    pub decision: &'static str,
    /// With the bounds of the full search.
    pub protocol: Protocol,
    pub expected: Expected,
}

pub enum Expected {
    /// No promise is broken and everything possible is reached, within the bounds of the full search;
    /// and within those of the small search, taken together.
    Clean { small: [Bounds; 3] },
    /// These promises are broken, also within the small bounds.
    Broken { promises: &'static [&'static str], small: Bounds },
    /// No promise is broken, but this is reached no more, though the protocol as chosen reaches it
    /// within the same bounds.
    Unreached { possibilities: &'static [&'static str], small: Bounds },
}

const CHOSEN: Protocol = Protocol {
    flaw: Flaw::None,
    later_ttl: TTL,
    skew: 0,
    margin: 0,
    contract: false,
    bounds: Bounds::FULL,
};
const SHORTER: Protocol = Protocol { later_ttl: 1, ..CHOSEN };
const TWO_FAULTS: Bounds = Bounds { faults: 2, ..Bounds::FULL };

/// The protocol as chosen.
pub fn chosen(bounds: Bounds) -> Protocol {
    Protocol { bounds, ..CHOSEN }
}

pub fn modes() -> Vec<Mode> {
    let numbered = clean().into_iter().chain(MUTANTS.iter().map(mutant)).enumerate();
    numbered.map(|(number, mode)| Mode { number, ..mode }).collect()
}

fn clean() -> [Mode; 5] {
    let mode = |decision, protocol, bounds, small| Mode {
        number: 0,
        decision,
        protocol: Protocol { bounds, ..protocol },
        expected: Expected::Clean { small },
    };
    let skewed = Protocol { skew: 1, margin: 1, ..CHOSEN };
    let judged = Protocol { contract: true, ..CHOSEN };
    let control = Protocol { flaw: Flaw::OldExtendObeyed, ..SHORTER };
    [
        mode("CLEAN", CHOSEN, Bounds::FULL, small()),
        mode("CLEAN, shorter lease after an upgrade", SHORTER, TWO_FAULTS, smallest()),
        mode("CLEAN, reaper's clock 1 fast, margin 1", skewed, TWO_FAULTS, smallest()),
        mode("CLEAN, with a contract to be judged", judged, TWO_FAULTS, smallest()),
        mode("CONTROL, EXTEND of a dead incarnation obeyed", control, TWO_FAULTS, smallest()),
    ]
}

/// A row of the table of mutants: what is decided otherwise, what that breaks or leaves unreached (by the
/// first word of its name), and what has to happen for it to show.
type Mutant = (&'static str, Flaw, &'static [&'static str], &'static [Event]);

#[rustfmt::skip] // a row is a line
const MUTANTS: [Mutant; 38] = [
    ("reaper's clock 1 fast, no margin", Flaw::NoMargin, &["P3"], &[Rival]),
    ("guardian: no fence while alone", Flaw::NoFenceWhileAlone, &["P2", "P1"], &[Pause, Rival]),
    ("guardian: fence counted from the answer", Flaw::FenceFromAnswer, &["P2"], &[]),
    ("guardian: fence not checked as the task starts", Flaw::NoFenceCheckAtStart, &["P2"], &[]),
    ("guardian: no run lock (silent socket = dead)", Flaw::NoRunLock, &["P3"], &[Stop]),
    ("guardian: exit record without the reason", Flaw::RecordWithoutReason, &["P6"], &[]),

    ("takeover without CAS on the owner", Flaw::TakeoverWithoutOwnerCas, &["P13"], &[Crash, Crash]),
    ("takeover of an expired lease", Flaw::TakeoverAfterExpiry, &["P11"], &[Stop]),
    ("takeover: fence counted from the answer", Flaw::TakeoverFenceFromAnswer, &["P2"], &[Stop]),
    ("takeover: fence counted from the second read", Flaw::TakeoverFenceFromReread, &["P2"], &[Stop, LostAnswer]),
    ("takeover: no EXTEND", Flaw::NoExtendAfterTakeover, &["S1"], &[Crash]),
    ("takeover: EXTEND before the CAS", Flaw::ExtendBeforeTakeover, &["P2"], &[Stop]),
    ("takeover lowers the expiry", Flaw::TakeoverLowersExpiry, &["P2"], &[Stop]),
    ("takeover: no answer = lost", Flaw::LostAnswerMeansLost, &["P13"], &[Stop, LostAnswer]),
    ("takeover: no answer = won", Flaw::LostAnswerMeansWon, &["P2"], &[Stop, LostAnswer]),
    ("adoption: 0 rows = lost, no second read", Flaw::ZeroRowsMeansLost, &["P13"], &[Stop, LostAnswer]),
    ("adoption: owner taken from the run directory", Flaw::OwnerFromRunDirectory, &["P13"], &[Stop, Stop]),
    ("adoption: exit record written without guard", Flaw::RecordUnguarded, &["P5", "P4"], &[Stop]),
    ("adoption: stopping drops the exit record", Flaw::StopDropsRecord, &["P8"], &[Stop]),
    ("claim before the sweep", Flaw::ClaimBeforeSweep, &["P14"], &[Crash, GuardianKill, Rival]),
    ("no lock on the state directory", Flaw::NoStateLock, &["P16"], &[Crash]),
    ("no lock, and the old incarnation is obeyed", Flaw::NoStateLockAndOldOneObeyed, &["P16"], &[Crash]),
    ("the guardian inherits the lock", Flaw::LockInherited, &["S1", "S2"], &[Crash, Crash]),

    ("judging: what has ended is judged without lease", Flaw::JudgedWithoutLease, &["P17"], &[Stop]),
    ("judging: the check has no fence", Flaw::CheckWithoutFence, &["P17"], &[Crash]),

    ("terminal write guarded by the owner only", Flaw::FinishByOwnerOnly, &["P5"], &[]),
    ("terminal write refused after the lease ended", Flaw::FinishNeedsLiveLease, &["P8"], &[]),
    ("claim: epoch read afterwards, not RETURNED", Flaw::EpochReadLater, &["P8"], &[Rival]),
    ("renewal without guard", Flaw::RenewUnguarded, &["P10"], &[Crash]),
    ("renewal: no answer = lost", Flaw::RenewalUnknownMeansLost, &["P13"], &[LostAnswer]),

    ("reaper ignores the observed expiry", Flaw::ReaperIgnoresExpiry, &["P7"], &[]),
    ("reaper takes runs its own host has in hand", Flaw::ReaperTakesOwnRuns, &["P8"], &[]),
    ("reaper ignores a requested cancel", Flaw::ReaperIgnoresCancel, &["P12"], &[Cancel]),
    ("requeue ignores a requested cancel", Flaw::RequeueIgnoresCancel, &["P12"], &[Cancel]),
    ("cancelled before the tree is dead", Flaw::CancelledBeforeTreeIsDead, &["P3"], &[Cancel]),
    ("attempts not bounded", Flaw::AttemptsUnbounded, &["P9"], &[Stop]),
    ("drain still starts runs", Flaw::DrainStillStarts, &["P15"], &[Stop]),

    ("start: no run directory = never started", Flaw::UnstartedInHand, &["P3"], &[]),
];

fn mutant(&(decision, flaw, words, events): &Mutant) -> Mode {
    let protocol = match flaw {
        Flaw::JudgedWithoutLease | Flaw::CheckWithoutFence => {
            Protocol { flaw, contract: true, ..CHOSEN }
        }
        Flaw::NoMargin => Protocol { flaw, skew: 1, ..CHOSEN },
        // With leases of one length there is nothing to lower.
        Flaw::TakeoverLowersExpiry => Protocol { flaw, ..SHORTER },
        _ => Protocol { flaw, ..CHOSEN },
    };
    let small = Bounds::of(SMALL_HORIZON, events);
    if words.iter().all(|word| word.starts_with('S')) {
        // Seen only once everything was seen.
        let protocol = Protocol { bounds: TWO_FAULTS, ..protocol };
        let expected = Expected::Unreached { possibilities: words, small };
        Mode { number: 0, decision, protocol, expected }
    } else {
        Mode {
            number: 0,
            decision,
            protocol,
            expected: Expected::Broken { promises: words, small },
        }
    }
}
