//! The one ordered feed of events: reading on from a place in it.
//!
//! Triggers write it, in the transaction of each run and fact, whoever inserts those. A reader that goes on after the
//! last event it has seen gets each event once. On SQLite the order is that of the numbers, since there is one writer at
//! a time. On PostgreSQL it is that of stamp and number, and the feed ends before whatever a transaction that is still
//! running may add; the migration says why that loses nothing, and keeps the events of a run in order.

use std::collections::HashMap;

use diesel::prelude::*;

use crate::db::engine::{AnyConn, Query};
#[cfg(feature = "postgres")]
use crate::db::fragments::{AfterEvent, Condition, Kept};
use crate::db::rows::Event;
use crate::db::schema::{leasehold_events, leasehold_meta, status_transitions};
use crate::domain::event::{CursorRefusal, EventId};

/// Under this name `leasehold_meta` has the last event that was removed.
pub(super) const REMOVED: &str = "events_removed";
/// Before every event.
pub(super) const BEGINNING: EventId = EventId { stamp: 0, number: 0 };
/// Of transactions that are over. What is still to come has a greater stamp.
#[cfg(feature = "postgres")]
const SETTLED: Condition = Condition(
    "leasehold_events.stamp < pg_snapshot_xmin(pg_current_snapshot())::text::bigint + leasehold_event_offset()",
);

/// The events after a place, in their order.
#[derive(Debug, Clone, Copy)]
pub struct Events {
    /// The last event that was seen; absent begins with the oldest that is kept.
    pub after: Option<EventId>,
    /// At most so many.
    pub limit: u32,
}

impl Query for Events {
    type Output = Result<Vec<Event>, CursorRefusal>;

    fn name(&self) -> &'static str {
        "read the events"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Self::Output> {
        let page = page(conn, self.after.unwrap_or(BEGINNING), i64::from(self.limit))?;
        // Looked at afterwards: what is removed meanwhile is missing in the page, or it is in it.
        if let Some(after) = self.after
            && let Some(refusal) = refusal(conn, after, page.is_empty())?
        {
            return Ok(Err(refusal));
        }
        let mut changes = changes_of(conn, &page)?;
        let events = page.into_iter().map(|row| {
            let id = row.id();
            let change = row.fact_id.as_ref().and_then(|id| changes.remove(id));
            let (previous_status, status, reason_code, source, actor) = match change {
                Some(change) => (
                    change.previous_status,
                    Some(change.status),
                    Some(change.reason_code),
                    Some(change.source),
                    change.actor,
                ),
                None => (None, row.status, None, None, None),
            };
            Event {
                id,
                created_at: row.created_at,
                run_id: row.run_id,
                previous_status,
                status,
                reason_code,
                source,
                actor,
                transition_id: row.fact_id,
            }
        });
        Ok(Ok(events.collect()))
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = leasehold_events)]
pub(super) struct Row {
    number: i64,
    stamp: i64,
    pub created_at: f64,
    run_id: String,
    status: Option<String>,
    fact_id: Option<String>,
}

impl Row {
    pub fn id(&self) -> EventId {
        EventId { stamp: self.stamp, number: self.number }
    }
}

/// The events after this one, as far as nothing can come in between any more.
pub(super) fn page(conn: &mut AnyConn, after: EventId, limit: i64) -> QueryResult<Vec<Row>> {
    use leasehold_events::dsl;
    match conn {
        #[cfg(feature = "postgres")]
        AnyConn::Postgres(c) => dsl::leasehold_events
            .select(Row::as_select())
            .filter(AfterEvent(after))
            .filter(SETTLED)
            .order((dsl::stamp.asc(), dsl::number.asc()))
            .limit(limit)
            .load(c),
        AnyConn::Sqlite(c) => dsl::leasehold_events
            .select(Row::as_select())
            .filter(dsl::number.gt(after.number))
            .order(dsl::number.asc())
            .limit(limit)
            .load(c),
    }
}

/// Why a reader cannot go on after this event, if it cannot.
fn refusal(conn: &mut AnyConn, after: EventId, is_end: bool) -> QueryResult<Option<CursorRefusal>> {
    let is_possible = match conn {
        #[cfg(feature = "postgres")]
        AnyConn::Postgres(c) => after.stamp > 0 && (!is_end || after.stamp < next_stamp(c)?),
        AnyConn::Sqlite(c) => after.stamp == 0 && (!is_end || after.number <= last_number(c)?),
    };
    if !is_possible {
        return Ok(Some(CursorRefusal::Unknown { after }));
    }
    let removed = removed(conn)?.filter(|removed| after < *removed);
    Ok(removed.map(|removed| CursorRefusal::Removed { after, removed }))
}

/// No stamp of a transaction that is over is as great.
#[cfg(feature = "postgres")]
fn next_stamp(conn: &mut diesel::PgConnection) -> QueryResult<i64> {
    diesel::select(postgres::NextStamp).get_result(conn)
}

/// The last number that was given: the newest event is never removed.
fn last_number(conn: &mut diesel::SqliteConnection) -> QueryResult<i64> {
    use leasehold_events::dsl;
    let newest: Option<i64> = dsl::leasehold_events
        .select(dsl::number)
        .filter(dsl::number.gt(0))
        .order(dsl::number.desc())
        .first(conn)
        .optional()?;
    Ok(newest.unwrap_or(0))
}

fn removed(conn: &mut AnyConn) -> QueryResult<Option<EventId>> {
    let text: Option<String> =
        leasehold_meta::table.find(REMOVED).select(leasehold_meta::value).first(conn).optional()?;
    let unreadable = |error| diesel::result::Error::DeserializationError(Box::new(error));
    text.map(|text| text.parse().map_err(unreadable)).transpose()
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = status_transitions)]
struct ChangeRow {
    id: String,
    previous_status: Option<String>,
    status: String,
    reason_code: String,
    source: String,
    actor: Option<String>,
}

/// The facts of these events, read by their ids: a join would leave it to the planner how.
fn changes_of(conn: &mut AnyConn, page: &[Row]) -> QueryResult<HashMap<String, ChangeRow>> {
    use status_transitions::dsl;
    let ids = page.iter().filter_map(|row| row.fact_id.as_deref());
    let facts: Vec<ChangeRow> = match conn {
        #[cfg(feature = "postgres")]
        AnyConn::Postgres(c) => {
            let ids: Vec<&str> = ids.collect();
            if ids.is_empty() {
                return Ok(HashMap::new());
            }
            let facts = dsl::status_transitions.select(ChangeRow::as_select());
            Kept(facts.filter(dsl::id.eq_any(ids))).load(c)?
        }
        // With statistics of a small table SQLite would rather read all of it than look for so many.
        AnyConn::Sqlite(c) => ids
            .filter_map(|id| {
                let fact = dsl::status_transitions.find(id).select(ChangeRow::as_select());
                fact.first(c).optional().transpose()
            })
            .collect::<QueryResult<_>>()?,
    };
    Ok(facts.into_iter().map(|change| (change.id.clone(), change)).collect())
}

/// The last event that can be read now: who goes on after it gets what happens from now on.
#[derive(Debug, Clone, Copy)]
pub struct NewestEvent;

impl Query for NewestEvent {
    /// Nothing when there is none.
    type Output = Option<EventId>;

    fn name(&self) -> &'static str {
        "look for the newest event"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Self::Output> {
        use leasehold_events::dsl;
        let events = dsl::leasehold_events.select((dsl::stamp, dsl::number));
        let newest: Option<(i64, i64)> = match conn {
            #[cfg(feature = "postgres")]
            AnyConn::Postgres(c) => events
                .filter(SETTLED)
                .order((dsl::stamp.desc(), dsl::number.desc()))
                .first(c)
                .optional()?,
            AnyConn::Sqlite(c) => {
                events.filter(dsl::number.gt(0)).order(dsl::number.desc()).first(c).optional()?
            }
        };
        Ok(newest.map(|(stamp, number)| EventId { stamp, number }))
    }
}

/// The event of a fact that this transaction has just written.
pub(super) fn event_of(conn: &mut AnyConn, fact_id: &str) -> QueryResult<EventId> {
    use leasehold_events::dsl;
    let events = dsl::leasehold_events.select((dsl::stamp, dsl::number, dsl::fact_id));
    let found: Option<(i64, i64, Option<String>)> = match conn {
        // Among the few whose transactions began no earlier than this one.
        #[cfg(feature = "postgres")]
        AnyConn::Postgres(c) => events
            .filter(Condition(
                "leasehold_events.stamp >= pg_current_xact_id()::text::bigint + leasehold_event_offset()",
            ))
            .filter(dsl::fact_id.eq(fact_id))
            .first(c)
            .optional()?,
        // Nobody else writes meanwhile.
        AnyConn::Sqlite(c) => events
                .filter(dsl::number.gt(0))
                .order(dsl::number.desc())
                .first(c).optional()?,
    };
    match found {
        Some((stamp, number, fact)) if fact.as_deref() == Some(fact_id) => {
            Ok(EventId { stamp, number })
        }
        _ => Err(diesel::result::Error::DeserializationError(
            "the change has left no event: the triggers of this store are gone".into(),
        )),
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use diesel::expression::{Expression, ValidGrouping, is_aggregate};
    use diesel::pg::Pg;
    use diesel::prelude::*;
    use diesel::query_builder::{AstPass, QueryFragment, QueryId};
    use diesel::sql_types::BigInt;

    /// One more than the greatest stamp so far. (`diesel::dsl::sql` would take the statement out of the cache.)
    #[derive(Debug, Clone, Copy, QueryId)]
    pub(super) struct NextStamp;

    impl Expression for NextStamp {
        type SqlType = BigInt;
    }

    impl<Table> SelectableExpression<Table> for NextStamp {}
    impl<Table> AppearsOnTable<Table> for NextStamp {}

    impl ValidGrouping<()> for NextStamp {
        type IsAggregate = is_aggregate::Never;
    }

    impl QueryFragment<Pg> for NextStamp {
        fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
            out.push_sql(
                "pg_snapshot_xmax(pg_current_snapshot())::text::bigint + leasehold_event_offset()",
            );
            Ok(())
        }
    }
}
