//! `reaper.json`: one reaping pass each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use leasehold::Config;
use serde_json::{Map, Value, json};

use crate::places::Engine;
use crate::store_support::{
    Bench, all_runs, check_promises, columns, compare, fact_columns, facts, update,
};
use crate::support::{Case, Outcome, Report, directory};

pub fn run(engine: Engine) -> Report {
    let bench = Bench::new(engine);
    Report::of(&directory(), "reaper", engine.name(), |case| check(&bench, case))
}

fn check(bench: &Bench, case: &Case) -> Outcome {
    bench.clear();
    let input = case.get("input");
    bench.insert(&rows(&input["rows"]));
    let (mut queue, _) = bench.place.manual_queue(Config::default());
    let before = all_runs(&mut queue);
    race(&mut queue, bench, "reap an expired lease", &input["race"]);
    let counts = queue.reap_expired_leases(input["now"].as_f64()).unwrap();

    let runs = all_runs(&mut queue);
    let facts = {
        let mut facts = facts(&mut queue, &runs);
        facts.sort_by(|a, b| a.entity_id.cmp(&b.entity_id));
        facts
    };
    let expect = case.get("expect");
    let mut problems = Vec::new();
    let got = json!({"requeued": counts.requeued, "failed": counts.failed});
    compare("counts", &expect["counts"], &got, &mut problems);
    let got: Map<String, Value> =
        runs.iter().map(|run| (run.id.clone(), columns(run).into())).collect();
    compare("rows", &expect["rows"], &got.into(), &mut problems);
    let got: Vec<Value> = facts.iter().map(fact_columns).collect();
    compare("facts", &expect["facts"], &got.into(), &mut problems);
    check_promises(&before, &runs, &facts, &mut problems);
    if problems.is_empty() { Outcome::Passed } else { Outcome::failed(expect, problems.join("; ")) }
}

pub fn rows(rows: &Value) -> Vec<Map<String, Value>> {
    rows.as_array().into_iter().flatten().map(|row| row.as_object().unwrap().clone()).collect()
}

/// Writes columns of a row on another connection just before the queue's own write for it, once.
pub fn race(queue: &mut leasehold::Queue, bench: &Bench, operation: &'static str, race: &Value) {
    let Some(race) = race.as_object() else { return };
    let left: HashMap<String, Map<String, Value>> =
        race.iter().map(|(id, set)| (id.clone(), set.as_object().unwrap().clone())).collect();
    let left = Mutex::new(left);
    let beside = Mutex::new(bench.place.raw());
    queue.set_seam(Arc::new(move |name, id| {
        let set = id.filter(|_| name == operation).and_then(|id| left.lock().unwrap().remove(id));
        if let (Some(set), Some(id)) = (set, id) {
            beside.lock().unwrap().run(&update(id, &set));
        }
    }));
}
