//! Why runs do not run: one at a time and many at once, the answers are the same.

use std::collections::HashSet;

use leasehold::Config;
use leasehold::db::ops::{ListRuns, SeeCircumstances};
use leasehold::domain::pause::Scope;
use leasehold::domain::status::Status;
use leasehold::domain::transition::Principal;
use leasehold::domain::why::{Short, short};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::kit::{Event, Watched};
use crate::places::{NOW, Place, engines};

/// A row, and what is kept beside it.
#[derive(Debug, Clone)]
struct Row {
    status: Status,
    kind: &'static str,
    target: Option<&'static str>,
    needs: &'static str,
    key: Option<&'static str>,
    /// Seconds before now; a few, so that some are of one moment.
    queued: Option<u8>,
    owner: Option<&'static str>,
    lease: Option<i8>,
    is_scheduled: bool,
    beside: Option<(Option<i8>, Option<i8>, bool)>,
}

fn row() -> impl Strategy<Value = Row> {
    let status = prop_oneof![
        6 => Just(Status::Queued),
        2 => Just(Status::Running),
        1 => Just(Status::RetryWait),
        1 => Just(Status::WaitingDependency),
        1 => proptest::sample::select(Status::ALL.to_vec()),
    ];
    let beside = proptest::option::of((any::<Option<i8>>(), any::<Option<i8>>(), any::<bool>()));
    (
        (status, proptest::sample::select(vec!["agent", "flow", "workflow"])),
        proptest::sample::select(vec![None, Some(""), Some("host"), Some("daytona")]),
        proptest::sample::select(vec!["[]", r#"["gpu"]"#, r#"["gpu-exclusive", "gpu"]"#, "[1]"]),
        proptest::sample::select(vec![None, None, Some("vm:a"), Some("vm:b")]),
        proptest::option::weighted(0.9, 0_u8..5),
        proptest::sample::select(vec![None, Some("w0"), Some("w1")]),
        any::<Option<i8>>(),
        proptest::bool::weighted(0.1),
        beside,
    )
        .prop_map(
            |((status, kind), target, needs, key, queued, owner, lease, is_scheduled, beside)| {
                Row { status, kind, target, needs, key, queued, owner, lease, is_scheduled, beside }
            },
        )
}

#[derive(Debug, Clone)]
struct World {
    rows: Vec<Row>,
    /// The capabilities of each worker, and how long ago it was seen.
    workers: Vec<(&'static str, u8)>,
    pauses: HashSet<u8>,
}

fn world() -> impl Strategy<Value = World> {
    let capabilities =
        proptest::sample::select(vec!["[]", r#"["gpu"]"#, r#"["gpu", "gpu-exclusive"]"#]);
    (
        proptest::collection::vec(row(), 1..30),
        proptest::collection::vec((capabilities, 0_u8..200), 0..4),
        proptest::collection::hash_set(0_u8..8, 0..2),
    )
        .prop_map(|(rows, workers, pauses)| World { rows, workers, pauses })
}

fn or_null<T: ToString>(value: Option<T>) -> String {
    value.map_or("NULL".into(), |value| value.to_string())
}

fn quoted(text: Option<&str>) -> String {
    or_null(text.map(|text| format!("'{text}'")))
}

fn make(place: &Place, world: &World) {
    let mut raw = place.raw();
    raw.run("DELETE FROM schedule_runs; DELETE FROM workers; DELETE FROM leasehold_pauses");
    for (number, row) in world.rows.iter().enumerate() {
        let id = format!("r{:03}", (number * 7) % 101);
        let at = |seconds: i8| NOW + f64::from(seconds);
        let queued = row.queued.map(|seconds| NOW - f64::from(seconds));
        raw.run(&format!(
            "INSERT INTO schedule_runs (id, schedule_id, trigger_context, action_kind, action_args, status, chain_depth,
                fired_at, created_at, queued_at, concurrency_key, leased_by, lease_expires_at, lease_attempts,
                required_capabilities, execution_target)
             VALUES ('{id}', {}, '{{}}', '{}', '{{}}', '{}', 0, 1, {number}, {}, {}, {}, {}, 1, '{}', {})",
            quoted(row.is_scheduled.then_some("s1")),
            row.kind,
            row.status,
            or_null(queued),
            quoted(row.key),
            quoted(row.owner),
            or_null(row.lease.map(at)),
            row.needs,
            quoted(row.target),
        ));
        if let Some((wake, expires, cancel)) = row.beside {
            raw.run(&format!(
                "INSERT INTO leasehold_runs (run_id, wake_at, expires_at, cancel_requested_at) VALUES ('{id}', {}, {}, {})",
                or_null(wake.map(at)),
                or_null(expires.map(at)),
                or_null(cancel.then_some(1.0)),
            ));
        }
    }
    for (number, (capabilities, age)) in world.workers.iter().enumerate() {
        raw.run(&format!(
            "INSERT INTO workers (worker_id, advertised_capabilities, execution_targets, last_heartbeat_at)
             VALUES ('w{number}', '{capabilities}', '[\"host\"]', {})",
            NOW - f64::from(*age)
        ));
    }
    let (mut queue, _clock) = place.manual_queue(Config::default());
    for pause in &world.pauses {
        let scope = match pause {
            0 => Scope::Queue,
            1..=3 => Scope::kind("flow").unwrap(),
            _ => Scope::target("daytona").unwrap(),
        };
        queue.pause(scope, Principal::operator("ada"), None).unwrap();
    }
}

/// The list shows the short form of the first finding that blocks, or of the place: here that is written down anew.
fn first(found: &[leasehold::domain::why::Finding]) -> Option<Short> {
    for finding in found {
        if finding.blocks {
            return Some(finding.short.clone());
        }
    }
    found.iter().find(|finding| finding.check == "place").map(|finding| finding.short.clone())
}

#[test]
fn a_list_and_why_never_disagree() {
    for engine in engines() {
        let place = Place::new(engine);
        drop(place.queue());
        place.raw().run("INSERT INTO schedules (id) VALUES ('s1')");
        let (mut queue, _clock) = place.manual_queue(Config::default());
        let mut runner = TestRunner::deterministic();
        let mut seen = HashSet::new();
        let mut check = |world: World| {
            make(&place, &world);
            let runs = queue.read(&ListRuns { statuses: vec![], limit: 100 }).unwrap();
            assert_eq!(runs.len(), world.rows.len());
            let together = queue.why_each(&runs).unwrap();
            for (run, found) in runs.iter().zip(together) {
                let alone = queue.why(&run.id).unwrap();
                assert_eq!(found, alone, "{run:?}");
                assert_eq!(short(&found).cloned(), first(&alone), "{run:?}");
                if let Some(words) = short(&found) {
                    seen.insert(words.words.split(' ').next().unwrap().to_owned());
                }
            }
        };
        for _ in 0..60 {
            check(world().new_tree(&mut runner).unwrap().current());
        }
        // Otherwise they agree about too little.
        for words in ["paused", "no", "unreadable", "waits", "next", "retry", "not", "its", "to"] {
            assert!(seen.contains(words), "{words}: {seen:?}");
        }
    }
}

#[test]
fn a_page_takes_as_many_statements_as_one_run() {
    for engine in engines() {
        let place = Place::new(engine);
        drop(place.queue());
        let mut on = Watched::new(&place);
        let mut statements = |runs: usize| {
            let ids: Vec<String> = (0..runs).map(|number| format!("r{number}")).collect();
            let see = SeeCircumstances {
                keys: ids.iter().map(|id| format!("k{id}")).collect(),
                places: ids.iter().map(|id| (1.0, id.clone())).collect(),
                workflows: ids.clone(),
                run_ids: ids,
                is_complete: true,
            };
            on.take();
            on.read(&see);
            on.take().into_iter().filter(|event| matches!(event, Event::Ran(_))).count()
        };
        assert_eq!((statements(1), statements(100), statements(500)), (8, 8, 8), "{engine:?}");
    }
}
