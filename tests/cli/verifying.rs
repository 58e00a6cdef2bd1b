//! `verify`: what a store says can be true, or the fault is named.

use serde_json::json;

use crate::places::engines;
use crate::program::Bench;

/// A store in which tasks wait, have ended, and run.
fn bench(engine: crate::places::Engine) -> (Bench, String, String) {
    let bench = Bench::new(engine);
    let done = bench.submit(&["command", "--allow-command", "true", "--", "true"]);
    let mut worker = bench.command(["worker", "--until-empty", "--allow-command", "true"]);
    assert!(worker.env("PATH", "/bin:/usr/bin").output().unwrap().status.success());
    let waiting = bench.submit(&["agent", "--key", "k"]);
    (bench, done, waiting)
}

fn claimed(id: &str, key: &str) -> String {
    format!(
        "UPDATE schedule_runs SET status = 'running', leased_by = 'h:1', lease_expires_at = 9, lease_attempts = 1,
         concurrency_key = '{key}' WHERE id = '{id}';
         {}",
        fact(id, "queued", "running")
    )
}

fn fact(id: &str, from: &str, to: &str) -> String {
    format!(
        "INSERT INTO status_transitions (id, entity_type, entity_id, previous_status, status, reason_code, source, created_at)
         VALUES ('{id}-{from}-{to}', 'schedule_run', '{id}', '{from}', '{to}', 'r', 'system', 1)"
    )
}

#[test]
fn a_store_that_was_only_used_is_sound() {
    for engine in engines() {
        let (bench, done, waiting) = bench(engine);
        bench.place.raw().run(&claimed(&waiting, "a"));
        assert_eq!(bench.json(&["show", &done, "--json"])["status"], json!("completed"));
        let said = bench.run(&["verify"]).done();
        assert_eq!(said, "2 tasks, 3 facts: nothing is wrong\n");
        let all = bench.json(&["verify", "--json"]);
        assert_eq!(all, json!({ "runs": 2, "facts": 3, "notices": 0, "faults": [] }));
    }
}

#[test]
fn each_fault_is_named_with_its_task() {
    for engine in engines() {
        for (check, spoil) in [
            ("path", fact("DONE", "queued", "running")),
            ("path", "DELETE FROM status_transitions WHERE entity_id = 'DONE' AND status = 'running'".into()),
            ("edge", fact("DONE", "completed", "queued")),
            ("lease", format!("{}; UPDATE schedule_runs SET leased_by = NULL WHERE id = 'WAITING'", claimed("WAITING", "a"))),
            ("bound", "INSERT INTO leasehold_runs (run_id, lease_expiries) VALUES ('WAITING', 4)".into()),
            ("attempt", "INSERT INTO leasehold_attempts (run_id, epoch, owner, ended_at, ended_by) VALUES ('WAITING', 1, 'h', 1, 'task')".into()),
            ("feed", "DELETE FROM leasehold_events WHERE run_id = 'DONE' AND fact_id IN (SELECT id FROM status_transitions WHERE status = 'running')".into()),
            ("feed", "DELETE FROM leasehold_events WHERE run_id = 'DONE' AND fact_id IN (SELECT id FROM status_transitions WHERE status = 'completed')".into()),
            ("feed", "UPDATE leasehold_events SET fact_id = 'none' WHERE run_id = 'DONE' AND status IS NULL".into()),
            ("feed", format!("{}; INSERT INTO leasehold_events (number, stamp, created_at, run_id, fact_id) VALUES (9999, (SELECT max(stamp) FROM leasehold_events), 1, 'WAITING', 'WAITING-queued-running')", claimed("WAITING", "a"))),
            ("answer", "INSERT INTO leasehold_transition_keys VALUES ('WAITING', 'k', 'h', 'f', 'a0-a1', 'queued', 'running', 1)".into()),
            ("steps", "INSERT INTO leasehold_steps (run_id, step, kind, epoch, begun_at) VALUES ('DONE', 2, 'command', 1, 1)".into()),
            ("idempotency", "INSERT INTO leasehold_keys VALUES ('k2', 'h', 'WAITING', 1)".into()),
        ] {
            let (bench, done, waiting) = bench(engine);
            let spoil = spoil.replace("DONE", &done).replace("WAITING", &waiting);
            bench.place.raw().run(&spoil);
            let answer = bench.run(&["verify"]);
            assert_eq!((answer.code, answer.err.as_str()), (Some(1), ""), "{spoil}");
            let id = if spoil.contains(&done) { done } else { waiting };
            assert!(answer.out.contains(&format!("{id}: {check}: ")), "{spoil}\n{}", answer.out);
            assert!(answer.out.contains(" faults\n"), "{}", answer.out);
        }
    }
}

#[test]
fn a_feed_that_nobody_writes_any_more_is_named() {
    for engine in engines() {
        let (bench, _, _) = bench(engine);
        let of = |table: &str| match engine {
            crate::places::Engine::Sqlite => String::new(),
            crate::places::Engine::Postgres => format!(" ON {table}"),
        };
        for (trigger, table) in [
            ("leasehold_events_of_changes", "status_transitions"),
            ("leasehold_events_of_runs", "schedule_runs"),
        ] {
            bench.place.raw().run(&format!("DROP TRIGGER {trigger}{}", of(table)));
            let answer = bench.run(&["verify"]);
            assert_eq!(answer.code, Some(1));
            assert!(answer.out.contains(&format!("{trigger}: feed: ")), "{}", answer.out);
        }
    }
}

#[test]
fn two_that_run_under_one_key_are_both_named() {
    for engine in engines() {
        let (bench, _, one) = bench(engine);
        let other = bench.submit(&["flow"]);
        bench.place.raw().run(&claimed(&one, "gpu"));
        bench.place.raw().run(&claimed(&other, "gpu"));
        let all = bench.run(&["verify", "--json"]);
        assert_eq!(all.code, Some(1));
        let all: serde_json::Value = serde_json::from_str(&all.out).unwrap();
        let faults = all["faults"].as_array().unwrap();
        assert!(faults.iter().all(|fault| fault["check"] == json!("key")), "{all}");
        let mut ids: Vec<_> =
            faults.iter().map(|fault| fault["run_id"].as_str().unwrap()).collect();
        ids.sort_unstable();
        let mut both = [one.as_str(), &other];
        both.sort_unstable();
        assert_eq!(ids, both);
    }
}
