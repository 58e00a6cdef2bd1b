//! Reads the queue for the contract's claim pass: the keys of running runs, then pages of candidates, oldest first.

use std::collections::HashSet;

use diesel::prelude::*;

use crate::db::columns::JsonText;
use crate::db::engine::{AnyConn, Query};
use crate::db::fragments::{After, Condition, NotHeld};
use crate::db::schema::schedule_runs;
use crate::domain::claim_plan::PAGE_ROWS;
use crate::domain::pause::Pauses;
use crate::domain::run::QueuedRun;

/// What may be claimed. The first two conditions are those of the partial index; workflows are dropped before they count
/// as scanned (ADR-0071 D4).
const TIMED: &str = "status = 'queued' AND schedule_id IS NULL AND action_kind <> 'workflow' AND queued_at IS NOT NULL";
/// The same, for a run that some other program queued without a time.
const UNTIMED: &str =
    "status = 'queued' AND schedule_id IS NULL AND action_kind <> 'workflow' AND queued_at IS NULL";

/// The keys of all running runs, scheduled ones and expired leases included.
#[derive(Debug, Clone, Copy)]
pub struct BusyKeys;

impl Query for BusyKeys {
    type Output = HashSet<String>;

    fn name(&self) -> &'static str {
        "read the keys of running runs"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Self::Output> {
        use schedule_runs::dsl;
        let keys: Vec<Option<String>> = dsl::schedule_runs
            .select(dsl::concurrency_key)
            .filter(Condition("status = 'running' AND concurrency_key IS NOT NULL"))
            .load(conn)?;
        Ok(keys.into_iter().flatten().collect())
    }
}

/// Where a page begins. Runs without a time come first, as SQLite sorts them; PostgreSQL would put them last.
#[derive(Debug, Clone, PartialEq)]
pub enum PageStart {
    /// Among the runs without a time, after this id.
    Untimed(String),
    /// At the first run with a time.
    Timed,
    /// After the run with this time and id.
    After(f64, String),
}

impl PageStart {
    /// The head of the queue.
    pub fn head() -> PageStart {
        PageStart::Untimed(String::new())
    }

    /// Where the next page begins after this one; nothing when this one was the last.
    pub fn next(&self, page: &[QueuedRun]) -> Option<PageStart> {
        match (page.last(), self) {
            (Some(last), _) if page.len() >= PAGE_ROWS => Some(match last.queued_at {
                Some(at) => PageStart::After(at, last.id.clone()),
                None => PageStart::Untimed(last.id.clone()),
            }),
            (_, PageStart::Untimed(_)) => Some(PageStart::Timed),
            _ => None,
        }
    }
}

/// One page of claimable runs. Scheduled ones never are: they belong to their scheduler.
#[derive(Debug, Clone)]
pub struct ClaimPage {
    /// Where it begins.
    pub start: PageStart,
    /// What is paused: runs that are held are left out.
    pub pauses: Pauses,
}

impl Query for ClaimPage {
    type Output = Vec<QueuedRun>;

    fn name(&self) -> &'static str {
        "read a page of the queue"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Self::Output> {
        use schedule_runs::dsl;
        let page = dsl::schedule_runs
            .select(Row::as_select())
            .order((dsl::queued_at.asc(), dsl::id.asc()))
            .limit(PAGE_ROWS as i64);
        let held = |condition| NotHeld(condition, &self.pauses);
        let (timed, untimed) = (held(TIMED), held(UNTIMED));
        let rows: Vec<Row> = match &self.start {
            PageStart::Untimed(id) => page.filter(untimed).filter(dsl::id.gt(id)).load(conn),
            PageStart::Timed => page.filter(timed).load(conn),
            PageStart::After(at, id) => {
                let after = After { columns: "(queued_at, id)", at: *at, id: id.clone() };
                page.filter(timed).filter(after).load(conn)
            }
        }?;
        Ok(rows.into_iter().map(QueuedRun::from).collect())
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = schedule_runs)]
pub(super) struct Row {
    id: String,
    action_kind: String,
    action_args: JsonText,
    lease_attempts: i32,
    required_capabilities: Option<JsonText>,
    execution_target: Option<String>,
    concurrency_key: Option<String>,
    queued_at: Option<f64>,
}

impl From<Row> for QueuedRun {
    fn from(row: Row) -> QueuedRun {
        QueuedRun {
            id: row.id,
            action_kind: row.action_kind,
            action_args: row.action_args.0,
            lease_attempts: row.lease_attempts,
            required_capabilities: row.required_capabilities.map(|text| text.0),
            execution_target: row.execution_target,
            concurrency_key: row.concurrency_key,
            queued_at: row.queued_at,
        }
    }
}
