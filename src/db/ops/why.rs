//! What else decides about runs: what is kept beside them, who has their keys, who is before them, who works, and what is
//! paused. It is read for many runs at once, in as many statements as for one.

use std::collections::{HashMap, HashSet};

use diesel::connection::DefaultLoadingMode;
use diesel::dsl::count_star;
use diesel::prelude::*;

use super::heartbeat::ListAdapters;
use super::pause::ListPauses;
use super::query::ListWorkers;
use crate::db::columns::JsonText;
use crate::db::engine::{AnyConn, Query};
use crate::db::fragments::Condition;
use crate::db::rows::{StepRow, Worker};
use crate::db::schema::{leasehold_keys, leasehold_runs, leasehold_steps, schedule_runs};
use crate::domain::pause::Pause;
use crate::domain::workflow::BegunStep;

/// Values in one statement; an engine takes no endless list.
const AT_ONCE: usize = 500;
const QUEUED: &str = "status = 'queued' AND schedule_id IS NULL";

/// Reads what decides about these runs.
#[derive(Debug, Clone, Default)]
pub struct SeeCircumstances {
    /// Their ids.
    pub run_ids: Vec<String>,
    /// The concurrency keys of those that wait for one.
    pub keys: HashSet<String>,
    /// The places of those that are queued: when, in seconds since the epoch, and the id.
    pub places: Vec<(f64, String)>,
    /// Those of them that are workflows.
    pub workflows: Vec<String>,
    /// Whether this project's own tables are there.
    pub is_complete: bool,
}

/// What decides about some runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Circumstances {
    /// What is kept beside a run.
    pub beside: HashMap<String, Beside>,
    /// The run that runs under a key: its id, its owner, and since when.
    pub holders: HashMap<String, (String, Option<String>, Option<f64>)>,
    /// How many runs are before a queued one.
    pub ahead: HashMap<String, usize>,
    /// All workers, by name.
    pub workers: Vec<Worker>,
    /// The kinds that workers have said they run.
    pub kinds: HashMap<String, JsonText>,
    /// How many runs each owner is running.
    pub running: HashMap<String, usize>,
    /// What is paused.
    pub pauses: Vec<Pause>,
    /// The steps of workflows that were begun.
    pub steps: HashMap<String, Vec<BegunStep>>,
}

/// What is kept beside a run, and decides when it goes on. Times are seconds since the epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Beside {
    /// When a run that waits goes back to the queue.
    pub wake_at: Option<f64>,
    /// When one that is still queued is skipped.
    pub expires_at: Option<f64>,
    /// Whether somebody has asked for it to be stopped.
    pub is_cancel_requested: bool,
}

impl Query for SeeCircumstances {
    type Output = Circumstances;

    fn name(&self) -> &'static str {
        "look what decides about runs"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Circumstances> {
        let (mut beside, mut pauses, mut kinds) = (HashMap::new(), Vec::new(), HashMap::new());
        let mut steps: HashMap<String, Vec<BegunStep>> = HashMap::new();
        if self.is_complete {
            for row in steps_of(conn, &self.workflows)? {
                steps.entry(row.run_id.clone()).or_default().push(BegunStep::from(&row));
            }
            for run_ids in self.run_ids.chunks(AT_ONCE) {
                beside.extend(beside_of(conn, run_ids)?);
            }
            pauses = ListPauses.run(conn)?;
            kinds.extend(ListAdapters.run(conn)?);
        }
        let mut holders = HashMap::new();
        let keys: Vec<&String> = self.keys.iter().collect();
        for keys in keys.chunks(AT_ONCE) {
            holders.extend(holders_of(conn, keys)?);
        }
        let ahead = ahead_of(conn, &self.places)?;
        let workers = ListWorkers.run(conn)?;
        Ok(Circumstances {
            beside,
            holders,
            ahead,
            workers,
            kinds,
            running: running(conn)?,
            pauses,
            steps,
        })
    }
}

fn beside_of(conn: &mut AnyConn, run_ids: &[String]) -> QueryResult<Vec<(String, Beside)>> {
    use leasehold_runs::dsl;
    type Row = (String, Option<f64>, Option<f64>, Option<f64>);
    let rows: Vec<Row> = dsl::leasehold_runs
        .select((dsl::run_id, dsl::wake_at, dsl::expires_at, dsl::cancel_requested_at))
        .filter(dsl::run_id.eq_any(run_ids))
        .load(conn)?;
    let beside = |(id, wake_at, expires_at, cancel): Row| {
        (id, Beside { wake_at, expires_at, is_cancel_requested: cancel.is_some() })
    };
    Ok(rows.into_iter().map(beside).collect())
}

fn steps_of(conn: &mut AnyConn, run_ids: &[String]) -> QueryResult<Vec<StepRow>> {
    let mut steps = Vec::new();
    for run_ids in run_ids.chunks(AT_ONCE) {
        let of_these = leasehold_steps::run_id.eq_any(run_ids);
        let rows = leasehold_steps::table.filter(of_these).select(StepRow::as_select());
        steps.extend(rows.load(conn)?);
    }
    Ok(steps)
}

type Holder = (String, (String, Option<String>, Option<f64>));

fn holders_of(conn: &mut AnyConn, keys: &[&String]) -> QueryResult<Vec<Holder>> {
    use schedule_runs::dsl;
    type Row = (Option<String>, String, Option<String>, Option<f64>);
    let rows: Vec<Row> = dsl::schedule_runs
        .select((dsl::concurrency_key, dsl::id, dsl::leased_by, dsl::updated_at))
        .filter(Condition("status = 'running' AND concurrency_key IS NOT NULL"))
        .filter(dsl::concurrency_key.eq_any(keys.iter().copied()))
        .load(conn)?;
    let holder = |(key, id, owner, since): Row| Some((key?, (id, owner, since)));
    Ok(rows.into_iter().filter_map(holder).collect())
}

/// How many are before each place. One place is counted by the engine; for several the head of the queue is read once,
/// down to the last of them.
fn ahead_of(conn: &mut AnyConn, places: &[(f64, String)]) -> QueryResult<HashMap<String, usize>> {
    use schedule_runs::dsl;
    if let [(queued_at, id)] = places {
        let ahead = Ahead { queued_at: *queued_at, run_id: Some(id.clone()) }.run(conn)?;
        return Ok(HashMap::from([(id.clone(), ahead)]));
    }
    let Some(last) = places.iter().map(|(at, _)| *at).max_by(f64::total_cmp) else {
        return Ok(HashMap::new());
    };
    let mut wanted: HashSet<&str> = places.iter().map(|(_, id)| id.as_str()).collect();
    let queue = dsl::schedule_runs
        .select(dsl::id)
        .filter(Condition(QUEUED))
        .filter(dsl::queued_at.le(last))
        .order((dsl::queued_at.asc(), dsl::id.asc()))
        .load_iter::<String, DefaultLoadingMode>(conn)?;
    let mut ahead = HashMap::new();
    for (number, id) in queue.enumerate() {
        if wanted.is_empty() {
            break;
        }
        let id = id?;
        if wanted.remove(id.as_str()) {
            ahead.insert(id, number);
        }
    }
    Ok(ahead)
}

fn running(conn: &mut AnyConn) -> QueryResult<HashMap<String, usize>> {
    use schedule_runs::dsl;
    let rows: Vec<(Option<String>, i64)> = dsl::schedule_runs
        .group_by(dsl::leased_by)
        .select((dsl::leased_by, count_star()))
        .filter(Condition("status = 'running'"))
        .load(conn)?;
    let count = |(owner, count): (Option<String>, i64)| {
        Some((owner?, usize::try_from(count).unwrap_or(usize::MAX)))
    };
    Ok(rows.into_iter().filter_map(count).collect())
}

/// How many runs are before a place in the queue.
#[derive(Debug, Clone)]
pub struct Ahead {
    /// When it was queued, in seconds since the epoch.
    pub queued_at: f64,
    /// Its id; without one it is the last of its moment.
    pub run_id: Option<String>,
}

impl Query for Ahead {
    type Output = usize;

    fn name(&self) -> &'static str {
        "count who is before a run"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<usize> {
        use schedule_runs::dsl;
        let queue = dsl::schedule_runs.select(count_star()).filter(Condition(QUEUED));
        let count: i64 = match &self.run_id {
            Some(run_id) => {
                let same_time = dsl::queued_at.eq(self.queued_at).and(dsl::id.lt(run_id));
                queue.filter(dsl::queued_at.lt(self.queued_at).or(same_time)).first(conn)?
            }
            None => queue.filter(dsl::queued_at.le(self.queued_at)).first(conn)?,
        };
        Ok(usize::try_from(count).unwrap_or(0))
    }
}

/// For what an idempotency key stands: the hash of its task, and the run.
#[derive(Debug, Clone)]
pub struct FindKey {
    /// The key.
    pub key: String,
}

impl Query for FindKey {
    type Output = Option<(String, String)>;

    fn name(&self) -> &'static str {
        "look for what a key stands"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Self::Output> {
        use leasehold_keys::dsl;
        let row = dsl::leasehold_keys.find(&self.key).select((dsl::payload_hash, dsl::run_id));
        row.first(conn).optional()
    }
}
