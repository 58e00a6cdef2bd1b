//! Claims a queued run: one compare-and-swap from `queued` to `running`, with its fact (ADR-0071 D4).

use diesel::prelude::*;

use super::change::{Change, Epoch, swap};
use super::pause::is_held;
use crate::db::engine::{AnyConn, Evidence, Operation};
use crate::db::fragments::Condition;
use crate::db::moment::Moment;
use crate::db::schema::schedule_runs;
use crate::domain::reason::{Reason, ReasonCode};
use crate::domain::status::Status;
use crate::domain::transition::{Guard, Patch, Principal};

/// Takes the lease of one run for one worker.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The run.
    pub run_id: String,
    /// Its concurrency key, as its page showed it: a queued run keeps its key.
    pub concurrency_key: Option<String>,
    /// The owner from now on.
    pub worker_id: String,
    /// When the lease runs out; finite.
    pub lease_expires_at: Moment,
    /// When the claim is made, in seconds since the epoch.
    pub at: f64,
    /// The id of the fact.
    pub fact_id: String,
}

/// What came of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// The run is this worker's, in this epoch.
    Won {
        /// How often the run has been claimed, this time included.
        epoch: i32,
    },
    /// It is no longer queued.
    Lost,
    /// Another run with its key is running.
    Busy,
    /// It is held by a pause.
    Held,
}

impl Operation for Claim {
    type Output = ClaimOutcome;

    fn name(&self) -> &'static str {
        "claim a run"
    }

    fn subject(&self) -> Option<&str> {
        Some(&self.run_id)
    }

    fn exclusive_key(&self) -> Option<&str> {
        self.concurrency_key.as_deref()
    }

    fn evidence(&self, output: &Self::Output) -> Option<Evidence<'_>> {
        let won = matches!(output, ClaimOutcome::Won { .. });
        won.then_some(Evidence::Fact(&self.fact_id))
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<ClaimOutcome> {
        if let Some(key) = &self.concurrency_key
            && is_busy(conn, key)?
        {
            return Ok(ClaimOutcome::Busy);
        }
        let summary = format!("claimed by host worker {}", self.worker_id);
        let change = Change {
            id: &self.run_id,
            from: Status::Queued,
            to: Status::Running,
            reason: &Reason::new(ReasonCode::STARTED, summary),
            principal: &Principal::system(self.worker_id.as_str()),
            guard: &Guard::default(),
            patch: &Patch { leased_by: Some(Some(self.worker_id.clone())), ..Patch::default() },
            epoch: Epoch::Next(self.lease_expires_at),
            exit_code: None,
            error_detail: None,
            at: self.at,
            fact_id: &self.fact_id,
        };
        Ok(match swap(conn, &change)? {
            Some(epoch) => ClaimOutcome::Won { epoch },
            None if is_held(conn, &self.run_id)? => ClaimOutcome::Held,
            None => ClaimOutcome::Lost,
        })
    }
}

fn is_busy(conn: &mut AnyConn, key: &str) -> QueryResult<bool> {
    use schedule_runs::dsl;
    let running: Option<String> = dsl::schedule_runs
        .select(dsl::id)
        .filter(Condition("status = 'running' AND concurrency_key IS NOT NULL"))
        .filter(dsl::concurrency_key.eq(key))
        .first(conn)
        .optional()?;
    Ok(running.is_some())
}
