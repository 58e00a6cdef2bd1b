//! What people and programs look at: runs, their history, workers.

use diesel::prelude::*;

use crate::db::engine::{AnyConn, Evidence, Query};
use crate::db::fragments::{After, Kept};
use crate::db::rows::{Fact, Run, Worker};
use crate::db::schema::{schedule_runs, status_transitions, workers};
use crate::domain::status::Status;
use crate::domain::transition::Entity;

/// The run with this id.
#[derive(Debug, Clone)]
pub struct FindRun {
    /// The run.
    pub run_id: String,
}

impl Query for FindRun {
    type Output = Option<Run>;

    fn name(&self) -> &'static str {
        "read a run"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Option<Run>> {
        schedule_runs::table.find(&self.run_id).select(Run::as_select()).first(conn).optional()
    }
}

/// Runs, oldest first.
#[derive(Debug, Clone)]
pub struct ListRuns {
    /// Only runs with one of these statuses; none means all.
    pub statuses: Vec<Status>,
    /// At most so many.
    pub limit: u32,
}

impl Query for ListRuns {
    type Output = Vec<Run>;

    fn name(&self) -> &'static str {
        "list the runs"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Vec<Run>> {
        use schedule_runs::dsl;
        // Nothing is before this place; without it SQLite, which may have counted the rows while there were few,
        // would read them all and sort.
        let start = After { columns: "(created_at, id)", at: f64::NEG_INFINITY, id: String::new() };
        let mut list = dsl::schedule_runs
            .select(Run::as_select())
            .filter(start)
            .order((dsl::created_at.asc(), dsl::id.asc()))
            .limit(i64::from(self.limit))
            .into_boxed();
        if !self.statuses.is_empty() {
            let words: Vec<&str> = self.statuses.iter().map(|status| status.as_str()).collect();
            list = list.filter(dsl::status.eq_any(words));
        }
        Kept(list).load(conn)
    }
}

/// The facts of one run, oldest first.
#[derive(Debug, Clone)]
pub struct History {
    /// The run.
    pub run_id: String,
}

impl Query for History {
    type Output = Vec<Fact>;

    fn name(&self) -> &'static str {
        "read a run's history"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Vec<Fact>> {
        facts_of(conn, Entity::ScheduleRun, &self.run_id)
    }
}

/// Every change of one row, the first one first.
pub(super) fn facts_of(conn: &mut AnyConn, entity: Entity, id: &str) -> QueryResult<Vec<Fact>> {
    use status_transitions::dsl;
    let mut facts: Vec<Fact> = dsl::status_transitions
        .select(Fact::as_select())
        .filter(dsl::entity_type.eq(entity.as_str()))
        .filter(dsl::entity_id.eq(id))
        .order(dsl::created_at.asc())
        .load(conn)?;
    // Facts of one moment: our ids are in time order, and the index does not hold them.
    facts.sort_by(|a, b| a.created_at.total_cmp(&b.created_at).then_with(|| a.id.cmp(&b.id)));
    Ok(facts)
}

/// All workers, by name.
#[derive(Debug, Clone, Copy)]
pub struct ListWorkers;

impl Query for ListWorkers {
    type Output = Vec<Worker>;

    fn name(&self) -> &'static str {
        "list the workers"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Vec<Worker>> {
        workers::table.select(Worker::as_select()).order(workers::worker_id.asc()).load(conn)
    }
}

/// Whether an operation was committed, asked when the answer to its commit was lost.
#[derive(Debug, Clone)]
pub struct IsStored(Id);

#[derive(Debug, Clone)]
enum Id {
    Fact(String),
    Run(String),
}

impl IsStored {
    /// The question whether the fact with this id is there.
    pub fn fact(id: &str) -> IsStored {
        IsStored::of(&Evidence::Fact(id))
    }

    /// The question for this evidence.
    pub fn of(evidence: &Evidence<'_>) -> IsStored {
        IsStored(match evidence {
            Evidence::Fact(id) => Id::Fact((*id).to_owned()),
            Evidence::Run(id) => Id::Run((*id).to_owned()),
        })
    }
}

impl Query for IsStored {
    type Output = bool;

    fn name(&self) -> &'static str {
        "look whether a change was stored"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<bool> {
        let found: Option<String> = match &self.0 {
            Id::Fact(id) => status_transitions::table
                .find(id)
                .select(status_transitions::id)
                .first(conn)
                .optional(),
            Id::Run(id) => {
                schedule_runs::table.find(id).select(schedule_runs::id).first(conn).optional()
            }
        }?;
        Ok(found.is_some())
    }
}
