//! When a task is to be started, and when it is tried again.

use std::time::Duration;

use leasehold::clock::{Clock, SystemClock};
use leasehold::domain::notation;
use leasehold::domain::retry::RetryPolicy;
use leasehold::domain::settings::When;

#[derive(Debug, clap::Args)]
pub(super) struct WhenOptions {
    /// Not before this time, or so long after now; until then it is waiting_dependency
    #[arg(long, value_name = "TIME|LENGTH", value_parser = moment)]
    after: Option<f64>,
    /// If it is still queued at this time, or so long after now, it is skipped
    #[arg(long, value_name = "TIME|LENGTH", value_parser = moment)]
    expires: Option<f64>,
    /// From -100 to 100: with 1 it takes its place in the queue as if it had been submitted a minute earlier
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
}

#[derive(Debug, clap::Args)]
pub(super) struct RetryOptions {
    /// So many failures end it; until then it is tried again after a pause [default: 1]
    ///
    /// A lost lease, a worker's shutdown or a lack of resources is no failure of the task.
    #[arg(long, value_name = "N")]
    max_failures: Option<u32>,
    /// The longest pause after the first failure; it doubles with each one, and is drawn from the whole of it
    /// [default: 1s]
    #[arg(long, value_name = "LENGTH", value_parser = notation::length, requires = "max_failures")]
    backoff: Option<Duration>,
    /// No pause is longer [default: 5m]
    #[arg(long, value_name = "LENGTH", value_parser = notation::length, requires = "max_failures")]
    backoff_cap: Option<Duration>,
    /// Try again only after this exit code, or signal such as SIGKILL; may be given more than once [default: all]
    #[arg(long, value_name = "CODE|SIGNAL", value_parser = notation::end, requires = "max_failures")]
    retry_on: Vec<i32>,
    /// Never try again after this one; may be given more than once
    #[arg(long = "final", value_name = "CODE|SIGNAL", value_parser = notation::end, requires = "max_failures")]
    never: Vec<i32>,
}

impl WhenOptions {
    pub(super) fn read(&self) -> When {
        When { not_before: self.after, expires: self.expires, priority: self.priority }
    }
}

impl RetryOptions {
    pub(super) fn read(&self) -> Option<RetryPolicy> {
        let max_failures = self.max_failures?;
        let default = RetryPolicy::default();
        let seconds = |length: Option<Duration>, otherwise| {
            length.map_or(otherwise, |length| length.as_secs_f64())
        };
        Some(RetryPolicy {
            max_failures,
            base: seconds(self.backoff, default.base),
            cap: seconds(self.backoff_cap, default.cap),
            only: self.retry_on.clone(),
            never: self.never.clone(),
        })
    }
}

/// A moment, in seconds since the epoch.
fn moment(text: &str) -> Result<f64, String> {
    notation::moment(text, SystemClock.now())
}
