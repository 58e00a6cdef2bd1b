//! A worker's heartbeat: one row that says who it is, what it offers and when it was last seen (ADR-0071 D4).

use diesel::prelude::*;

use crate::db::columns::JsonText;
use crate::db::engine::{AnyConn, Operation, Query, on};
use crate::db::fragments::Kept;
use crate::db::schema::{leasehold_adapters, workers};
use crate::domain::claim_plan::targets_or_host;
use crate::domain::json_text;

/// Writes the heartbeat, whether or not there was one before. `leased_run_id` is left alone.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    /// The worker.
    pub worker_id: String,
    /// What it advertises; order and duplicates are kept.
    pub capabilities: Vec<String>,
    /// The targets it serves; none means `host`.
    pub targets: Vec<String>,
    /// The kinds that it has adapters for, if that is to be known.
    pub kinds: Option<Vec<String>>,
    /// When, in seconds since the epoch.
    pub at: f64,
}

impl Operation for Heartbeat {
    type Output = ();

    fn name(&self) -> &'static str {
        "write a heartbeat"
    }

    fn subject(&self) -> Option<&str> {
        Some(&self.worker_id)
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<()> {
        use workers::dsl;
        let seen = (
            dsl::advertised_capabilities.eq(JsonText(json_text::strings(&self.capabilities))),
            dsl::execution_targets
                .eq(JsonText(json_text::strings(&targets_or_host(&self.targets)))),
            dsl::last_heartbeat_at.eq(self.at),
        );
        on!(conn, c => {
            let beat = diesel::insert_into(dsl::workers)
                .values((dsl::worker_id.eq(&self.worker_id), seen.clone()))
                .on_conflict(dsl::worker_id)
                .do_update()
                .set(seen)
                .returning(dsl::worker_id);
            Kept(beat).get_result::<String>(c).map(drop)
        })?;
        self.kinds.as_ref().map_or(Ok(()), |kinds| write_kinds(conn, &self.worker_id, kinds))
    }
}

fn write_kinds(conn: &mut AnyConn, worker_id: &str, kinds: &[String]) -> QueryResult<()> {
    use leasehold_adapters::dsl;
    let kinds = dsl::kinds.eq(JsonText(json_text::strings(kinds)));
    on!(conn, c => {
        let written = diesel::insert_into(dsl::leasehold_adapters)
            .values((dsl::worker_id.eq(worker_id), kinds.clone()))
            .on_conflict(dsl::worker_id)
            .do_update()
            .set(kinds)
            .returning(dsl::worker_id);
        Kept(written).get_result::<String>(c).map(drop)
    })
}

/// The kinds that workers have adapters for, of those workers that say so.
#[derive(Debug, Clone, Copy)]
pub struct ListAdapters;

impl Query for ListAdapters {
    /// Each worker with the kinds as stored JSON text.
    type Output = Vec<(String, JsonText)>;

    fn name(&self) -> &'static str {
        "list the adapters of workers"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Self::Output> {
        use leasehold_adapters::dsl;
        dsl::leasehold_adapters.select((dsl::worker_id, dsl::kinds)).load(conn)
    }
}

/// When a worker was last seen; nothing for one that never sent a heartbeat.
#[derive(Debug, Clone)]
pub struct LastHeartbeat {
    /// The worker.
    pub worker_id: String,
}

impl Query for LastHeartbeat {
    type Output = Option<f64>;

    fn name(&self) -> &'static str {
        "read a heartbeat"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Option<f64>> {
        workers::table
            .find(&self.worker_id)
            .select(workers::last_heartbeat_at)
            .first(conn)
            .optional()
    }
}

/// Removes the rows of workers that have not been seen for long.
#[derive(Debug, Clone)]
pub struct ForgetWorkers {
    /// Workers last seen before this moment go, in seconds since the epoch.
    pub unseen_since: f64,
}

impl Operation for ForgetWorkers {
    /// How many went.
    type Output = usize;

    fn name(&self) -> &'static str {
        "forget workers"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<usize> {
        let unseen = workers::last_heartbeat_at.lt(self.unseen_since);
        let gone = diesel::delete(workers::table.filter(unseen)).execute(conn)?;
        // Those too that another program has removed.
        let there = workers::table.select(workers::worker_id);
        diesel::delete(leasehold_adapters::table)
            .filter(leasehold_adapters::worker_id.ne_all(there))
            .execute(conn)?;
        Ok(gone)
    }
}
