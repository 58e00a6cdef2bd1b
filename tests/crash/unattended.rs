//! Workers that die and are not followed: at the fence everything is gone.

use std::time::Instant;

use crate::aftermath::{guardians, on_engines, task_processes, until_none_is_left};
use crate::bench::{sh, until};
use crate::tasks::STARTS;
use crate::{count, machine};

/// A first attempt that has seven processes, and no wish to end: a child, one in a session of its own, a daemon by the
/// book that ignores TERM, a stopped one, and a leader that ignores TERM. A later one ends.
const STUBBORN: &str = "[ $LEASEHOLD_EPOCH -eq 1 ] || exit 0
    sleep 600 &
    setsid sleep 600 &
    (setsid sh -c 'trap \"\" TERM; sleep 600; :' &)
    sh -c 'kill -STOP $$; sleep 600' &
    trap '' TERM
    sleep 600; :";
const PROCESSES: usize = 7;

#[test]
fn without_a_next_worker_every_process_is_gone_at_the_fence() {
    on_engines(|bench| {
        let tasks = count(20, 50);
        let concurrency = tasks.to_string();
        let words = ["--tick", "1s", "--concurrency", &concurrency];
        let first = bench.worker(&[&words[..], &["--lease-ttl", "10s"]].concat()).ready();
        let ids = bench.submit_all(&vec![sh(format!("{STARTS}; {STUBBORN}")); tasks]);
        until(|| {
            let processes = task_processes(bench);
            let stopped =
                processes.iter().filter(|one| machine::state(one.pid) == Some('T')).count();
            match (processes.len(), stopped) {
                (all, stopped) if all == PROCESSES * tasks && stopped == tasks => Ok(()),
                seen => Err(format!("{seen:?}")),
            }
        });
        assert_eq!(guardians(bench).len(), tasks);
        first.kill();
        let killed = Instant::now();
        until_none_is_left(bench);
        println!(
            "{}: {} processes gone {:.1?} after the kill",
            bench.engine(),
            PROCESSES * tasks,
            killed.elapsed()
        );
        assert!(ids.iter().all(|id| bench.run(id).status == "running"), "nobody writes");

        let _later = bench.worker(&words).ready();
        bench.until_all("completed");
        for id in &ids {
            let steps = bench.steps(id);
            assert_eq!(
                [&steps[0], &steps[2], &steps[3]],
                [
                    "queued>running run.started.ok",
                    "queued>running run.started.ok",
                    "running>completed run.completed.ok"
                ]
            );
            assert!(steps[1].starts_with("running>queued "), "{steps:?}");
            assert_eq!((steps.len(), bench.run(id).lease_attempts), (4, 2), "{steps:?}");
        }
        assert_eq!(bench.lines("starts").len(), 2 * tasks);
        println!("{}: {:?}", bench.engine(), bench.changes());
    });
}
