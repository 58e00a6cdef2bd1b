//! kill -9 at any moment: what was acknowledged is there, and what was half done is not.

use std::collections::{BTreeSet, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use leasehold::db::ops::ListRuns;

use crate::children::Beside;
use crate::kit::{one, task};
use crate::places::{Engine, Place, engines};

/// A number below `end`, another one in each run.
fn any_below(end: u64) -> u64 {
    RandomState::new().hash_one(0) % end
}

fn ids(place: &Place) -> HashSet<String> {
    let all = ListRuns { statuses: vec![], limit: u32::MAX };
    place.queue().read(&all).unwrap().into_iter().map(|run| run.id).collect()
}

fn assert_sound(place: &Place) {
    if place.engine == Engine::Sqlite {
        assert_eq!(
            one(&mut place.raw(), "SELECT integrity_check AS value FROM pragma_integrity_check"),
            "ok"
        );
    }
}

#[test]
fn every_acknowledged_submit_survives_a_kill() {
    for engine in engines() {
        let place = Place::new(engine);
        drop(place.queue());
        let rounds = if engine == Engine::Sqlite { 50 } else { 12 };
        let mut acknowledged = BTreeSet::new();
        for _ in 0..rounds {
            let child = Beside::start("submit", &place.url);
            // Somewhere in the first submits, and at any moment within one.
            for _ in 0..1 + any_below(12) {
                acknowledged.insert(child.line().expect("the child submits until it is killed"));
            }
            std::thread::sleep(Duration::from_micros(any_below(3_000)));
            acknowledged.extend(child.kill());
            assert_sound(&place);
        }
        assert!(acknowledged.len() >= rounds);
        let there = ids(&place);
        let lost: Vec<_> = acknowledged.iter().filter(|id| !there.contains(*id)).collect();
        assert!(
            lost.is_empty(),
            "{engine:?}: of {} submits these are lost: {lost:?}",
            acknowledged.len()
        );
        // A submit that was stored and not yet said: one in each round at the most.
        assert!(there.len() <= acknowledged.len() + rounds, "{engine:?}: {} rows", there.len());
    }
}

#[test]
fn a_store_whose_maker_was_killed_can_be_made() {
    for engine in engines() {
        let rounds = if engine == Engine::Sqlite { 30 } else { 10 };
        for _ in 0..rounds {
            let place = Place::new(engine);
            let child = Beside::start("submit", &place.url);
            std::thread::sleep(Duration::from_micros(any_below(30_000)));
            let acknowledged = child.kill();
            place.queue().submit_task(&task()).unwrap();
            assert!(ids(&place).len() > acknowledged.len());
            assert_sound(&place);
        }
    }
}

/// Locks of a file belong to the process, so threads of one do not show what two do.
#[test]
fn two_processes_that_make_one_store_both_succeed() {
    for engine in engines() {
        for _ in 0..10 {
            let place = Place::new(engine);
            let both = [(); 2].map(|()| Beside::start("open", &place.url));
            for child in both {
                assert!(child.wait().success(), "{engine:?}");
            }
            assert!(ids(&place).is_empty());
        }
    }
}
