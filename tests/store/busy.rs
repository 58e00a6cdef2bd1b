//! A stranger's lock costs waiting, and an error only when it is held for longer than anybody should.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use leasehold::db::StoreError;

use crate::kit::{store, submit, write};
use crate::places::{Engine, Place, engines};

/// Less than the wait for a lock, and far more than none.
const ABOUT_THE_WAIT: Duration = Duration::from_millis(4_500);

/// What takes the write lock, on PostgreSQL that of the table.
fn lock(engine: Engine) -> &'static str {
    match engine {
        Engine::Sqlite => "BEGIN IMMEDIATE",
        Engine::Postgres => "BEGIN; LOCK TABLE schedule_runs IN EXCLUSIVE MODE",
    }
}

/// Submits while a stranger holds the lock for so long. Whether it has waited for the lock; nothing when the stranger was
/// so slow that it has waited in vain.
fn submit_beside(engine: Engine, hold: Duration) -> Option<bool> {
    let place = Place::new(engine);
    let mut store = store(&place);
    let locked = Barrier::new(2);
    let given_back = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut stranger = place.raw();
            stranger.run(lock(engine));
            locked.wait();
            thread::sleep(hold);
            given_back.store(true, Ordering::SeqCst);
            stranger.run("ROLLBACK");
        });
        locked.wait();
        let began = Instant::now();
        match store.write(&submit("a")) {
            Err(StoreError::Busy { .. }) if began.elapsed() > ABOUT_THE_WAIT => None,
            result => result.map(|_| Some(given_back.load(Ordering::SeqCst))).unwrap(),
        }
    })
}

#[test]
fn a_lock_held_for_three_seconds_costs_waiting() {
    thread::scope(|scope| {
        for engine in engines() {
            scope.spawn(move || {
                let waited = (0..10).find_map(|_| submit_beside(engine, Duration::from_secs(3)));
                assert_eq!(waited, Some(true), "{engine:?}");
            });
        }
    });
}

#[test]
fn a_lock_held_for_longer_than_the_timeout_is_busy() {
    thread::scope(|scope| {
        for engine in engines() {
            scope.spawn(move || {
                let place = Place::new(engine);
                let mut store = store(&place);
                let mut stranger = place.raw();
                stranger.run(lock(engine));
                let (answered, is_answered) = channel::<()>();
                // Until it is answered, or never would be.
                let holder = thread::spawn(move || {
                    let _ = is_answered.recv_timeout(Duration::from_secs(60));
                    stranger.run("ROLLBACK");
                });
                let began = Instant::now();
                let result = store.write(&submit("a"));
                let took = began.elapsed();
                drop(answered);
                let error = result.expect_err("it was locked for too long");
                assert!(matches!(error, StoreError::Busy { .. }), "{engine:?}: {error}");
                assert!(error.is_retryable());
                assert!(took > ABOUT_THE_WAIT, "{engine:?}: {took:?}");
                // The lock is gone in a moment, and then the same write works.
                write(&mut store, &submit("a"));
                holder.join().unwrap();
            });
        }
    });
}

/// What takes the lock under which stores are made.
fn turn(engine: Engine) -> &'static str {
    match engine {
        Engine::Sqlite => "PRAGMA journal_mode = WAL; BEGIN IMMEDIATE",
        Engine::Postgres => {
            "BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('lionagi.state.schema.migration', 0))"
        }
    }
}

#[test]
fn a_store_is_opened_in_its_turn_however_long_others_take_to_make_theirs() {
    thread::scope(|scope| {
        for engine in engines() {
            scope.spawn(move || {
                let place = Place::new(engine);
                let mut stranger = place.raw();
                stranger.run(turn(engine));
                let given_back = AtomicBool::new(false);
                thread::scope(|scope| {
                    let opened = scope.spawn(|| {
                        write(&mut store(&place), &submit("a"));
                        given_back.load(Ordering::SeqCst)
                    });
                    // Longer than anybody waits for any other lock.
                    thread::sleep(Duration::from_secs(6));
                    given_back.store(true, Ordering::SeqCst);
                    stranger.run("ROLLBACK");
                    assert!(opened.join().unwrap(), "{engine:?}: it has not waited");
                });
            });
        }
    });
}
