//! How far a search looks.

use super::world::Time;

/// A lease is 2 long: time for one that ends, and for what follows.
pub const SMALL_HORIZON: Time = 3;

/// What may happen in one history. A history within narrow bounds is one within wider bounds too: what
/// is broken in the narrow ones is broken.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Time ends here.
    pub horizon: Time,
    /// How many things may go wrong: the first five of [`Event`], all kinds together.
    pub faults: u8,
    pub crashes: bool,
    pub stops: bool,
    /// At most one of each: pause, lost answer, killed guardian, cancel.
    pub pauses: bool,
    pub lost_answers: bool,
    pub guardian_kills: bool,
    pub cancels: bool,
    pub rival: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A daemon of host A is killed.
    Crash,
    /// A daemon of host A is told to leave: detach or drain.
    Stop,
    /// A daemon of host A is stopped, and may go on later.
    Pause,
    /// A daemon of host A gives up waiting for the database.
    LostAnswer,
    /// A guardian of host A is killed.
    GuardianKill,
    /// A user cancels.
    Cancel,
    /// A daemon on another host competes for the row.
    Rival,
}

impl Bounds {
    /// What the table of the full search is made with.
    pub const FULL: Bounds = Bounds {
        horizon: 5,
        faults: 3,
        crashes: true,
        stops: true,
        pauses: true,
        lost_answers: true,
        guardian_kills: true,
        cancels: true,
        rival: true,
    };

    /// Just enough for these events: as many faults as are named.
    pub fn of(horizon: Time, events: &[Event]) -> Bounds {
        let has = |event| events.contains(&event);
        let is_fault = |event: &&Event| !matches!(event, Event::Cancel | Event::Rival);
        Bounds {
            horizon,
            faults: events.iter().filter(is_fault).count() as u8,
            crashes: has(Event::Crash),
            stops: has(Event::Stop),
            pauses: has(Event::Pause),
            lost_answers: has(Event::LostAnswer),
            guardian_kills: has(Event::GuardianKill),
            cancels: has(Event::Cancel),
            rival: has(Event::Rival),
        }
    }

    pub fn contains(&self, narrow: &Bounds) -> bool {
        let kinds = |b: &Bounds| {
            [b.crashes, b.stops, b.pauses, b.lost_answers, b.guardian_kills, b.cancels, b.rival]
        };
        self.horizon >= narrow.horizon
            && self.faults >= narrow.faults
            && kinds(self).iter().zip(kinds(narrow)).all(|(&wide, narrow)| wide || !narrow)
    }
}

/// The bounds of the small search, which takes seconds without optimization. Together they reach all
/// that must be possible.
pub fn small() -> [Bounds; 3] {
    use Event::*;
    // One fault of any kind, a cancel, a rival.
    let once = Bounds { faults: 1, horizon: SMALL_HORIZON + 1, ..Bounds::FULL };
    // Two faults of any kind on host A alone.
    let twice =
        Bounds { faults: 2, horizon: SMALL_HORIZON, cancels: false, rival: false, ..Bounds::FULL };
    // A daemon and a guardian killed, or two daemons, beside a rival.
    let killed = Bounds::of(SMALL_HORIZON, &[Crash, GuardianKill, Rival]);
    [once, twice, killed]
}

/// Smaller still, for the variants of the protocol.
pub fn smallest() -> [Bounds; 3] {
    let [once, twice, killed] = small();
    let once = Bounds { horizon: SMALL_HORIZON, ..once };
    let twice = Bounds { pauses: false, lost_answers: false, guardian_kills: false, ..twice };
    [once, twice, killed]
}
