//! Pieces of SQL that the query builder cannot say, or cannot say so that the statement stays prepared.

use diesel::backend::Backend;
use diesel::expression::{
    AppearsOnTable, Expression, SelectableExpression, ValidGrouping, is_aggregate,
};
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::query_dsl::RunQueryDsl;
use diesel::result::QueryResult;
use diesel::serialize::ToSql;
#[cfg(feature = "postgres")]
use diesel::sql_types::BigInt;
use diesel::sql_types::{Bool, Double, HasSqlType, Text};

#[cfg(feature = "postgres")]
use crate::domain::event::EventId;
use crate::domain::pause::Pauses;

/// A condition written out as SQL text.
///
/// A partial index is used only where its condition stands in the statement as text: neither engine can prove
/// anything of a bound value. (`diesel::dsl::sql` says the same, but takes the statement out of the cache.)
#[derive(Debug, Clone, Copy)]
pub(super) struct Condition(pub &'static str);

/// The same, for rows that these pauses do not hold.
///
/// The pauses are values here, and not read by the statement: who pages through the queue must know under which pauses
/// each page was read.
#[derive(Debug, Clone)]
pub(super) struct NotHeld<'a>(pub &'static str, pub &'a Pauses);

/// Rows after a place in the queue's order; both engines walk their `(time, id)` index for it.
#[derive(Debug, Clone)]
pub(super) struct After {
    /// The two columns, as `(a, b)`.
    pub columns: &'static str,
    /// The first column's value.
    pub at: f64,
    /// The second column's value.
    pub id: String,
}

/// The name of a run's class, as the index `leasehold_ready` has it.
pub(super) const SQLITE_CLASS: &str = "substr(action_kind || char(31) || coalesce(execution_target, '') || char(31) || coalesce(required_capabilities, '') || char(31) || coalesce(concurrency_key, ''), 1, 600)";
/// The same on a server.
#[cfg(feature = "postgres")]
pub(super) const POSTGRES_CLASS: &str = "(substr(action_kind || chr(31) || coalesce(execution_target, '') || chr(31) || coalesce(required_capabilities::text, '') || chr(31) || coalesce(concurrency_key, ''), 1, 600) COLLATE \"C\")";

/// Runs of the class with this name.
#[derive(Debug, Clone)]
pub(super) struct InClass(pub String);

/// Compares when a run ended. A worker of the original stores no `ended_at`: its runs ended at their last change.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndedAt {
    /// Such as `<`.
    pub relation: &'static str,
    /// In seconds since the epoch.
    pub at: f64,
}

/// Events after a place in their feed's order; PostgreSQL walks its `(stamp, number)` index for it.
#[cfg(feature = "postgres")]
#[derive(Debug, Clone, Copy)]
pub(super) struct AfterEvent(pub EventId);

/// A statement that stays prepared, if it answers rows: Diesel executes the others through a reference, which hides
/// what is said here.
///
/// Diesel prepares anew, each time, what may come in endlessly many texts: every UPDATE, upsert and IN. The ones here
/// come in a handful of texts, and preparing one costs a round trip.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept<T>(pub T);

impl<DB: Backend, T: QueryFragment<DB>> QueryFragment<DB> for Kept<T> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.0.walk_ast(out)
    }

    fn is_safe_to_cache_prepared(&self, _: &DB) -> QueryResult<bool> {
        Ok(true)
    }
}

// Without a static id a statement is cached under its text.
impl<T> QueryId for Kept<T> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<T: Query> Query for Kept<T> {
    type SqlType = T::SqlType;
}

impl<T, Conn> RunQueryDsl<Conn> for Kept<T> {}

impl<DB: Backend> QueryFragment<DB> for Condition {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql(self.0);
        Ok(())
    }
}

impl<DB> QueryFragment<DB> for NotHeld<'_>
where
    DB: Backend + HasSqlType<Text>,
    String: ToSql<Text, DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql(self.0);
        if self.1.are_of_all() {
            out.push_sql(" AND 1 = 0");
        }
        // A name that is no column would be a text to SQLite: both are columns of schedule_runs.
        none_of("action_kind", self.1.kinds(), out.reborrow())?;
        none_of("coalesce(execution_target, '')", self.1.targets(), out)
    }
}

fn none_of<'b, DB>(
    column: &str,
    values: impl Iterator<Item = &'b String>,
    mut out: AstPass<'_, 'b, DB>,
) -> QueryResult<()>
where
    DB: Backend + HasSqlType<Text>,
    String: ToSql<Text, DB>,
{
    for value in values {
        out.push_sql(" AND ");
        out.push_sql(column);
        out.push_sql(" <> ");
        out.push_bind_param::<Text, String>(value)?;
    }
    Ok(())
}

impl<DB> QueryFragment<DB> for After
where
    DB: Backend + HasSqlType<Double> + HasSqlType<Text>,
    f64: ToSql<Double, DB>,
    String: ToSql<Text, DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql(self.columns);
        out.push_sql(" > (");
        out.push_bind_param::<Double, f64>(&self.at)?;
        out.push_sql(", ");
        out.push_bind_param::<Text, String>(&self.id)?;
        out.push_sql(")");
        Ok(())
    }
}

impl<DB> QueryFragment<DB> for EndedAt
where
    DB: Backend + HasSqlType<Double>,
    f64: ToSql<Double, DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql(
            "coalesce(schedule_runs.ended_at, schedule_runs.updated_at, schedule_runs.created_at) ",
        );
        out.push_sql(self.relation);
        out.push_sql(" ");
        out.push_bind_param::<Double, f64>(&self.at)
    }
}

impl QueryFragment<diesel::sqlite::Sqlite> for InClass {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, diesel::sqlite::Sqlite>) -> QueryResult<()> {
        out.push_sql(SQLITE_CLASS);
        out.push_sql(" = ");
        out.push_bind_param::<Text, String>(&self.0)
    }
}

#[cfg(feature = "postgres")]
impl QueryFragment<diesel::pg::Pg> for InClass {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, diesel::pg::Pg>) -> QueryResult<()> {
        out.push_sql(POSTGRES_CLASS);
        out.push_sql(" = ");
        out.push_bind_param::<Text, String>(&self.0)
    }
}

#[cfg(feature = "postgres")]
impl QueryFragment<diesel::pg::Pg> for AfterEvent {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, diesel::pg::Pg>) -> QueryResult<()> {
        out.push_sql("(stamp, number) > (");
        out.push_bind_param::<BigInt, i64>(&self.0.stamp)?;
        out.push_sql(", ");
        out.push_bind_param::<BigInt, i64>(&self.0.number)?;
        out.push_sql(")");
        Ok(())
    }
}

macro_rules! condition {
    ($($name:ty),*) => { $(
        impl Expression for $name {
            type SqlType = Bool;
        }
        impl<Table> SelectableExpression<Table> for $name {}
        impl<Table> AppearsOnTable<Table> for $name {}
        impl ValidGrouping<()> for $name {
            type IsAggregate = is_aggregate::Never;
        }
        // Without a static id a statement is cached under its text.
        impl QueryId for $name {
            type QueryId = ();
            const HAS_STATIC_QUERY_ID: bool = false;
        }
    )* };
}

condition!(Condition, NotHeld<'_>, After, InClass, EndedAt);
#[cfg(feature = "postgres")]
condition!(AfterEvent);
