//! `transitions.json`: one `transition()` each, on a store that holds at most one run.

use leasehold::domain::transition::{
    Checked, Outcome as Changed, TransitionRefusal, TransitionRequest,
};
use leasehold::{Config, Error, Queue};
use serde_json::{Map, Value, json};

use crate::places::Engine;
use crate::store_support::{
    Bench, all_runs, changed_columns, check_promises, columns, compare, fact_columns, facts, find,
};
use crate::support::{Case, Outcome, Report, directory};

pub fn run(engine: Engine) -> Report {
    let bench = Bench::new(engine);
    Report::of(&directory(), "transitions", engine.name(), |case| check(&bench, case))
}

fn check(bench: &Bench, case: &Case) -> Outcome {
    bench.clear();
    let input = case.get("input");
    let mut row = input["row"].as_object().cloned().unwrap_or_default();
    row.insert("id".into(), json!("run-1"));
    if !input["missing_row"].as_bool().unwrap_or(false) {
        bench.insert(std::slice::from_ref(&row));
    }
    let (mut queue, _) = bench.place.manual_queue(Config::default());
    let before = find(&mut queue, "run-1");
    let result = request(&mut queue, input);
    let after = find(&mut queue, "run-1");
    let runs = all_runs(&mut queue);
    let facts = facts(&mut queue, &runs);

    let expect = case.get("expect");
    let mut problems = Vec::new();
    compare("result", &expect["result"], &outcome_name(&result), &mut problems);
    match &result {
        Ok(changed) => {
            compare("returned", &expect["returned"], &returned(changed, &facts), &mut problems);
        }
        Err(error) => {
            let got = json!({"type": error_type(error), "category": error.code()});
            compare("error", &expect["error"], &got, &mut problems);
        }
    }
    let got: Vec<Value> = facts.iter().map(fact_columns).collect();
    compare("facts", &expect["facts"], &got.into(), &mut problems);
    if let (Some(before), Some(after)) = (&before, &after) {
        compare("row", &expect["row"], &columns(after).into(), &mut problems);
        let set = json!(after.updated_at.is_some());
        compare("updated_at_set", &expect["updated_at_set"], &set, &mut problems);
        let changed = json!(changed_columns(before, after));
        compare("changed_columns", &expect["changed_columns"], &changed, &mut problems);
        check_promises(
            std::slice::from_ref(before),
            std::slice::from_ref(after),
            &facts,
            &mut problems,
        );
        if facts.is_empty() && before != after {
            problems.push("a row changed without a fact".into());
        }
    }
    if problems.is_empty() { Outcome::Passed } else { Outcome::failed(expect, problems.join("; ")) }
}

fn request(queue: &mut Queue, input: &Value) -> Result<Changed, Error> {
    let mut request = input["request"].clone();
    if request["entity_id"].is_null() {
        request["entity_id"] = json!("run-1");
    }
    let columns = |name: &str| -> Option<&Map<String, Value>> { input[name].as_object() };
    match TransitionRequest::from_json(&request)?
        .check_columns(columns("guard"), columns("patch"))?
    {
        Checked::Run(transition) => queue.change(transition, None),
        Checked::Dispatch(_) => panic!("the cases are about runs"),
    }
}

fn outcome_name(result: &Result<Changed, Error>) -> Value {
    json!(match result {
        Ok(changed) if changed.is_applied() => "applied",
        Ok(_) => "conflict",
        Err(_) => "error",
    })
}

fn returned(changed: &Changed, facts: &[leasehold::db::Fact]) -> Value {
    match changed {
        Changed::Applied { transition_id, event_id, previous, current } => {
            let hex = transition_id.len() == 32
                && transition_id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
            let named = facts.iter().any(|fact| fact.id == *transition_id);
            json!({
                "applied": true, "conflict": false, "event_id": event_id,
                "previous_state": previous.as_str(), "current_state": current.as_str(),
                "transition_id": if hex && named { "hex32" } else { "no fact" },
            })
        }
        Changed::Conflict { found } => json!({
            "applied": false, "conflict": true, "event_id": null,
            "previous_state": found.as_str(), "current_state": found.as_str(),
        }),
    }
}

/// What the original would have raised.
fn error_type(error: &Error) -> &'static str {
    match error {
        Error::NotFound { .. } => "LookupError",
        Error::Transition(TransitionRefusal::UndeclaredEdge { .. }) => {
            assert!(error.to_string().contains("is not in the declared transition vocabulary"));
            "ValueError"
        }
        Error::Transition(_) => "ValueError",
        other => panic!("unexpected: {other}"),
    }
}
