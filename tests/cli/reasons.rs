//! `why`: what decides about a task, with its numbers.

use std::fs::File;

use rustix::fs::{FlockOperation, flock};
use serde_json::json;

use crate::places::engines;
use crate::program::Bench;

fn worker(bench: &Bench, id: &str, capabilities: &str, age: &str) {
    let now = match bench.place.engine {
        crate::places::Engine::Sqlite => "unixepoch('subsec')",
        crate::places::Engine::Postgres => "extract(epoch from clock_timestamp())",
    };
    bench.place.raw().run(&format!(
        "INSERT INTO workers (worker_id, advertised_capabilities, execution_targets, last_heartbeat_at)
         VALUES ('{id}', '{capabilities}', '[\"host\"]', {now} - {age})"
    ));
}

#[test]
fn a_queued_task_names_what_keeps_it_and_what_does_not() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let first = bench.submit(&["agent"]);
        let id = bench.submit(&["agent", "--needs", "gpu-exclusive", "--expires", "1h"]);
        let said = bench.run(&["why", &first]).done();
        assert!(
            said.contains("! target: the target \"host\" is served by 0 of 0 live workers"),
            "{said}"
        );

        worker(&bench, "new", "[]", "1");
        worker(&bench, "old", "[\"gpu-exclusive\"]", "1000");
        let said = bench.run(&["why", &id]).done();
        for line in [
            "! capability: \"gpu-exclusive\" is advertised by 0 of 1 live workers (1 are stale)\n",
            "  target: the target \"host\" is served by 1 of 1 live workers (1 are stale)\n",
            "! worker: all of it together is served by 0 of 1 live workers (1 are stale)\n",
            "  place: 1 are before it in the queue\n",
            "  expiry: it is skipped if it is not started in 3",
        ] {
            assert!(said.contains(line), "{said}\nlacks {line}");
        }

        // Another task has its key, and another program the lock of this machine.
        worker(&bench, "able", "[\"gpu-exclusive\"]", "1");
        let other = bench.submit(&["flow", "--needs", "gpu-exclusive"]);
        bench.place.raw().run(&format!(
            "UPDATE schedule_runs SET status = 'running', leased_by = 'able', lease_attempts = 1, lease_expires_at = 9e9, updated_at = 5
             WHERE id = '{other}'"
        ));
        let locks = bench.place.dir.path().join("locks");
        std::fs::create_dir(&locks).unwrap();
        let lock = File::create(locks.join("gpu-exclusive.lock")).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        let directory = locks.to_str().unwrap();
        let all = bench.json(&["why", &id, "--lock-dir", directory, "--json"]);
        let blocks: Vec<_> = all
            .as_array()
            .unwrap()
            .iter()
            .filter(|finding| finding["blocks"] == json!(true))
            .map(|finding| (finding["check"].as_str().unwrap(), finding["what"].as_str().unwrap()))
            .collect();
        assert_eq!(
            blocks.iter().map(|(check, _)| *check).collect::<Vec<_>>(),
            ["key", "machine lock"]
        );
        assert!(blocks[0].1.contains(&format!("is held by {other} of able, since ")), "{blocks:?}");
        let holder = format!("process {}", std::process::id());
        assert!(blocks[1].1.contains(&holder), "{blocks:?}");
        // A program that another test starts has a copy of it until it is executed.
        flock(&lock, FlockOperation::Unlock).unwrap();
        let said = bench.run(&["why", &id, "--lock-dir", directory]).done();
        assert!(said.contains("  machine lock: \"gpu-exclusive\": "), "{said}");
    }
}

#[test]
fn what_waits_runs_or_has_ended_says_so() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let later = bench.submit(&["agent", "--after", "1h"]);
        let said = bench.run(&["why", &later]).done();
        assert!(said.starts_with("! status: it is waiting_dependency: "), "{said}");
        assert!(said.contains("! not before: it goes back to the queue in 3"), "{said}");
        bench.run(&["cancel", &later]).done();
        let said = bench.run(&["why", &later]).done();
        assert!(said.starts_with("  ended: it is cancelled: "), "{said}");
        // It does not say that it has an adapter for workflows, as none of the original does.
        worker(&bench, "silent", "[]", "1");
        let plan = r#"steps:=[{"name": "ask", "kind": "agent"}]"#;
        let workflow = bench.submit(&["workflow", "--arg", plan]);
        let said = bench.run(&["why", &workflow]).done();
        for line in [
            "! adapter: an adapter for the kind \"workflow\" is on 0 of 1 live workers\n",
            "! worker: all of it together is served by 0 of 1 live workers\n",
            "  step: step 1 of 1 \"ask\" was not begun yet\n",
        ] {
            assert!(said.contains(line), "{said}\nlacks {line}");
        }
        bench.run(&["steps", &workflow]).done();
        bench.run(&["steps", &later]).refused(1, "has no steps: it is no workflow");
        bench.run(&["why", "nobody"]).refused(1, "there is no task");
        // A secret of the arguments is nobody's reason.
        let secret = bench.submit(&["agent", "--arg", "action_prompt=hunter2"]);
        assert!(!bench.run(&["why", &secret]).done().contains("hunter2"));
    }
}
