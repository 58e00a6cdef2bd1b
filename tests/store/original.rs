//! A store that the original made: read untouched, adopted, served.

use std::path::Path;

use leasehold::clock::ManualClock;
use leasehold::db::Mode;
use leasehold::db::ops::{History, ListRuns, ListWorkers};
use leasehold::domain::ending::ExecuteError;
use leasehold::domain::ending::Execution;
use leasehold::domain::run::ClaimedRun;
use leasehold::domain::transition::Principal;
use leasehold::ids::RandomIds;
use leasehold::queue::WorkerCall;
use leasehold::{Config, Queue};
use serde_json::{Map, Value, json};

use crate::kit::{open, snapshot, task};
use crate::places::{Engine, Place, Raw};

const ALL: ListRuns = ListRuns { statuses: vec![], limit: 1_000 };

/// Puts a copy of it where the place's store is expected.
pub fn copy_to(place: &Place) {
    std::fs::copy(fixture("studio_state.db"), crate::kit::path(place)).unwrap();
}

fn fixture(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/store/fixtures").join(name)
}

fn copy() -> Place {
    let place = Place::new(Engine::Sqlite);
    copy_to(&place);
    place
}

fn expected(table: &str) -> Vec<Map<String, Value>> {
    let text = std::fs::read_to_string(fixture("studio_state.expected.json")).unwrap();
    let tables: Value = serde_json::from_str(&text).unwrap();
    let rows = tables[table].as_array().unwrap();
    rows.iter().map(|row| row.as_object().unwrap().clone()).collect()
}

/// The rows as this project reads them agree with what the original wrote, member by member.
fn assert_same(table: &str, key: &str, got: Vec<Value>) {
    let expected = expected(table);
    assert_eq!(got.len(), expected.len(), "{table}");
    for row in expected {
        let there = got.iter().find(|got| got[key] == row[key]).unwrap();
        for (column, value) in there.as_object().unwrap() {
            let same = match (value.as_f64(), row[column].as_f64()) {
                (Some(a), Some(b)) => a.to_bits() == b.to_bits(),
                _ => *value == row[column],
            };
            assert!(same, "{table}.{column}: {value}, expected {}", row[column]);
        }
    }
}

fn assert_all_there(queue: &mut Queue, raw: &mut Raw) {
    let text = |json: &Option<leasehold::db::JsonText>| json.as_ref().map(|text| text.0.clone());
    let runs = queue.read(&ALL).unwrap();
    let facts =
        runs.iter().flat_map(|run| queue.read(&History { run_id: run.id.clone() }).unwrap());
    let facts = facts
        .map(|fact| {
            json!({
                "id": fact.id, "entity_type": fact.entity_type, "entity_id": fact.entity_id,
                "previous_status": fact.previous_status, "status": fact.status, "reason_code": fact.reason_code,
                "reason_summary": fact.reason_summary, "evidence_refs": text(&fact.evidence_refs),
                "source": fact.source, "actor": fact.actor, "created_at": fact.created_at,
                "metadata": text(&fact.metadata),
            })
        })
        .collect();
    assert_same("status_transitions", "id", facts);
    let runs = runs
        .iter()
        .map(|run| {
            json!({
                "id": run.id, "schedule_id": run.schedule_id, "invocation_id": run.invocation_id,
                "trigger_context": run.trigger_context.0, "action_kind": run.action_kind,
                "action_args": run.action_args.0, "status": run.status, "exit_code": run.exit_code,
                "chain_parent_id": run.chain_parent_id, "chain_depth": run.chain_depth, "fired_at": run.fired_at,
                "ended_at": run.ended_at, "error_detail": run.error_detail, "created_at": run.created_at,
                "updated_at": run.updated_at, "status_reason_code": run.status_reason_code,
                "status_reason_summary": run.status_reason_summary,
                "status_evidence_refs": text(&run.status_evidence_refs), "queued_at": run.queued_at,
                "leased_by": run.leased_by, "lease_expires_at": run.lease_expires_at,
                "concurrency_key": run.concurrency_key, "lease_attempts": run.lease_attempts,
                "required_capabilities": text(&run.required_capabilities),
                "execution_target": run.execution_target, "library_ref": run.library_ref,
                "library_content_hash": run.library_content_hash,
            })
        })
        .collect();
    assert_same("schedule_runs", "id", runs);
    let workers = queue.read(&ListWorkers).unwrap();
    let workers = workers
        .iter()
        .map(|worker| {
            json!({
                "worker_id": worker.worker_id, "advertised_capabilities": worker.advertised_capabilities.0,
                "execution_targets": worker.execution_targets.0, "last_heartbeat_at": worker.last_heartbeat_at,
                "leased_run_id": worker.leased_run_id,
            })
        })
        .collect();
    assert_same("workers", "worker_id", workers);
    for row in expected("schema_meta") {
        let (key, value) = (row["key"].as_str().unwrap(), row["value"].as_str());
        let there = raw.texts(&format!("SELECT value FROM schema_meta WHERE key = '{key}'"));
        assert_eq!(there, [value.map(str::to_owned)], "{key}");
    }
}

#[test]
fn every_row_is_read_as_the_original_wrote_it() {
    let place = copy();
    let mut reader = open(&place, Mode::Read).unwrap();
    assert_all_there(&mut reader, &mut place.raw());
}

#[test]
fn adoption_adds_our_parts_and_changes_nothing_else() {
    let place = copy();
    let schema = "SELECT type || ' ' || name || ' ' || coalesce(sql, '') AS value FROM sqlite_schema ORDER BY 1";
    let ours =
        |row: &String| row.contains("leasehold_") || row.contains("__diesel_schema_migrations");
    let (rows, parts) = (snapshot(&mut place.raw()), place.raw().texts(schema));
    let mut queue = place.queue();
    assert_all_there(&mut queue, &mut place.raw());
    drop(queue);
    drop(place.queue());
    let mut raw = place.raw();
    let (ours_now, theirs_now): (Vec<String>, Vec<String>) =
        snapshot(&mut raw).into_iter().partition(ours);
    assert_eq!(theirs_now, rows);
    assert_eq!(ours_now.len(), 14, "twelve steps, two lines of meta: {ours_now:?}");
    let (added, kept): (Vec<_>, Vec<_>) =
        raw.texts(schema).into_iter().partition(|part| part.as_ref().is_some_and(ours));
    assert_eq!(kept, parts);
    let mut added: Vec<String> = added
        .into_iter()
        .flatten()
        .filter(|part| !part.contains("autoindex"))
        .map(|part| part.split(' ').take(2).collect::<Vec<_>>().join(" "))
        .collect();
    added.sort();
    assert_eq!(
        added,
        [
            "index leasehold_busy_keys",
            "index leasehold_children",
            "index leasehold_expiries",
            "index leasehold_leases",
            "index leasehold_listing",
            "index leasehold_notice_runs",
            "index leasehold_notices",
            "index leasehold_notices_due",
            "index leasehold_queue",
            "index leasehold_ready",
            "index leasehold_waiting",
            "index leasehold_wakes",
            "table __diesel_schema_migrations",
            "table leasehold_adapters",
            "table leasehold_attempts",
            "table leasehold_dispatch_keys",
            "table leasehold_events",
            "table leasehold_keys",
            "table leasehold_meta",
            "table leasehold_pauses",
            "table leasehold_runs",
            "table leasehold_steps",
            "table leasehold_transition_keys",
            "trigger leasehold_events_of_changes",
            "trigger leasehold_events_of_runs",
            "trigger leasehold_newest_event_stays",
        ]
    );
}

#[test]
fn an_adopted_store_is_served_and_its_arguments_arrive_intact() {
    let place = copy();
    let config = Config { key_host: Some("vm".into()), ..Config::default() };
    let clock = std::sync::Arc::new(ManualClock::at(1_796_010_200.0));
    let mut queue = place.queue_with(config.clone(), clock, std::sync::Arc::new(RandomIds));
    let queued: Vec<_> =
        expected("schedule_runs").into_iter().filter(|run| run["status"] == "queued").collect();
    assert_eq!(queued.len(), 10);
    let cancelled = queue.submit_task(&task()).unwrap();
    let ours = queue.submit_task(&task()).unwrap();
    assert!(queue.cancel_task(&cancelled, &Principal::operator("test")).unwrap());

    let mut call = WorkerCall::new("host:0000000a", &config);
    call.execution_targets = leasehold::domain::task::EXECUTION_TARGETS.map(str::to_owned).to_vec();
    for run in &queued {
        let tokens = run["required_capabilities"].as_str().unwrap();
        call.advertised_capabilities.extend(serde_json::from_str::<Vec<String>>(tokens).unwrap());
    }
    let mut claimed: Vec<ClaimedRun> = Vec::new();
    let mut execute = |run: &ClaimedRun| -> Result<Execution, ExecuteError> {
        claimed.push(run.clone());
        Ok(Execution::OK)
    };
    // One pass holds a key to its end, so runs that share one come in later passes.
    while queue.worker_tick(&call, &mut execute).unwrap().claimed > 0 {}

    let mut ids: Vec<&str> = claimed.iter().map(|run| run.id.as_str()).collect();
    ids.sort_unstable();
    let mut due: Vec<&str> = queued
        .iter()
        .filter(|run| run["action_kind"] != "workflow")
        .map(|run| run["id"].as_str().unwrap())
        .chain([ours.as_str()])
        .collect();
    due.sort_unstable();
    assert_eq!(ids, due);
    for run in &queued {
        let Some(got) = claimed.iter().find(|claimed| claimed.id == run["id"].as_str().unwrap())
        else {
            continue;
        };
        let given: Map<String, Value> =
            serde_json::from_str(run["action_args"].as_str().unwrap()).unwrap();
        assert_eq!(got.action_args, given);
        // The order of the members, and every digit of a number that no double holds.
        let text = |args: &Map<String, Value>| leasehold::domain::json_text::object(args);
        assert_eq!(text(&got.action_args), run["action_args"].as_str().unwrap());
    }
    let digits =
        claimed.iter().any(|run| run.action_args.values().any(|v| v.to_string().len() >= 22));
    assert!(digits, "the 77-bit integer");
    for run in queue.read(&ALL).unwrap().iter().filter(|run| due.contains(&run.id.as_str())) {
        assert_eq!((run.status.as_str(), run.exit_code), ("completed", Some(0)));
        assert_eq!(queue.read(&History { run_id: run.id.clone() }).unwrap().len(), 2);
    }
}
