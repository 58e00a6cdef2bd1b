//! Removes old events. The facts that they are of stay.

use diesel::prelude::*;

use super::events::{BEGINNING, REMOVED, Row, page};
use crate::db::engine::{AnyConn, Operation, on};
use crate::db::schema::{leasehold_events, leasehold_meta};

/// Events that are removed at a time.
const AT_ONCE: usize = 512;

/// Removes the oldest events, up to the first one that is not older than a moment; some hundreds at a time. The newest
/// stays, so that no number is given twice.
#[derive(Debug, Clone, Copy)]
pub struct RemoveEvents {
    /// The moment, in seconds since the epoch.
    pub before: f64,
}

impl RemoveEvents {
    /// Whether there may be more than were removed.
    pub fn is_full(removed: usize) -> bool {
        removed >= AT_ONCE
    }
}

impl Operation for RemoveEvents {
    /// How many.
    type Output = usize;

    fn name(&self) -> &'static str {
        "remove old events"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<usize> {
        use leasehold_events::dsl;
        let mut oldest = page(conn, BEGINNING, AT_ONCE as i64 + 1)?;
        // The last one that was read may be the newest.
        oldest.pop();
        // Without a hole, so that a reader knows by its place alone whether it has missed something.
        let old = oldest.iter().take_while(|event| event.created_at < self.before).last();
        let Some(last) = old.map(Row::id) else { return Ok(0) };
        let earlier_stamp = dsl::stamp.lt(last.stamp);
        let same_stamp = dsl::stamp.eq(last.stamp).and(dsl::number.le(last.number));
        let removed = diesel::delete(dsl::leasehold_events.filter(earlier_stamp.or(same_stamp)))
            .execute(conn)?;
        let last = leasehold_meta::value.eq(last.to_string());
        on!(conn, c => {
            diesel::insert_into(leasehold_meta::table)
                .values((leasehold_meta::key.eq(REMOVED), last.clone()))
                .on_conflict(leasehold_meta::key)
                .do_update()
                .set(last)
                .execute(c)?
        });
        Ok(removed)
    }
}
