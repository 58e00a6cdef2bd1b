//! Renews the leases of the runs that one worker is executing. That is no transition: no fact is written.

use std::collections::HashSet;

use diesel::dsl::case_when;
use diesel::prelude::*;

use crate::db::engine::{AnyConn, Operation};
use crate::db::fragments::Kept;
use crate::db::moment::Moment;
use crate::db::schema::schedule_runs;
use crate::domain::run::RunEpoch;
use crate::domain::status::Status;

/// Ids per statement; SQLite allows some 30,000 bound values.
const IDS_PER_STATEMENT: usize = 500;

/// Moves the expiry of every lease in `runs` that `owner` still holds.
#[derive(Debug, Clone)]
pub struct Renew {
    /// The worker.
    pub owner: String,
    /// What it executes.
    pub runs: Vec<RunEpoch>,
    /// The new expiry. One that is later already stays.
    pub lease_expires_at: Moment,
}

impl Operation for Renew {
    /// The leases that were renewed; the others are lost.
    type Output = HashSet<RunEpoch>;

    fn name(&self) -> &'static str {
        "renew the leases"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Self::Output> {
        use schedule_runs::dsl;
        let mut renewed = HashSet::new();
        let expiry = self.lease_expires_at.on(conn);
        for runs in self.runs.chunks(IDS_PER_STATEMENT) {
            let ids = runs.iter().map(|run| run.run_id.as_str());
            let later = case_when(dsl::lease_expires_at.gt(expiry), dsl::lease_expires_at)
                .otherwise(expiry);
            let renewal = diesel::update(dsl::schedule_runs)
                .filter(dsl::status.eq(Status::Running.as_str()))
                .filter(dsl::leased_by.eq(&self.owner))
                .filter(dsl::id.eq_any(ids))
                .set(dsl::lease_expires_at.eq(later))
                .returning((dsl::id, dsl::lease_attempts));
            let rows: Vec<(String, i32)> = Kept(renewal).get_results(conn)?;
            renewed.extend(rows.into_iter().map(|(run_id, epoch)| RunEpoch { run_id, epoch }));
        }
        Ok(renewed)
    }
}
