//! `claim.json`: one claim pass or one tick each, with a stub for the executor.

use std::collections::HashMap;
use std::sync::Arc;

use leasehold::clock::ManualClock;
use leasehold::config::Config;
use leasehold::db::Run;
use leasehold::domain::ending::{ExecuteError, Execution};
use leasehold::domain::run::ClaimedRun;
use leasehold::ids::CountedIds;
use leasehold::queue::WorkerCall;
use leasehold::{Error, Queue};
use serde_json::{Map, Value, json};

use crate::places::{Engine, NOW};
use crate::reaper::{race, rows};
use crate::store_support::{
    Bench, all_runs, changed_columns, check_promises, classes, columns, compare, fact_columns,
    facts, find, update, workers,
};
use crate::support::{Case, Outcome, Report, directory};

pub fn run(engine: Engine) -> Report {
    let bench = Bench::new(engine);
    Report::of(&directory(), "claim", engine.name(), |case| check(&bench, case))
}

fn check(bench: &Bench, case: &Case) -> Outcome {
    bench.clear();
    let input = case.get("input");
    let rows = [rows(&input["rows"]), generated(&input["generate"])].concat();
    if !rows.iter().all(|row| bench.can_hold(row)) {
        return Outcome::skipped("PostgreSQL's json column cannot hold this text");
    }
    bench.insert(&rows);
    let config = Config { classes: classes(case), ..Config::default() };
    let (clock, ids) = (Arc::new(ManualClock::at(NOW)), Arc::new(CountedIds::default()));
    let open = || bench.place.queue_with(config.clone(), clock.clone(), ids.clone());
    let mut queue = open();
    for worker in input["workers"].as_array().into_iter().flatten() {
        let mut call = WorkerCall::new(worker["worker_id"].as_str().unwrap(), &config);
        call.now = worker["last_heartbeat_at"].as_f64();
        queue.register_heartbeat(&call).unwrap();
    }
    let before = all_runs(&mut queue);
    race(&mut queue, bench, "claim a run", &input["race_before_claim"]);
    let mut stub = Stub::new(bench, open(), input);
    let result = call(&mut queue, input, &mut stub);

    let after = all_runs(&mut queue);
    let facts = facts(&mut queue, &after);
    let mut problems = Vec::new();
    check_promises(&before, &after, &facts, &mut problems);
    check_exits(&after, &stub, &mut problems);
    if !case.is_normative() {
        // Rows that no submit can make: nothing panics, and no row is lost.
        let lost = before.iter().any(|run| !after.iter().any(|there| there.id == run.id));
        return match (result, lost, problems.is_empty()) {
            (Ok(_), false, true) => Outcome::Passed,
            (result, ..) => {
                Outcome::failed("every row still there", format!("{result:?}; {problems:?}"))
            }
        };
    }
    let expect = case.get("expect");
    match result {
        Ok(counts) => compare("counts", &expected_counts(expect), &counts, &mut problems),
        Err(error) => problems.push(format!("the pass failed: {error}")),
    }
    compare("executed", &expect["executed"], &json!(stub.executed), &mut problems);
    compare("executor_saw", &claimed_epoch(&expect["executor_saw"]), &stub.saw, &mut problems);
    let got: Vec<Value> = facts.iter().map(fact_columns).collect();
    compare("facts", &expect["facts"], &got.into(), &mut problems);
    compare("workers", &expect["workers"], &workers(&mut queue), &mut problems);
    check_changed_rows(expect, &before, &after, &mut problems);
    if problems.is_empty() { Outcome::Passed } else { Outcome::failed(expect, problems.join("; ")) }
}

fn call(queue: &mut Queue, input: &Value, stub: &mut Stub) -> Result<Value, Error> {
    let given = &input["call"];
    let mut call = WorkerCall::new(given["worker_id"].as_str().unwrap(), queue.config());
    call.now = given["now"].as_f64();
    call.lease_ttl = given["lease_ttl"].as_f64().unwrap_or(call.lease_ttl);
    call.heartbeat_ttl = given["heartbeat_ttl"].as_f64().unwrap_or(call.heartbeat_ttl);
    call.limit = given["limit"].as_u64().map_or(call.limit, |limit| limit as usize);
    call.advertised_capabilities = texts(&given["advertised_capabilities"]);
    call.execution_targets = texts(&given["execution_targets"]);
    let mut execute = |run: &ClaimedRun| stub.execute(run);
    match input["fn"].as_str() {
        Some("worker_tick") => {
            let counts = queue.worker_tick(&call, &mut execute)?;
            Ok(
                json!({"requeued": counts.requeued, "failed": counts.failed, "claimed": counts.claimed}),
            )
        }
        _ => Ok(json!(queue.claim_and_execute(&call, &mut execute)?)),
    }
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|item| item.as_str().unwrap().to_owned()).collect()
}

fn expected_counts(expect: &Value) -> Value {
    if expect["counts"].is_null() { expect["claimed"].clone() } else { expect["counts"].clone() }
}

/// The original shows the executor the attempts from before the claim, this project the claimed epoch.
fn claimed_epoch(saw: &Value) -> Value {
    let mut saw = saw.clone();
    if let Some(attempts) = saw.pointer_mut("/row/lease_attempts") {
        *attempts = json!(attempts.as_i64().unwrap() + 1);
    }
    saw
}

fn generated(generate: &Value) -> Vec<Map<String, Value>> {
    let mut rows = Vec::new();
    for spec in generate.as_array().into_iter().flatten() {
        let (start, step) =
            (spec["queued_at_start"].as_f64().unwrap(), spec["queued_at_step"].as_f64().unwrap());
        for number in 0..spec["count"].as_u64().unwrap() {
            let mut row = spec["fields"].as_object().cloned().unwrap_or_default();
            row.insert("id".into(), json!(numbered(spec["id_format"].as_str().unwrap(), number)));
            row.insert("queued_at".into(), json!(start + number as f64 * step));
            rows.push(row);
        }
    }
    rows
}

/// `g{:05d}` with a number in it.
fn numbered(format: &str, number: u64) -> String {
    let (head, rest) = format.split_once("{:0").unwrap();
    let (width, tail) = rest.split_once("d}").unwrap();
    format!("{head}{number:0width$}{tail}", width = width.parse().unwrap())
}

fn check_changed_rows(expect: &Value, before: &[Run], after: &[Run], problems: &mut Vec<String>) {
    let mut unchanged = 0;
    let mut changed = Map::new();
    for (was, is) in before.iter().zip(after) {
        match changed_columns(was, is).is_empty() && was.updated_at == is.updated_at {
            true => unchanged += 1,
            false => drop(changed.insert(is.id.clone(), columns(is).into())),
        }
    }
    compare("unchanged_count", &expect["unchanged_count"], &json!(unchanged), problems);
    let expected = expect["changed_rows"].as_object().unwrap();
    for id in changed.keys().filter(|id| !expected.contains_key(*id)) {
        problems.push(format!("{id} changed unexpectedly"));
    }
    compare("changed_rows", &expect["changed_rows"], &changed.into(), problems);
}

/// A row that an executor ended has its exit code, and a failure its words.
fn check_exits(after: &[Run], stub: &Stub, problems: &mut Vec<String>) {
    for (id, (code, detail)) in &stub.results {
        let Some(run) = after.iter().find(|run| run.id == *id && run.exit_code.is_some()) else {
            continue;
        };
        let detail = (*code != 0).then(|| match detail.as_str() {
            "" => format!("exit code {code}"),
            words => words.to_owned(),
        });
        if run.exit_code != Some(*code) || run.error_detail != detail {
            problems.push(format!("{id}: stored {:?} {:?}", run.exit_code, run.error_detail));
        }
    }
}

/// The executor: answers what the case says, after doing what the case wants done meanwhile.
struct Stub<'a> {
    bench: &'a Bench,
    input: &'a Value,
    beside: Queue,
    executed: Vec<String>,
    saw: Value,
    results: HashMap<String, (i32, String)>,
}

impl<'a> Stub<'a> {
    fn new(bench: &'a Bench, beside: Queue, input: &'a Value) -> Stub<'a> {
        Stub { bench, input, beside, executed: vec![], saw: Value::Null, results: HashMap::new() }
    }

    fn execute(&mut self, run: &ClaimedRun) -> Result<Execution, ExecuteError> {
        if self.executed.is_empty() {
            self.saw = self.first_view(run);
        }
        self.executed.push(run.id.clone());
        for step in self.input["during_execute"][&run.id].as_array().into_iter().flatten() {
            match step["op"].as_str().unwrap() {
                "reap" => drop(self.beside.reap_expired_leases(step["now"].as_f64()).unwrap()),
                "sql_update" => self.bench.run(&update(&run.id, step["set"].as_object().unwrap())),
                other => panic!("no operation {other}"),
            }
        }
        let plan = &self.input["execute"];
        let result = match plan["per_row"].get(&run.id) {
            Some(result) => result,
            None => &plan["default"],
        };
        let result = answer(result);
        let seen = match &result {
            Ok(execution) => (execution.exit_code, execution.detail.clone()),
            Err(error) => (1, format!("{}: {}", error.kind, error.message)),
        };
        self.results.insert(run.id.clone(), seen);
        result
    }

    fn first_view(&mut self, run: &ClaimedRun) -> Value {
        let row = find(&mut self.beside, &run.id).unwrap();
        json!({
            "row": {
                "id": run.id, "action_kind": run.action_kind, "action_args": run.action_args,
                "lease_attempts": run.lease_attempts, "required_capabilities": run.required_capabilities,
                "execution_target": run.execution_target, "concurrency_key": run.concurrency_key,
                "queued_at": run.queued_at,
            },
            "db": {
                "status": row.status, "leased_by": row.leased_by, "lease_expires_at": row.lease_expires_at,
                "lease_attempts": row.lease_attempts,
            },
        })
    }
}

fn answer(result: &Value) -> Result<Execution, ExecuteError> {
    if let Some(raised) = result["raise"].as_object() {
        let kind = raised["type"].as_str().unwrap().to_owned();
        let message = raised["message"].as_str().unwrap();
        // Python puts a KeyError's message in quotes.
        let message = if kind == "KeyError" { format!("'{message}'") } else { message.to_owned() };
        return Err(ExecuteError { kind, message });
    }
    Ok(Execution {
        exit_code: result["exit_code"].as_i64().unwrap() as i32,
        detail: result["detail"].as_str().unwrap().to_owned(),
    })
}
