//! Ended tasks that are submitted again.

use serde_json::Value;

use crate::places::engines;
use crate::program::Bench;

const COMMAND: [&str; 5] = ["command", "--allow-command", "sh,true", "--key", "k"];

/// Every setting that there is.
const SETTINGS: [&str; 18] = [
    "--cwd",
    "/tmp",
    "--env",
    "A=b",
    "--nofile",
    "64",
    "--timeout",
    "1h",
    "--grace",
    "2s",
    "--max-failures",
    "2",
    "--needs",
    "x",
    "--library-ref",
    "ref",
    "--library-hash",
    "hash",
];

fn shown(bench: &Bench, id: &str) -> Value {
    bench.json(&["show", id, "--json"])
}

/// A cancelled task of kind command with every setting.
fn ended(bench: &Bench) -> String {
    let words =
        [&["submit"], &COMMAND[..], &SETTINGS, &["--stdin", "-", "--", "sh", "-c", "exit 3"]];
    let id = bench.run_reading(&words.concat(), b"to read").done().trim().to_owned();
    bench.run(&["cancel", &id]).done();
    id
}

#[test]
fn a_new_task_is_made_from_an_ended_one_which_stays_as_it_is() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let id = ended(&bench);
        let before = shown(&bench, &id);
        let words = ["retry", &id, "--allow-command", "sh", "--priority", "5"];
        let new = bench.run(&words).done().trim().to_owned();
        assert_eq!(shown(&bench, &id), before);

        let made = shown(&bench, &new);
        for column in [
            "action_kind",
            "action_args",
            "required_capabilities",
            "execution_target",
            "library_ref",
            "library_content_hash",
            "concurrency_key",
            "trigger_context",
        ] {
            assert_eq!(made[column], before[column], "{column}");
        }
        assert_eq!(made["chain_parent_id"], id.as_str());
        assert_eq!((&made["chain_depth"], &made["status"]), (&1.into(), &"queued".into()));
        let place = made["created_at"].as_f64().unwrap() - made["queued_at"].as_f64().unwrap();
        assert!((299.0..301.0).contains(&place), "a priority of its own: {place}");
        let settings = |id: &str| {
            let text = bench.run(&["show", id]).done();
            let kept = |line: &&str| line.starts_with("settings: ") || line.starts_with("stdin: ");
            text.lines().filter(kept).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(settings(&new), settings(&id));
        assert_eq!(settings(&new).len(), 2);
        assert!(settings(&new)[0].contains("\"max_failures\": 2"), "{:?}", settings(&new));

        // The old one names its child, and a child may have one itself.
        bench.run(&["cancel", &new]).done();
        let third = bench.run(&["retry", &new, "--allow-command", "sh"]).done().trim().to_owned();
        assert_eq!(shown(&bench, &third)["chain_depth"], 2);
        let text = bench.run(&["show", &id]).done();
        assert!(text.contains(&format!("children: {new}\n")), "{text}");
        bench.run(&["verify"]).done();
    }
}

#[test]
fn what_has_not_ended_or_is_not_allowed_any_more_is_refused_and_nothing_is_stored() {
    for engine in engines() {
        let bench = Bench::new(engine);
        bench.run(&["retry", "x"]).refused(1, "");
        assert!(bench.is_untouched());
        let queued = bench.submit(&["agent"]);
        let command = ended(&bench);
        let count = || bench.json(&["list", "--json"]).as_array().unwrap().len();
        assert_eq!(count(), 2);
        bench.run(&["retry", &queued]).refused(1, "cancel it first");
        bench.run(&["retry", "nobody"]).refused(1, "no task");
        bench.run(&["retry", &command]).refused(1, "");
        let said = bench.run(&["retry", &command, "--allow-command", "true"]).refused(1, "sh");
        assert!(said.contains("allow"), "{said}");
        // One that cannot be keeps the others from it.
        bench.run(&["retry", &command, &queued, "--allow-command", "sh"]).refused(1, &queued);
        bench.run(&["retry", &command, &command, "--allow-command", "sh"]).refused(1, "twice");
        bench.run(&["retry", &command, &queued, "--key", "a"]).refused(2, "one by one");
        bench.run(&["retry"]).wrong_usage("ID");
        bench.run(&["retry", &command, "--status", "failed"]).wrong_usage("--status");
        bench.run(&["retry", "--status", "running"]).refused(1, "has not ended");
        assert_eq!(count(), 2);
    }
}

#[test]
fn a_key_is_not_taken_over_and_one_of_its_own_makes_a_retry_repeatable() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let id = ended(&bench);
        let retry = |words: &[&str]| {
            bench.run(&[&["retry", id.as_str(), "--allow-command", "sh"], words].concat())
        };
        // The old key stands for the old task, and for that alone.
        retry(&["--key", "k"]).refused(1, &id);
        let first = retry(&["--key", "k2"]).done();
        assert_eq!(retry(&["--key", "k2"]).done(), first);
        let other = retry(&[]).done();
        assert_ne!(other, first);
        bench.run(&["cancel", other.trim()]).done();
        // A retry of another task is another task.
        let words = ["retry", other.trim(), "--allow-command", "sh", "--key", "k2"];
        bench.run(&words).refused(1, first.trim());
    }
}

#[test]
fn all_that_ended_so_are_submitted_again_once() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let ids: Vec<String> = (0..5).map(|_| bench.submit(&["agent"])).collect();
        for id in &ids[..3] {
            bench.run(&["cancel", id]).done();
        }
        let again =
            |words: &[&str]| bench.run(&[&["retry", "--status", "cancelled"], words].concat());
        assert_eq!(again(&["--since", "0"]).done(), "", "they ended before");
        let new = again(&["--since", "1h"]).done();
        let parents: Vec<Value> = new
            .lines()
            .map(|id| bench.json(&["show", id, "--json"])["chain_parent_id"].clone())
            .collect();
        assert_eq!(parents, ids[..3].iter().map(|id| Value::from(id.as_str())).collect::<Vec<_>>());
        assert_eq!(again(&[]).done(), "", "they were submitted again before");
        assert_eq!(bench.run(&["retry", "--status", "failed"]).done(), "");
        // What cannot be is named, and keeps nobody else from it.
        let command = ended(&bench);
        bench.run(&["cancel", &ids[3]]).done();
        let answer = again(&[]);
        assert_eq!((answer.code, answer.out.lines().count()), (Some(1), 1), "{answer:?}");
        assert!(answer.err.contains(&command), "{answer:?}");
    }
}

#[test]
fn a_task_of_a_schedule_is_left_to_it() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let id = bench.submit(&["agent"]);
        bench.run(&["cancel", &id]).done();
        let mut raw = bench.place.raw();
        raw.run("INSERT INTO schedules (id) VALUES ('s')");
        raw.run(&format!("UPDATE schedule_runs SET schedule_id = 's' WHERE id = '{id}'"));
        bench.run(&["retry", &id]).refused(1, "schedule");
        assert_eq!(bench.run(&["retry", "--status", "cancelled"]).done(), "");
        let none = "0 tasks removed, their facts are kept\n";
        assert_eq!(bench.run(&["prune", "--older-than", "0"]).done(), none);
    }
}
