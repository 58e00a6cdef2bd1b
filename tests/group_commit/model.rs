//! Any batches with any faults against a set in memory: what was answered "done" is there, and nothing else.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::operation::{Deed, Op, Said};
use crate::places::{Engine, engines};
use crate::support::{Bench, PATIENCE, run_all};

/// Few keys, so that operations often meet.
const KEYS: u8 = 20;

fn deeds(engine: Engine) -> impl Strategy<Value = Deed> {
    let rare = match engine {
        Engine::Sqlite => vec![Deed::Full, Deed::HideFull, Deed::HideFullInside],
        Engine::Postgres => vec![Deed::Disconnect, Deed::HideDisconnect, Deed::HideFailure],
    };
    prop_oneof![
        12 => Just(Deed::Write),
        2 => Just(Deed::Refuse),
        1 => Just(Deed::Fail),
        1 => Just(Deed::HideFailureInside),
        1 => Just(Deed::LeaveOpen),
        1 => Just(Deed::Panic),
        1 => Just(Deed::PanicInside),
        1 => proptest::sample::select(rare),
    ]
}

fn batches(engine: Engine) -> impl Strategy<Value = Vec<Vec<Op>>> {
    let op = (0..KEYS, deeds(engine)).prop_map(|(key, deed)| Op::new(format!("k{key}"), deed));
    prop::collection::vec(prop::collection::vec(op, 1..9), 1..4)
}

/// What one operation does to the set, and what it says.
fn expected(stored: &mut BTreeSet<String>, op: &Op) -> Option<Said> {
    match op.deed {
        Deed::Refuse => Some(Said::Refused),
        Deed::Write | Deed::HideFailureInside => {
            stored.insert(op.key.clone()).then_some(Said::Done)
        }
        _ => None,
    }
}

fn holds(engine: Engine, batches: &[Vec<Op>]) -> Result<(), TestCaseError> {
    let mut bench = Bench::new(engine);
    let mut stored = BTreeSet::new();
    for ops in batches {
        let answers = run_all(&mut bench.store, ops, PATIENCE);
        for (op, answer) in ops.iter().zip(&answers) {
            let said = answer.as_ref().ok().copied();
            prop_assert_eq!(said, expected(&mut stored, op), "{:?}: {:?}", op, answer);
        }
        prop_assert_eq!(&bench.stored(), &stored);
        prop_assert_eq!(bench.tally(), stored.len());
    }
    Ok(())
}

fn check(engine: Engine, cases: u32) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&batches(engine), |batches| holds(engine, &batches));
    result.unwrap_or_else(|error| panic!("{engine:?}: {error}"));
}

#[test]
fn what_was_answered_done_is_there_and_nothing_else_sqlite() {
    check(Engine::Sqlite, 60);
}

#[test]
fn what_was_answered_done_is_there_and_nothing_else_postgres() {
    if engines().contains(&Engine::Postgres) {
        check(Engine::Postgres, 20);
    }
}
