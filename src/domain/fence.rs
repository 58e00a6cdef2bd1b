//! How long a worker may go on with a run that it cannot renew.
//!
//! A *fence* is the moment by which the kill of a run's processes begins unless its lease was renewed: what has lost
//! its lease does not go on running. It is counted from *before* the claim or renewal was sent, so that it is never
//! later than the store's own view of the lease.

use std::time::Duration;

/// A thousand years, in seconds: clocks cannot count much further.
const LONGEST_REACH: f64 = 3.2e10;

/// The lengths of a lease, as its owner keeps them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LeaseTimes {
    /// How long a claim or a renewal lasts, in seconds.
    pub ttl: f64,
    /// How long a task has between TERM and KILL, in seconds.
    pub grace: f64,
    /// What is kept back for clocks that differ and for the kill itself, in seconds.
    pub margin: f64,
}

impl LeaseTimes {
    /// The times for a lease of `ttl` seconds: a tenth of it for the grace, a twentieth for the margin, within bounds.
    ///
    /// ```
    /// use leasehold::domain::fence::LeaseTimes;
    /// let times = LeaseTimes::of(300.0);
    /// assert_eq!((times.grace, times.margin), (10.0, 2.0));
    /// ```
    pub fn of(ttl: f64) -> LeaseTimes {
        LeaseTimes {
            ttl,
            grace: (ttl / 10.0).clamp(0.5, 10.0),
            margin: (ttl / 20.0).clamp(0.25, 2.0),
        }
    }

    /// How often leases are renewed, in seconds: three times in a TTL.
    pub fn renewal(&self) -> f64 {
        self.ttl / 3.0
    }

    /// How long after a request the fence stands, in seconds. Not positive when the times leave no room.
    pub fn reach(&self) -> f64 {
        self.ttl - self.grace - self.margin
    }

    /// Whether a renewal that comes as late as it may, and waits for the database as long as it may, is still in time.
    pub fn leave_room(&self) -> bool {
        let database_wait = (self.ttl / 6.0).min(5.0);
        self.renewal() + database_wait < self.reach()
    }

    /// As [`LeaseTimes::reach`]: the fence stands so long after the moment at which a claim or renewal was sent.
    pub fn reach_duration(&self) -> Duration {
        Duration::from_secs_f64(self.reach().clamp(0.0, LONGEST_REACH))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_without_end_has_a_fence_that_a_clock_can_show() {
        let now = std::time::Instant::now();
        assert!(now.checked_add(LeaseTimes::of(1e19).reach_duration()).is_some());
    }

    #[test]
    fn from_five_seconds_upward_there_is_room() {
        for ttl in [5.0, 10.0, 30.0, 300.0, 86_400.0] {
            assert!(LeaseTimes::of(ttl).leave_room(), "{ttl}");
        }
        for ttl in [0.5, 1.0] {
            assert!(!LeaseTimes::of(ttl).leave_room(), "{ttl}");
        }
    }
}
