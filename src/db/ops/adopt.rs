//! What a new daemon needs to take over the runs of another one.

use std::collections::HashSet;

use diesel::dsl::case_when;
use diesel::prelude::*;

use crate::db::engine::{AnyConn, Operation, Query};
use crate::db::fragments::Condition;
use crate::db::moment::Moment;
use crate::db::schema::{leasehold_meta, schedule_runs};
use crate::db::words::known_status;
use crate::domain::adoption::SeenRun;
use crate::domain::run::RunEpoch;
use crate::domain::status::Status;

/// The store's own id: which directories on this host belong to it.
#[derive(Debug, Clone, Copy)]
pub struct StoreId;

impl Query for StoreId {
    type Output = String;

    fn name(&self) -> &'static str {
        "read the store's id"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<String> {
        leasehold_meta::table.find("store_id").select(leasehold_meta::value).first(conn)
    }
}

/// A row as adoption sees it; nothing when there is none.
#[derive(Debug, Clone)]
pub struct SeeRun {
    /// The run.
    pub run_id: String,
    /// Now: the moment at which the lease has run out or not.
    pub now: Moment,
}

impl Query for SeeRun {
    type Output = Option<SeenRun>;

    fn name(&self) -> &'static str {
        "look at a run"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Self::Output> {
        use schedule_runs::dsl;
        let lasts = dsl::lease_expires_at.gt(self.now.of_read(conn));
        let row: Option<(String, Option<String>, i32, Option<bool>)> = dsl::schedule_runs
            .find(&self.run_id)
            .select((dsl::status, dsl::leased_by, dsl::lease_attempts, lasts))
            .first(conn)
            .optional()?;
        row.map(|(word, owner, epoch, lasts)| {
            let status = known_status(&word)?;
            Ok(SeenRun { status, owner, epoch, lasts: lasts.unwrap_or(false) })
        })
        .transpose()
    }
}

/// The running runs that one of these owners has the lease of.
#[derive(Debug, Clone)]
pub struct RunningOf {
    /// The owners.
    pub owners: HashSet<String>,
}

impl Query for RunningOf {
    type Output = Vec<(RunEpoch, String)>;

    fn name(&self) -> &'static str {
        "look for runs that were never started"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Self::Output> {
        use schedule_runs::dsl;
        let rows: Vec<(String, i32, Option<String>)> = dsl::schedule_runs
            .select((dsl::id, dsl::lease_attempts, dsl::leased_by))
            .filter(Condition("status = 'running'"))
            .filter(dsl::leased_by.eq_any(&self.owners))
            .load(conn)?;
        let run = |(run_id, epoch, owner): (String, i32, Option<String>)| {
            Some((RunEpoch { run_id, epoch }, owner?))
        };
        Ok(rows.into_iter().filter_map(run).collect())
    }
}

/// Takes the lease of a running run over from its old owner, in the same epoch: the task's fencing token stays valid.
#[derive(Debug, Clone)]
pub struct TakeOver {
    /// The run.
    pub run: RunEpoch,
    /// The old owner, as the row was read.
    pub from: String,
    /// The new one.
    pub to: String,
    /// Now: a lease that has run out is not revived, since a task may be stopped for it at this moment. Absent for a run
    /// whose task is known to have ended: as long as its row says that it runs, its end is its owner's to write.
    pub now: Option<Moment>,
    /// The new expiry; one that is later already stays.
    pub lease_expires_at: Moment,
}

impl Operation for TakeOver {
    /// Whether the lease is the new owner's.
    type Output = bool;

    fn name(&self) -> &'static str {
        "take a lease over"
    }

    fn subject(&self) -> Option<&str> {
        Some(&self.run.run_id)
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<bool> {
        use schedule_runs::dsl;
        let new = self.lease_expires_at.on(conn);
        let expiry = case_when(dsl::lease_expires_at.gt(new), dsl::lease_expires_at).otherwise(new);
        let mut takeover = diesel::update(dsl::schedule_runs.find(&self.run.run_id))
            .set((dsl::leased_by.eq(&self.to), dsl::lease_expires_at.eq(expiry)))
            .into_boxed()
            .filter(dsl::status.eq(Status::Running.as_str()))
            .filter(dsl::leased_by.eq(&self.from))
            .filter(dsl::lease_attempts.eq(self.run.epoch));
        if let Some(now) = self.now {
            takeover = takeover.filter(dsl::lease_expires_at.gt(now.on(conn)));
        }
        Ok(takeover.execute(conn)? == 1)
    }
}
