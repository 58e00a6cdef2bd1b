//! `why --what-if`: what a submit would do.

use serde_json::{Value, json};

use crate::places::engines;
use crate::program::{Answer, Bench};

fn what_if(bench: &Bench, words: &[&str]) -> Answer {
    bench.run(&[&["why", "--what-if"], words].concat())
}

/// Says it of these words of a submit, as `check: what` with a `!` before what blocks.
fn said(bench: &Bench, words: &[&str]) -> Vec<String> {
    what_if(bench, words).done().lines().map(|line| line.trim_start().to_owned()).collect()
}

fn tasks(bench: &Bench) -> usize {
    bench.json(&["list", "--json"]).as_array().unwrap().len()
}

fn worker(bench: &Bench, id: &str, capabilities: &str) {
    let now = match bench.place.engine {
        crate::places::Engine::Sqlite => "unixepoch('subsec')",
        crate::places::Engine::Postgres => "extract(epoch from clock_timestamp())",
    };
    bench.place.raw().run(&format!(
        "INSERT INTO workers (worker_id, advertised_capabilities, execution_targets, last_heartbeat_at)
         VALUES ('{id}', '{capabilities}', '[\"host\"]', {now})"
    ));
}

#[test]
fn what_would_be_refused_says_why_and_makes_nothing() {
    for engine in engines() {
        let bench = Bench::new(engine);
        for (words, why) in [
            (&["frob"][..], "unknown action_kind 'frob'"),
            (&["agent", "--target", "moon"], "unknown execution_target 'moon'"),
            (&["agent", "--needs", ""], "required_capabilities"),
            (&["agent", "--cwd", "here"], "give an absolute path"),
            (&["agent", "--args", "@no-such-file"], "cannot read --args"),
            (&["command", "--", "rm"], "a command needs --allow-command NAME"),
            (&["agent", "--expires", "1m", "--after", "2m"], "give a moment after --after"),
        ] {
            let all = said(&bench, words);
            assert_eq!(all.len(), 1, "{all:?}");
            assert!(all[0].starts_with("! submit: it would be refused: "), "{all:?}");
            assert!(all[0].contains(why), "{all:?}\nlacks {why}");
        }
        // What a submit says in its own way is wrong usage here too.
        what_if(&bench, &["agent", "--nope"]).wrong_usage("--nope");
        what_if(&bench, &["agent", "--", "x"]).refused(2, "only the kind command takes words");
        bench.run(&["why", "x", "--needs", "gpu"]).wrong_usage("--what-if");
        bench.run(&["why"]).wrong_usage("<ID|KIND>");

        let all = said(&bench, &["agent"]);
        assert_eq!(all[0], "submit: it would be stored, and make the store");
        assert!(all[1].starts_with("! start: it would wait; adapter: "), "{all:?}");
        assert!(bench.is_untouched());
    }
}

#[test]
fn what_would_be_stored_says_who_could_claim_it_or_what_it_would_wait_for() {
    for engine in engines() {
        let bench = Bench::new(engine);
        bench.submit(&["agent"]);
        worker(&bench, "plain", "[]");
        worker(&bench, "able", "[\"gpu-exclusive\"]");
        let all = said(&bench, &["agent", "--timeout", "1h", "--wait"]);
        assert_eq!(all[0], "submit: it would be stored");
        assert_eq!(
            all[1],
            "start: it could be claimed now; all of it together is served by 2 of 2 live workers: \
             able (runs 0), plain (runs 0); 1 are before it in the queue"
        );
        // A minute of priority is more than it has waited.
        let all = said(&bench, &["agent", "--priority", "1"]);
        assert!(all[1].ends_with("; 0 are before it in the queue"), "{all:?}");

        let holder = bench.submit(&["flow", "--needs", "gpu-exclusive"]);
        bench.place.raw().run(&format!(
            "UPDATE schedule_runs SET status = 'running', leased_by = 'able', lease_attempts = 1, lease_expires_at = 9e9, updated_at = 5
             WHERE id = '{holder}'"
        ));
        bench.run(&["pause", "--target", "host"]).done();
        let words = ["agent", "--needs", "gpu-exclusive", "--needs", "tpu", "--after", "1h"];
        let all = said(&bench, &words);
        assert!(all[1].starts_with("! start: it would wait; pause: paused since "), "{all:?}");
        for line in [
            "! pause: paused since ",
            "! not before: it goes to the queue in 3",
            "capability: \"gpu-exclusive\" is advertised by 1 of 2 live workers",
            "! capability: \"tpu\" is advertised by 0 of 2 live workers",
            "! worker: all of it together is served by 0 of 2 live workers",
            &format!("is held by {holder} of able, since "),
        ] {
            assert!(all.iter().any(|said| said.contains(line)), "{all:?}\nlacks {line}");
        }
        let json = bench.json(&["why", "--json", "--what-if", "agent"]);
        let first = &json[0];
        assert_eq!((&first["check"], &first["blocks"]), (&json!("submit"), &json!(false)));
        assert_eq!(tasks(&bench), 2, "nothing was stored");
    }
}

#[test]
fn a_key_that_is_taken_says_by_what() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let id = bench.submit(&["agent", "--key", "k1", "--arg", "a=1"]);
        let all = said(&bench, &["agent", "--key", "k1", "--arg", "a=1"]);
        assert_eq!(
            all[0],
            format!("submit: it is stored already, as {id}: nothing would be stored")
        );
        assert!(all[1].starts_with("! adapter: "), "{all:?}");
        let all = said(&bench, &["agent", "--key", "k1", "--arg", "a=2"]);
        assert!(
            all[0].starts_with("! submit: it would be refused: the key \"k1\" stands for"),
            "{all:?}"
        );
        let all = said(&bench, &["agent", "--key", "k2"]);
        assert_eq!(all[0], "submit: it would be stored");
        assert_eq!(tasks(&bench), 1);
    }
}

/// The lock of the machine is looked at, and not made.
#[test]
fn the_locks_of_the_machine_are_looked_at() {
    for engine in engines() {
        let bench = Bench::new(engine);
        bench.submit(&["agent"]);
        worker(&bench, "able", "[\"gpu-exclusive\"]");
        let locks = bench.place.dir.path().join("locks");
        let directory = locks.to_str().unwrap();
        let words = [
            "why",
            "--json",
            "--lock-dir",
            directory,
            "--what-if",
            "agent",
            "--needs",
            "gpu-exclusive",
        ];
        let checks = || -> Vec<(String, bool)> {
            let all = bench.json(&words);
            let check = |finding: &Value| {
                (finding["check"].as_str().unwrap().into(), finding["blocks"].as_bool().unwrap())
            };
            all.as_array().unwrap().iter().map(check).collect()
        };
        assert!(checks().iter().all(|(check, _)| check != "machine lock"));
        assert!(!locks.exists(), "to look makes nothing");
        std::fs::create_dir(&locks).unwrap();
        let lock = std::fs::File::create(locks.join("gpu-exclusive.lock")).unwrap();
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
        let all = checks();
        assert!(all.contains(&("machine lock".into(), true)), "{all:?}");
        assert!(all.contains(&("start".into(), true)), "{all:?}");
    }
}
