//! The original itself, as a program, on our stores and beside us.
//!
//! `LEASEHOLD_LIONAGI_PYTHON` names a Python that has `lionagi` 0.36.0; without it these tests are skipped, loudly.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use leasehold::clock::Clock;
use leasehold::db::ops::{
    DueNotices, History, ListNotices, ListRuns, NextNotice, NoticeOf, Verify,
};
use leasehold::domain::ending::ExecuteError;
use leasehold::domain::ending::Execution;
use leasehold::domain::ledger::Fault;
use leasehold::domain::notice::{LATER, Notify};
use leasehold::domain::pruning::Pruning;
use leasehold::domain::redrive::NewTry;
use leasehold::domain::run::ClaimedRun;
use leasehold::domain::settings::RunSettings;
use leasehold::domain::transition::Principal;
use leasehold::queue::{FactsFate, WorkerCall};
use leasehold::{Config, Queue};
use serde_json::Value;

use crate::kit::{assert_one_path, count, path, snapshot, tables, task};
use crate::places::{Engine, Place};
use crate::{original, plans};

const ALL: ListRuns = ListRuns { statuses: vec![], limit: 10_000 };

/// The interpreter, or a loud skip.
fn python(test: &str) -> Option<String> {
    let python = std::env::var("LEASEHOLD_LIONAGI_PYTHON").ok();
    if python.is_none() {
        // Written past the test harness, which would keep it to itself.
        let _ = writeln!(std::io::stderr(), "SKIPPED {test}: LEASEHOLD_LIONAGI_PYTHON is not set");
    }
    python
}

/// The peer on the place's store; its home is the place's directory.
fn peer(python: &str, place: &Place, what: &[&str]) -> Command {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/store/peer/peer.py");
    let mut command = Command::new(python);
    command.arg(script).arg(what[0]).arg(path(place)).args(&what[1..]);
    command.env_clear().env("HOME", place.dir.path()).env("PYTHONDONTWRITEBYTECODE", "1");
    command.stderr(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// Lets the peer submit two tasks, cancel one and serve what is there.
fn let_the_peer_serve(python: &str, place: &Place) -> Value {
    let done = peer(python, place, &["serve"]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let result: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(result["cancelled"], true);
    result
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()).collect()
}

/// Makes one tick; answers the ids that were run.
fn tick(queue: &mut Queue) -> Vec<String> {
    let mut call = WorkerCall::new("host:0000000a", &Config::default());
    call.advertised_capabilities.push("gpu-exclusive".into());
    let mut executed = Vec::new();
    let mut execute = |run: &ClaimedRun| -> Result<Execution, ExecuteError> {
        executed.push(run.id.clone());
        Ok(Execution::OK)
    };
    let claimed = queue.worker_tick(&call, &mut execute).unwrap().claimed;
    assert_eq!(claimed, executed.len());
    executed
}

/// Serves the store until a tick claims nothing; answers the ids that were run.
fn serve(queue: &mut Queue) -> Vec<String> {
    let ticks = std::iter::repeat_with(|| tick(queue));
    ticks.take_while(|executed| !executed.is_empty()).flatten().collect()
}

/// Our own tables' rows, and everything of ours that the schema has.
fn ours(place: &Place) -> Vec<String> {
    let mut raw = place.raw();
    let mut ours: Vec<String> = snapshot(&mut raw);
    // The feed of events has what the original does, too.
    ours.retain(|row| {
        (row.starts_with("leasehold_") || row.starts_with("__diesel"))
            && !row.starts_with("leasehold_events:")
    });
    let parts = "SELECT sql AS value FROM sqlite_schema WHERE name LIKE 'leasehold%' AND sql IS NOT NULL ORDER BY name";
    ours.extend(raw.texts(parts).into_iter().flatten());
    ours
}

#[test]
fn a_store_of_ours_is_served_by_the_original_and_by_us_again() {
    let Some(python) = python("a store of ours, served by the original") else { return };
    let place = Place::new(Engine::Sqlite);
    let mut queue = place.queue();
    let first = queue.submit_task(&task()).unwrap();
    let withdrawn = queue.submit_task(&task()).unwrap();
    assert!(queue.cancel_task(&withdrawn, &Principal::operator("test")).unwrap());
    drop(queue);
    let before = ours(&place);

    let served = let_the_peer_serve(&python, &place);
    let kept = served["kept"].as_str().unwrap();
    assert_eq!(strings(&served["executed"]), [first.as_str(), kept]);
    assert_eq!(ours(&place), before);
    assert!(tables(&mut place.raw()).len() > 30, "the original adds its own tables");

    let mut queue = place.queue();
    assert_eq!(ours(&place), before);
    let mine = queue.submit_task(&task()).unwrap();
    assert_eq!(serve(&mut queue), [mine.as_str()]);
    for run in queue.read(&ALL).unwrap() {
        let facts = if run.status == "cancelled" { 1 } else { 2 };
        assert_eq!(queue.read(&History { run_id: run.id.clone() }).unwrap().len(), facts);
        assert_one_path(&mut place.raw(), &run.id);
    }
    let events = queue.events(None, 1_000).unwrap();
    assert_eq!(events.iter().filter(|event| event.transition_id.is_none()).count(), 5);
    let begun = events.iter().find(|event| event.run_id == kept).unwrap();
    assert_eq!((begun.status.as_deref(), &begun.transition_id), (Some("queued"), &None));
    let facts = count(&mut place.raw(), "status_transitions");
    assert_eq!(events.iter().filter(|event| event.reason_code.is_some()).count(), facts);
    let args = queue.run(kept).unwrap().action_args.value();
    assert_eq!(args["n"].to_string(), "1180591620717411303424");
    // The original brought indexes of its own, which must not lead a query astray.
    plans::check(&place, "p", "opened by the original", false);
}

#[test]
fn an_adopted_store_is_opened_by_the_original_again() {
    let Some(python) = python("an adopted store, opened by the original") else { return };
    let place = Place::new(Engine::Sqlite);
    original::copy_to(&place);
    let mut queue = place.queue();
    assert!(!serve(&mut queue).is_empty());
    drop(queue);
    let before = ours(&place);
    let served = let_the_peer_serve(&python, &place);
    assert_eq!(strings(&served["executed"]), [served["kept"].as_str().unwrap()]);
    assert_eq!(ours(&place), before);
    place.queue().submit_task(&task()).unwrap();
}

#[test]
fn what_the_original_ran_is_removed_and_submitted_again_and_it_goes_on() {
    let Some(python) = python("a store of the original's, pruned") else { return };
    let place = Place::new(Engine::Sqlite);
    let mut queue = place.queue();
    let served = let_the_peer_serve(&python, &place);
    let (kept, dropped) = (served["kept"].as_str().unwrap(), served["dropped"].as_str().unwrap());
    // The original says of neither when it ended.
    assert_eq!(
        (queue.run(kept).unwrap().ended_at, queue.run(dropped).unwrap().ended_at),
        (None, None)
    );
    let again = queue.retry(kept, &NewTry::default()).unwrap();
    assert_eq!(queue.run(&again).unwrap().action_args, queue.run(kept).unwrap().action_args);
    let mut raw = place.raw();
    raw.run(&format!(
        "INSERT INTO dispatch_outbox (id, kind, deliver_to, payload, next_attempt_at, created_at, schedule_run_id)
         VALUES ('d', 'k', 'x', '{{}}', 0, 0, '{kept}')"
    ));
    let all = Pruning { older_than: 0.0, statuses: vec![], keep_failed: false };
    let removed = queue.prune(&all, FactsFate::Drop).unwrap();
    assert_eq!((removed.runs, removed.facts), (2, 3));
    assert_eq!(raw.texts("SELECT schedule_run_id AS value FROM dispatch_outbox"), [None]);
    let left = queue.run(&again).unwrap();
    assert_eq!((left.chain_parent_id, left.chain_depth), (None, 1));

    let served = let_the_peer_serve(&python, &place);
    assert_eq!(strings(&served["executed"]), [again.as_str(), served["kept"].as_str().unwrap()]);
    assert_eq!(queue.run(&again).unwrap().status, "completed");
}

#[test]
fn side_by_side_each_run_is_executed_once() {
    let Some(python) = python("side by side with the original") else { return };
    const RUNS: usize = 200;
    let place = Place::new(Engine::Sqlite);
    let mut queue = place.queue();
    let submitted: HashSet<String> =
        (0..RUNS).map(|_| queue.submit_task(&task()).unwrap()).collect();
    let mut peer = peer(&python, &place, &["compete", &RUNS.to_string()]);
    let mut child = peer.stdin(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "in the middle");

    // It goes on once we are in the middle as well.
    let mut mine = tick(&mut queue);
    drop(child.stdin.take());
    mine.extend(serve(&mut queue));
    let theirs: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert!(child.wait().unwrap().success());
    let theirs = strings(&theirs["executed"]);
    // Ours may be through first, with some of theirs still on the way.
    assert!(serve(&mut queue).is_empty());
    assert!(!mine.is_empty() && !theirs.is_empty(), "{} and {}", mine.len(), theirs.len());
    mine.extend(theirs);
    assert_eq!(mine.len(), RUNS, "a run was executed twice or not at all");
    assert_eq!(mine.into_iter().collect::<HashSet<_>>(), submitted);
    let mut raw = place.raw();
    assert_eq!(crate::kit::count(&mut raw, "status_transitions"), 2 * RUNS);
    assert_eq!(
        crate::kit::count(
            &mut raw,
            "schedule_runs WHERE status = 'completed' AND lease_attempts = 1"
        ),
        RUNS
    );
    for id in &submitted {
        assert_one_path(&mut raw, id);
    }
}

/// The original sends whatever is due in the outbox, of every kind. Ours must not look due to it, nor its own to us.
#[test]
fn the_original_and_we_leave_each_other_s_notices_alone() {
    let Some(python) = python("notices beside the original") else { return };
    for is_adopted in [false, true] {
        let place = Place::new(Engine::Sqlite);
        if is_adopted {
            original::copy_to(&place);
        }
        let mut queue = place.queue();
        let settings =
            RunSettings { notify: Some(Notify::to("http://[::1]:1/")), ..RunSettings::default() };
        let told = queue.submit_task_with(&task(), settings, None).unwrap();
        assert!(queue.cancel_task(&told, &Principal::operator("test")).unwrap());
        let ours = queue.read(&NoticeOf { run_id: told.clone() }).unwrap().unwrap();

        let ask = |words: &[&str]| -> Value {
            let done = peer(&python, &place, words).output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            serde_json::from_slice(&done.stdout).unwrap()
        };
        let sent = ask(&["dispatch"]);
        assert_eq!(
            (&sent["counts"]["attempted"], &sent["counts"]["delivered"]),
            (&1.into(), &1.into())
        );
        let there = queue.read(&NoticeOf { run_id: told.clone() }).unwrap().unwrap();
        assert_eq!(there, ours, "it is not due to the original");
        let listed = queue.read(&ListNotices { status: None, limit: 9 }).unwrap();
        assert_eq!(listed.as_slice(), std::slice::from_ref(&ours));
        assert_eq!(
            queue.read(&NextNotice { now: None }).unwrap().map(|at| at >= LATER),
            Some(true)
        );
        assert_eq!(verified(&mut queue), []);
        // Its own program sends ours again, and then it is due here.
        place.raw().run(&format!(
            "UPDATE dispatch_outbox SET status = 'dead_letter' WHERE id = '{0}';
             INSERT INTO status_transitions (id, entity_type, entity_id, previous_status, status, reason_code, source, created_at)
             VALUES ('a', 'dispatch', '{0}', 'pending', 'delivering', 'x', 'system', 0),
                    ('b', 'dispatch', '{0}', 'delivering', 'dead_letter', 'x', 'system', 0)",
            ours.id
        ));
        assert_eq!(ask(&["retry", &ours.id])["retried"], true);
        let due = DueNotices { now: leasehold::clock::SystemClock.now().into(), after: None };
        let due = queue.read(&due).unwrap();
        assert_eq!((due.len(), due[0].id.as_str(), due[0].attempt), (1, ours.id.as_str(), 0));
        assert_eq!(verified(&mut queue), []);
    }
}

fn verified(queue: &mut Queue) -> Vec<(String, Fault)> {
    queue.read(&Verify { most_expiries: 3, is_complete: true }).unwrap().faults
}
