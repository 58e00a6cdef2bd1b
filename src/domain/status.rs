//! The nine statuses of a run and the fourteen edges between them (ADR-0071 D3).

use std::fmt;

/// Where a run stands. A run is *terminal* if and only if no edge leaves its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
    /// Waits for a worker.
    Queued,
    /// Waits for something other than a worker.
    WaitingDependency,
    /// Owned by a worker under a lease.
    Running,
    /// Failed, and waits for its next try.
    RetryWait,
    /// Ended well.
    Completed,
    /// Ended badly.
    Failed,
    /// Ended because its deadline had passed.
    TimedOut,
    /// Ended without ever being started.
    Skipped,
    /// Ended because somebody asked for it.
    Cancelled,
}

impl Status {
    /// All nine, in the order in which ADR-0071 D2 lists them.
    pub const ALL: [Status; 9] = [
        Status::Queued,
        Status::WaitingDependency,
        Status::Running,
        Status::RetryWait,
        Status::Completed,
        Status::Failed,
        Status::TimedOut,
        Status::Skipped,
        Status::Cancelled,
    ];

    /// The word that the `status` column holds.
    pub const fn as_str(self) -> &'static str {
        match self {
            Status::Queued => "queued",
            Status::WaitingDependency => "waiting_dependency",
            Status::Running => "running",
            Status::RetryWait => "retry_wait",
            Status::Completed => "completed",
            Status::Failed => "failed",
            Status::TimedOut => "timed_out",
            Status::Skipped => "skipped",
            Status::Cancelled => "cancelled",
        }
    }

    /// The status with exactly this name; letter case and white space count.
    ///
    /// ```
    /// use leasehold::domain::status::Status;
    /// assert_eq!(Status::parse("running"), Some(Status::Running));
    /// assert_eq!(Status::parse("RUNNING"), None);
    /// ```
    pub fn parse(name: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.as_str() == name)
    }

    /// The statuses that an edge leads to from here.
    pub const fn next(self) -> &'static [Status] {
        use Status::*;
        match self {
            Queued => &[WaitingDependency, Running, Skipped, Cancelled],
            WaitingDependency => &[Queued, Cancelled],
            Running => &[Completed, Failed, TimedOut, RetryWait, Queued, Cancelled],
            RetryWait => &[Queued, Cancelled],
            Completed | Failed | TimedOut | Skipped | Cancelled => &[],
        }
    }

    /// Whether the graph declares the edge from here to `to`. No status has an edge to itself.
    pub fn may_become(self, to: Status) -> bool {
        self.next().contains(&to)
    }

    /// Whether a run in this status never changes again.
    pub const fn is_terminal(self) -> bool {
        self.next().is_empty()
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_graph_has_fourteen_edges_and_five_terminal_statuses() {
        let edges: usize = Status::ALL.iter().map(|status| status.next().len()).sum();
        assert_eq!(edges, 14);
        let terminal: Vec<_> = Status::ALL.into_iter().filter(|s| s.is_terminal()).collect();
        use Status::*;
        assert_eq!(terminal, [Completed, Failed, TimedOut, Skipped, Cancelled]);
    }

    #[test]
    fn no_status_leads_to_itself() {
        assert!(Status::ALL.into_iter().all(|status| !status.may_become(status)));
    }

    #[test]
    fn names_round_trip() {
        for status in Status::ALL {
            assert_eq!(Status::parse(status.as_str()), Some(status));
        }
    }
}
