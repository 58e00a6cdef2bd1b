//! `submit.json`: one submission each, on an empty store.

use leasehold::domain::task::{TaskApplication, TaskSpec};
use leasehold::{Config, Error};
use serde_json::{Value, json};

use crate::places::{Engine, NOW};
use crate::store_support::{Bench, all_runs, columns, facts};
use crate::support::{Case, Outcome, Report, directory};

pub fn run(engine: Engine) -> Report {
    let bench = Bench::new(engine);
    Report::of(&directory(), "submit", engine.name(), |case| check(&bench, case))
}

fn check(bench: &Bench, case: &Case) -> Outcome {
    bench.clear();
    let config = Config { key_host: Some("testhost".into()), ..Config::default() };
    let rules = config.submit_rules();
    let (mut queue, _) = bench.place.manual_queue(config);
    let submitted = TaskApplication::from_json(case.get("input").clone(), &rules)
        .map_err(Error::from)
        .and_then(|app| {
            let before = app.clone();
            let id = queue.submit_task(&app);
            assert_eq!(app, before, "the application stays as it was");
            id
        });
    let runs = all_runs(&mut queue);
    if !facts(&mut queue, &runs).is_empty() {
        return Outcome::failed("no fact", "a fact");
    }
    let expect = case.get("expect");
    match (submitted, &expect["error"]) {
        (Ok(id), Value::Null) if runs.len() == 1 && runs[0].id == id => {
            row(&expect["ok"]["row"], &columns(&runs[0]).into())
        }
        (Err(Error::Submit(refusal)), error @ Value::Object(_)) if runs.is_empty() => {
            let message = refusal.to_string();
            let words = error["message_contains"].as_array().into_iter().flatten();
            let missing: Vec<_> =
                words.filter(|word| !message.contains(word.as_str().unwrap())).collect();
            let right = error["check"] == refusal.check() && missing.is_empty();
            if right {
                Outcome::Passed
            } else {
                Outcome::failed(error, format!("{}: {message}", refusal.check()))
            }
        }
        (submitted, _) => Outcome::failed(expect, format!("{submitted:?} and {} rows", runs.len())),
    }
}

fn row(expected: &Value, got: &Value) -> Outcome {
    let mut problems = Vec::new();
    for (column, expected) in expected.as_object().into_iter().flatten() {
        let got = &got[column];
        let right = match column.as_str() {
            "id" => is_uuid4(got.as_str().unwrap_or_default()),
            // JSON columns are compared parsed; numbers keep their spelling.
            "trigger_context" | "action_args" | "required_capabilities" => {
                ordered(expected).is_some() && ordered(expected) == ordered(got)
            }
            _ => expected == got,
        };
        if !right {
            problems.push(format!("{column}: expected {expected}, got {got}"));
        }
    }
    assert_eq!(got["fired_at"], json!(NOW));
    if problems.is_empty() {
        Outcome::Passed
    } else {
        Outcome::failed(expected, problems.join("; "))
    }
}

/// The value with its keys in their order and its numbers in their spelling, written out again.
fn ordered(text: &Value) -> Option<String> {
    let parsed: Value = serde_json::from_str(text.as_str()?).ok()?;
    Some(parsed.to_string())
}

fn is_uuid4(id: &str) -> bool {
    let parts: Vec<&str> = id.split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    lengths == [8, 4, 4, 4, 12]
        && parts[2].starts_with('4')
        && parts[3].starts_with(['8', '9', 'a', 'b'])
        && id.chars().all(|c| c == '-' || c.is_ascii_digit() || ('a'..='f').contains(&c))
}

/// The same application through the typed door gives the same verdict.
pub fn typed_door_agrees(engine: Engine) {
    let bench = Bench::new(engine);
    let (mut queue, _) = bench.place.manual_queue(Config::default());
    for (kind, target, tokens, check) in [
        ("zz", "zz", vec![""], "action_kind"),
        ("playbook", "zz", vec![""], "execution_target"),
        ("agent", "host", vec!["a", ""], "required_capabilities"),
    ] {
        let mut app = TaskApplication::new(kind, target);
        app.required_capabilities = tokens.into_iter().map(str::to_owned).collect();
        let refusal = TaskSpec::check(&app, &queue.config().submit_rules()).unwrap_err();
        assert_eq!(refusal.check(), check);
        assert!(queue.submit_task(&app).unwrap_err().is_invalid());
        app.idempotency_key = Some(String::new());
        assert_eq!(queue.submit_task(&app).unwrap_err().code(), "idempotency_key");
    }
    assert!(all_runs(&mut queue).is_empty());
}
