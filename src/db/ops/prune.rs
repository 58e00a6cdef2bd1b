//! Removes runs that have ended, with what is kept beside them. Their idempotency keys stay taken.

use diesel::prelude::*;

use crate::db::engine::{AnyConn, Operation, Query};
use crate::db::rows::Fact;
use crate::db::schema::{dispatch_outbox, schedule_runs, status_transitions, workers};
use crate::domain::dispatch::DispatchStatus;
use crate::domain::notice::dedup_key;
use crate::domain::status::Status;
use crate::domain::transition::Entity;

/// Removes those of these runs that have ended. A few hundred at a time keep no worker waiting.
#[derive(Debug, Clone)]
pub struct Prune {
    /// The runs.
    pub run_ids: Vec<String>,
    /// Their notices, as far as nobody sends them any more; one that somebody sends again stays.
    pub notice_ids: Vec<String>,
    /// Whether their facts go with them.
    pub with_facts: bool,
}

/// What was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// So many runs.
    pub runs: usize,
    /// So many facts.
    pub facts: usize,
}

impl Operation for Prune {
    type Output = Pruned;

    fn name(&self) -> &'static str {
        "remove tasks that have ended"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Pruned> {
        let run_ids = ended(conn, &self.run_ids)?;
        if run_ids.is_empty() {
            return Ok(Pruned::default());
        }
        let ids = || run_ids.iter().map(String::as_str);
        // The contract's own foreign keys say nothing of a removal; what is ours goes by itself.
        diesel::update(schedule_runs::table)
            .filter(schedule_runs::chain_parent_id.eq_any(ids()))
            .set(schedule_runs::chain_parent_id.eq(None::<String>))
            .execute(conn)?;
        diesel::update(workers::table)
            .filter(workers::leased_run_id.eq_any(ids()))
            .set(workers::leased_run_id.eq(None::<String>))
            .execute(conn)?;
        // What is still to be sent outlives its run, and so does what the original has to say of it.
        diesel::update(dispatch_outbox::table)
            .filter(dispatch_outbox::schedule_run_id.eq_any(ids()))
            .set(dispatch_outbox::schedule_run_id.eq(None::<String>))
            .execute(conn)?;
        let notices = self.remove_notices(conn, &run_ids)?;
        let mut facts = 0;
        if self.with_facts {
            for (entity, ids) in [(Entity::ScheduleRun, &run_ids), (Entity::Dispatch, &notices)] {
                facts += diesel::delete(status_transitions::table)
                    .filter(status_transitions::entity_type.eq(entity.as_str()))
                    .filter(status_transitions::entity_id.eq_any(ids))
                    .execute(conn)?;
            }
        }
        let runs = diesel::delete(schedule_runs::table)
            .filter(schedule_runs::id.eq_any(ids()))
            .execute(conn)?;
        Ok(Pruned { runs, facts })
    }
}

impl Prune {
    /// Answers those that were removed: those of other runs, and those that are sent again, stay.
    fn remove_notices(&self, conn: &mut AnyConn, run_ids: &[String]) -> QueryResult<Vec<String>> {
        use dispatch_outbox::dsl;
        let gone: Vec<String> = dsl::dispatch_outbox
            .select(dsl::id)
            .filter(dsl::id.eq_any(&self.notice_ids))
            .filter(dsl::dedup_key.eq_any(run_ids.iter().map(|id| dedup_key(id))))
            .filter(dsl::status.eq_any(settled()))
            .load(conn)?;
        diesel::delete(dsl::dispatch_outbox.filter(dsl::id.eq_any(&gone))).execute(conn)?;
        Ok(gone)
    }
}

/// Those that have ended and belong to no schedule. Nobody makes a child of one of them before this transaction ends.
fn ended(conn: &mut AnyConn, run_ids: &[String]) -> QueryResult<Vec<String>> {
    use schedule_runs::dsl;
    let words = Status::ALL.into_iter().filter(|status| status.is_terminal()).map(Status::as_str);
    let rows = dsl::schedule_runs
        .select(dsl::id)
        .filter(dsl::id.eq_any(run_ids))
        .filter(dsl::status.eq_any(words))
        .filter(dsl::schedule_id.is_null());
    match conn {
        // In one order, so that two who do this do not wait for each other.
        #[cfg(feature = "postgres")]
        AnyConn::Postgres(c) => rows.order(dsl::id.asc()).for_update().load(c),
        AnyConn::Sqlite(c) => rows.load(c),
    }
}

/// The notices of these runs that nobody sends any more. The original's own are none of them.
#[derive(Debug, Clone)]
pub struct SettledNotices {
    /// The runs.
    pub run_ids: Vec<String>,
}

impl Query for SettledNotices {
    type Output = Vec<String>;

    fn name(&self) -> &'static str {
        "read the notices of tasks that have ended"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Vec<String>> {
        use dispatch_outbox::dsl;
        dsl::dispatch_outbox
            .select(dsl::id)
            .filter(dsl::dedup_key.eq_any(self.run_ids.iter().map(|id| dedup_key(id))))
            .filter(dsl::status.eq_any(settled()))
            .load(conn)
    }
}

fn settled() -> impl Iterator<Item = &'static str> {
    let settled = DispatchStatus::ALL.into_iter().filter(|status| status.is_settled());
    settled.map(DispatchStatus::as_str)
}

/// All facts of some runs and notices, in no order.
#[derive(Debug, Clone)]
pub struct FactsOf {
    /// The runs.
    pub run_ids: Vec<String>,
    /// The notices.
    pub notice_ids: Vec<String>,
}

impl Query for FactsOf {
    type Output = Vec<Fact>;

    fn name(&self) -> &'static str {
        "read the facts of tasks that have ended"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Vec<Fact>> {
        use status_transitions::dsl;
        let mut facts: Vec<Fact> = Vec::new();
        for (entity, ids) in
            [(Entity::ScheduleRun, &self.run_ids), (Entity::Dispatch, &self.notice_ids)]
        {
            let found: Vec<Fact> = dsl::status_transitions
                .select(Fact::as_select())
                .filter(dsl::entity_type.eq(entity.as_str()))
                .filter(dsl::entity_id.eq_any(ids))
                .load(conn)?;
            facts.extend(found);
        }
        Ok(facts)
    }
}
