//! Lease arithmetic: when a lease is expired, when a worker is stale, and what follows (ADR-0071 D4).
//!
//! Times are seconds since the epoch as `f64`; lengths are seconds.

/// How long a claim owns its run, in seconds.
pub const DEFAULT_LEASE_TTL: f64 = 300.0;
/// How old a worker's heartbeat may be before it claims nothing, in seconds: three ticks of 30 s.
pub const DEFAULT_HEARTBEAT_TTL: f64 = 90.0;
/// How many times a lease may run out before the run fails.
pub const MAX_LEASE_ATTEMPTS: i32 = 3;

/// When a lease taken at `now` runs out.
pub fn expires_at(now: f64, ttl: f64) -> f64 {
    now + ttl
}

/// A lease is *expired* if and only if it has an expiry and that is strictly before `now`.
///
/// ```
/// use leasehold::domain::lease::is_expired;
/// assert!(is_expired(Some(99.5), 100.0));
/// assert!(!is_expired(Some(100.0), 100.0));
/// assert!(!is_expired(None, 100.0));
/// ```
pub fn is_expired(expires_at: Option<f64>, now: f64) -> bool {
    expires_at.is_some_and(|at| at < now)
}

/// A worker is *stale* if and only if it has a heartbeat older than `ttl`. One that never sent any is not stale, so
/// that direct callers need not register.
pub fn is_stale(last_heartbeat_at: Option<f64>, now: f64, ttl: f64) -> bool {
    last_heartbeat_at.is_some_and(|at| now - at > ttl)
}

/// What becomes of a run whose lease has expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterExpiry {
    /// Back to its old place in the queue.
    Requeue,
    /// It ends failed.
    Fail,
}

/// Decides by the attempts already made: below the bound the run is tried again.
///
/// ```
/// use leasehold::domain::lease::{AfterExpiry, after_expiry};
/// assert_eq!(after_expiry(2, 3), AfterExpiry::Requeue);
/// assert_eq!(after_expiry(3, 3), AfterExpiry::Fail);
/// ```
pub fn after_expiry(attempts: i32, max_attempts: i32) -> AfterExpiry {
    if attempts >= max_attempts { AfterExpiry::Fail } else { AfterExpiry::Requeue }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_exactly_as_old_as_allowed_is_fresh() {
        assert!(!is_stale(Some(10.0), 100.0, 90.0));
        assert!(is_stale(Some(9.9990234375), 100.0, 90.0));
        assert!(!is_stale(Some(500.0), 100.0, 90.0), "a heartbeat from the future is fresh");
        assert!(!is_stale(None, 100.0, 90.0));
    }
}
