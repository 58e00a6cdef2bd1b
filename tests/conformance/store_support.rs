//! What the store suites share: rows as the vectors give them, in and out of a store.

use leasehold::Queue;
use leasehold::db::ops::{FindRun, History, ListRuns, ListWorkers};
use leasehold::db::{Fact, Run};
use leasehold::domain::capability::{CapabilityClass, CapabilityClasses};
use leasehold::domain::status::Status;
use serde_json::{Map, Value, json};

use crate::places::{Engine, Place, Raw};

/// The columns in which this project goes beyond the original; they are checked by [`check_promises`] instead.
const BETTER: [&str; 7] = [
    "ended_at",
    "exit_code",
    "error_detail",
    "status_reason_code",
    "status_reason_summary",
    "status_evidence_refs",
    "updated_at",
];

/// A store that serves one case after the other, emptied in between.
pub struct Bench {
    pub place: Place,
    pub raw: std::cell::RefCell<Raw>,
}

impl Bench {
    pub fn new(engine: Engine) -> Bench {
        let place = Place::new(engine);
        drop(place.queue());
        let raw = std::cell::RefCell::new(place.raw());
        Bench { place, raw }
    }

    /// Empties the store.
    pub fn clear(&self) {
        self.run(
            "DELETE FROM workers; DELETE FROM status_transitions; DELETE FROM schedule_runs; DELETE FROM schedules",
        );
    }

    pub fn run(&self, sql: &str) {
        self.raw.borrow_mut().run(sql);
    }

    /// Whether this engine's columns can hold what the case stores: PostgreSQL's `json` takes valid JSON only.
    pub fn can_hold(&self, row: &Map<String, Value>) -> bool {
        let json = ["action_args", "required_capabilities"];
        let valid = |text: &str| serde_json::from_str::<Value>(text).is_ok();
        self.place.engine == Engine::Sqlite
            || json.iter().filter_map(|column| row.get(*column)?.as_str()).all(valid)
    }

    /// Inserts rows over the defaults of the vectors, and the schedules they need.
    pub fn insert(&self, rows: &[Map<String, Value>]) {
        for schedule in rows.iter().filter_map(|row| row.get("schedule_id")?.as_str()) {
            let schedule = literal(&json!(schedule));
            self.run(&format!(
                "INSERT INTO schedules (id) VALUES ({schedule}) ON CONFLICT DO NOTHING"
            ));
        }
        for chunk in rows.chunks(500) {
            let values: Vec<String> = chunk.iter().map(values_of).collect();
            let columns: Vec<&str> = DEFAULTS.iter().map(|(column, _)| *column).collect();
            self.run(&format!(
                "INSERT INTO schedule_runs ({}) VALUES {}",
                columns.join(", "),
                values.join(", ")
            ));
        }
    }
}

/// Columns of one row, written behind everybody's back.
pub fn update(id: &str, set: &Map<String, Value>) -> String {
    let set: Vec<String> =
        set.iter().map(|(column, value)| format!("{column} = {}", stored(value))).collect();
    format!("UPDATE schedule_runs SET {} WHERE id = {}", set.join(", "), literal(&json!(id)))
}

const DEFAULTS: [(&str, &str); 16] = [
    ("id", "null"),
    ("schedule_id", "null"),
    ("invocation_id", "null"),
    ("trigger_context", "{}"),
    ("action_kind", "\"agent\""),
    ("action_args", "{}"),
    ("status", "\"queued\""),
    ("fired_at", "0.0"),
    ("created_at", "0.0"),
    ("queued_at", "0.0"),
    ("leased_by", "null"),
    ("lease_expires_at", "null"),
    ("concurrency_key", "null"),
    ("lease_attempts", "0"),
    ("required_capabilities", "[]"),
    ("execution_target", "\"host\""),
];

fn values_of(row: &Map<String, Value>) -> String {
    let known = |key: &&String| DEFAULTS.iter().any(|(column, _)| column == *key);
    let unknown = row.keys().find(|key| !known(key));
    assert!(unknown.is_none(), "a column that the suite does not know: {unknown:?}");
    let values: Vec<String> = DEFAULTS
        .iter()
        .map(|(column, default)| match row.get(*column) {
            Some(value) => stored(value),
            None => stored(&serde_json::from_str(default).unwrap()),
        })
        .collect();
    format!("({})", values.join(", "))
}

/// A value as SQL: a list or an object as its JSON text, a string as it is.
fn stored(value: &Value) -> String {
    match value {
        Value::Array(_) | Value::Object(_) => {
            literal(&Value::String(leasehold::domain::json_text::value(value)))
        }
        other => literal(other),
    }
}

fn literal(value: &Value) -> String {
    match value {
        Value::Null => "NULL".into(),
        Value::String(text) => format!("'{}'", text.replace('\'', "''")),
        Value::Number(number) => number.to_string(),
        other => panic!("no SQL literal for {other}"),
    }
}

/// The token classes of a case: the project's own and those the case adds.
pub fn classes(case: &crate::support::Case) -> CapabilityClasses {
    let mut classes = CapabilityClasses::default();
    for (token, class) in case.get("input")["extra_classes"].as_object().into_iter().flatten() {
        classes = classes.with(token, class_named(class.as_str().unwrap()));
    }
    classes
}

pub fn class_named(name: &str) -> CapabilityClass {
    match name {
        "eligibility" => CapabilityClass::Eligibility,
        "serialization" => CapabilityClass::Serialization,
        "affinity" => CapabilityClass::Affinity,
        other => panic!("no capability class {other}"),
    }
}

/// A run with its column names, JSON columns as their stored text.
pub fn columns(run: &Run) -> Map<String, Value> {
    let text = |json: &Option<leasehold::db::JsonText>| json.as_ref().map(|text| text.0.clone());
    let row = json!({
        "id": run.id, "schedule_id": run.schedule_id, "invocation_id": run.invocation_id,
        "trigger_context": run.trigger_context.0, "action_kind": run.action_kind, "action_args": run.action_args.0,
        "status": run.status, "exit_code": run.exit_code, "chain_parent_id": run.chain_parent_id,
        "chain_depth": run.chain_depth, "fired_at": run.fired_at, "ended_at": run.ended_at,
        "error_detail": run.error_detail, "created_at": run.created_at, "updated_at": run.updated_at,
        "status_reason_code": run.status_reason_code, "status_reason_summary": run.status_reason_summary,
        "status_evidence_refs": text(&run.status_evidence_refs), "queued_at": run.queued_at,
        "leased_by": run.leased_by, "lease_expires_at": run.lease_expires_at,
        "concurrency_key": run.concurrency_key, "lease_attempts": run.lease_attempts,
        "required_capabilities": text(&run.required_capabilities), "execution_target": run.execution_target,
        "library_ref": run.library_ref, "library_content_hash": run.library_content_hash,
    });
    row.as_object().unwrap().clone()
}

pub fn all_runs(queue: &mut Queue) -> Vec<Run> {
    queue.read(&ListRuns { statuses: vec![], limit: u32::MAX }).unwrap()
}

pub fn find(queue: &mut Queue, id: &str) -> Option<Run> {
    queue.read(&FindRun { run_id: id.into() }).unwrap()
}

/// All facts in the order they were written: the queue's ids count up.
pub fn facts(queue: &mut Queue, runs: &[Run]) -> Vec<Fact> {
    let mut facts: Vec<Fact> = runs
        .iter()
        .flat_map(|run| queue.read(&History { run_id: run.id.clone() }).unwrap())
        .collect();
    facts.sort_by(|a, b| a.id.cmp(&b.id));
    facts
}

/// A fact with its column names; the suites compare the members that they give.
pub fn fact_columns(fact: &Fact) -> Value {
    json!({
        "entity_type": fact.entity_type, "entity_id": fact.entity_id, "previous_status": fact.previous_status,
        "status": fact.status, "reason_code": fact.reason_code, "reason_summary": fact.reason_summary,
        "evidence_refs": fact.evidence_refs.as_ref().map(|text| &text.0), "source": fact.source,
        "actor": fact.actor, "metadata": fact.metadata.as_ref().map(|text| &text.0),
    })
}

pub fn workers(queue: &mut Queue) -> Value {
    let workers = queue.read(&ListWorkers).unwrap();
    workers
        .iter()
        .map(|worker| {
            json!({
                "worker_id": worker.worker_id,
                "advertised_capabilities": worker.advertised_capabilities.0,
                "execution_targets": worker.execution_targets.0,
                "last_heartbeat_at": worker.last_heartbeat_at,
                "leased_run_id": worker.leased_run_id,
            })
        })
        .collect()
}

/// Compares the members that `expected` gives, but for those in which this project goes beyond.
pub fn compare(what: &str, expected: &Value, got: &Value, problems: &mut Vec<String>) {
    match (expected, got) {
        (Value::Object(members), Value::Object(there)) => {
            for (key, value) in members.iter().filter(|(key, _)| !BETTER.contains(&key.as_str())) {
                let there = there.get(key).unwrap_or(&Value::Null);
                compare(&format!("{what}.{key}"), value, there, problems);
            }
        }
        (Value::Array(items), Value::Array(there)) if items.len() == there.len() => {
            for (index, (item, there)) in items.iter().zip(there).enumerate() {
                compare(&format!("{what}[{index}]"), item, there, problems);
            }
        }
        _ if same(expected, got) => {}
        _ => problems.push(format!("{what}: expected {expected}, got {got}")),
    }
}

/// Numbers of rows are compared as numbers: `100` and `100.0` are one time.
fn same(a: &Value, b: &Value) -> bool {
    a == b || matches!((a.as_f64(), b.as_f64()), (Some(a), Some(b)) if a == b)
}

/// The columns in which two states of a row differ, sorted, but for those in which this project goes beyond.
pub fn changed_columns(before: &Run, after: &Run) -> Vec<String> {
    let (before, after) = (columns(before), columns(after));
    let mut changed: Vec<String> = before
        .into_iter()
        .filter(|(column, value)| !BETTER.contains(&column.as_str()) && after[column] != *value)
        .map(|(column, _)| column)
        .collect();
    changed.sort();
    changed
}

/// What holds for every row whose status this project has changed: the columns beyond the original agree with the
/// last fact.
pub fn check_promises(before: &[Run], after: &[Run], facts: &[Fact], problems: &mut Vec<String>) {
    for run in after {
        let Some(last) = facts.iter().rev().find(|fact| fact.entity_id == run.id) else { continue };
        let began = before.iter().find(|row| row.id == run.id);
        let mut path = began.map(|row| row.status.clone());
        for fact in facts.iter().filter(|fact| fact.entity_id == run.id) {
            if path.is_some() && fact.previous_status != path {
                problems.push(format!("{}: the facts are no path at {fact:?}", run.id));
            }
            path = Some(fact.status.clone());
        }
        if last.status != run.status {
            continue; // Somebody changed the row behind the queue's back, as the case says.
        }
        let terminal = Status::parse(&run.status).is_some_and(Status::is_terminal);
        let ended_at = terminal.then_some(last.created_at);
        if run.ended_at != ended_at {
            problems
                .push(format!("{}: ended_at {:?}, expected {ended_at:?}", run.id, run.ended_at));
        }
        if run.status_reason_code.as_ref() != Some(&last.reason_code)
            || run.status_reason_summary != last.reason_summary
            || run.status_evidence_refs != last.evidence_refs
            || run.updated_at != Some(last.created_at)
        {
            problems.push(format!("{}: the row's reason is not that of its last fact", run.id));
        }
    }
}
