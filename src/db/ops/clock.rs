//! What the store's clock says.

use diesel::prelude::*;

use crate::db::engine::{AnyConn, Query};
use crate::db::fragments::Kept;
use crate::db::moment::Moment;

/// The time by the clock of the store, in seconds since the epoch: that of the server on PostgreSQL, of this host on
/// SQLite.
#[derive(Debug, Clone, Copy)]
pub struct Clock;

impl Query for Clock {
    type Output = f64;

    fn name(&self) -> &'static str {
        "read the clock"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<f64> {
        let now = diesel::select(Moment::FromNow(0.0).on(conn).assume_not_null());
        Kept(now).get_result(conn)
    }
}
