//! What is made of clocks that disagree (I32 of the promises: a wall clock may jump, both ways).

use std::collections::HashMap;

/// No lease is waited for longer than this, in seconds: the TTL that a worker has by default.
pub const LONGEST_WAIT: f64 = super::lease::DEFAULT_LEASE_TTL;

/// One look at a wall clock, maybe of another host, with a steady clock of this one read before and after: one that
/// nobody sets and that counts sleep. All in seconds; only differences of the steady one mean anything.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Look {
    /// What the wall clock said.
    pub wall: f64,
    /// The steady clock before.
    pub before: f64,
    /// The steady clock after.
    pub after: f64,
}

/// How far apart two clocks are for certain, in seconds: positive when the one that was looked at is ahead of `before`
/// and `after`, which are of the other clock.
///
/// ```
/// use leasehold::domain::clocks::{Look, offset};
/// assert_eq!(offset(Look { wall: 105.0, before: 100.0, after: 102.0 }), 3.0);
/// assert_eq!(offset(Look { wall: 101.0, before: 100.0, after: 102.0 }), 0.0);
/// assert_eq!(offset(Look { wall: 99.0, before: 100.0, after: 102.0 }), -1.0);
/// ```
pub fn offset(look: Look) -> f64 {
    (look.wall - look.after).max(0.0) + (look.wall - look.before).min(0.0)
}

/// Keeps a reaper from taking leases for expired that are not: after a jump of the wall clock it waits with each until
/// its owner has had the time to renew it.
///
/// A lease that is renewed changes its expiry. One that was seen unchanged for as long as it lasts was not renewed,
/// whatever the clocks say.
#[derive(Debug)]
pub struct JumpGuard {
    margin: f64,
    last: Option<Look>,
    /// Until when leases are waited for, on the steady clock.
    until: Option<f64>,
    /// Leases, their expiry, and when they were first seen so.
    seen: HashMap<(String, i32), (f64, f64)>,
}

/// A lease whose expiry lies before the wall clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeenLease<'a> {
    /// The run.
    pub run_id: &'a str,
    /// How often it was claimed.
    pub epoch: i32,
    /// Its expiry.
    pub expires_at: f64,
    /// How long it lasts at the most, as far as the row tells, in seconds.
    pub ttl: f64,
}

impl JumpGuard {
    /// A guard that takes no notice of jumps up to `margin` seconds, which fences leave room for.
    pub fn new(margin: f64) -> JumpGuard {
        JumpGuard { margin, last: None, until: None, seen: HashMap::new() }
    }

    /// Takes note of the wall clock. Answers by how many seconds it has jumped, if it has.
    pub fn look(&mut self, look: Look) -> Option<f64> {
        if self.until.is_some_and(|until| look.before >= until) {
            self.until = None;
            self.seen.clear();
        }
        let last = self.last.replace(look)?;
        // Each look says between which bounds the difference of the clocks lies.
        let forward = (look.wall - look.after) - (last.wall - last.before);
        let backward = (look.wall - look.before) - (last.wall - last.after);
        let jump = forward.max(0.0) + backward.min(0.0);
        if jump.abs() <= self.margin {
            return None;
        }
        self.until = Some(look.after + LONGEST_WAIT);
        self.seen.clear();
        Some(jump)
    }

    /// Whether the lease may be taken back, as it is seen at `now` on the steady clock.
    pub fn may_take(&mut self, lease: SeenLease<'_>, now: f64) -> bool {
        if self.until.is_none() {
            return true;
        }
        let key = (lease.run_id.to_owned(), lease.epoch);
        let (expiry, since) = self.seen.entry(key).or_insert((lease.expires_at, now));
        if *expiry != lease.expires_at {
            (*expiry, *since) = (lease.expires_at, now);
        }
        now - *since >= lease.ttl.min(LONGEST_WAIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(wall: f64, steady: f64) -> Look {
        Look { wall, before: steady, after: steady }
    }

    fn lease(expires_at: f64) -> SeenLease<'static> {
        SeenLease { run_id: "r", epoch: 1, expires_at, ttl: 30.0 }
    }

    #[test]
    fn clocks_that_go_alike_make_nobody_wait() {
        let mut guard = JumpGuard::new(2.0);
        assert_eq!(guard.look(look(1000.0, 10.0)), None);
        // Slewed by less than the margin, and a sleep of the machine, which both clocks count.
        assert_eq!(guard.look(look(1031.5, 40.0)), None);
        assert_eq!(guard.look(look(9031.5, 8040.0)), None);
        assert!(guard.may_take(lease(999.0), 8040.0));
    }

    #[test]
    fn an_answer_that_took_long_is_no_jump() {
        let mut guard = JumpGuard::new(2.0);
        assert_eq!(guard.look(Look { wall: 1000.0, before: 10.0, after: 70.0 }), None);
        assert_eq!(guard.look(look(1005.0, 71.0)), None);
        let jump = guard.look(look(1106.0, 72.0));
        assert_eq!(jump, Some(100.0));
    }

    #[test]
    fn after_a_jump_a_lease_is_taken_when_it_was_seen_unchanged_for_as_long_as_it_lasts() {
        let mut guard = JumpGuard::new(2.0);
        guard.look(look(1000.0, 0.0));
        assert_eq!(guard.look(look(4601.0, 1.0)), Some(3600.0));
        assert!(!guard.may_take(lease(1020.0), 1.0));
        assert!(!guard.may_take(lease(1020.0), 30.9));
        // Renewed: its owner lives.
        assert!(!guard.may_take(lease(1050.0), 30.95));
        assert!(!guard.may_take(lease(1050.0), 60.9));
        assert!(guard.may_take(lease(1050.0), 60.95));
        // Another epoch is another lease.
        assert!(!guard.may_take(SeenLease { epoch: 2, ..lease(1050.0) }, 61.0));
        // In the end everything is as it was.
        assert_eq!(guard.look(look(4600.0 + 301.0, 301.0)), None);
        assert!(guard.may_take(SeenLease { epoch: 2, ..lease(1050.0) }, 301.0));
    }

    #[test]
    fn a_jump_back_counts_too_and_no_wait_is_longer_than_the_longest() {
        let mut guard = JumpGuard::new(2.0);
        guard.look(look(1000.0, 0.0));
        assert_eq!(guard.look(look(0.0, 0.0)), Some(-1000.0));
        let endless = SeenLease { ttl: f64::MAX, ..lease(-5.0) };
        assert!(!guard.may_take(endless, 0.0));
        assert!(guard.may_take(endless, LONGEST_WAIT));
    }
}
