//! What time does to runs: those that wait for a moment go back to the queue, those that were queued for too long are
//! skipped.

use diesel::prelude::*;

use super::change::{Change, swap};
use super::run_state::locked_status;
use crate::db::engine::{AnyConn, Evidence, Operation, Query};
use crate::db::fragments::Condition;
use crate::db::moment::Moment;
use crate::db::schema::leasehold_runs;
use crate::domain::reason::{Reason, ReasonCode};
use crate::domain::status::Status;
use crate::domain::transition::Principal;

/// Runs per page; the next one is read when these have been dealt with.
const PAGE_ROWS: i64 = 500;

/// Why something is to be done about a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Its waiting is over.
    Wake,
    /// It was to be started by now.
    Expiry,
}

/// One page of the runs whose time has come.
#[derive(Debug, Clone, Copy)]
pub struct DuePage {
    /// Now.
    pub now: Moment,
}

impl Query for DuePage {
    type Output = Vec<(String, Due)>;

    fn name(&self) -> &'static str {
        "read what is due"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Self::Output> {
        use leasehold_runs::dsl;
        let now = self.now.of_read(conn);
        let woken: Vec<String> = dsl::leasehold_runs
            .select(dsl::run_id)
            .filter(Condition("wake_at IS NOT NULL"))
            .filter(dsl::wake_at.le(now))
            .order((dsl::wake_at.asc(), dsl::run_id.asc()))
            .limit(PAGE_ROWS)
            .load(conn)?;
        let expired: Vec<String> = dsl::leasehold_runs
            .select(dsl::run_id)
            .filter(Condition("expires_at IS NOT NULL"))
            .filter(dsl::expires_at.le(now))
            .order((dsl::expires_at.asc(), dsl::run_id.asc()))
            .limit(PAGE_ROWS)
            .load(conn)?;
        let woken = woken.into_iter().map(|id| (id, Due::Wake));
        Ok(woken.chain(expired.into_iter().map(|id| (id, Due::Expiry))).collect())
    }
}

impl DuePage {
    /// Whether there may be more than came.
    pub fn is_full(page: &[(String, Due)]) -> bool {
        page.len() as i64 >= PAGE_ROWS
    }
}

/// When something is due next, in seconds since the epoch.
#[derive(Debug, Clone, Copy)]
pub struct NextDue;

impl Query for NextDue {
    type Output = Option<f64>;

    fn name(&self) -> &'static str {
        "look when something is due"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Option<f64>> {
        use leasehold_runs::dsl;
        let wake: Option<Option<f64>> = dsl::leasehold_runs
            .select(dsl::wake_at)
            .filter(Condition("wake_at IS NOT NULL"))
            .order((dsl::wake_at.asc(), dsl::run_id.asc()))
            .first(conn)
            .optional()?;
        let expiry: Option<Option<f64>> = dsl::leasehold_runs
            .select(dsl::expires_at)
            .filter(Condition("expires_at IS NOT NULL"))
            .order((dsl::expires_at.asc(), dsl::run_id.asc()))
            .first(conn)
            .optional()?;
        let times = [wake.flatten(), expiry.flatten()];
        Ok(times.into_iter().flatten().min_by(f64::total_cmp))
    }
}

/// Does what is due about one run. A run that waits for nothing any more, or is queued no longer, has its time cleared and
/// is left alone.
#[derive(Debug, Clone)]
pub struct Wake {
    /// The run.
    pub run_id: String,
    /// What is due.
    pub due: Due,
    /// When, in seconds since the epoch.
    pub at: f64,
    /// The id of the fact, if there will be one.
    pub fact_id: String,
}

impl Operation for Wake {
    /// The status it has now; nothing when it was left alone.
    type Output = Option<Status>;

    fn name(&self) -> &'static str {
        "do what is due"
    }

    fn subject(&self) -> Option<&str> {
        Some(&self.run_id)
    }

    fn evidence(&self, output: &Self::Output) -> Option<Evidence<'_>> {
        output.is_some().then_some(Evidence::Fact(&self.fact_id))
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Self::Output> {
        use leasehold_runs::dsl;
        let Some(from) = locked_status(conn, &self.run_id)? else { return Ok(None) };
        let beside = dsl::leasehold_runs.find(&self.run_id);
        // Whoever came first has cleared it, and it may be set anew for a later time.
        let cleared = match self.due {
            Due::Wake => diesel::update(beside.filter(dsl::wake_at.is_not_null()))
                .set(dsl::wake_at.eq(None::<f64>))
                .execute(conn)?,
            Due::Expiry => diesel::update(beside.filter(dsl::expires_at.is_not_null()))
                .set(dsl::expires_at.eq(None::<f64>))
                .execute(conn)?,
        };
        let (to, reason) = match (self.due, from) {
            _ if cleared == 0 => return Ok(None),
            (Due::Wake, Status::RetryWait) => {
                (Status::Queued, Reason::new(ReasonCode::RETRY_DUE, "its pause is over"))
            }
            (Due::Wake, Status::WaitingDependency) => {
                (Status::Queued, Reason::new(ReasonCode::DUE, "its time has come"))
            }
            (Due::Expiry, Status::Queued) => {
                let why = "nobody had started it by the time it was needed";
                (Status::Skipped, Reason::new(ReasonCode::EXPIRED, why))
            }
            _ => return Ok(None),
        };
        let by = Principal::system("task_worker");
        let change =
            Change::unleased(&self.run_id, (from, to), &reason, &by, self.at, &self.fact_id);
        Ok(swap(conn, &change)?.map(|_| to))
    }
}
