//! How soon a worker notices.

use std::time::Duration;

use crate::bench::{command, on_engines, sh, until};

/// Nothing but the look for changes can be so soon: the timer is at an hour.
#[test]
fn a_submit_by_another_process_is_started_long_before_the_timer() {
    on_engines(|bench| {
        let _worker = bench.worker(&["--concurrency", "4", "--tick", "1h"]).ready();
        let mut delays: Vec<f64> = (0..20)
            .map(|_| {
                let id = bench.submit(&command("true", &[]));
                let run = bench.until_status(&id, "completed");
                bench.facts(&id)[0].created_at - run.queued_at.unwrap()
            })
            .collect();
        delays.sort_by(f64::total_cmp);
        println!(
            "{}: claimed {:.0} ms after the submit (median of 20; worst {:.0} ms)",
            bench.engine(),
            delays[10] * 1e3,
            delays[19] * 1e3
        );
    });
}

#[test]
fn an_end_makes_room_at_once() {
    on_engines(|bench| {
        let _worker = bench.worker(&["--concurrency", "1", "--tick", "1h"]).ready();
        bench.submit_all(&vec![command("true", &[]); 40]);
        // With the timer alone it would take two days.
        bench.until_all("completed");
    });
}

/// The worker that is full leaves the rest to one that is not, however soon it comes.
#[test]
fn a_second_worker_takes_what_the_first_has_no_room_for() {
    on_engines(|bench| {
        let _full = bench.worker(&["--concurrency", "1"]).ready();
        let held = bench.submit(&sh("until [ -e go ]; do sleep 0.05; done"));
        bench.until_status(&held, "running");
        let waiting = bench.submit(&sh("true"));
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(bench.run(&waiting).status, "queued");
        let _idle = bench.worker(&["--concurrency", "1"]).ready();
        bench.until_status(&waiting, "completed");
        std::fs::write(bench.file("go"), "").unwrap();
        until(|| match bench.run(&held).status.as_str() {
            "completed" => Ok(()),
            status => Err(status.into()),
        });
    });
}
