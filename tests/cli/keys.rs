//! Idempotency keys: a submit that may be repeated.

use std::collections::HashSet;
use std::process::Stdio;

use leasehold::domain::task::TaskApplication;
use leasehold::{Config, Queue};

use crate::places::engines;
use crate::program::{Answer, Bench};

const PROMPT: [&str; 3] = ["agent", "--arg", "action_prompt=say hi"];

fn keyed<'a>(words: &[&'a str], key: &'a str) -> Vec<&'a str> {
    [&["submit", "--key", key], words].concat()
}

fn count(bench: &Bench) -> usize {
    bench.json(&["list", "--json"]).as_array().unwrap().len()
}

#[test]
fn the_same_task_again_is_the_task_there_is() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let id = bench.run(&keyed(&PROMPT, "report:1")).done();
        let first = bench.json(&["show", id.trim(), "--json"]);
        // The same, written otherwise.
        let args = r#"{ "action_prompt" : "say\u0020hi" }"#;
        let again = bench.run(&keyed(&["agent", "--args", args], "report:1")).done();
        assert_eq!(again, id);
        assert_eq!(bench.json(&["show", id.trim(), "--json"]), first, "nothing has changed");
        assert_ne!(bench.run(&keyed(&PROMPT, "report:2")).done(), id, "another key, another task");
        assert_ne!(bench.submit(&PROMPT), id.trim(), "without a key it is another task");
        // A key stays taken when the task has ended.
        bench.run(&["cancel", id.trim()]).done();
        assert_eq!(bench.run(&keyed(&PROMPT, "report:1")).done(), id);
        assert_eq!(count(&bench), 3);
    }
}

#[test]
fn another_task_under_the_key_is_refused_and_the_one_there_is_named() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let id = bench.run(&keyed(&PROMPT, "k")).done();
        let others: [&[&str]; 6] = [
            &["agent", "--arg", "action_prompt=say ho"],
            &["flow", "--arg", "action_prompt=say hi"],
            &["agent", "--arg", "action_prompt=say hi", "--needs", "gpu"],
            &["agent", "--arg", "action_prompt=say hi", "--target", "process"],
            &["agent", "--arg", "action_prompt=say hi", "--timeout", "1h"],
            &["agent", "--arg", "action_prompt=say hi", "--arg", "n:=1"],
        ];
        for other in others {
            let said = bench.run(&keyed(other, "k")).refused(1, "submit it under a key of its own");
            assert!(said.contains(id.trim()) && said.contains("\"k\""), "{said}");
        }
        assert_eq!(count(&bench), 1);
    }
}

#[test]
fn a_key_without_its_form_is_refused_before_the_store_is_made() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let long = "k".repeat(256);
        for key in ["", " ", "two words", "a\tb", "a\u{200b}b", &long] {
            bench.run(&keyed(&PROMPT, key)).refused(1, "1 to 255 visible characters");
        }
        bench.run(&["list"]).refused(1, "");
        assert_eq!(bench.run(&keyed(&PROMPT, &"é".repeat(255))).done().trim().len(), 36);
    }
}

#[test]
fn of_many_at_once_there_is_one() {
    for engine in engines() {
        let bench = Bench::new(engine);
        // The store is made by one of them, too, unless that is a race of its own.
        bench.submit(&["flow"]);
        let submits: Vec<_> = (0..64)
            .map(|_| {
                let mut submit = bench.command(keyed(&PROMPT, "one"));
                submit.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
            })
            .collect();
        let ids: HashSet<String> = submits
            .into_iter()
            .map(|submit| {
                let answer = Answer::of(submit.wait_with_output().unwrap());
                // So many may be too many for the time that one waits: that is what the key is for.
                match answer.code {
                    Some(1) if answer.err.contains(" is busy: ") => {
                        bench.run(&keyed(&PROMPT, "one")).done()
                    }
                    _ => answer.done(),
                }
            })
            .collect();
        assert_eq!(ids.len(), 1, "{}", engine.name());
        assert_eq!(count(&bench), 2, "{}", engine.name());
    }
}

#[test]
fn the_library_and_its_json_take_keys_where_they_are_turned_on() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let mut queue = Queue::open(&bench.place.url, Config::daemon()).unwrap();
        let rules = queue.config().submit_rules();
        let text = |number: &str| {
            format!(
                r#"{{"action_kind": "flow", "args": {{"n": {number}}}, "execution_target": "host", "idempotency_key": "k"}}"#
            )
        };
        let app = TaskApplication::from_json_text(&text("1"), &rules).unwrap();
        let id = queue.submit_task(&app).unwrap();
        assert_eq!(queue.submit_task(&app).unwrap(), id);
        let other = TaskApplication::from_json_text(&text("1.0"), &rules).unwrap();
        let error = queue.submit_task(&other).unwrap_err();
        assert_eq!(error.code(), "idempotency_conflict");
        assert!(error.to_string().contains(&id), "{error}");
        for bad in ["1", "\"\"", "\"a b\"", "[]"] {
            let text = text("1").replace("\"k\"", bad);
            let refused = TaskApplication::from_json_text(&text, &rules).unwrap_err();
            assert_eq!(refused.check(), "idempotency_key", "{bad}");
        }
    }
}
