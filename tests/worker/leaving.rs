//! Workers that leave by themselves, and words that no worker starts with.

use std::time::Duration;

use rustix::process::Signal;

use crate::bench::{Bench, command, needing, on_engines, on_sqlite, sh, until};
use crate::places::Engine;

#[test]
fn once_is_one_tick_that_waits_for_what_it_started() {
    on_engines(|bench| {
        let ids = bench.submit_all(&vec![sh("until [ -e go ]; do sleep 0.05; done; exit 3"); 5]);
        let mut worker = bench.worker(&["--once", "--concurrency", "2", "--log", "debug"]);
        // Its tick is over.
        until(|| if worker.log().contains("claimed: 2") { Ok(()) } else { Err(worker.log()) });
        std::fs::write(bench.file("go"), "").unwrap();
        worker.leaves_with(0);
        let statuses: Vec<_> = ids.iter().map(|id| bench.run(id).status).collect();
        assert_eq!(statuses, ["failed", "failed", "queued", "queued", "queued"]);
        bench.work(&["--once", "--concurrency", "5"]);
        bench.until_all("failed");
    });
}

#[test]
fn once_with_nothing_to_do_leaves() {
    on_engines(|bench| drop(bench.work(&["--once"])));
}

/// A worker that cannot do its one tick says so, and does not stay.
#[test]
fn once_that_cannot_make_its_tick_fails_with_the_reason() {
    on_sqlite(|bench| {
        bench.submit(&command("true", &[]));
        bench.place.raw().run(
            "CREATE TRIGGER no_heartbeat BEFORE INSERT ON workers BEGIN SELECT RAISE(ABORT, 'no heartbeat today'); END",
        );
        let mut worker = bench.worker(&["--once"]);
        worker.leaves_with(1);
        let log = worker.log();
        let reason = log.lines().last().unwrap();
        assert!(
            reason.starts_with("leasehold: ") && reason.contains("no heartbeat today"),
            "{log}"
        );
        assert_eq!(bench.statuses().into_keys().collect::<Vec<_>>(), ["queued"]);
    });
}

#[test]
fn until_empty_leaves_what_nobody_here_can_serve_and_what_is_scheduled() {
    on_engines(|bench| {
        let unserved = bench.submit(&needing("no-such-token", sh("true")));
        let mut app = sh("true");
        app.execution_target = "daytona".into();
        let elsewhere = bench.submit(&app);
        let scheduled = bench.submit(&sh("true"));
        let mut raw = bench.place.raw();
        raw.run("INSERT INTO schedules (id) VALUES ('s1')");
        raw.run(&format!("UPDATE schedule_runs SET schedule_id = 's1' WHERE id = '{scheduled}'"));
        let fails = bench.submit_all(&vec![sh("exit 1"); 20]);
        bench.work(&["--until-empty", "--concurrency", "4"]);
        for id in [unserved, elsewhere, scheduled] {
            assert_eq!(bench.run(&id).status, "queued");
        }
        fails.iter().for_each(|id| assert_eq!(bench.run(id).status, "failed"));
    });
}

#[test]
fn until_empty_waits_for_runs_of_other_workers() {
    on_engines(|bench| {
        let other = bench.worker(&[]).ready();
        let id = bench.submit(&sh("until [ -e go ]; do sleep 0.05; done"));
        bench.until_status(&id, "running");
        let mut worker = bench.worker(&["--until-empty"]).ready();
        // Long enough for ten looks.
        std::thread::sleep(Duration::from_secs(1));
        assert!(!worker.has_left());
        std::fs::write(bench.file("go"), "").unwrap();
        worker.leaves_with(0);
        assert_eq!(bench.run(&id).status, "completed");
        drop(other);
    });
}

/// While the store does not answer, nobody knows whether anything is left.
#[test]
fn until_empty_outlasts_a_store_that_cannot_be_read_for_a_while() {
    on_sqlite(|bench| {
        let id = bench.submit(&needing("later", sh("true")));
        let mut raw = bench.place.raw();
        let blocker = bench.submit(&sh("until [ -e go ]; do sleep 0.05; done"));
        let mut worker = bench.worker(&["--until-empty"]).ready();
        bench.until_status(&blocker, "running");
        raw.run("ALTER TABLE schedule_runs RENAME TO hidden");
        until(|| if worker.log().contains("work is left") { Ok(()) } else { Err(worker.log()) });
        raw.run("ALTER TABLE hidden RENAME TO schedule_runs");
        assert!(!worker.has_left());
        std::fs::write(bench.file("go"), "").unwrap();
        worker.leaves_with(0);
        assert_eq!(
            (bench.run(&blocker).status, bench.run(&id).status),
            ("completed".into(), "queued".into())
        );
    });
}

#[test]
fn a_store_that_cannot_be_read_does_not_make_a_worker_deaf() {
    on_sqlite(|bench| {
        bench.submit(&needing("later", sh("true")));
        bench.submit(&sh("exec sleep 600"));
        let mut worker = bench.worker(&["--until-empty", "--drain", "0"]).ready();
        until(|| if bench.statuses().contains_key("running") { Ok(()) } else { Err(worker.log()) });
        let mut raw = bench.place.raw();
        raw.run("ALTER TABLE workers RENAME TO hidden");
        raw.run("ALTER TABLE schedule_runs RENAME TO hidden_runs");
        until(|| if worker.log().contains("work is left") { Ok(()) } else { Err(worker.log()) });
        worker.signal(Signal::TERM);
        until(|| if worker.log().contains("shutting down") { Ok(()) } else { Err(worker.log()) });
        raw.run("ALTER TABLE hidden_runs RENAME TO schedule_runs");
        worker.leaves_with(0);
        assert_eq!(bench.statuses().into_keys().collect::<Vec<_>>(), ["queued"]);
    });
}

#[test]
fn wrong_words_are_wrong_usage() {
    let bench = Bench::new(Engine::Sqlite);
    for (words, said) in [
        (&["--once", "--until-empty"][..], "cannot be used with"),
        (&["--tick", "soon"], "give a length such as"),
        (&["--concurrency=-1"], "--concurrency"),
        (&["--limit", "many"], "--limit"),
        (&["--no-such-option"], "--no-such-option"),
        (&["a-word"], "a-word"),
        (&["--log", "leasehold=loud"], "is no level and no filter"),
        (&["--log-format", "xml"], "--log-format"),
    ] {
        let mut worker = bench.worker(words);
        worker.leaves_with(2);
        assert!(worker.log().contains(said), "{words:?}: {}", worker.log());
    }
}

#[test]
fn settings_that_cannot_be_safe_are_refused_with_their_numbers() {
    let bench = Bench::new(Engine::Sqlite);
    for (words, said) in [
        (["--lease-ttl", "4.9s"], "4.9 s"),
        (["--lease-ttl", "1s"], "5 s"),
        (["--lease-ttl", "0"], "0 s"),
        (["--heartbeat-ttl", "0"], "the heartbeat TTL"),
        (["--concurrency", "0"], "the concurrency cannot be 0"),
        (["--limit", "0"], "the limit cannot be 0"),
        (["--tick", "0"], "the tick"),
        (["--advertise", ""], "a capability or target"),
    ] {
        let mut worker = bench.worker(&words);
        worker.leaves_with(1);
        assert!(worker.log().contains(said), "{words:?}: {}", worker.log());
    }
}

/// Whoever means "never" writes a large number.
#[test]
fn lengths_and_numbers_beyond_all_reason_work() {
    on_engines(|bench| {
        bench.submit(&command("true", &[]));
        let most = "18446744073709551615";
        let ages = "10000000000000000000";
        let words = [
            "--until-empty",
            "--concurrency",
            most,
            "--limit",
            most,
            "--tick",
            ages,
            "--drain",
            ages,
            "--lease-ttl",
            ages,
            "--heartbeat-ttl",
            ages,
        ];
        bench.work(&words);
        bench.until_all("completed");
    });
}
