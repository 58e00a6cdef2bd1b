//! Tasks that ended long ago, and are removed.

use std::collections::HashSet;
use std::fs;

use serde_json::Value;

use crate::places::{Engine, engines};
use crate::program::Bench;

/// Tasks with these statuses that were changed for the last time so many hours ago.
fn with(bench: &Bench, statuses: &[&str], hours: u32) -> Vec<String> {
    let mut raw = bench.place.raw();
    let now = match bench.place.engine {
        Engine::Sqlite => "(julianday('now') - 2440587.5) * 86400.0",
        Engine::Postgres => "extract(epoch FROM clock_timestamp())",
    };
    statuses
        .iter()
        .map(|status| {
            let id = bench.submit(&["agent"]);
            raw.run(&format!(
                "UPDATE schedule_runs SET created_at = {now} - 3600.0 * {hours} - 1, updated_at = {now} - 3600.0 * {hours},
                   status = '{status}' WHERE id = '{id}'"
            ));
            raw.run(&format!(
                "INSERT INTO status_transitions (id, entity_type, entity_id, previous_status, status, reason_code, source, created_at)
                 VALUES ('f-{id}', 'schedule_run', '{id}', 'queued', '{status}', 'r', 'system', 1)"
            ));
            id
        })
        .collect()
}

fn ids(bench: &Bench) -> HashSet<String> {
    let rows = bench.json(&["list", "--json", "--limit", "1000"]);
    rows.as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

const ENDS: [&str; 5] = ["completed", "failed", "timed_out", "skipped", "cancelled"];
const OTHERS: [&str; 4] = ["queued", "waiting_dependency", "running", "retry_wait"];

#[test]
fn only_what_ended_long_enough_ago_and_was_chosen_goes() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let old = with(&bench, &ENDS, 30);
        let young = with(&bench, &ENDS, 2);
        let open = with(&bench, &OTHERS, 30);
        let prune =
            |words: &[&str]| bench.run(&[&["prune", "--older-than", "24h"], words].concat());
        let all = ids(&bench);
        assert_eq!(prune(&["--dry-run"]).done(), "5 tasks would be removed\n");
        assert_eq!(ids(&bench), all);
        prune(&["--status", "queued"]).refused(1, "never removed");
        prune(&["--status", "failed", "--keep-failed"]).refused(1, "everything is to be kept");
        prune(&["--facts", "archive"]).wrong_usage("--archive");
        prune(&["--archive", "x"]).refused(2, "--facts archive");
        bench.run(&["prune"]).wrong_usage("--older-than");
        assert_eq!(ids(&bench), all);

        let chosen = ["--status", "failed", "--status", "skipped", "--keep-failed"];
        assert_eq!(prune(&chosen).done(), "1 tasks removed, their facts are kept\n");
        assert_eq!(prune(&["--keep-failed"]).done(), "2 tasks removed, their facts are kept\n");
        assert!(
            ids(&bench).contains(&old[1]) && ids(&bench).contains(&old[2]),
            "failed, timed out"
        );
        assert_eq!(prune(&[]).done(), "2 tasks removed, their facts are kept\n");
        assert_eq!(prune(&[]).done(), "0 tasks removed, their facts are kept\n");
        assert_eq!(ids(&bench), young.into_iter().chain(open).collect());
        // A history without a task.
        assert_eq!(bench.json(&["history", &old[0], "--json"]).as_array().unwrap().len(), 1);
        bench.run(&["show", &old[0]]).refused(1, "no task");
    }
}

#[test]
fn facts_are_dropped_or_archived_before_they_go() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let dropped = with(&bench, &["completed"], 30);
        let out = bench.run(&["prune", "--older-than", "24h", "--facts", "drop"]).done();
        assert_eq!(out, "1 tasks removed, and 1 facts\n");
        bench.run(&["history", &dropped[0]]).refused(1, "no task");

        let archive = bench.place.dir.path().join("facts.jsonl");
        let words = ["prune", "--older-than", "24h", "--facts", "archive", "--archive"];
        let prune = || bench.run(&[&words[..], &[archive.to_str().unwrap()]].concat());
        let lines = || -> Vec<Value> {
            let text = fs::read_to_string(&archive).unwrap();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        let first = with(&bench, &["failed"], 30);
        let fact = bench.json(&["history", &first[0], "--json"])[0].clone();
        assert_eq!(prune().done(), "1 tasks removed, and 1 facts archived\n");
        assert_eq!(lines(), [fact]);
        assert_eq!(prune().done(), "0 tasks removed, and 0 facts archived\n");
        // Written before a crash kept the task from being removed.
        let second = with(&bench, &["failed"], 30);
        let facts = bench.json(&["history", &second[0], "--json"]);
        let text = fs::read_to_string(&archive).unwrap() + &facts[0].to_string() + "\n";
        fs::write(&archive, text).unwrap();
        let third = with(&bench, &["failed"], 30);
        assert_eq!(prune().done(), "2 tasks removed, and 2 facts archived\n");
        let entities: Vec<_> = lines().iter().map(|line| line["entity_id"].clone()).collect();
        assert_eq!(entities, [&first[0], &second[0], &third[0]].map(|id| Value::from(id.as_str())));

        // What cannot be archived stays.
        let stays = with(&bench, &["failed"], 30);
        fs::write(&archive, "something else").unwrap();
        prune().refused(1, "something else");
        assert!(ids(&bench).contains(&stays[0]));
    }
}

#[test]
fn old_events_go_when_that_is_asked_for_and_a_reader_is_told() {
    for engine in engines() {
        let bench = Bench::new(engine);
        with(&bench, &["completed"], 30);
        bench.place.raw().run("UPDATE leasehold_events SET created_at = 1");
        let fresh = bench.submit(&["agent"]);
        let events = || bench.json(&["events", "--json"]).as_array().unwrap().clone();
        // Transactions of other tests may hold the newest of them back on a server for a while.
        let until = |count: usize| {
            let found = (0..600).map(|_| events()).find(|events| events.len() == count);
            found.unwrap_or_else(|| panic!("{count} events: {:?}", events()))
        };
        let seen = until(3);
        let prune = |words: &[&str]| {
            bench.run(&[&["prune", "--older-than", "24h", "--events"], words].concat()).done()
        };
        let counted = prune(&["--dry-run"]);
        assert_eq!(counted, "1 tasks would be removed, and events of that age\n");
        assert_eq!(until(3), seen);
        let said = prune(&[]);
        assert_eq!(said, "1 tasks removed, their facts are kept\n2 events removed\n");
        assert_eq!(until(1)[0]["run_id"].as_str(), Some(fresh.as_str()));
        let first = seen[0]["id"].as_str().unwrap();
        bench.run(&["events", "--after", first]).refused(1, "removed");
        assert_eq!(prune(&[]), "0 tasks removed, their facts are kept\n0 events removed\n");
        bench.run(&["verify"]).done();
    }
}

#[test]
fn a_key_of_a_task_that_was_removed_stays_taken() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let submit = |prompt: &str, more: &[&str]| {
            let prompt = format!("action_prompt={prompt}");
            let words = ["submit", "agent", "--key", "k", "--arg", prompt.as_str()];
            bench.run(&[&words[..], more].concat())
        };
        let id = submit("one", &[]).done();
        bench.run(&["cancel", id.trim()]).done();
        assert_eq!(
            bench.run(&["prune", "--older-than", "0"]).done(),
            "1 tasks removed, their facts are kept\n"
        );
        let again = submit("one", &[]);
        assert_eq!((again.code, &again.out), (Some(0), &id), "{again:?}");
        assert!(again.err.contains("was removed since"), "{again:?}");
        submit("two", &[]).refused(1, id.trim());
        let waits = submit("one", &["--wait"]);
        assert_eq!((waits.code, &waits.out), (Some(1), &id), "{waits:?}");
        assert_eq!(ids(&bench), HashSet::new());
        bench.run(&["verify"]).done();
    }
}

#[test]
fn nothing_that_points_at_a_task_holds_it_up_and_what_was_made_from_it_stays() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let parent = bench.submit(&["agent"]);
        bench.run(&["cancel", &parent]).done();
        let child = bench.run(&["retry", &parent]).done().trim().to_owned();
        let mut raw = bench.place.raw();
        raw.run(&format!(
            "INSERT INTO workers (worker_id, last_heartbeat_at, leased_run_id) VALUES ('w', 1, '{parent}')"
        ));
        // As the original has it.
        raw.run(&format!(
            "INSERT INTO dispatch_outbox (id, kind, deliver_to, payload, status, next_attempt_at, created_at, schedule_run_id)
             VALUES ('d', 'terminal_notify', 'x', '{{}}', 'delivered', 0, 0, '{parent}')"
        ));
        raw.run(&format!(
            "INSERT INTO leasehold_attempts (run_id, epoch, owner, ended_at, ended_by) VALUES ('{parent}', 1, 'w', 1, 'task')"
        ));
        bench.run(&["prune", "--older-than", "0"]).done();
        assert_eq!(ids(&bench), HashSet::from([child.clone()]));
        let made = bench.json(&["show", &child, "--json"]);
        assert_eq!((&made["chain_parent_id"], &made["chain_depth"]), (&Value::Null, &1.into()));
        for sql in [
            "SELECT leased_run_id AS value FROM workers",
            "SELECT schedule_run_id AS value FROM dispatch_outbox",
        ] {
            assert_eq!(raw.texts(sql), [None], "{sql}");
        }
        assert!(raw.texts("SELECT run_id AS value FROM leasehold_attempts").is_empty());
        bench.run(&["verify"]).done();
    }
}
