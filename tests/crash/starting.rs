//! Workers that are killed between a claim and the start of its task.

use leasehold::domain::settings::RunSettings;
use rustix::process::Signal;

use crate::aftermath::{guardians, on_engines, task_processes};
use crate::bench::{Bench, sh, until};
use crate::machine::{self, signal};
use crate::tasks::{STARTS, touch};

const RESTARTED: [&str; 4] = [
    "queued>running run.started.ok",
    "running>queued run.queued.start_failed",
    "queued>running run.started.ok",
    "running>completed run.completed.ok",
];

/// What a run starts with cannot be read, so the worker has claimed it and makes nothing of it.
#[test]
fn a_run_that_was_claimed_and_not_begun_is_there_again_at_once() {
    on_engines(|bench| {
        let first = bench.worker(&["--concurrency", "4"]).ready();
        let mut raw = bench.place.raw();
        raw.run("ALTER TABLE leasehold_runs RENAME COLUMN settings TO hidden");
        let ids = bench.submit_all(&vec![sh(STARTS); 4]);
        bench.until_all("running");
        first.kill();
        assert_eq!((bench.lines("starts").len(), guardians(bench).len()), (0, 0));
        raw.run("ALTER TABLE leasehold_runs RENAME COLUMN hidden TO settings");

        let _next = bench.worker(&["--concurrency", "4"]).ready();
        bench.until_all("completed");
        ids.iter().for_each(|id| assert_eq!(bench.steps(id), RESTARTED));
        assert_eq!(bench.lines("starts").len(), 4);
    });
}

/// A guardian that is stopped at its birth, with its lock not taken yet. Nothing it may do later starts the task.
#[test]
fn a_run_whose_guardian_was_just_being_born_is_there_again_at_once_and_starts_once() {
    on_engines(|bench| {
        // It reads all of this before it takes its lock, and is caught meanwhile.
        let stdin = vec![b'x'; 48 << 20];
        let script = format!("{STARTS}; until [ -e go ]; do sleep 0.05; done; wc -c >read");
        let (mut first, id, newborn) = loop {
            let worker = bench.worker(&["--concurrency", "1"]).ready();
            let app = sh(&script);
            let given = Some(stdin.clone());
            let id = bench.queue().submit_task_with(&app, RunSettings::default(), given).unwrap();
            match catch(bench, worker.pid()) {
                Some(guardian) => break (Some(worker), id, guardian),
                // Too late: it goes its way, and the next one is tried.
                None => {
                    touch(bench, "go");
                    bench.until_status(&id, "completed");
                    for name in ["go", "starts"] {
                        std::fs::remove_file(bench.file(name)).unwrap();
                    }
                }
            }
        };
        assert_eq!(bench.run(&id).status, "running");
        first.take().into_iter().for_each(crate::bench::Worker::kill);
        touch(bench, "go");

        let _next = bench.worker(&["--concurrency", "1"]).ready();
        bench.until_status(&id, "completed");
        assert_eq!(bench.steps(&id), RESTARTED);
        signal(newborn, Signal::CONT);
        until(|| if machine::is_alive(newborn) { Err("it lives".into()) } else { Ok(()) });
        assert_eq!(bench.lines("starts").len(), 1);
        assert_eq!(bench.lines("read"), [stdin.len().to_string()]);
        assert!(task_processes(bench).is_empty());
    });
}

/// Stops the first guardian of a worker, if that comes before it has its lock.
fn catch(bench: &Bench, worker: u32) -> Option<u32> {
    let began = std::time::Instant::now();
    loop {
        let born = machine::born_of(worker);
        let guards = |pid: &u32| machine::words(*pid).get(1).is_some_and(|verb| verb == "__guard");
        if let Some(guardian) = born.into_iter().find(guards) {
            signal(guardian, Signal::STOP);
            until(|| match machine::state(guardian) {
                Some('T') | None => Ok(()),
                state => Err(format!("{state:?}")),
            });
            if guardians(bench).is_empty() && machine::is_alive(guardian) {
                return Some(guardian);
            }
            signal(guardian, Signal::CONT);
            return None;
        }
        assert!(began.elapsed() < crate::bench::PATIENCE, "no guardian is born");
    }
}
