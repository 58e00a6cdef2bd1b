//! Signals to a worker.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::bench::{Bench, Worker, command, on_engines, on_sqlite, sh, until};
use crate::machine;

/// Says under which pid it runs, and goes on for ever.
const HANGS: &str = "echo $$ >>pids; exec sleep 600";
/// The same, whatever TERM says.
const STUBBORN: &str = "trap 'echo TERM >>heard' TERM; echo $$ >>pids; while :; do sleep 0.1; done";

fn running(bench: &Bench, words: &[&str], script: &str, tasks: usize) -> (Worker, Vec<u32>) {
    let concurrency = tasks.to_string();
    let worker = bench.worker(&[&["--concurrency", &concurrency], words].concat()).ready();
    bench.submit_all(&vec![sh(script); tasks]);
    let pids = until(|| {
        let lines = bench.lines("pids");
        if lines.len() == tasks { Ok(lines) } else { Err(format!("{} run", lines.len())) }
    });
    (worker, pids.iter().map(|pid| pid.parse().unwrap()).collect())
}

fn assert_given_back(bench: &Bench, pids: &[u32]) {
    assert!(!pids.iter().any(|pid| machine::is_alive(*pid)), "a task outlived its worker");
    for run in bench.runs() {
        assert_eq!((run.status.as_str(), run.leased_by, run.lease_attempts), ("queued", None, 1));
        assert_eq!(
            bench.steps(&run.id),
            ["queued>running run.started.ok", "running>queued run.queued.shutdown"]
        );
    }
}

#[test]
fn the_first_signal_leaves_running_tasks_time_and_claims_nothing() {
    on_engines(|bench| {
        for (signal, starts) in [(Signal::TERM, "before-term"), (Signal::INT, "before-int")] {
            let mut worker = bench.worker(&["--concurrency", "2"]).ready();
            let go = format!("{starts}-go");
            let wait = format!("until [ -e {go} ]; do sleep 0.05; done");
            let script = format!("echo started >>{starts}; {wait}; exit 5");
            let ids = bench.submit_all(&vec![sh(script); 4]);
            // A run is `running` a moment before its task is.
            until(|| match bench.lines(starts).len() {
                2 => Ok(()),
                started => Err(format!("{started} started")),
            });
            worker.signal(signal);
            until_told(&worker);
            std::fs::write(bench.file(&go), "").unwrap();
            worker.leaves_with(0);
            let codes: Vec<_> = ids.iter().map(|id| bench.run(id).exit_code).collect();
            assert_eq!(codes, [Some(5), Some(5), None, None], "{signal:?}");
            ids[2..].iter().for_each(|id| assert_eq!(bench.facts(id), []));
            bench.place.raw().run("DELETE FROM schedule_runs");
        }
    });
}

#[test]
fn after_the_drain_tasks_get_term_and_go_back_to_the_queue() {
    on_engines(|bench| {
        let (mut worker, pids) = running(bench, &["--drain", "300ms"], HANGS, 20);
        let told = Instant::now();
        worker.signal(Signal::TERM);
        worker.leaves_with(0);
        println!(
            "{}: gone {:.2?} after TERM, with a drain of 0.3 s",
            bench.engine(),
            told.elapsed()
        );
        assert!(told.elapsed() >= Duration::from_millis(300));
        assert_given_back(bench, &pids);
    });
}

#[test]
fn a_task_that_ignores_term_is_killed_five_seconds_later() {
    on_engines(|bench| {
        let (mut worker, pids) = running(bench, &["--drain", "0"], STUBBORN, 2);
        let told = Instant::now();
        worker.signal(Signal::INT);
        worker.leaves_with(0);
        assert!(told.elapsed() >= Duration::from_secs(5), "{:?}", told.elapsed());
        assert_eq!(bench.lines("heard"), ["TERM", "TERM"]);
        assert_given_back(bench, &pids);
    });
}

#[test]
fn the_second_signal_ends_it_at_once() {
    on_engines(|bench| {
        let (mut worker, pids) = running(bench, &["--drain", "1h"], STUBBORN, 3);
        worker.signal(Signal::TERM);
        until_told(&worker);
        assert!(!worker.has_left());
        let told = Instant::now();
        worker.signal(Signal::TERM);
        worker.leaves_with(0);
        println!("{}: gone {:.2?} after the second signal", bench.engine(), told.elapsed());
        // And not five seconds after it.
        let log = worker.log();
        assert_eq!(log.matches("stopping the task reason=Stop grace=0ns").count(), 3, "{log}");
        assert_given_back(bench, &pids);
    });
}

/// #7: elsewhere, new work was started while the rest was being stopped.
#[test]
fn nothing_is_claimed_after_the_first_signal() {
    on_engines(|bench| {
        // More than anybody runs in a minute, and never do all end at once.
        let tasks = (0..600).map(|n| sh(format!("exec sleep 0.{}", 2 + n % 7)));
        bench.submit_all(&tasks.collect::<Vec<_>>());
        let mut worker = bench.worker(&["--concurrency", "4", "--drain", "1h"]).ready();
        until(
            || if bench.statuses().contains_key("completed") { Ok(()) } else { Err(worker.log()) },
        );
        worker.signal(Signal::TERM);
        worker.leaves_with(0);
        // Those that were on their way to the store were for slots that were free.
        let log = worker.log();
        let (before, after) = log.split_once("shutting down").unwrap();
        let claims = |log: &str| log.lines().filter(|line| line.ends_with(" claimed")).count();
        assert!(claims(before) >= 4 && claims(after) <= 4, "{log}");
        let statuses = bench.statuses();
        assert!(
            statuses.contains_key("queued") && !statuses.contains_key("running"),
            "{statuses:?}"
        );
    });
}

/// Whenever the signal comes, before the first claim or in the middle of one: no run is left to its lease.
#[test]
fn a_worker_that_is_told_to_end_leaves_no_run_running() {
    on_engines(|bench| {
        bench.submit_all(&vec![command("true", &[]); 1500]);
        let (mut ends, mut silences) = (Vec::new(), 0);
        for millis in (0..72).step_by(3) {
            let mut worker = bench.worker(&["--concurrency", "8"]);
            if millis % 2 == 0 {
                worker = worker.ready();
            }
            std::thread::sleep(Duration::from_millis(millis));
            worker.signal(Signal::TERM);
            ends.push(worker.exit().code());
            let (statuses, log) = (bench.statuses(), worker.log());
            // A store that does not answer a claim for five seconds is not waited for: the next worker gives it back.
            let left = log.contains("is left to whoever comes next");
            silences += usize::from(left);
            assert!(
                left || !statuses.contains_key("running"),
                "after {millis} ms: {statuses:?} {log}"
            );
        }
        assert!(silences < 3, "{silences} of {} workers did not wait", ends.len());
        println!("{}: ended with {ends:?}", bench.engine());
    });
}

/// A worker that has been told to end must end, though somebody else holds the lock of the whole store.
#[test]
fn a_locked_store_does_not_keep_a_worker_from_ending() {
    on_sqlite(|bench| {
        let (mut worker, pids) = running(bench, &["--drain", "0"], HANGS, 2);
        let mut raw = bench.place.raw();
        raw.run("BEGIN IMMEDIATE");
        worker.signal(Signal::TERM);
        until(|| {
            if pids.iter().any(|pid| machine::is_alive(*pid)) {
                Err("alive".into())
            } else {
                Ok(())
            }
        });
        assert!(!worker.has_left(), "it still has two ends to write");
        raw.run("ROLLBACK");
        worker.leaves_with(0);
        assert_given_back(bench, &pids);
    });
}

/// Others may bring a store up to date for long, and a worker that waits for them has nothing to give back.
#[test]
fn a_worker_that_waits_for_its_turn_to_open_the_store_can_be_ended() {
    on_sqlite(|bench| {
        let mut raw = bench.place.raw();
        raw.run("DELETE FROM __diesel_schema_migrations WHERE version = (SELECT max(version) FROM __diesel_schema_migrations)");
        raw.run("BEGIN IMMEDIATE");
        let mut worker = bench.worker(&[]);
        let lock = std::fs::canonicalize(bench.place.url.strip_prefix("sqlite:").unwrap()).unwrap();
        // It has the store open, so it hears signals.
        until(|| {
            let open = std::fs::read_dir(format!("/proc/{}/fd", worker.pid())).unwrap().flatten();
            let mut files = open.filter_map(|fd| std::fs::read_link(fd.path()).ok());
            if files.any(|file| file == lock) { Ok(()) } else { Err(worker.log()) }
        });
        worker.signal(Signal::TERM);
        worker.leaves_with(0);
        assert!(worker.log().contains("told to end before the store was open"), "{}", worker.log());
        raw.run("ROLLBACK");
    });
}

/// Waits until it has heard of a signal.
#[track_caller]
fn until_told(worker: &Worker) {
    until(|| if worker.log().contains("shutting down") { Ok(()) } else { Err(worker.log()) });
}

pub(crate) fn now() -> f64 {
    use leasehold::clock::{Clock, SystemClock};
    SystemClock.now()
}
