//! The clock that fences are on.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment of `CLOCK_BOOTTIME`: it goes on while the machine sleeps, nobody can set it, and all
/// processes of a machine see the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootTime(u64);

impl BootTime {
    /// Now.
    pub fn now() -> Self {
        // Elsewhere the clock stands still while the machine sleeps.
        #[cfg(target_os = "linux")]
        let clock = ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        let clock = ClockId::Monotonic;
        let now = clock_gettime(clock);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        Self(seconds.saturating_mul(1_000_000_000) + u64::try_from(now.tv_nsec).unwrap_or(0))
    }

    /// So many nanoseconds after the machine was started.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the machine was started.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The moment `later`, at most the last one there is.
    ///
    /// ```
    /// use std::time::Duration;
    /// use leasehold::process::BootTime;
    ///
    /// let start = BootTime::from_nanos(5);
    /// assert_eq!(start.saturating_add(Duration::from_nanos(7)).as_nanos(), 12);
    /// assert_eq!(start.saturating_add(Duration::MAX).as_nanos(), u64::MAX);
    /// ```
    pub fn saturating_add(self, later: Duration) -> Self {
        Self(self.0.saturating_add(nanos(later)))
    }

    /// How much later this is than `earlier`, or nothing.
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The nanoseconds of a time, at most the greatest number there is.
pub(in crate::process) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
