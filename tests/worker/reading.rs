//! #13: elsewhere, plain reads took the writer's lock, and all stalled for five seconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leasehold::clock::SystemClock;
use leasehold::db::Mode;
use leasehold::db::ops::ListRuns;
use leasehold::ids::RandomIds;
use leasehold::{Config, Queue};

use crate::bench::{Bench, command, on_engines, on_sqlite, until};

fn reader(bench: &Bench) -> Queue {
    let (clock, ids) = (Arc::new(SystemClock), Arc::new(RandomIds));
    Queue::open_with(&bench.place.store_url(), Mode::Read, Config::default(), clock, ids).unwrap()
}

#[test]
fn readers_do_not_wait_for_a_writer_that_holds_the_lock() {
    on_sqlite(|bench| {
        let id = bench.submit(&command("true", &[]));
        let mut raw = bench.place.raw();
        raw.run("BEGIN IMMEDIATE; UPDATE schedule_runs SET updated_at = 1.0");
        for words in [&["list"][..], &["show", &id], &["history", &id], &["workers"]] {
            // A machine may keep one waiting; a lock would keep each waiting for five seconds.
            until(|| {
                let began = Instant::now();
                let output = bench.program(words).output().unwrap();
                assert!(output.status.success(), "{words:?}: {output:?}");
                let took = began.elapsed();
                if took < Duration::from_secs(4) { Ok(()) } else { Err(format!("{took:?}")) }
            });
        }
        raw.run("ROLLBACK");
    });
}

#[test]
fn fifty_readers_and_a_worker_do_not_hold_each_other_up() {
    on_engines(|bench| {
        // A server has a hundred connections for all of us.
        let readers = if bench.engine() == "sqlite" { 50 } else { 10 };
        bench.submit_all(&vec![command("true", &[]); 150]);
        let (done, reads) = (AtomicBool::new(false), AtomicUsize::new(0));
        let began = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..readers {
                scope.spawn(|| {
                    let mut queue = reader(bench);
                    let list = ListRuns { statuses: Vec::new(), limit: 50 };
                    while !done.load(Ordering::Relaxed) {
                        assert_eq!(queue.read(&list).unwrap().len(), 50);
                        reads.fetch_add(1, Ordering::Relaxed);
                        // A dashboard's pace; fifty spinning threads would test the processors.
                        std::thread::sleep(Duration::from_millis(250));
                    }
                });
            }
            bench.work(&["--until-empty", "--concurrency", "8", "--log", "warn"]);
            done.store(true, Ordering::Relaxed);
        });
        println!(
            "{}: 150 tasks in {:.1?} beside {} reads",
            bench.engine(),
            began.elapsed(),
            reads.into_inner()
        );
        assert_eq!(bench.statuses()["completed"], 150);
        assert!(bench.changes().values().all(|count| *count == 150));
    });
}
