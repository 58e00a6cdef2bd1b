//! Moments whose clock is the store's own business.

use diesel::backend::Backend;
use diesel::expression::{
    AppearsOnTable, Expression, SelectableExpression, ValidGrouping, is_aggregate,
};
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel::serialize::ToSql;
use diesel::sql_types::{Double, HasSqlType, Nullable};

use super::engine::AnyConn;

/// A moment, as the statement that it stands in sees it.
///
/// Workers on several hosts share leases but no clock. So where they share a server, its clock decides: a lease lasts
/// until so many seconds after the moment at which the server grants it, whatever the hosts take the time to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Moment {
    /// So many seconds since the epoch, by a clock of this host.
    At(f64),
    /// So many seconds after the statement is executed, by the clock of whoever executes it.
    FromNow(f64),
}

impl From<f64> for Moment {
    fn from(at: f64) -> Moment {
        Moment::At(at)
    }
}

impl Moment {
    /// So many seconds later.
    pub(super) fn later(self, seconds: f64) -> Moment {
        match self {
            Moment::At(at) => Moment::At(at + seconds),
            Moment::FromNow(from_now) => Moment::FromNow(from_now + seconds),
        }
    }

    /// As SQL for a write on this connection.
    pub(super) fn on(self, conn: &AnyConn) -> MomentSql {
        self.by(match conn {
            // Neither the beginning of the transaction nor that of the statement, which may have waited for a lock.
            #[cfg(feature = "postgres")]
            AnyConn::Postgres(_) => "extract(epoch from clock_timestamp())::double precision + ",
            AnyConn::Sqlite(_) => "unixepoch('subsec') + ",
        })
    }

    /// As SQL for a read on this connection: an index is searched only by a time that stands still.
    pub(super) fn of_read(self, conn: &AnyConn) -> MomentSql {
        self.by(match conn {
            #[cfg(feature = "postgres")]
            AnyConn::Postgres(_) => {
                "extract(epoch from statement_timestamp())::double precision + "
            }
            AnyConn::Sqlite(_) => "unixepoch('subsec') + ",
        })
    }

    fn by(self, now: &'static str) -> MomentSql {
        match self {
            Moment::At(seconds) => MomentSql { now: "", seconds },
            Moment::FromNow(seconds) => MomentSql { now, seconds },
        }
    }
}

/// `(a clock + ?)`, or `(?)` alone. (`diesel::dsl::sql` would take the statement out of the cache.)
#[derive(Debug, Clone, Copy)]
pub(super) struct MomentSql {
    now: &'static str,
    seconds: f64,
}

impl Expression for MomentSql {
    type SqlType = Nullable<Double>;
}

impl<Table> SelectableExpression<Table> for MomentSql {}
impl<Table> AppearsOnTable<Table> for MomentSql {}

impl ValidGrouping<()> for MomentSql {
    type IsAggregate = is_aggregate::Never;
}

// Without a static id a statement is cached under its text.
impl QueryId for MomentSql {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<DB> QueryFragment<DB> for MomentSql
where
    DB: Backend + HasSqlType<Double>,
    f64: ToSql<Double, DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("(");
        out.push_sql(self.now);
        out.push_bind_param::<Double, f64>(&self.seconds)?;
        out.push_sql(")");
        Ok(())
    }
}
