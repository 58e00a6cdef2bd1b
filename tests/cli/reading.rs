//! `list`, `show`, `history` and `workers`.

use std::process::Stdio;

use leasehold::domain::task::TaskApplication;
use leasehold::domain::transition::Principal;
use leasehold::queue::WorkerCall;
use leasehold::{Config, Queue};
use serde_json::{Value, json};

use crate::places::{NOW, engines};
use crate::program::{Bench, keys};

/// Five tasks, of which the first was cancelled; ids and times are known.
fn five_tasks(bench: &Bench) -> Vec<String> {
    let (mut queue, clock) = bench.place.manual_queue(Config::default());
    let mut app = TaskApplication::new("agent", "host");
    app.args = serde_json::from_str(r#"{"n": 1.50, "big": 18446744073709551616}"#).unwrap();
    let ids: Vec<String> = (0..5)
        .map(|number| {
            // The last two are of one moment: their ids decide.
            clock.advance(if number == 4 { 0.0 } else { 1.0 });
            queue.submit_task(&app).unwrap()
        })
        .collect();
    assert!(queue.cancel_task(&ids[0], &Principal::operator("ada")).unwrap());
    ids
}

fn listed(bench: &Bench, words: &[&str]) -> Vec<String> {
    let words = [&["list", "--json"], words].concat();
    let rows = bench.json(&words);
    rows.as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_list_is_oldest_first_and_ends_at_its_limit() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let ids = five_tasks(&bench);
        assert_eq!(listed(&bench, &[]), ids);
        assert_eq!(listed(&bench, &["--limit", "3"]), ids[..3]);
        assert_eq!(listed(&bench, &["--limit", "0"]), [""; 0]);
        assert_eq!(listed(&bench, &["--status", "cancelled"]), ids[..1]);
        assert_eq!(listed(&bench, &["--status", "queued", "--limit", "2"]), ids[1..3]);
        let both = ["--status", "queued", "--status", "cancelled"];
        assert_eq!(listed(&bench, &both), ids);
        assert_eq!(listed(&bench, &["--status", "failed"]), [""; 0]);
        let table = bench.run(&["list", "--limit", "2"]).done();
        let created = ["2023-11-14T22:13:21.250Z", "2023-11-14T22:13:22.250Z"];
        let expected = format!(
            "ID                                    STATUS     KIND   TARGET  TRIES  CREATED                   REASON                      WHY\n\
             {}  cancelled  agent  host    0      {}  run.cancelled.orchestrator  -\n\
             {}  queued     agent  host    0      {}  -                           no live worker\n",
            ids[0], created[0], ids[1], created[1]
        );
        assert_eq!(table, expected);
    }
}

#[test]
fn a_hundred_tasks_are_listed_by_default() {
    for engine in engines() {
        let bench = Bench::new(engine);
        fill(&bench, 101);
        assert_eq!(bench.run(&["list"]).done().lines().count(), 1 + 100);
        assert_eq!(listed(&bench, &["--limit", "1000"]).len(), 101);
    }
}

#[test]
fn json_has_the_columns_of_the_table_and_their_types() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let ids = five_tasks(&bench);
        let run = bench.json(&["show", &ids[0], "--json"]);
        assert_eq!(keys(&run), bench.columns_of("schedule_runs"));
        assert_eq!(run["created_at"], json!(NOW + 1.0));
        assert_eq!(run["lease_attempts"], json!(0));
        assert_eq!(run["leased_by"], Value::Null);
        assert_eq!(run["trigger_context"], json!({}));
        let args = &run["action_args"];
        assert_eq!(args.to_string(), r#"{"n":1.50,"big":18446744073709551616}"#);
        // A list leaves out what a task was given and what it has said, and says why it does not run.
        let mut listed = run.clone();
        let columns = listed.as_object_mut().unwrap();
        let unlisted = ["trigger_context", "action_args", "error_detail", "status_reason_summary"];
        columns.retain(|name, _| !unlisted.contains(&name.as_str()));
        columns.insert("why".into(), Value::Null);
        let list = bench.json(&["list", "--json"]);
        assert_eq!(list[0], listed);
        assert_eq!(keys(&list[0]), keys(&listed));
        assert_eq!(list[1]["why"], json!("no live worker"));

        let history = bench.json(&["history", &ids[0], "--json"]);
        assert_eq!(history.as_array().unwrap().len(), 1);
        assert_eq!(keys(&history[0]), bench.columns_of("status_transitions"));
        assert_eq!(history[0]["reason_code"], json!("run.cancelled.orchestrator"));
        assert_eq!(
            (&history[0]["source"], &history[0]["actor"]),
            (&json!("operator"), &json!("ada"))
        );
        assert_eq!(history[0]["evidence_refs"], json!([]));
        assert_eq!(bench.json(&["history", &ids[1], "--json"]), json!([]));

        assert_eq!(bench.json(&["workers", "--json"]), json!([]));
        register(&mut bench.place.queue());
        let workers = bench.json(&["workers", "--json"]);
        assert_eq!(keys(&workers[0]), bench.columns_of("workers"));
        assert_eq!(workers[0]["advertised_capabilities"], json!(["repo_write"]));
        assert_eq!(workers[0]["last_heartbeat_at"], json!(NOW));
        assert_eq!(workers[0]["leased_run_id"], Value::Null);
    }
}

fn register(queue: &mut Queue) {
    let mut call = WorkerCall::new("w:1", &Config::default());
    call.now = Some(NOW);
    call.advertised_capabilities = vec!["repo_write".into()];
    queue.register_heartbeat(&call).unwrap();
}

#[test]
fn people_see_columns_facts_and_workers() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let ids = five_tasks(&bench);
        let shown = bench.run(&["show", &ids[0]]).done();
        for line in [
            &format!("id: {}", ids[0]),
            "action_args: {\"n\":1.50,\"big\":18446744073709551616}",
            "status: cancelled",
            "exit_code: -",
            "created_at: 2023-11-14T22:13:21.250Z",
            "facts: 1",
            "  2023-11-14T22:13:24.250Z queued -> cancelled run.cancelled.orchestrator by operator ada",
        ] {
            assert!(shown.lines().any(|shown| shown == line), "{shown}\nlacks {line}");
        }
        assert_eq!(
            bench.run(&["history", &ids[0]]).done(),
            "TIME                      FROM    TO         REASON                      SOURCE    ACTOR  SUMMARY\n\
             2023-11-14T22:13:24.250Z  queued  cancelled  run.cancelled.orchestrator  operator  ada    task application cancelled before lease\n"
        );
        register(&mut bench.place.queue());
        assert_eq!(
            bench.run(&["workers"]).done(),
            "WORKER  LAST SEEN                 TARGETS   CAPABILITIES    TASK\n\
             w:1     2023-11-14T22:13:20.250Z  [\"host\"]  [\"repo_write\"]  -\n"
        );
    }
}

#[test]
fn many_facts_are_counted_and_the_latest_shown() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let id = bench.submit(&["agent"]);
        let mut raw = bench.place.raw();
        for number in 0..7 {
            raw.run(&format!(
                "INSERT INTO status_transitions (id, entity_type, entity_id, status, reason_code, source, created_at)
                 VALUES ('f{number}', 'schedule_run', '{id}', 'queued', 'r{number}', 'system', {number})"
            ));
        }
        let shown = bench.run(&["show", &id]).done();
        assert!(
            shown.contains(&format!("facts: 7 (2 earlier: leasehold history {id})\n")),
            "{shown}"
        );
        assert!(!shown.contains(" r1 by") && shown.contains(" r2 by") && shown.contains(" r6 by"));
        assert_eq!(bench.run(&["history", &id]).done().lines().count(), 1 + 7);
    }
}

#[test]
fn what_is_not_there_is_said() {
    for engine in engines() {
        let bench = Bench::new(engine);
        for words in
            [&["list"][..], &["workers"], &["show", "x"], &["history", "x"], &["cancel", "x"]]
        {
            bench.run(words).refused(1, "the first submit makes it");
        }
        assert!(bench.is_untouched());
        bench.submit(&["agent"]);
        for verb in ["show", "history", "cancel"] {
            bench.run(&[verb, "x\u{1b}[2J"]).refused(1, "no task with the id \"x\\u{1b}[2J\"");
            bench.run(&[verb, "' OR 1=1 --"]).refused(1, "no task with the id");
        }
    }
}

#[test]
fn stored_control_characters_do_no_harm() {
    let evil = "\u{1b}]52;c;eA==\u{7}\r\n\u{9b}2J\u{202e}\u{2066}\u{7f}";
    let tame = r"\u{1b}]52;c;eA==\u{7}\r\n\u{9b}2J\u{202e}\u{2066}\u{7f}";
    for engine in engines() {
        let bench = Bench::new(engine);
        let id = bench.submit(&["agent", "--arg", &format!("p={evil}"), "--library-ref", evil]);
        let mut raw = bench.place.raw();
        raw.run(&format!(
            "UPDATE schedule_runs SET execution_target = '{evil}', status_reason_code = '{evil}',
             error_detail = '{evil}'"
        ));
        raw.run(&format!(
            "INSERT INTO workers (worker_id, last_heartbeat_at) VALUES ('{evil}', 1)"
        ));
        raw.run(&format!(
            "INSERT INTO status_transitions (id, entity_type, entity_id, previous_status, status, reason_code, reason_summary, source, actor, created_at)
             VALUES ('f', 'schedule_run', '{id}', '{evil}', '{evil}', '{evil}', '{evil}', '{evil}', '{evil}', 1)"
        ));
        for words in [&["list"][..], &["show", &id], &["history", &id], &["workers"]] {
            let people = bench.run(words).done();
            assert!(people.contains(tame), "{people}");
            let programs = bench.run(&[words, &["--json"]].concat()).done();
            assert!(programs.contains(r"\u009b2J\u202e\u2066\u007f"), "{programs}");
            for text in [people, programs] {
                let harmful =
                    |c: char| c.is_control() && c != '\n' || "\u{202e}\u{2066}".contains(c);
                assert!(!text.contains(harmful), "{text:?}");
            }
        }
        let shown = bench.json(&["show", &id, "--json"]);
        assert_eq!((&shown["error_detail"], &shown["library_ref"]), (&json!(evil), &json!(evil)));
        assert_eq!(bench.run(&["list"]).done().lines().count(), 2);
    }
}

#[test]
fn text_that_is_no_json_is_shown_as_text() {
    let bench = Bench::new(crate::places::Engine::Sqlite);
    let id = bench.submit(&["agent"]);
    bench.place.raw().run("UPDATE schedule_runs SET action_args = '{broken'");
    assert_eq!(bench.stored_args(&id), json!("{broken"));
    assert!(bench.run(&["show", &id]).done().contains("action_args: {broken\n"));
}

#[test]
fn a_reader_that_goes_away_ends_the_list_quietly() {
    for engine in engines() {
        let bench = Bench::new(engine);
        // Far more than a pipe holds, so that the program must notice.
        fill(&bench, 2000);
        for words in [&["list", "--json", "--limit", "2000"][..], &["list", "--limit", "2000"]] {
            let mut child =
                bench.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            drop(child.stdout.take());
            let output = child.wait_with_output().unwrap();
            assert_eq!(output.status.code(), Some(0));
            assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
        }
    }
}

#[test]
fn an_answer_that_cannot_be_written_is_a_failure() {
    let bench = Bench::new(crate::places::Engine::Sqlite);
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let said = |words: &[&str]| {
        let output = bench.command(words).stdout(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let submitted = said(&["submit", "agent"]);
    let id = &listed(&bench, &[])[0];
    assert!(
        submitted.starts_with(&format!("leasehold: the task {id} is stored, but")),
        "{submitted}"
    );
    assert!(said(&["list"]).starts_with("leasehold: cannot write the answer: No space left"));
}

/// So many queued tasks, in one statement.
fn fill(bench: &Bench, count: u32) {
    drop(bench.place.queue());
    bench.place.raw().run(&format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})
         INSERT INTO schedule_runs (id, trigger_context, action_kind, action_args, status, fired_at, created_at)
         SELECT 'run-' || i, '{{}}', 'agent', '{{}}', 'queued', i, i FROM n"
    ));
}
