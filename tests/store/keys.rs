//! At most one run of a concurrency key is running, however claims of it interleave.

use std::sync::Mutex;
use std::sync::mpsc;
use std::thread;

use diesel::result::QueryResult;
use leasehold::db::ops::{Claim, ClaimOutcome};
use leasehold::db::{AnyConn, Operation};
use leasehold::domain::status::Status;

use crate::kit::{at_once, change, claim, count, store, submit_requiring, until, write};
use crate::places::{Engine, Place, engines};

/// An option of the session, to be appended to an address: a statement that waited for the key's lock must see what
/// was committed meanwhile, whatever the default of the database.
const REPEATABLE_READ: &str = "%20-cdefault_transaction_isolation%3Drepeatable%5C%20read";

#[test]
fn rows_that_share_a_key_never_run_two_at_once() {
    for engine in engines() {
        never_two_at_once(Place::new(engine));
    }
}

fn never_two_at_once(place: Place) {
    const ROWS: usize = 40;
    let mut first = store(&place);
    for row in 0..ROWS {
        first.write(&submit_requiring(&format!("r{row}"), &["gpu-exclusive"])).unwrap();
    }
    // Each thread tries every row, and ends a run at once that it has won: the key goes from hand to hand.
    let running = Mutex::new(0);
    let won = at_once(8, |number| {
        let mut store = store(&place);
        let mut won = 0;
        for step in 0..ROWS {
            let row = (number * 5 + step) % ROWS;
            let (id, fact) = (format!("r{row}"), format!("{number}-{row}"));
            let claim = claim(&id, Some("here:gpu-exclusive"), "w", &fact);
            let outcome = write(&mut store, &claim);
            if let ClaimOutcome::Won { .. } = outcome {
                won += 1;
                let mut now = running.lock().unwrap();
                *now += 1;
                assert_eq!(*now, 1, "two runs with one key at once");
                drop(now);
                thread::yield_now();
                // Before the row lets go of the key, so that the next holder cannot come first.
                *running.lock().unwrap() -= 1;
                let end =
                    change(&id, Some(Status::Running), Status::Completed, &format!("e{fact}"));
                assert!(write(&mut store, &end).unwrap().is_applied());
            }
        }
        won
    });
    let mut raw = place.raw();
    let won: usize = won.into_iter().sum();
    assert!(won > 0);
    assert_eq!(count(&mut raw, "schedule_runs WHERE status = 'completed'"), won);
}

/// A claim that does something between its last statement and its commit.
struct Held<F>(Claim, F);

impl<F: Fn()> Operation for Held<F> {
    type Output = ClaimOutcome;

    fn name(&self) -> &'static str {
        "claim and wait"
    }

    fn exclusive_key(&self) -> Option<&str> {
        self.0.exclusive_key()
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<ClaimOutcome> {
        let outcome = self.0.run(conn)?;
        (self.1)();
        Ok(outcome)
    }
}

#[test]
fn a_claim_that_waited_for_another_of_its_key_sees_it() {
    for engine in engines() {
        one_waits_for_the_other(Place::new(engine));
    }
    for engine in engines().into_iter().filter(|engine| *engine == Engine::Postgres) {
        let mut place = Place::new(engine);
        place.url.push_str(REPEATABLE_READ);
        one_waits_for_the_other(place);
    }
}

fn one_waits_for_the_other(place: Place) {
    let mut first = store(&place);
    for id in ["a", "b"] {
        first.write(&submit_requiring(id, &["gpu-exclusive"])).unwrap();
    }
    // Its own key, since the locks of all tests stand in one table.
    let key = format!("{}:gpu-exclusive", place.dir.path().display());
    place.raw().run(&format!("UPDATE schedule_runs SET concurrency_key = '{key}'"));
    let (claimed, was_claimed) = mpsc::channel();
    let wait_for_the_second = || {
        claimed.send(()).unwrap();
        // SQLite shows nobody who waits; there the second claim is merely on its way.
        if place.engine == Engine::Postgres {
            let waiting = format!(
                "pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid::bigint = (hashtextextended('{key}', 0) & 4294967295)"
            );
            let mut raw = place.raw();
            until("the second claim waits", || count(&mut raw, &waiting) == 1);
        }
    };
    let held = Held(claim("a", Some(&key), "w1", "f1"), wait_for_the_second);
    thread::scope(|scope| {
        let (place, key) = (&place, &key);
        let second = scope.spawn(move || {
            let mut store = store(place);
            was_claimed.recv().unwrap();
            write(&mut store, &claim("b", Some(key), "w2", "f2"))
        });
        assert_eq!(first.write(&held).unwrap(), ClaimOutcome::Won { epoch: 1 });
        assert_eq!(second.join().unwrap(), ClaimOutcome::Busy);
    });
}
