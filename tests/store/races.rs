//! Many writers at one row: whatever the interleaving, the row's facts are one path and nothing is counted twice or
//! lost.

use std::sync::{Arc, Barrier};
use std::thread;

use leasehold::Queue;
use leasehold::clock::ManualClock;
use leasehold::db::ops::{self, ClaimOutcome};
use leasehold::domain::status::Status;
use leasehold::ids::RandomIds;

use crate::kit::{assert_one_path, at_once, change, claim, count, one, store, submit, write};
use crate::places::{Place, engines, patiently};

#[test]
fn of_sixteen_claims_of_one_row_one_wins() {
    for engine in engines() {
        let place = Place::new(engine);
        store(&place).write(&submit("r")).unwrap();
        let outcomes = at_once(16, |number| {
            let worker = format!("w{number}");
            write(&mut store(&place), &claim("r", None, &worker, &format!("f{number}")))
        });
        let won = outcomes.iter().filter(|o| **o == ClaimOutcome::Won { epoch: 1 }).count();
        let lost = outcomes.iter().filter(|o| **o == ClaimOutcome::Lost).count();
        assert_eq!((won, lost), (1, 15), "{engine:?}");
        let mut raw = place.raw();
        assert_eq!(count(&mut raw, "status_transitions"), 1);
        assert_eq!(
            one(&mut raw, "SELECT CAST(lease_attempts AS TEXT) AS value FROM schedule_runs"),
            "1"
        );
        assert_one_path(&mut raw, "r");
    }
}

#[test]
fn sixty_four_changes_of_one_row_leave_one_path() {
    for engine in engines() {
        let place = Place::new(engine);
        store(&place).write(&submit("r")).unwrap();
        let applied = at_once(8, |thread| {
            let mut store = store(&place);
            (0..8)
                .filter(|round| {
                    // Every edge is somebody's: from anything to anything, guarded now and then by a wrong or right epoch.
                    let number = thread * 8 + round;
                    let to = Status::ALL[number * 5 % 4];
                    let from = (number % 3 == 0).then(|| Status::ALL[number % 4]);
                    let mut asked = change("r", from, to, &format!("f{number}"));
                    asked.transition.guard.lease_attempts =
                        (number % 5 == 0).then_some((number % 2) as i32);
                    matches!(write(&mut store, &asked), Ok(outcome) if outcome.is_applied())
                })
                .count()
        });
        let applied: usize = applied.into_iter().sum();
        let mut raw = place.raw();
        assert_eq!(count(&mut raw, "status_transitions"), applied);
        assert!(applied > 0);
        assert_one_path(&mut raw, "r");
    }
}

#[test]
fn a_reaper_and_the_owner_end_a_run_once() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut first = store(&place);
        let rounds = 150;
        for row in 0..rounds {
            let id = format!("r{row}");
            first.write(&submit(&id)).unwrap();
            first.write(&claim(&id, None, "w", &format!("c{row}"))).unwrap();
        }
        let barrier = Barrier::new(2);
        let (owner, reaper) = thread::scope(|scope| {
            let owner = scope.spawn(|| {
                let mut store = store(&place);
                (0..rounds)
                    .map(|row| {
                        let mut end = change(
                            &format!("r{row}"),
                            Some(Status::Running),
                            Status::Completed,
                            &format!("o{row}"),
                        );
                        end.transition.guard.leased_by = Some("w".into());
                        end.transition.guard.lease_expires_at = Some(2_000.0);
                        barrier.wait();
                        // No panic here: the other thread would wait for ever.
                        let done = patiently(|| store.write(&end));
                        matches!(done, Ok(Ok(outcome)) if outcome.is_applied())
                    })
                    .collect::<Vec<_>>()
            });
            let reaper = scope.spawn(|| {
                let mut store = store(&place);
                (0..rounds)
                    .map(|row| {
                        let seen = ops::ExpiredLease {
                            run_id: format!("r{row}"),
                            claimed_at: None,
                            lease_expires_at: 2_000.0,
                            lease_attempts: 1,
                        };
                        let reap = ops::Reap {
                            counted: ops::Counted::Attempts,
                            seen,
                            max_attempts: 1,
                            at: 3_000.0,
                            fact_id: format!("x{row}"),
                        };
                        barrier.wait();
                        let done = patiently(|| store.write(&reap));
                        matches!(done, Ok(Some(Status::Failed)))
                    })
                    .collect::<Vec<_>>()
            });
            (owner.join().unwrap(), reaper.join().unwrap())
        });
        let mut raw = place.raw();
        for row in 0..rounds {
            assert!(
                owner[row] ^ reaper[row],
                "{engine:?} r{row}: {} and {}",
                owner[row],
                reaper[row]
            );
            assert_one_path(&mut raw, &format!("r{row}"));
        }
        assert_eq!(count(&mut raw, "status_transitions"), (2 * rounds));
    }
}

#[test]
fn no_attempt_is_lost_between_claims_reaping_and_requeueing() {
    for engine in engines() {
        let place = Place::new(engine);
        store(&place).write(&submit("r")).unwrap();
        let won = at_once(4, |thread| {
            let mut store = store(&place);
            let mut epochs = Vec::new();
            for round in 0..15 {
                let fact = format!("{thread}-{round}");
                let mut claim = claim("r", None, "w", &fact);
                // A lease of its own each time, as in life: a later claim expires later.
                let expiry = f64::from(thread as u32 * 100 + round);
                claim.lease_expires_at = expiry.into();
                if let ClaimOutcome::Won { epoch } = write(&mut store, &claim) {
                    epochs.push(epoch);
                    if round % 2 == 0 {
                        let seen = ops::ExpiredLease {
                            run_id: "r".into(),
                            claimed_at: None,
                            lease_expires_at: expiry,
                            lease_attempts: epoch,
                        };
                        let reap = ops::Reap {
                            counted: ops::Counted::Attempts,
                            seen,
                            max_attempts: i32::MAX,
                            at: 1.0,
                            fact_id: format!("r{fact}"),
                        };
                        assert_eq!(write(&mut store, &reap), Some(Status::Queued));
                    } else {
                        let back =
                            change("r", Some(Status::Running), Status::Queued, &format!("q{fact}"));
                        assert!(write(&mut store, &back).unwrap().is_applied());
                    }
                }
            }
            epochs
        });
        let mut epochs: Vec<i32> = won.into_iter().flatten().collect();
        epochs.sort_unstable();
        assert_eq!(epochs, (1..=epochs.len() as i32).collect::<Vec<_>>(), "{engine:?}");
        let mut raw = place.raw();
        assert_eq!(
            one(&mut raw, "SELECT CAST(lease_attempts AS TEXT) AS value FROM schedule_runs"),
            epochs.len().to_string()
        );
        assert_one_path(&mut raw, "r");
    }
}

/// riverqueue/river#1258: a rescuer that looked alive and never got past the valid leases in front.
#[test]
fn one_pass_reaps_all_expired_leases_wherever_they_stand() {
    for engine in engines() {
        let place = Place::new(engine);
        let config = leasehold::Config { max_lease_attempts: 3, ..Default::default() };
        let mut queue: Queue =
            place.queue_with(config, Arc::new(ManualClock::at(5_000.0)), Arc::new(RandomIds));
        let mut raw = place.raw();
        let numbers = match engine {
            crate::places::Engine::Sqlite => {
                "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 4000)"
            }
            crate::places::Engine::Postgres => {
                "WITH numbers (n) AS (SELECT generate_series(1, 4000))"
            }
        };
        // The first half is valid, and older in every other respect.
        raw.run(&format!(
            "INSERT INTO schedule_runs (id, trigger_context, action_kind, action_args, status, fired_at, created_at, queued_at, leased_by, lease_expires_at, lease_attempts)
             {numbers} SELECT 'r' || (10000 + n), '{{}}', 'agent', '{{}}', 'running', n, n, n, 'w', CASE WHEN n <= 2000 THEN 9000 + n ELSE n END, 1 + n % 3 FROM numbers"
        ));
        let counts = queue.reap_expired_leases(None).unwrap();
        assert_eq!((counts.requeued, counts.failed), (1_334, 666), "{engine:?}");
        let valid = "schedule_runs WHERE status = 'running' AND lease_expires_at > 5000";
        assert_eq!(count(&mut raw, valid), 2000);
        assert_eq!(count(&mut raw, "schedule_runs WHERE status = 'running'"), 2000);
    }
}
