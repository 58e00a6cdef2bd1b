//! How often an actor may die before the whole system gives up.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The first restart comes this soon,
const FIRST_DELAY: Duration = Duration::from_millis(10);
/// and none comes later than this.
const LONGEST_DELAY: Duration = Duration::from_secs(2);

/// So many deaths within so long are borne; one more is too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartLimit {
    /// How many.
    pub deaths: usize,
    /// Within how long.
    pub within: Duration,
}

impl Default for RestartLimit {
    /// Five within a minute.
    fn default() -> Self {
        RestartLimit { deaths: 5, within: Duration::from_secs(60) }
    }
}

/// What follows a death.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterDeath {
    /// Another is started after this delay, which doubles with each death in sight.
    RestartAfter(Duration),
    /// The system ends.
    GiveUp,
}

/// The deaths in sight.
#[derive(Debug)]
pub struct RestartBudget {
    limit: RestartLimit,
    deaths: VecDeque<Instant>,
}

impl RestartBudget {
    /// A budget nothing has been taken from.
    pub fn new(limit: RestartLimit) -> RestartBudget {
        RestartBudget { limit, deaths: VecDeque::new() }
    }

    /// Takes one death from the budget.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use leasehold::domain::restart::{AfterDeath, RestartBudget, RestartLimit};
    /// let limit = RestartLimit { deaths: 1, within: Duration::from_secs(60) };
    /// let mut budget = RestartBudget::new(limit);
    /// let now = Instant::now();
    /// assert!(matches!(budget.record(now), AfterDeath::RestartAfter(_)));
    /// assert_eq!(budget.record(now), AfterDeath::GiveUp);
    /// ```
    pub fn record(&mut self, now: Instant) -> AfterDeath {
        let old = |death: &Instant| now.saturating_duration_since(*death) > self.limit.within;
        while self.deaths.front().is_some_and(old) {
            self.deaths.pop_front();
        }
        self.deaths.push_back(now);
        if self.deaths.len() > self.limit.deaths {
            return AfterDeath::GiveUp;
        }
        let doublings = u32::try_from(self.deaths.len() - 1).unwrap_or(u32::MAX).min(16);
        AfterDeath::RestartAfter((FIRST_DELAY * 2_u32.pow(doublings)).min(LONGEST_DELAY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deaths_out_of_sight_do_not_count_and_delays_double() {
        let limit = RestartLimit { deaths: 2, within: Duration::from_secs(60) };
        let mut budget = RestartBudget::new(limit);
        let start = Instant::now();
        assert_eq!(budget.record(start), AfterDeath::RestartAfter(FIRST_DELAY));
        assert_eq!(budget.record(start), AfterDeath::RestartAfter(FIRST_DELAY * 2));
        let later = start + Duration::from_secs(61);
        assert_eq!(budget.record(later), AfterDeath::RestartAfter(FIRST_DELAY));
        assert_eq!(budget.record(later), AfterDeath::RestartAfter(FIRST_DELAY * 2));
        assert_eq!(budget.record(later), AfterDeath::GiveUp);
    }
}
