//! Workflows by whole workers: each step once and in order, whoever dies meanwhile, and nothing left behind.

use leasehold::db::ops::Steps;
use leasehold::domain::settings::{RunSettings, TaskLimits};
use leasehold::domain::task::TaskApplication;
use leasehold::domain::transition::Principal;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bench::{Bench, on_engines, on_sqlite, until};
use crate::machine;

/// A workflow whose steps are shell scripts.
fn workflow(steps: &[(&str, &str)]) -> TaskApplication {
    let step = |(name, script): &(&str, &str)| {
        let args = json!({"action_command": "sh", "action_command_args": ["-c", script]});
        json!({"name": name, "kind": "command", "args": args})
    };
    planned(steps.iter().map(step).collect())
}

fn planned(steps: Value) -> TaskApplication {
    let mut app = TaskApplication::new("workflow", "host");
    app.args.insert("steps".into(), steps);
    app
}

/// What is stored of the steps: number, name, epoch, exit code.
fn stored(bench: &Bench, id: &str) -> Vec<(i32, String, i32, Option<i32>)> {
    let rows = bench.queue().read(&Steps { run_id: id.into() }).unwrap();
    rows.into_iter()
        .map(|row| (row.step, row.name.unwrap_or_default(), row.epoch, row.exit_code))
        .collect()
}

/// Says which step it is, in which epoch, under which pid.
const NOTES: &str = "echo $LEASEHOLD_STEP $LEASEHOLD_EPOCH $$ >>steps";
/// Notes itself and waits for a file `go`.
const WAITS: &str =
    "echo $LEASEHOLD_STEP $LEASEHOLD_EPOCH $$ >>steps; until [ -e go ]; do sleep 0.05; done";

fn noted(bench: &Bench) -> Vec<String> {
    let lines = bench.lines("steps");
    let without_pid = |line: &String| line.rsplit_once(' ').unwrap().0.to_owned();
    lines.iter().map(without_pid).collect()
}

/// Waits until a step has noted itself, and answers its pid.
fn until_noted(bench: &Bench, which: &str) -> u32 {
    until(|| {
        let lines = bench.lines("steps");
        let line = lines.iter().find_map(|line| line.strip_prefix(&format!("{which} ")));
        line.map(|pid| pid.parse().unwrap()).ok_or_else(|| format!("{lines:?}"))
    })
}

#[test]
fn steps_run_in_order_and_each_sees_who_it_is() {
    for words in [&["--until-empty"][..], &["--until-empty", "--supervision", "direct"]] {
        on_engines(|bench| {
            let sees = "echo $LEASEHOLD_RUN_ID; cat; echo out; echo err >&2; \
                env | grep -c -e '^PG' -e LEASEHOLD_STORE -e XYZZY; tr '\\0' '\\n' </proc/$PPID/cmdline";
            let id = bench.submit(&workflow(&[
                ("one", &format!("{NOTES}; {{ {sees}; }} >seen")),
                ("two", &format!("{NOTES}; (sleep 600 & setsid sleep 600 & echo $! >left)")),
                ("three", &format!("{NOTES}; ! kill -0 $(cat left) 2>/dev/null")),
            ]));
            bench.work(words);
            let run = bench.run(&id);
            assert_eq!((run.status.as_str(), run.exit_code), ("completed", Some(0)), "{run:?}");
            assert_eq!(noted(bench), ["1 1", "2 1", "3 1"]);
            let done = |step, name: &str| (step, name.to_owned(), 1, Some(0));
            assert_eq!(stored(bench, &id), [done(1, "one"), done(2, "two"), done(3, "three")]);
            let seen = bench.lines("seen");
            assert_eq!(seen[..3], [id.as_str(), "out", "0"].map(str::to_owned), "{seen:?}");
            assert_eq!(seen[3..], ["leasehold", "__workflow"].map(str::to_owned));
        });
    }
}

#[test]
fn the_first_failing_step_ends_the_workflow_with_its_code_and_its_name() {
    on_engines(|bench| {
        let fails = bench.submit(&workflow(&[
            ("one", NOTES),
            ("build", &format!("{NOTES}; echo it broke >&2; exit 7")),
            ("three", NOTES),
        ]));
        bench.work(&["--until-empty"]);
        let run = bench.run(&fails);
        assert_eq!((run.status.as_str(), run.exit_code), ("failed", Some(7)));
        assert_eq!(run.error_detail.as_deref(), Some("step 2 \"build\": it broke\n"));
        assert_eq!(run.status_reason_summary, run.error_detail);
        assert_eq!(noted(bench), ["1 1", "2 1"]);
        assert_eq!(stored(bench, &fails)[1], (2, "build".into(), 1, Some(7)));

        let dies = bench.submit(&workflow(&[("dies", "kill -9 $$")]));
        let absent =
            planned(json!([{"kind": "command", "args": {"action_command": "no-such-program"}}]));
        let absent = bench.submit(&absent);
        bench.work(&["--until-empty"]);
        let run = bench.run(&dies);
        assert_eq!(run.exit_code, Some(-9));
        assert_eq!(run.error_detail.as_deref(), Some("step 1 \"dies\": exit code -9"));
        let run = bench.run(&absent);
        let detail = run.error_detail.unwrap();
        assert!(detail.starts_with("step 1: SpawnError: "), "{detail}");
        assert_eq!(run.exit_code, Some(1));
    });
}

/// The runner of a step, and the guardian of that.
fn above(step: u32) -> (u32, u32) {
    let runner = machine::parent(step).unwrap();
    (runner, machine::parent(runner).unwrap())
}

fn go(bench: &Bench) {
    std::fs::write(bench.file("go"), "").unwrap();
}

/// Its second step waits for a file.
fn three() -> TaskApplication {
    workflow(&[("one", NOTES), ("two", WAITS), ("three", NOTES)])
}

#[test]
fn after_a_crash_of_worker_and_guardian_it_goes_on_with_the_step_that_had_not_ended() {
    on_engines(|bench| {
        let first = bench.worker(&[]).ready();
        let id = bench.submit(&three());
        let step = until_noted(bench, "2 1");
        let (runner, guardian) = above(step);
        first.kill();
        machine::kill(guardian);
        // The step dies with its runner, and that with its guardian.
        until(|| match [guardian, runner, step].into_iter().find(|pid| machine::is_alive(*pid)) {
            None => Ok(()),
            Some(pid) => Err(format!("{pid} lives")),
        });
        go(bench);
        bench.work(&["--until-empty"]);
        let run = bench.run(&id);
        assert_eq!((run.status.as_str(), run.lease_attempts), ("completed", 2), "{run:?}");
        assert_eq!(noted(bench), ["1 1", "2 1", "2 2", "3 2"], "step 1 has run once");
        let stored: Vec<_> =
            stored(bench, &id).into_iter().map(|(_, _, epoch, code)| (epoch, code)).collect();
        assert_eq!(stored, [(1, Some(0)), (2, Some(0)), (2, Some(0))]);
    });
}

#[test]
fn when_only_the_worker_dies_the_next_one_takes_the_workflow_over_and_each_step_runs_once() {
    on_engines(|bench| {
        let first = bench.worker(&[]).ready();
        let id = bench.submit(&three());
        until_noted(bench, "2 1");
        let dead = bench.run(&id).leased_by;
        first.kill();
        let _second = bench.worker(&[]).ready();
        until(|| match bench.run(&id).leased_by {
            owner if owner != dead => Ok(()),
            owner => Err(format!("still {owner:?}'s")),
        });
        go(bench);
        let run = bench.until_status(&id, "completed");
        assert_eq!(run.lease_attempts, 1);
        assert_eq!(noted(bench), ["1 1", "2 1", "3 1"]);
    });
}

/// A step with a child that has left its session.
const TREE: &str = "setsid sleep 600 & echo child 1 $! >>steps; echo $LEASEHOLD_STEP $LEASEHOLD_EPOCH $$ >>steps; sleep 600; true";

fn assert_all_gone(bench: &Bench, step: u32) {
    let child = until_noted(bench, "child 1");
    for pid in [step, child] {
        assert!(!machine::is_alive(pid), "{pid} of {:?}", bench.lines("steps"));
    }
}

#[test]
fn a_cancel_or_a_timeout_during_a_step_ends_its_whole_tree() {
    for (status, timeout) in [("cancelled", None), ("timed_out", Some(10.0))] {
        on_engines(|bench| {
            let _worker = bench.worker(&[]).ready();
            let app = workflow(&[("one", NOTES), ("two", TREE), ("three", NOTES)]);
            let settings = RunSettings { timeout, ..RunSettings::default() };
            let id = bench.queue().submit_task_with(&app, settings, None).unwrap();
            let step = until_noted(bench, "2 1");
            if timeout.is_none() {
                bench.queue().cancel(&id, &Principal::operator("test")).unwrap();
            }
            bench.until_status(&id, status);
            assert_all_gone(bench, step);
            assert_eq!(stored(bench, &id).len(), 2, "the third was not begun");
            assert_eq!(stored(bench, &id)[1].3, None, "a step that was stopped has no result");
        });
    }
}

/// A step that ends well when it is told to end was not done: it was in the middle of something.
#[test]
fn a_shutdown_gives_the_workflow_back_and_the_stopped_step_is_run_again() {
    for words in [&["--drain", "0"][..], &["--drain", "0", "--supervision", "direct"]] {
        on_engines(|bench| {
            let mut first = bench.worker(words).ready();
            let gives_in = format!("trap 'exit 0' TERM; {WAITS}");
            let id =
                bench.submit(&workflow(&[("one", NOTES), ("two", &gives_in), ("three", NOTES)]));
            until_noted(bench, "2 1");
            first.signal(Signal::TERM);
            first.leaves_with(0);
            assert_eq!(bench.run(&id).status, "queued");
            go(bench);
            bench.work(&["--until-empty"]);
            assert_eq!(bench.run(&id).status, "completed");
            assert_eq!(noted(bench), ["1 1", "2 1", "2 2", "3 2"]);
        });
    }
}

#[test]
fn a_retry_goes_on_with_the_step_that_has_failed() {
    on_engines(|bench| {
        let second = format!("{NOTES}; [ $LEASEHOLD_EPOCH -gt 1 ] || exit 75");
        let app = workflow(&[("one", NOTES), ("two", &second), ("three", NOTES)]);
        let retry = leasehold::domain::retry::RetryPolicy {
            max_failures: 3,
            base: 0.01,
            ..Default::default()
        };
        let settings = RunSettings { retry: Some(retry), ..RunSettings::default() };
        let id = bench.queue().submit_task_with(&app, settings, None).unwrap();
        bench.work(&["--until-empty"]);
        assert_eq!(bench.run(&id).status, "completed");
        assert_eq!(noted(bench), ["1 1", "2 1", "2 2", "3 2"]);
        let facts = bench.facts(&id);
        let waits = facts.iter().find(|fact| fact.status == "retry_wait").unwrap();
        let summary = waits.reason_summary.as_deref().unwrap();
        assert!(
            summary.starts_with("failure 1 of 3 (step 2 \"two\", exit code 75): next try in "),
            "{summary}"
        );
    });
}

#[test]
fn an_attempt_that_has_lost_its_run_begins_no_further_step_and_notes_nothing() {
    on_engines(|bench| {
        let _worker = bench.worker(&[]).ready();
        let id = bench.submit(&three());
        let (runner, _) = above(until_noted(bench, "2 1"));
        bench.place.raw().run("UPDATE schedule_runs SET lease_attempts = lease_attempts + 1");
        let before = stored(bench, &id);
        go(bench);
        until(|| if machine::is_alive(runner) { Err(format!("{runner} lives")) } else { Ok(()) });
        assert_eq!(stored(bench, &id), before);
        assert_eq!(noted(bench), ["1 1", "2 1"]);
    });
}

#[test]
fn steps_have_the_limits_the_input_the_directory_and_the_variables_of_the_run() {
    on_engines(|bench| {
        let there = bench.file("there");
        std::fs::create_dir(&there).unwrap();
        // Far less memory than the runner itself needs.
        let limits = TaskLimits {
            open_files: Some(20),
            address_space: Some(64 << 20),
            ..TaskLimits::default()
        };
        let settings = RunSettings {
            limits: Some(limits),
            cwd: Some(there.to_str().unwrap().into()),
            env: [("PGXYZZY".to_owned(), "kept".to_owned())].into(),
            ..RunSettings::default()
        };
        let looks = "echo $(ulimit -n) $(ulimit -v) $PGXYZZY $(cat) >>seen";
        let app = workflow(&[("one", looks), ("two", looks)]);
        let id = bench.queue().submit_task_with(&app, settings, Some(b"given".to_vec())).unwrap();
        bench.work(&["--until-empty"]);
        assert_eq!(bench.run(&id).status, "completed", "{:?}", bench.run(&id));
        assert_eq!(bench.lines("there/seen"), ["20 65536 kept given"; 2]);
    });
}

#[test]
fn a_plan_that_cannot_be_followed_fails_before_anything_runs() {
    on_engines(|bench| {
        let notes = json!({"kind": "command", "args": {"action_command": "sh", "action_command_args": ["-c", NOTES]}});
        let forbidden = json!({"name": "rm", "kind": "command", "args": {"action_command": "rm"}});
        let ids = [
            bench.submit(&TaskApplication::new("workflow", "host")),
            bench.submit(&planned(json!([notes, forbidden]))),
            bench
                .submit(&planned(json!([notes, {"kind": "workflow", "args": {"steps": [notes]}}]))),
            bench.submit(&planned(json!([notes, {"kind": "nonsense"}]))),
        ];
        bench.work(&["--until-empty"]);
        let details = ids.map(|id| bench.run(&id).error_detail.unwrap());
        assert!(
            details[0].starts_with("PlanError: a workflow needs a list of steps"),
            "{details:?}"
        );
        assert!(details[1].starts_with("LaunchError: step 2 \"rm\": "), "{details:?}");
        assert!(details[2].starts_with("PlanError: step 2 is a workflow itself"), "{details:?}");
        assert!(details[3].contains("step 2: "), "{details:?}");
        assert_eq!(noted(bench), [""; 0]);
    });
}

/// The runner waits for its store as long as its lease lasts, and then goes on.
#[test]
fn a_store_that_does_not_answer_keeps_the_next_step_waiting_and_loses_nothing() {
    on_sqlite(|bench| {
        let _worker = bench.worker(&[]).ready();
        let id = bench.submit(&three());
        until_noted(bench, "2 1");
        let mut raw = bench.place.raw();
        raw.run("BEGIN IMMEDIATE");
        go(bench);
        // Later than SQLite itself waits for a lock.
        until(|| {
            let output = bench.program(["logs", "--stderr", &id]).output().unwrap();
            let said = String::from_utf8(output.stdout).unwrap();
            let waits = said.contains("leasehold: cannot note how far the workflow has come yet: ");
            if waits { Ok(()) } else { Err(said) }
        });
        assert_eq!(noted(bench), ["1 1", "2 1"]);
        raw.run("COMMIT");
        bench.until_status(&id, "completed");
        assert_eq!(noted(bench), ["1 1", "2 1", "3 1"]);
    });
}

#[test]
fn where_it_stands_is_shown() {
    on_engines(|bench| {
        let _worker = bench.worker(&[]).ready();
        let id = bench.submit(&three());
        until_noted(bench, "2 1");
        let said = |verb: &str| {
            let output = bench.program([verb, &id]).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let shown = said("show");
        assert!(shown.contains("\nsteps: step 2 of 3 \"two\" was begun "), "{shown}");
        let steps = said("steps");
        let lines: Vec<Vec<&str>> =
            steps.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1][..5], ["1", "one", "command", "done", "1"]);
        assert_eq!(lines[1][7], "0");
        assert_eq!(lines[2][..5], ["2", "two", "command", "begun", "1"]);
        assert_eq!(lines[2][6..], ["-", "-"]);
        assert_eq!(lines[3], ["3", "three", "command", "-", "-", "-", "-", "-"]);
        let output = bench.program(["steps", &id, "--json"]).output().unwrap();
        let all: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(all[0]["exit_code"], 0);
        assert_eq!((&all[1]["epoch"], &all[1]["exit_code"]), (&json!(1), &Value::Null));
        assert_eq!((&all[2]["name"], &all[2]["epoch"]), (&json!("three"), &Value::Null));
        let why = said("why");
        assert!(why.contains("  step: step 2 of 3 \"two\" was begun "), "{why}");
        go(bench);
        bench.until_status(&id, "completed");
        assert!(said("show").contains("\nsteps: all of 3 steps are done\n"));
    });
}

/// A stand-in for `li`, which says what it was told and what it sees.
const LI: &str = r#"#!/bin/sh
for word; do case $word in *.yaml) cat "$word" >>said; echo "$word" >>files;; esac; done
echo "$1 $2 $LIONAGI_STATE_DB_URL $LIONAGI_INVOCATION_ID" >>said
"#;

#[test]
fn steps_of_all_kinds_get_what_tasks_of_theirs_get_and_nobody_sees_the_way_to_the_store() {
    use std::os::unix::fs::PermissionsExt;
    on_engines(|bench| {
        let bin = bench.file("bin");
        std::fs::create_dir(&bin).unwrap();
        std::fs::write(bin.join("li"), LI).unwrap();
        std::fs::set_permissions(bin.join("li"), PermissionsExt::from_mode(0o755)).unwrap();
        let mut program = bench.program(["worker"]);
        let path = std::env::var("PATH").unwrap();
        program
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("LIONAGI_STATE_DB_URL", "theirs")
            .env("PGXYZZY", "secret");
        let _worker = crate::bench::Worker::start(program, bench.log_file()).ready();
        let sh = |script: &str| json!({"kind": "command", "args": {"action_command": "sh", "action_command_args": ["-c", script]}});
        let id = bench.submit(&planned(json!([
            {"kind": "agent", "args": {"action_agent": "a", "action_prompt": "p"}},
            {"kind": "flow_yaml", "args": {"action_flow_yaml": "the: flow\n"}},
            sh("echo command $LIONAGI_STATE_DB_URL >>said"),
            sh(WAITS),
        ])));
        let (runner, _) = above(until_noted(bench, "4 1"));
        let words = machine::words(runner).join(" ");
        let sees = machine::environment(runner).join(" ");
        for secret in [bench.place.url.as_str(), "PGXYZZY", "theirs"] {
            assert!(!words.contains(secret) && !sees.contains(secret), "{words}; {sees}");
        }
        let input = std::fs::read_link(format!("/proc/{runner}/fd/0")).unwrap();
        assert_eq!(input, std::path::Path::new("/dev/null"), "what it was told can be read again");
        go(bench);
        bench.until_status(&id, "completed");
        let said = bench.lines("said");
        let invocation = said[0].rsplit_once(' ').unwrap().1;
        assert_eq!(
            said,
            [
                format!("agent --agent theirs {invocation}"),
                "the: flow".to_owned(),
                format!("o flow theirs {invocation}"),
                "command".to_owned(),
            ]
        );
        let file = &bench.lines("files")[0];
        assert!(!std::path::Path::new(file).exists(), "{file} is left");
    });
}
