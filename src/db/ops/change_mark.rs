//! A mark that differs after somebody has written to the store: how a worker notices a submit in another process.

use diesel::prelude::*;

use crate::db::engine::{AnyConn, Query};

/// Reads the mark. It is a hint: a difference means "look", and nothing more.
///
/// On SQLite this is `data_version`, which a connection's own commits do not change, so it must be read on the
/// writer's connection. On PostgreSQL it is the position of the write-ahead log, which every write of the whole server
/// moves, one's own included.
#[derive(Debug, Clone, Copy)]
pub struct ChangeMark;

impl Query for ChangeMark {
    type Output = i64;

    fn name(&self) -> &'static str {
        "look for changes"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<i64> {
        match conn {
            #[cfg(feature = "postgres")]
            AnyConn::Postgres(c) => diesel::select(postgres::position()).get_result(c),
            AnyConn::Sqlite(c) => diesel::sql_query("PRAGMA data_version")
                .get_result(c)
                .map(|row: DataVersion| row.data_version),
        }
    }
}

#[derive(QueryableByName)]
struct DataVersion {
    #[diesel(sql_type = diesel::sql_types::BigInt)]
    data_version: i64,
}

#[cfg(feature = "postgres")]
mod postgres {
    use diesel::backend::Backend;
    use diesel::expression::{Expression, ValidGrouping, is_aggregate};
    use diesel::prelude::*;
    use diesel::query_builder::{AstPass, QueryFragment, QueryId};
    use diesel::sql_types::BigInt;

    /// Bytes of the write-ahead log so far. (`diesel::dsl::sql` would take the statement out of the cache.)
    #[derive(Debug, Clone, Copy, QueryId)]
    pub(super) struct Position;

    pub(super) fn position() -> Position {
        Position
    }

    impl Expression for Position {
        type SqlType = BigInt;
    }

    impl<Table> SelectableExpression<Table> for Position {}
    impl<Table> AppearsOnTable<Table> for Position {}

    impl ValidGrouping<()> for Position {
        type IsAggregate = is_aggregate::Never;
    }

    impl<DB: Backend> QueryFragment<DB> for Position {
        fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
            out.push_sql("pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint");
            Ok(())
        }
    }
}
