//! A stranger's lock costs waiting, and an error only when it is held for longer than anybody should.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use leasehold::db::StoreError;

use crate::kit::{store, submit};
use crate::places::{Engine, Place, engines};

/// Submits while a stranger holds the write lock (on PostgreSQL: the table) for `hold`.
fn submit_beside(engine: Engine, hold: Duration) -> (Result<(), StoreError>, Duration) {
    let place = Place::new(engine);
    let mut store = store(&place);
    let locked = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut stranger = place.raw();
            stranger.run(match engine {
                Engine::Sqlite => "BEGIN IMMEDIATE",
                Engine::Postgres => "BEGIN; LOCK TABLE schedule_runs IN EXCLUSIVE MODE",
            });
            locked.wait();
            thread::sleep(hold);
            stranger.run("ROLLBACK");
        });
        locked.wait();
        let began = Instant::now();
        let result = store.write(&submit("a")).map(drop);
        let took = began.elapsed();
        if result.is_err() {
            // The lock is gone in a moment, and then the same write works.
            store.write(&submit("a")).unwrap();
        }
        (result, took)
    })
}

#[test]
fn a_lock_held_for_three_seconds_costs_waiting() {
    thread::scope(|scope| {
        for engine in engines() {
            scope.spawn(move || {
                let (result, took) = submit_beside(engine, Duration::from_secs(3));
                result.unwrap();
                assert!(took >= Duration::from_millis(2_900), "{engine:?}: {took:?}");
            });
        }
    });
}

#[test]
fn a_lock_held_for_longer_than_the_timeout_is_busy() {
    thread::scope(|scope| {
        for engine in engines() {
            scope.spawn(move || {
                let (result, took) = submit_beside(engine, Duration::from_secs(7));
                let error = result.expect_err("it was locked for too long");
                assert!(matches!(error, StoreError::Busy { .. }), "{engine:?}: {error}");
                assert!(error.is_retryable());
                let bounds = Duration::from_millis(4_500)..Duration::from_millis(6_900);
                assert!(bounds.contains(&took), "{engine:?}: {took:?}");
            });
        }
    });
}
