//! Pauses, resumes, and what is paused.
//!
//! After a pause is stored nothing is claimed that it holds: each claim looks at the stored pauses in the statement that
//! changes its row. On SQLite one of the two transactions is the first. On PostgreSQL a claim whose statement began
//! before the pause was stored may still win; [`WritesUnderWay`] tells when there is none left.

use diesel::prelude::*;

use crate::db::engine::{AnyConn, Operation, Query, on};
use crate::db::fragments::Condition;
use crate::db::schema::{leasehold_pauses, schedule_runs};
use crate::domain::pause::{Pause, Scope};
use crate::domain::status::Status;
use crate::domain::transition::{Principal, PrincipalType};

/// A row of `schedule_runs` that no pause holds, should it be queued.
pub(super) const NOT_HELD: &str = "NOT EXISTS (SELECT 1 FROM leasehold_pauses WHERE scope = 'queue' \
     OR (scope = 'kind' AND value = action_kind) OR (scope = 'target' AND value = execution_target))";
/// One that is held then.
const HELD: &str = "EXISTS (SELECT 1 FROM leasehold_pauses WHERE scope = 'queue' \
     OR (scope = 'kind' AND value = action_kind) OR (scope = 'target' AND value = execution_target))";

/// Pauses something.
#[derive(Debug, Clone, PartialEq)]
pub struct StorePause(pub Pause);

/// What came of a pause.
#[derive(Debug, Clone, PartialEq)]
pub enum Paused {
    /// It is paused now.
    Now,
    /// It was paused before, and stays so; nothing was written.
    Before(Pause),
}

impl Operation for StorePause {
    type Output = Paused;

    fn name(&self) -> &'static str {
        "pause"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Paused> {
        use leasehold_pauses::dsl;
        let Pause { scope, since, by, reason } = &self.0;
        let row = (
            dsl::scope.eq(scope.word()),
            dsl::value.eq(scope.value()),
            dsl::since.eq(since),
            dsl::source.eq(by.kind.as_str()),
            dsl::actor.eq(&by.id),
            dsl::reason.eq(reason),
        );
        // It may be lifted between the two statements: then there is room for this one.
        loop {
            let stored = on!(&mut *conn, c => {
                diesel::insert_into(dsl::leasehold_pauses)
                    .values(row)
                    .on_conflict_do_nothing()
                    .execute(c)
            })?;
            if stored == 1 {
                return Ok(Paused::Now);
            }
            if let Some(before) = find(conn, scope)? {
                return Ok(Paused::Before(before));
            }
        }
    }
}

/// Lifts a pause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// What is to go on.
    pub scope: Scope,
}

impl Operation for Resume {
    /// The pause that was lifted; nothing when there was none.
    type Output = Option<Pause>;

    fn name(&self) -> &'static str {
        "resume"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Self::Output> {
        let lifted = find(conn, &self.scope)?;
        let key = (self.scope.word(), self.scope.value());
        let count = diesel::delete(leasehold_pauses::table.find(key)).execute(conn)?;
        Ok(lifted.filter(|_| count > 0))
    }
}

/// All pauses: the queue's first, then kinds and targets by name.
#[derive(Debug, Clone, Copy)]
pub struct ListPauses;

impl Query for ListPauses {
    type Output = Vec<Pause>;

    fn name(&self) -> &'static str {
        "read the pauses"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Vec<Pause>> {
        let rows: Vec<Row> = leasehold_pauses::table.load(conn)?;
        let mut pauses: Vec<Pause> = rows.into_iter().filter_map(pause).collect();
        pauses.sort_by(|a, b| a.scope.cmp(&b.scope));
        Ok(pauses)
    }
}

/// Names of the transactions that have begun to write runs and not ended, other than this one. On SQLite there are none:
/// a transaction that writes is alone.
#[derive(Debug, Clone, Copy)]
pub struct WritesUnderWay;

impl Query for WritesUnderWay {
    type Output = Vec<String>;

    fn name(&self) -> &'static str {
        "look who writes runs"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Vec<String>> {
        match conn {
            // A statement takes the lock of the table before it takes its snapshot. So one that is not here yet will see
            // whatever was committed before this look.
            #[cfg(feature = "postgres")]
            AnyConn::Postgres(c) => diesel::sql_query(
                "SELECT DISTINCT virtualtransaction AS name FROM pg_locks
                 WHERE relation = 'schedule_runs'::regclass AND mode = 'RowExclusiveLock' AND granted
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            )
            .load(c)
            .map(|rows: Vec<Writer>| rows.into_iter().map(|row| row.name).collect()),
            AnyConn::Sqlite(_) => Ok(Vec::new()),
        }
    }
}

#[cfg(feature = "postgres")]
#[derive(QueryableByName)]
struct Writer {
    #[diesel(sql_type = diesel::sql_types::Text)]
    name: String,
}

/// Whether the run is queued and held.
pub(super) fn is_held(conn: &mut AnyConn, run_id: &str) -> QueryResult<bool> {
    let status: Option<String> = schedule_runs::table
        .find(run_id)
        .select(schedule_runs::status)
        .filter(Condition(HELD))
        .first(conn)
        .optional()?;
    Ok(status.as_deref() == Some(Status::Queued.as_str()))
}

type Row = (String, String, f64, String, String, Option<String>);

fn find(conn: &mut AnyConn, scope: &Scope) -> QueryResult<Option<Pause>> {
    let row: Option<Row> =
        leasehold_pauses::table.find((scope.word(), scope.value())).first(conn).optional()?;
    Ok(row.and_then(pause))
}

/// Nothing for a scope that is unknown, which the table refuses.
fn pause((word, value, since, source, id, reason): Row) -> Option<Pause> {
    let scope = Scope::parse(&word, &value)?;
    let kind = PrincipalType::parse(&source).unwrap_or(PrincipalType::Operator);
    Some(Pause { scope, since, by: Principal { kind, id }, reason })
}
