//! Tasks that are removed while workers work.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::bench::{Bench, on_engines, sh, until};
use crate::machine::is_alive;
use crate::places::Engine;

/// So many tasks that ended long ago, each with its facts and what is kept beside it, numbered from `first`.
fn fill(bench: &Bench, first: usize, count: usize) {
    let mut raw = bench.place.raw();
    let last = first + count - 1;
    let numbers = match bench.place.engine {
        Engine::Sqlite => {
            format!(
                "WITH RECURSIVE numbers (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM numbers WHERE n < {last})"
            )
        }
        Engine::Postgres => {
            format!("WITH numbers (n) AS (SELECT generate_series({first}, {last}))")
        }
    };
    raw.run(&format!(
        "INSERT INTO schedule_runs (id, trigger_context, action_kind, action_args, status, chain_parent_id, chain_depth, fired_at,
            created_at, updated_at, ended_at, queued_at, lease_attempts, required_capabilities, execution_target)
         {numbers} SELECT 'old-' || n, '{{}}', 'agent', '{{}}', 'queued', CASE WHEN n > {first} THEN 'old-' || (n - 1) END, 0,
            1000 + n, 1000 + n, 1001 + n, 1001 + n, 1000 + n, 1, '[]', 'host' FROM numbers"
    ));
    for (from, to) in [("queued", "running"), ("running", "completed")] {
        raw.run(&format!(
            "INSERT INTO status_transitions (id, entity_type, entity_id, previous_status, status, reason_code, source, created_at)
             {numbers} SELECT '{to}-' || n, 'schedule_run', 'old-' || n, '{from}', '{to}', 'r', 'system', 1000 + n FROM numbers"
        ));
    }
    // The feed has where a run began, so it begins where all do.
    raw.run("UPDATE schedule_runs SET status = 'completed' WHERE id LIKE 'old-%'");
    raw.run("INSERT INTO leasehold_runs (run_id, settings) SELECT id, '{}' FROM schedule_runs WHERE id LIKE 'old-%'");
    raw.run(
        "INSERT INTO leasehold_attempts (run_id, epoch, owner, ended_at, ended_by)
         SELECT id, 1, 'w', 1, 'task' FROM schedule_runs WHERE id LIKE 'old-%'",
    );
}

fn count(bench: &Bench, what: &str) -> usize {
    let sql = format!("SELECT CAST(count(*) AS TEXT) AS value FROM {what}");
    bench.texts(&sql)[0].parse().unwrap()
}

const PRUNE: [&str; 5] = ["prune", "--older-than", "24h", "--facts", "drop"];

#[test]
fn twenty_thousand_go_beside_a_busy_worker() {
    on_engines(|bench| {
        const OLD: usize = 20_000;
        fill(bench, 1, OLD);
        let tasks: Vec<_> = (0..150).map(|_| sh("sleep 0.02")).collect();
        let long = bench.submit(&sh("while ! [ -e go ]; do sleep 0.02; done"));
        let worker = bench.worker(&["--concurrency", "4", "--lease-ttl", "15s"]).ready();
        bench.until_status(&long, "running");
        bench.submit_all(&tasks);
        let output = bench.program(PRUNE).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, format!("{OLD} tasks removed, and {} facts\n", 2 * OLD), "{output:?}");
        std::fs::write(bench.file("go"), "").unwrap();
        bench.until_all("completed");
        assert_eq!(bench.statuses()["completed"], 151);
        assert_eq!(count(bench, "leasehold_attempts WHERE run_id LIKE 'old-%'"), 0);
        assert_eq!(count(bench, "status_transitions"), 2 * 151);
        // Nobody lost a lease by it.
        let claims = "schedule_runs WHERE lease_attempts <> 1";
        assert_eq!(count(bench, claims), 0, "{}", worker.log());
        bench.assert_sound();
    });
}

#[test]
fn a_prune_that_is_killed_at_any_moment_leaves_a_sound_store_and_goes_on() {
    on_engines(|bench| {
        const OLD: usize = 6_000;
        fill(bench, 1, OLD);
        let archive = bench.file("facts.jsonl");
        let words = ["prune", "--older-than", "24h", "--facts", "archive", "--archive"];
        let words = [&words[..], &[archive.to_str().unwrap()]].concat();
        let (mut kills, mut all) = (0, OLD);
        let mut before = OLD;
        for round in 0.. {
            let mut child =
                bench.program(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let began = Instant::now();
            // Somewhere in the next transactions: after more of them each time, and a moment later.
            let ended = until(|| {
                let left = count(bench, "schedule_runs");
                let ended = child.try_wait().unwrap();
                match left < before || ended.is_some() {
                    true => Ok(ended),
                    false => Err(left.to_string()),
                }
            });
            if ended.is_some_and(|status| status.success()) {
                if kills >= 3 {
                    break;
                }
                // It was quicker than the looks here.
                assert!(all < 10 * OLD, "{kills} kills");
                fill(bench, all + 1, OLD);
                (all, before) = (all + OLD, OLD);
                continue;
            }
            std::thread::sleep(Duration::from_millis(
                began.elapsed().as_millis() as u64 % 17 + round,
            ));
            child.kill().unwrap();
            kills += usize::from(!child.wait().unwrap().success());
            // In one look: a server may still be at what it was told last.
            let counts = "SELECT (SELECT count(*) FROM schedule_runs) || ' ' || (SELECT count(*) FROM leasehold_attempts) AS value";
            let counts = bench.texts(counts).remove(0);
            let (runs, attempts) = counts.split_once(' ').unwrap();
            assert_eq!(runs, attempts);
            before = runs.parse().unwrap();
            if round % 5 == 0 {
                bench.assert_sound();
            }
        }
        assert_eq!(count(bench, "schedule_runs"), 0);
        assert_eq!(count(bench, "status_transitions"), 0);
        // Each fact once, whenever it was killed.
        let text = std::fs::read_to_string(&archive).unwrap();
        let mut ids: Vec<&str> = text.lines().map(|line| line.split('"').nth(3).unwrap()).collect();
        assert_eq!(ids.len(), 2 * all);
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 2 * all);
        bench.assert_sound();
    });
}

/// A worker that dies right after it has stored an end leaves the directory of the run where it was.
#[test]
fn the_directory_of_a_run_whose_row_was_removed_goes_when_its_time_is_over() {
    on_engines(|bench| {
        let id = bench.submit(&sh("echo $PPID >guardian; until [ -e go ]; do sleep 0.02; done"));
        let worker = bench.worker(&[]).ready();
        let guardian = until(|| match bench.lines("guardian").first() {
            Some(pid) => Ok(pid.parse().unwrap()),
            None => Err("not started".into()),
        });
        worker.kill();
        std::fs::write(bench.file("go"), "").unwrap();
        until(|| if is_alive(guardian) { Err("it lives".into()) } else { Ok(()) });
        bench.place.raw().run(&format!("DELETE FROM schedule_runs WHERE id = '{id}'"));
        let directories = || -> Vec<String> {
            let mut found = Vec::new();
            let mut left = vec![bench.file(".local/state/leasehold")];
            while let Some(directory) = left.pop() {
                for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                    if entry.path().is_dir() {
                        left.push(entry.path());
                    }
                    if entry.file_name().to_string_lossy().starts_with(&id) {
                        found.push(entry.path().display().to_string());
                    }
                }
            }
            found
        };
        bench.work(&["--once"]);
        assert!(directories()[0].contains("/runs/"), "{:?}", directories());
        // It removes them beside its work, and need not have done so when it leaves.
        let _next = bench.worker(&["--keep-for", "0s"]).ready();
        until(|| match directories() {
            none if none.is_empty() => Ok(()),
            some => Err(format!("{some:?}")),
        });
    });
}
