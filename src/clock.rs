//! The clock that is handed in: nothing else in the crate asks the system for the time.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::process::BootTime;

/// Tells the time, in seconds since the epoch.
pub trait Clock: fmt::Debug + Send + Sync {
    /// The wall clock now.
    fn now(&self) -> f64;

    /// A clock that nobody sets, and that goes on while the machine sleeps. Only differences mean anything. Unless it is
    /// there, the wall clock is taken for one, and no jump of it is ever noticed.
    fn steady(&self) -> f64 {
        self.now()
    }
}

/// The machine's own clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that asks the system")]
    fn now(&self) -> f64 {
        // A clock before 1970 reads as 1970: leases then only live longer.
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
    }

    fn steady(&self) -> f64 {
        BootTime::now().saturating_since(BootTime::from_nanos(0)).as_secs_f64()
    }
}

/// A clock that stands still until it is moved; for tests.
///
/// ```
/// use leasehold::clock::{Clock, ManualClock};
/// let clock = ManualClock::at(1_000.0);
/// clock.advance(0.5);
/// assert_eq!(clock.now(), 1_000.5);
/// ```
#[derive(Debug)]
pub struct ManualClock(Mutex<Hands>);

#[derive(Debug)]
struct Hands {
    wall: f64,
    steady: f64,
}

impl ManualClock {
    /// A clock that reads `now`.
    pub fn at(now: f64) -> ManualClock {
        ManualClock(Mutex::new(Hands { wall: now, steady: 0.0 }))
    }

    /// Lets so many seconds pass, backwards too.
    pub fn advance(&self, seconds: f64) {
        let mut hands = self.hands();
        hands.wall += seconds;
        hands.steady += seconds;
    }

    /// Moves the wall clock by so many seconds, as somebody who sets it does: no time passes.
    pub fn set(&self, by_seconds: f64) {
        self.hands().wall += by_seconds;
    }

    fn hands(&self) -> MutexGuard<'_, Hands> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> f64 {
        self.hands().wall
    }

    fn steady(&self) -> f64 {
        self.hands().steady
    }
}
