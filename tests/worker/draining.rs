//! Several workers drain one store.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::bench::{Bench, command, on_postgres, on_sqlite};

const TASKS: usize = 2000;

fn drain_together(bench: &Bench, workers: usize) {
    bench.submit_all(&vec![command("true", &[]); TASKS]);
    let began = Instant::now();
    let mut workers: Vec<_> = (0..workers)
        .map(|_| bench.worker(&["--until-empty", "--concurrency", "16", "--log", "warn"]))
        .collect();
    bench.until_all("completed");
    workers.iter_mut().for_each(|worker| worker.leaves_with(0));
    let took = began.elapsed();
    println!(
        "{}: {} workers, {TASKS} tasks in {took:.2?}: {:.0} a second",
        bench.engine(),
        workers.len(),
        TASKS as f64 / took.as_secs_f64()
    );

    let attempts = bench.texts("SELECT CAST(lease_attempts AS TEXT) AS value FROM schedule_runs");
    assert_eq!(attempts, vec!["1"; TASKS]);
    let once_each = [
        ("queued>running run.started.ok".to_owned(), TASKS),
        ("running>completed run.completed.ok".to_owned(), TASKS),
    ];
    assert_eq!(bench.changes(), BTreeMap::from(once_each));
    let pairs = "SELECT DISTINCT entity_id || status AS value FROM status_transitions";
    assert_eq!(bench.texts(pairs).len(), 2 * TASKS, "two facts for each, and not four for one");
    let owners = "SELECT DISTINCT leased_by AS value FROM schedule_runs";
    assert!(bench.texts(owners).len() > 1, "one worker did it all");
}

#[test]
fn two_workers_on_sqlite_run_each_of_2000_tasks_once() {
    on_sqlite(|bench| drain_together(bench, 2));
}

#[test]
fn four_workers_on_postgres_run_each_of_2000_tasks_once() {
    on_postgres(|bench| drain_together(bench, 4));
}
