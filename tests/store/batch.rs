//! What a failing operation leaves behind: nothing, and a store that goes on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::result::QueryResult;
use leasehold::db::ops::{FindRun, ListRuns};
use leasehold::db::{AnyConn, Operation, StoreError};

use crate::kit::{snapshot, store, submit};
use crate::places::{Engine, Place, engines};

const ALL: ListRuns = ListRuns { statuses: vec![], limit: 100 };

/// A submit, and then whatever the test does on the same connection.
struct Then<F>(&'static str, F);

fn then<F: Fn(&mut AnyConn) -> QueryResult<()>>(id: &'static str, more: F) -> Then<F> {
    Then(id, more)
}

impl<F: Fn(&mut AnyConn) -> QueryResult<()>> Operation for Then<F> {
    type Output = ();

    fn name(&self) -> &'static str {
        "submit and more"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<()> {
        submit(self.0).run(conn)?;
        (self.1)(conn)
    }
}

#[test]
fn an_operation_that_panics_stores_nothing_and_the_store_goes_on() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut store = store(&place);
        let before = snapshot(&mut place.raw());
        let nested = |conn: &mut AnyConn| {
            conn.batch_execute("SAVEPOINT inside").unwrap();
            submit("b").run(conn).unwrap();
            panic!("inside a savepoint")
        };
        let plain = |_: &mut AnyConn| panic!("plain");
        assert!(catch_unwind(AssertUnwindSafe(|| store.write(&then("a", plain)))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| store.write(&then("a", nested)))).is_err());
        assert_eq!(snapshot(&mut place.raw()), before, "{engine:?}");
        store.write(&submit("c")).unwrap();
        assert_eq!(store.read(&ALL).unwrap().len(), 1);
        // Another connection sees it: it was committed, not only released.
        assert!(crate::kit::store(&place).read(&FindRun { run_id: "c".into() }).unwrap().is_some());
    }
}

#[test]
fn an_operation_that_fails_late_stores_nothing_and_the_store_goes_on() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut store = store(&place);
        let error = store.write(&then("a", |conn| conn.batch_execute("SELECT * FROM nowhere")));
        let error = error.expect_err("there is no such table");
        assert!(matches!(error, StoreError::Sql { .. }), "{error}");
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
        assert!(store.read(&ALL).unwrap().is_empty());
        store.write(&submit("a")).unwrap();
        // The same id again: the first stays, the second is refused as a whole.
        assert!(store.write(&then("a", |_| Ok(()))).is_err());
        assert_eq!(store.read(&ALL).unwrap().len(), 1);
    }
}

/// An operation after which no transaction is open, as SQLite leaves it when it undoes one by itself.
#[test]
fn a_transaction_that_is_gone_is_no_success() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut store = store(&place);
        let result = store.write(&then("a", |conn| conn.batch_execute("ROLLBACK")));
        let stored = store.read(&ALL).unwrap().len();
        assert!(result.is_err() && stored == 0, "{engine:?}: {result:?}, {stored} stored");
        store.write(&submit("b")).unwrap();
        assert_eq!(store.read(&ALL).unwrap().len(), 1);
    }
}

#[test]
fn victims_of_deadlocks_and_serialization_are_run_again() {
    for engine in engines().into_iter().filter(|engine| *engine == Engine::Postgres) {
        for state in ["40P01", "40001"] {
            let place = Place::new(engine);
            let tries = AtomicU32::new(0);
            let words = if state == "40P01" { "deadlock detected" } else { "could not serialize" };
            let victim = then("a", |conn| {
                if tries.fetch_add(1, Ordering::Relaxed) >= 3 {
                    return Ok(());
                }
                conn.batch_execute(&format!(
                    "DO $$ BEGIN RAISE EXCEPTION '{words}' USING ERRCODE = '{state}'; END $$"
                ))
            });
            store(&place).write(&victim).unwrap();
            assert_eq!(tries.into_inner(), 4);
            assert_eq!(store(&place).read(&ALL).unwrap().len(), 1);
        }
    }
}

#[test]
fn two_writers_that_lock_each_other_out_both_succeed() {
    for engine in engines().into_iter().filter(|engine| *engine == Engine::Postgres) {
        // One that pauses for as long as the other waits for a lock is not locked out.
        let meet = (0..10).find_map(|_| two_that_lock_each_other_out(&Place::new(engine)));
        assert_eq!(meet, Some(3), "one of them was the victim, once");
    }
}

/// How often they tried; nothing when one has waited in vain for a lock.
fn two_that_lock_each_other_out(place: &Place) -> Option<u32> {
    for id in ["a", "b"] {
        store(place).write(&submit(id)).unwrap();
    }
    let barrier = std::sync::Barrier::new(2);
    let tries = AtomicU32::new(0);
    let (barrier, tries) = (&barrier, &tries);
    let both = [("x", "a", "b"), ("y", "b", "a")];
    let written = std::thread::scope(|scope| {
        let writers = both.map(|(id, first, second)| {
            scope.spawn(move || {
                let touch =
                    |id| format!("UPDATE schedule_runs SET updated_at = 1 WHERE id = '{id}'");
                let both = then(id, |conn| {
                    conn.batch_execute(&touch(first))?;
                    if tries.fetch_add(1, Ordering::SeqCst) < 2 {
                        barrier.wait();
                    }
                    conn.batch_execute(&touch(second))
                });
                match store(place).write(&both) {
                    Err(StoreError::Busy { .. }) => false,
                    written => written.map(|()| true).unwrap(),
                }
            })
        });
        writers.map(|writer| writer.join().unwrap())
    });
    if written.contains(&false) {
        return None;
    }
    assert_eq!(store(place).read(&ALL).unwrap().len(), 4);
    Some(tries.load(Ordering::SeqCst))
}

#[test]
fn a_lost_connection_is_replaced() {
    for engine in engines().into_iter().filter(|engine| *engine == Engine::Postgres) {
        let mut place = Place::new(engine);
        place.url.push_str(&format!("%20-capplication_name%3Dlost_{}", std::process::id()));
        let mut store = store(&place);
        store.write(&submit("a")).unwrap();
        // Between two calls: a read does not show it.
        kill_backends(&place);
        assert_eq!(store.read(&ALL).unwrap().len(), 1);
        // Before a write: nothing was begun, so it may be tried again.
        kill_backends(&place);
        store.write(&submit("b")).unwrap();
        // In the middle of a write: nothing of it is stored, and the next one works.
        let error = store.write(&then("c", |conn| {
            kill_backends(&place);
            conn.batch_execute("SELECT 1")
        }));
        let error = error.expect_err("its connection was lost");
        assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
        assert!(error.is_retryable());
        store.write(&submit("d")).unwrap();
        // At the very end: nobody can say whether it is stored, and nobody does.
        let error = store.write(&then("e", |_: &mut AnyConn| {
            kill_backends(&place);
            Ok(())
        }));
        let error = error.expect_err("its connection was lost");
        assert!(matches!(error, StoreError::OutcomeUnknown { .. }), "{error}");
        assert!(error.is_retryable());
        let ids: Vec<String> = store.read(&ALL).unwrap().into_iter().map(|run| run.id).collect();
        assert_eq!(ids, ["a", "b", "d"]);
    }
}

/// Ends every other session of this place, and waits until they are gone.
fn kill_backends(place: &Place) {
    let mut raw = place.raw();
    let sessions = "SELECT pid::text AS value FROM pg_stat_activity
        WHERE pid <> pg_backend_pid() AND application_name = current_setting('application_name')";
    let pids: Vec<String> = raw.texts(sessions).into_iter().flatten().collect();
    assert!(!pids.is_empty(), "no session to end");
    for pid in pids {
        raw.texts(&format!("SELECT pg_terminate_backend({pid})::text AS value"));
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while !raw.texts(sessions).is_empty() {
        assert!(Instant::now() < deadline, "the sessions did not end");
        std::thread::yield_now();
    }
}
