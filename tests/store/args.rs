//! Arguments come back exactly as they were submitted, or are refused before anything is written; both engines say
//! the same.

use leasehold::domain::json_text;
use leasehold::domain::task::{SubmitRefusal, TaskApplication};
use leasehold::{Error, Queue};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value};

use crate::kit::{count, rules, task};
use crate::places::{Place, engines};

/// JSON text of any value; numbers as somebody may spell them.
fn json(depth: u32) -> impl Strategy<Value = String> {
    let number = prop_oneof![
        "-?(0|[1-9][0-9]{0,40})",
        "-?(0|[1-9][0-9]{0,5})\\.[0-9]{1,20}",
        "-?[1-9](\\.[0-9]{1,4})?[eE][+-]?[0-9]{1,3}",
    ];
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|b| b.to_string()),
        number,
        text(),
    ];
    leaf.prop_recursive(depth, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5)
                .prop_map(|items| format!("[{}]", items.join(","))),
            object(inner),
        ]
    })
}

fn object(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    prop::collection::vec((text(), value), 0..6).prop_map(|members| {
        let members: Vec<String> = members.into_iter().map(|(k, v)| format!("{k}:{v}")).collect();
        format!("{{{}}}", members.join(","))
    })
}

/// A JSON string of any characters, with those that have made trouble more often than others.
fn text() -> impl Strategy<Value = String> {
    let nasty = prop_oneof![
        Just('\0'),
        Just('\''),
        Just('"'),
        Just('\\'),
        Just(';'),
        Just('%'),
        Just('\n'),
        Just('\u{feff}'),
        Just('\u{2028}'),
        Just('\u{10ffff}'),
        Just('é'),
        any::<char>(),
    ];
    prop::collection::vec(nasty, 0..8)
        .prop_map(|chars| Value::String(chars.into_iter().collect()).to_string())
}

/// What a submit of `args` comes to: the stored text, or the name of the rule that it breaks.
fn submit(queue: &mut Queue, args: &Map<String, Value>) -> Result<String, &'static str> {
    let mut app = task();
    app.args = args.clone();
    match queue.submit_task(&app) {
        Ok(id) => {
            let run = queue.run(&id).unwrap();
            assert_eq!(run.action_args.value(), Value::Object(args.clone()));
            Ok(run.action_args.0)
        }
        Err(Error::Submit(refusal)) => Err(refusal.check()),
        Err(other) => panic!("no typed refusal: {other}"),
    }
}

#[test]
fn any_arguments_round_trip_or_are_refused_on_every_engine_alike() {
    let places: Vec<Place> = engines().into_iter().map(Place::new).collect();
    let queues: Vec<_> =
        places.iter().map(|place| std::cell::RefCell::new(place.queue())).collect();
    let stored = std::cell::Cell::new(0);
    let mut runner =
        TestRunner::new(Config { cases: 200, failure_persistence: None, ..Config::default() });
    runner
        .run(&object(json(6)), |args| {
            let Ok(Value::Object(args)) = json_text::parse(&args) else {
                return Err(TestCaseError::reject("the parser's own limit"));
            };
            let verdicts: Vec<_> =
                queues.iter().map(|queue| submit(&mut queue.borrow_mut(), &args)).collect();
            prop_assert!(verdicts.windows(2).all(|pair| pair[0] == pair[1]), "{verdicts:?}");
            if let Ok(text) = &verdicts[0] {
                prop_assert_eq!(text, &json_text::object(&args));
                stored.set(stored.get() + 1);
            }
            Ok(())
        })
        .unwrap();
    for place in &places {
        assert_eq!(
            count(&mut place.raw(), "schedule_runs"),
            stored.get(),
            "a refused task left a row"
        );
    }
}

#[test]
fn the_deepest_arguments_that_are_taken_come_back() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut queue = place.queue();
        let nested = |depth: usize| {
            let args = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
            let task = format!(
                r#"{{"action_kind": "agent", "execution_target": "host", "args": {{"a": {args}}}}}"#
            );
            TaskApplication::from_json_text(&task, &rules())
        };
        // The task and its arguments are two of the parser's 127 levels.
        let app = nested(125).unwrap();
        let id = queue.submit_task(&app).unwrap();
        assert_eq!(queue.run(&id).unwrap().action_args.value(), Value::Object(app.args));
        for depth in [126, 100_000] {
            assert!(matches!(nested(depth), Err(SubmitRefusal::NotJson { .. })));
        }
        assert_eq!(count(&mut place.raw(), "schedule_runs"), 1);
    }
}
