//! Tasks that fail and are tried again, that wait for a moment, and that were not started in time.

use crate::bench::{Worker, on_engines};
use crate::stopping::now;

const QUICK: [&str; 4] = ["--backoff", "0.05", "--backoff-cap", "0.1"];

#[test]
fn a_task_is_tried_until_it_works_or_has_failed_as_often_as_it_may() {
    on_engines(|bench| {
        let third = "echo x >>third; [ $(wc -l <third) -ge 3 ] || exit 75";
        let works = bench.submit_script(&[&["--max-failures", "5"], &QUICK[..]].concat(), third);
        let never = bench.submit_script(
            &[&["--max-failures", "3"], &QUICK[..]].concat(),
            "echo x >>never; exit 7",
        );
        bench.work(&["--until-empty", "--concurrency", "2"]);

        let run = bench.run(&works);
        assert_eq!((run.status.as_str(), run.lease_attempts), ("completed", 3), "{run:?}");
        assert_eq!(
            bench.steps(&works).join(", "),
            "queued>running run.started.ok, running>retry_wait run.retry_wait.backoff, \
             retry_wait>queued run.queued.retry_due, queued>running run.started.ok, \
             running>retry_wait run.retry_wait.backoff, retry_wait>queued run.queued.retry_due, \
             queued>running run.started.ok, running>completed run.completed.ok"
        );
        let run = bench.run(&never);
        assert_eq!(
            (run.status.as_str(), run.exit_code, run.lease_attempts),
            ("failed", Some(7), 3)
        );
        assert_eq!(bench.lines("never").len(), 3);
        // Every attempt is kept.
        let ends = "SELECT exit_code || ' in ' || epoch AS value FROM leasehold_attempts WHERE run_id = '{id}' ORDER BY epoch";
        assert_eq!(bench.texts(&ends.replace("{id}", &never)), ["7 in 1", "7 in 2", "7 in 3"]);
        assert_eq!(
            bench.texts("SELECT run_id AS value FROM leasehold_runs WHERE wake_at IS NOT NULL"),
            [""; 0]
        );
        bench.assert_sound();
    });
}

#[test]
fn only_the_ends_that_were_chosen_are_tried_again() {
    on_engines(|bench| {
        let policy = |more: &[&'static str]| [&["--max-failures", "2"], &QUICK[..], more].concat();
        let wanted = bench.submit_script(
            &policy(&["--retry-on", "75", "--retry-on", "SIGKILL"]),
            "echo x >>wanted; kill -KILL $$",
        );
        let other = bench.submit_script(&policy(&["--retry-on", "75"]), "exit 1");
        let last = bench.submit_script(&policy(&["--final", "2"]), "exit 2");
        bench.work(&["--until-empty"]);
        let attempts = [&wanted, &other, &last].map(|id| bench.run(id).lease_attempts);
        assert_eq!(attempts, [2, 1, 1]);
        assert!([&wanted, &other, &last].iter().all(|id| bench.run(id).status == "failed"));
    });
}

#[test]
fn what_is_not_the_task_s_fault_is_no_failure() {
    on_engines(|bench| {
        let script = "echo x >>starts; [ -e go ] || exec sleep 300; exit 9";
        let id = bench.submit_script(&[&["--max-failures", "2"], &QUICK[..]].concat(), script);
        for starts in 1..=3 {
            let mut worker = bench.worker(&["--drain", "0s"]).ready();
            bench.until_status(&id, "running");
            crate::bench::until(|| match bench.lines("starts").len() {
                there if there == starts => Ok(()),
                there => Err(there.to_string()),
            });
            worker.end_at_once();
            bench.until_status(&id, "queued");
        }
        std::fs::write(bench.file("go"), "").unwrap();
        bench.work(&["--until-empty"]);
        let run = bench.run(&id);
        assert_eq!((run.status.as_str(), run.lease_attempts), ("failed", 5), "{run:?}");
    });
}

#[test]
fn a_cancel_ends_the_pause_and_nothing_is_tried_after_it() {
    on_engines(|bench| {
        let id = bench.submit_script(
            &["--max-failures", "9", "--backoff", "1h", "--backoff-cap", "1h"],
            "exit 1",
        );
        bench.work(&["--once"]);
        bench.until_status(&id, "retry_wait");
        let output = bench.program(["cancel", &id]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(bench.run(&id).status, "cancelled");
        bench.work(&["--until-empty"]);
        assert_eq!(bench.run(&id).lease_attempts, 1);
        bench.assert_sound();
    });
}

#[test]
fn a_task_for_later_waits_whoever_looks_and_starts_when_it_is_due() {
    on_engines(|bench| {
        let far = bench.submit_script(&["--after", "1h"], "true");
        assert_eq!(
            bench.steps(&far),
            ["queued>waiting_dependency run.waiting_dependency.not_before"]
        );
        bench.work(&["--once"]);
        assert_eq!(bench.run(&far).status, "waiting_dependency");
        let past = bench.submit_script(&["--after", "1990-01-01T00:00:00Z"], "true");
        assert_eq!(bench.run(&past).status, "queued");
        // Counted from when it was asked for: a store that is slow takes nothing from the wait.
        let asked = now();
        let soon = bench.submit_script(&["--after", "0.5"], "true");
        // The timer of ticks would be an hour late.
        let worker = bench.worker(&["--tick", "1h"]);
        bench.until_status(&soon, "completed");
        bench.until_status(&past, "completed");
        let started =
            bench.facts(&soon).iter().find(|fact| fact.status == "running").unwrap().created_at;
        assert!(started - asked >= 0.5, "{}", started - asked);
        drop(worker);
        assert_eq!(bench.run(&far).status, "waiting_dependency");
        bench.assert_sound();
    });
}

#[test]
fn a_task_that_nobody_started_in_time_is_skipped_and_one_that_runs_is_not() {
    on_engines(|bench| {
        let unwanted =
            bench.submit_script(&["--needs", "nobody-has-it", "--expires", "0.3"], "true");
        let runs =
            bench.submit_script(&["--expires", "1h"], "while ! [ -e go ]; do sleep 0.02; done");
        let mut worker: Worker = bench.worker(&["--tick", "1h"]);
        bench.until_status(&runs, "running");
        let passes = "UPDATE leasehold_runs SET expires_at = 1.5 WHERE run_id = '{id}'";
        bench.place.raw().run(&passes.replace("{id}", &runs));
        let run = bench.until_status(&unwanted, "skipped");
        assert_eq!(run.status_reason_code.as_deref(), Some("run.skipped.expired"));
        assert!(run.ended_at.is_some());
        crate::bench::until(|| {
            let left = "SELECT run_id AS value FROM leasehold_runs WHERE expires_at IS NOT NULL";
            match bench.texts(left) {
                left if left.is_empty() => Ok(()),
                left => Err(format!("{left:?}")),
            }
        });
        assert_eq!(bench.run(&runs).status, "running", "its time passed while it ran");
        std::fs::write(bench.file("go"), "").unwrap();
        bench.until_status(&runs, "completed");
        worker.end_at_once();
        bench.assert_sound();
    });
}

#[test]
fn priority_is_worth_minutes_of_waiting() {
    on_engines(|bench| {
        let say = |word: &str| format!("echo {word} >>order");
        bench.submit_script(&["--priority", "-1"], &say("low"));
        bench.submit_script(&[], &say("first"));
        bench.submit_script(&[], &say("second"));
        bench.submit_script(&["--priority", "100"], &say("high"));
        bench.work(&["--until-empty", "--concurrency", "1"]);
        assert_eq!(bench.lines("order"), ["high", "first", "second", "low"]);
        for options in [
            &["--priority", "101"][..],
            &["--max-failures", "0"],
            &["--after", "soon"],
            &["--after", "1h", "--expires", "1m"],
            &["--backoff", "1s"],
            &["--max-failures", "2", "--retry-on", "0"],
        ] {
            let words = [&["submit", "command"], options, &["--", "true"]].concat();
            let output = bench.program(words).output().unwrap();
            assert!(
                !output.status.success() && output.stdout.is_empty(),
                "{options:?}: {output:?}"
            );
        }
    });
}
