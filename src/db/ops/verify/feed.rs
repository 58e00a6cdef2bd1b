//! The events of a store beside its runs and their facts.

use std::collections::HashMap;

use diesel::prelude::*;

use crate::db::engine::AnyConn;
use crate::db::schema::{leasehold_events, schedule_runs};
use crate::domain::ledger::Happened;

/// Runs whose events are held in memory at a time: no index has them by run, so each time all of them are read.
const EVENTS_OF_RUNS: i64 = 100_000;

#[derive(Queryable, Selectable)]
#[diesel(table_name = leasehold_events)]
struct Row {
    run_id: String,
    status: Option<String>,
    fact_id: Option<String>,
}

/// Events by run: the status of one that was inserted, or the fact of one that has changed, in the order of the feed.
#[derive(Default)]
pub(super) struct Feed {
    of: HashMap<String, Vec<Row>>,
    /// The last run whose events are here.
    pub up_to: String,
}

impl Feed {
    /// The events of the runs after this one.
    pub fn after(conn: &mut AnyConn, run_id: &str) -> QueryResult<Feed> {
        let last: Option<String> = schedule_runs::table
            .select(schedule_runs::id)
            .filter(schedule_runs::id.gt(run_id))
            .order(schedule_runs::id.asc())
            .offset(EVENTS_OF_RUNS - 1)
            .first(conn)
            .optional()?;
        let mut feed = Feed::default();
        for event in events_between(conn, run_id, last.as_deref())? {
            feed.of.entry(event.run_id.clone()).or_default().push(event);
        }
        // No id is greater: those of runs are text that somebody can read.
        feed.up_to = last.unwrap_or_else(|| char::MAX.to_string());
        Ok(feed)
    }

    pub fn events_of(&mut self, run_id: &str, facts: &[String]) -> Vec<Happened> {
        let events = self.of.remove(run_id).unwrap_or_default().into_iter();
        let happened = |event: Row| match (event.fact_id, event.status) {
            (Some(id), _) => facts
                .iter()
                .position(|fact| *fact == id)
                .map_or(Happened::Unknown, Happened::Changed),
            (None, Some(status)) => Happened::Inserted(status),
            (None, None) => Happened::Unknown,
        };
        events.map(happened).collect()
    }
}

/// The runs after one and up to another, or to the last: what was inserted with which status, and the facts of changes, in
/// the order of the feed. Whether anything may still come in between does not matter to who sees the facts, too.
fn events_between(conn: &mut AnyConn, after: &str, up_to: Option<&str>) -> QueryResult<Vec<Row>> {
    use leasehold_events::dsl;
    let mut events = dsl::leasehold_events
        .select(Row::as_select())
        .filter(dsl::run_id.gt(after))
        .order((dsl::stamp.asc(), dsl::number.asc()))
        .into_boxed();
    if let Some(up_to) = up_to {
        events = events.filter(dsl::run_id.le(up_to));
    }
    events.load(conn)
}

/// Of the triggers that write the feed, those that this store has not.
pub(super) fn missing_triggers(conn: &mut AnyConn) -> QueryResult<Vec<String>> {
    #[derive(QueryableByName)]
    struct Trigger {
        #[diesel(sql_type = diesel::sql_types::Text)]
        name: String,
    }
    let sql = match conn {
        #[cfg(feature = "postgres")]
        AnyConn::Postgres(_) => {
            "SELECT tgname::text AS name FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
             WHERE c.relnamespace = current_schema()::regnamespace AND t.tgenabled IN ('O', 'A')"
        }
        AnyConn::Sqlite(_) => "SELECT name FROM sqlite_schema WHERE type = 'trigger'",
    };
    let there: Vec<Trigger> = diesel::sql_query(sql).load(conn)?;
    let needed = ["leasehold_events_of_runs", "leasehold_events_of_changes"];
    let missing = needed.into_iter().filter(|name| there.iter().all(|there| there.name != *name));
    Ok(missing.map(str::to_owned).collect())
}
