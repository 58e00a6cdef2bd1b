//! A store that was restored on another PostgreSQL server, from a dump.
//!
//! Events are ordered by stamps, which follow the server's transaction ids. Where those are lower than they were on the
//! old server, new events would come before the old ones, and no reader would see them. The stamps therefore go on behind
//! the old ones, by an offset that a function of the store holds: it costs nothing where it stands in an expression, and
//! the next dump takes it along.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool};

use super::engine::AnyConn;

#[derive(QueryableByName)]
struct Answer {
    #[diesel(sql_type = Bool)]
    is_ahead: bool,
}

#[derive(QueryableByName)]
struct Offset {
    #[diesel(sql_type = BigInt)]
    offset: i64,
}

/// Whether there are stamps that this server cannot have given.
pub(super) fn is_restored(conn: &mut AnyConn) -> QueryResult<bool> {
    match conn {
        AnyConn::Postgres(c) => diesel::sql_query(
            "SELECT coalesce(max(stamp) >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint + leasehold_event_offset(),
                             false) AS is_ahead
             FROM leasehold_events",
        )
        .get_result(c)
        .map(|answer: Answer| answer.is_ahead),
        AnyConn::Sqlite(_) => Ok(false),
    }
}

/// Moves all stamps to come behind those that are there. The caller holds the lock of the migrations, so that of two
/// who open the store at once the second finds it done.
pub(super) fn go_on_behind(conn: &mut AnyConn) -> QueryResult<()> {
    if !is_restored(conn)? {
        return Ok(());
    }
    // Of transactions that are under way, too.
    let next: Offset = diesel::sql_query(
        "SELECT max(stamp) + 1 - pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS \"offset\" FROM leasehold_events",
    )
    .get_result(conn)?;
    conn.batch_execute(&format!(
        "CREATE OR REPLACE FUNCTION leasehold_event_offset() RETURNS BIGINT LANGUAGE sql IMMUTABLE AS 'SELECT {}::bigint'",
        next.offset
    ))
}
