//! Finds expired leases and takes one back.
//!
//! A lease is *expired* if and only if its run is running and `lease_expires_at` is before now (ADR-0071 D4). Whose
//! run it is, scheduled or not, and of which kind, does not matter.

use diesel::prelude::*;

use super::depart::{Loss, OutOfRunning};
use crate::db::engine::{AnyConn, Evidence, Operation, Query};
use crate::db::fragments::{After, Condition};
use crate::db::moment::Moment;
use crate::db::schema::schedule_runs;
use crate::domain::status::Status;
use crate::domain::transition::{Guard, Principal};

/// Rows read per page of expired leases.
const PAGE_ROWS: i64 = 500;

/// A run whose lease has expired, as it was seen.
#[derive(Debug, Clone, PartialEq, Queryable)]
pub struct ExpiredLease {
    /// The run.
    pub run_id: String,
    /// The expiry that was seen; the reaper's only guard.
    pub lease_expires_at: f64,
    /// How often the run was claimed.
    pub lease_attempts: i32,
    /// When its status last changed, in seconds since the epoch: at the claim, and the lease was for no longer than from
    /// then to its expiry.
    pub claimed_at: Option<f64>,
}

/// One page of expired leases, the longest expired first.
#[derive(Debug, Clone)]
pub struct ExpiredPage {
    /// Leases that expire before this moment.
    pub now: Moment,
    /// The last one of the page before.
    pub after: Option<ExpiredLease>,
}

impl Query for ExpiredPage {
    type Output = Vec<ExpiredLease>;

    fn name(&self) -> &'static str {
        "read the expired leases"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Self::Output> {
        use schedule_runs::dsl;
        let page = dsl::schedule_runs
            .select((
                dsl::id,
                dsl::lease_expires_at.assume_not_null(),
                dsl::lease_attempts,
                dsl::updated_at,
            ))
            .filter(Condition("status = 'running'"))
            .filter(dsl::lease_expires_at.lt(self.now.of_read(conn)))
            .order((dsl::lease_expires_at.asc(), dsl::id.asc()))
            .limit(PAGE_ROWS);
        match &self.after {
            None => page.load(conn),
            Some(last) => {
                let at = last.lease_expires_at;
                let after =
                    After { columns: "(lease_expires_at, id)", at, id: last.run_id.clone() };
                page.filter(after).load(conn)
            }
        }
    }
}

impl ExpiredPage {
    /// The page after one that came out full; nothing after the last.
    pub fn next(&self, page: &[ExpiredLease]) -> Option<ExpiredPage> {
        let full = page.len() as i64 >= PAGE_ROWS;
        page.last()
            .filter(|_| full)
            .map(|last| ExpiredPage { now: self.now, after: Some(last.clone()) })
    }
}

/// Takes an expired lease back: the run returns to its old place in the queue, or fails when the bound is reached. If
/// somebody has asked for its cancel, it is cancelled instead.
#[derive(Debug, Clone)]
pub struct Reap {
    /// The lease as it was seen.
    pub seen: ExpiredLease,
    /// What is counted towards the bound.
    pub counted: Counted,
    /// How many times a lease may run out.
    pub max_attempts: i32,
    /// When, in seconds since the epoch.
    pub at: f64,
    /// The id of the fact.
    pub fact_id: String,
}

/// What is counted towards the bound of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// Claims, as ADR-0071 has it.
    Attempts,
    /// Leases that ran out: where claims are also spent by shutdowns and restarts, those are not the run's fault.
    Expiries,
}

impl Operation for Reap {
    /// The status it has now; nothing when its lease has changed since it was seen.
    type Output = Option<Status>;

    fn name(&self) -> &'static str {
        "reap an expired lease"
    }

    fn subject(&self) -> Option<&str> {
        Some(&self.seen.run_id)
    }

    fn evidence(&self, output: &Self::Output) -> Option<Evidence<'_>> {
        output.is_some().then_some(Evidence::Fact(&self.fact_id))
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Self::Output> {
        let guard =
            Guard { lease_expires_at: Some(self.seen.lease_expires_at), ..Guard::default() };
        let change = OutOfRunning {
            run_id: &self.seen.run_id,
            guard: &guard,
            at: self.at,
            fact_id: &self.fact_id,
        };
        let principal = Principal::system("task_worker_reaper");
        let max = self.max_attempts;
        match self.counted {
            Counted::Attempts => {
                change.back_within(conn, Loss::Lease, self.seen.lease_attempts, max, &principal)
            }
            Counted::Expiries => change.lose(conn, Loss::Lease, max, &principal),
        }
    }
}
