//! What a worker says while it works.

use serde_json::Value;

use crate::bench::{Bench, on_engines, on_sqlite, sh};
use crate::places::Engine;

fn events(log: &str) -> Vec<Value> {
    log.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

fn message(event: &Value) -> &str {
    event["fields"]["message"].as_str().unwrap_or_default()
}

#[test]
fn claim_launch_and_end_are_logged_in_the_span_of_their_task() {
    on_engines(|bench| {
        let id = bench.submit(&sh("exit 3"));
        let log = bench.work(&["--once", "--log-format", "json"]).log();
        let events = events(&log);
        for name in ["claimed", "launch", "ended"] {
            let event = events.iter().find(|event| message(event) == name).expect(name);
            let span = &event["span"];
            let seen = (&span["name"], &span["run_id"], &span["epoch"], &span["kind"]);
            assert_eq!(
                seen,
                (&"task".into(), &id.as_str().into(), &1.into(), &"command".into()),
                "{event}"
            );
        }
        let end = events.iter().find(|event| message(event) == "ended").unwrap();
        assert_eq!(end["fields"]["status"], "failed");
        // Each name stands once in its object; of two equal ones, most readers see only the last.
        assert!(
            !log.contains(r#""name":"actor","name""#) && !log.contains(r#","name":"actor"}"#),
            "{log}"
        );
    });
}

#[test]
fn a_worker_that_does_well_warns_of_nothing() {
    on_engines(|bench| {
        bench.submit_all(&vec![sh("exit 0"); 5]);
        assert_eq!(bench.work(&["--until-empty", "--log", "warn"]).log(), "");
        assert_eq!(bench.work(&["--once", "--log", "warn"]).log(), "");
    });
}

/// What was inserted by somebody else may be called anything.
fn with_odd_names(bench: &Bench) {
    bench.submit(&sh("true"));
    // A kind like that has no adapter, so it is in no log of a worker.
    bench.place.raw().run(
        "UPDATE schedule_runs SET id = 'a\u{1b}[2Jb\u{9b}c\r\nd\u{202e}\"\u{7f}\u{1b}]0;x\u{7}'",
    );
}

#[test]
fn control_characters_are_escaped_in_text() {
    on_engines(|bench| {
        with_odd_names(bench);
        let log = bench.work(&["--once", "--log", "debug"]).log();
        assert!(log.contains("[2Jb"), "{log}");
        let odd = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!log.contains(odd), "{log:?}");
        assert!(log.lines().all(|line| line.starts_with("20")), "one line for each event: {log:?}");
    });
}

#[test]
fn odd_names_leave_json_json() {
    on_engines(|bench| {
        with_odd_names(bench);
        let log = bench.work(&["--once", "--log", "debug", "--log-format", "json"]).log();
        let odd = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!log.contains(odd), "{log:?}");
        let ended = events(&log).into_iter().find(|event| message(event) == "ended").unwrap();
        assert_eq!(
            ended["span"]["run_id"],
            "a\u{1b}[2Jb\u{9b}c\r\nd\u{202e}\"\u{7f}\u{1b}]0;x\u{7}"
        );
    });
}

#[test]
fn arguments_and_output_are_never_logged() {
    on_engines(|bench| {
        let secret = "hunter2-in-an-argument";
        bench.submit_all(&[
            sh(format!("echo {secret}; exit 0")),
            sh(format!("echo {secret} >&2; exit 1")),
            crate::bench::command("no-such-program", &[secret]),
        ]);
        let log = bench.work(&["--until-empty", "--log", "trace"]).log();
        assert!(log.contains("ended") && log.contains("launch"), "{log}");
        assert!(!log.contains(secret), "{log}");
        // Nor the address of the store, which may hold a password.
        if bench.place.engine == Engine::Postgres {
            assert!(!log.contains("options="), "{log}");
        }
    });
}

/// Text or JSON, the level goes for both.
#[test]
fn a_filter_says_what_is_logged() {
    on_sqlite(|bench| {
        bench.submit(&sh("true"));
        let log = bench.work(&["--once", "--log", "off"]).log();
        assert_eq!(log, "");
        bench.submit(&sh("true"));
        let log = bench.work(&["--once", "--log", "warn,leasehold::actors::ending=info"]).log();
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(log.contains("ended status=completed"), "{log}");
    });
}
