//! Contracts whose worker dies before or while it judges them.

use crate::aftermath::{on_engines, task_processes, until_none_is_left};
use crate::bench::{Bench, until};
use crate::machine;
use crate::tasks::{owner, touch};

fn submit(bench: &Bench, options: &[&str], script: &str) -> String {
    let cwd = bench.place.dir.path().to_str().unwrap();
    bench.submit_script(&[&["--cwd", cwd], options].concat(), script)
}

fn check(script: &str) -> String {
    serde_json::json!(["sh", "-c", script]).to_string()
}

/// Ends with exit code 0 once there is a file `go`.
const WAITS: &str = "echo x >>started; until [ -e go ]; do sleep 0.05; done; echo x >made";

#[track_caller]
fn until_started(bench: &Bench, count: usize) {
    until(|| match bench.lines("started").len() {
        there if there == count => Ok(()),
        there => Err(there.to_string()),
    });
}

/// The numbers of the checks that have begun.
fn checking(bench: &Bench) -> Vec<u32> {
    bench.lines("checking").iter().filter_map(|pid| pid.parse().ok()).collect()
}

#[test]
fn an_end_that_came_while_no_worker_lived_is_judged_by_the_next_under_a_lease_of_its_own() {
    on_engines(|bench| {
        let words = ["--concurrency", "4"];
        let looks = check("echo $LEASEHOLD_EPOCH >>checked; [ -s made ]");
        let met = submit(bench, &["--expect-filled", "made", "--check", &looks], WAITS);
        let unmet = submit(bench, &["--expect-file", "nothing", "--check", &looks], WAITS);
        let refused = submit(bench, &["--check", &check("exit 3")], WAITS);
        let first = bench.worker(&words).ready();
        until_started(bench, 3);
        let dead = owner(bench, &met);
        first.kill();
        touch(bench, "go");
        until_none_is_left(bench);
        // Their leases run out, long ago, which takes nothing from what has ended.
        bench.place.raw().run("UPDATE schedule_runs SET lease_expires_at = 1");
        bench.work(&[&["--until-empty"], &words[..]].concat());
        let said = |id: &str| {
            let run = bench.run(id);
            assert_eq!((run.exit_code, run.lease_attempts), (Some(0), 1), "{run:?}");
            assert_ne!(
                run.leased_by.as_ref(),
                Some(&dead),
                "its end was written under a new lease"
            );
            format!("{}: {}", run.status, run.status_reason_summary.unwrap())
        };
        let why = "exit code 0, but the contract is not met:";
        assert_eq!(said(&met), "completed: task execution completed");
        assert_eq!(said(&unmet), format!("failed: {why} the file \"nothing\" is not there"));
        let ended = "the check \"sh\" ended with exit code 3";
        assert_eq!(said(&refused), format!("failed: {why} {ended}"));
        assert_eq!(bench.lines("checked"), ["1"], "in the epoch of the task");
    });
}

/// So does a task that is taken over while it runs.
#[test]
fn what_a_task_leaves_that_was_taken_over_is_judged() {
    on_engines(|bench| {
        let id = submit(bench, &["--expect-file", "nothing"], WAITS);
        let first = bench.worker(&[]).ready();
        until_started(bench, 1);
        first.kill();
        let _second = bench.worker(&[]).ready();
        touch(bench, "go");
        let run = bench.until_status(&id, "failed");
        assert_eq!(run.status_reason_code.as_deref(), Some("run.failed.contract_unmet"), "{run:?}");
    });
}

#[test]
fn a_check_whose_worker_was_killed_is_dead_before_the_next_one_makes_it_again() {
    on_engines(|bench| {
        let script = "echo $$ >>checking; until [ -e go ]; do sleep 0.05; done; echo x >>checked";
        let id = submit(bench, &["--check", &check(script), "--check-timeout", "5m"], "true");
        let first = bench.worker(&[]).ready();
        until(|| match checking(bench).len() {
            1 => Ok(()),
            there => Err(format!("{there} {:?}", bench.run(&id))),
        });
        first.kill();
        let _second = bench.worker(&[]);
        until(|| match checking(bench)[..] {
            [one, _] if machine::is_alive(one) => panic!("two at once"),
            [_, _] => Ok(()),
            _ => Err(format!("{:?}", checking(bench))),
        });
        touch(bench, "go");
        let run = bench.until_status(&id, "completed");
        assert_eq!(run.lease_attempts, 1, "{run:?}");
        assert_eq!(bench.lines("checked"), ["x"]);
    });
}

#[test]
fn without_a_next_worker_a_check_is_gone_at_the_fence() {
    on_engines(|bench| {
        let script = "echo $$ >>checking; sleep 300 & sleep 300";
        let id = submit(bench, &["--check", &check(script), "--check-timeout", "5m"], "true");
        let first = bench.worker(&["--lease-ttl", "5"]).ready();
        until(|| match checking(bench).len() {
            0 => Err("no check has begun".into()),
            _ => Ok(()),
        });
        first.kill();
        until(|| match task_processes(bench).len() {
            0 => Ok(()),
            left => Err(format!("{left} live")),
        });
        assert_eq!(bench.run(&id).status, "running", "nobody was there to write");
        assert!(bench.program(["cancel", &id]).output().unwrap().status.success());
        bench.work(&["--until-empty"]);
        assert_eq!(bench.run(&id).status, "cancelled");
    });
}
