//! On a store of our own a run that has ended never changes, and no lease is without end.

use leasehold::db::ops::{ClaimOutcome, Counted, ExpiredLease, Reap};
use leasehold::domain::status::Status;
use leasehold::domain::transition::Principal;

use crate::kit::{change, claim, snapshot, store};
use crate::places::{Engine, Place, Raw, engines};

const ENDED: [Status; 5] =
    [Status::Completed, Status::Failed, Status::TimedOut, Status::Skipped, Status::Cancelled];

/// One run of each terminal status, named after it, that was claimed once.
fn ended_runs(raw: &mut Raw) {
    for status in ENDED {
        raw.run(&format!(
            "INSERT INTO schedule_runs (id, trigger_context, action_kind, action_args, status, fired_at, created_at, ended_at, exit_code,
                leased_by, lease_expires_at, lease_attempts, queued_at)
             VALUES ('{status}', '{{}}', 'agent', '{{}}', '{status}', 0, 0, 9, 0, 'w', 5.5, 1, 0)"
        ));
    }
}

#[test]
fn no_call_changes_a_run_that_has_ended() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut queue = place.queue();
        let mut store = store(&place);
        let mut raw = place.raw();
        ended_runs(&mut raw);
        let before = snapshot(&mut raw);
        for status in ENDED {
            let id = status.as_str();
            assert_eq!(store.write(&claim(id, None, "x", "f")).unwrap(), ClaimOutcome::Lost);
            let seen = ExpiredLease {
                run_id: id.into(),
                lease_expires_at: 5.5,
                lease_attempts: 1,
                claimed_at: None,
            };
            let counted = Counted::Attempts;
            let reap = Reap { seen, counted, max_attempts: 3, at: 100.0, fact_id: "f".into() };
            assert_eq!(store.write(&reap).unwrap(), None);
            assert!(!queue.cancel_task(id, &Principal::operator("test")).unwrap());
            for to in Status::ALL {
                for from in [None, Some(Status::Queued), Some(Status::Running), Some(status)] {
                    let outcome = store.write(&change(id, from, to, "f")).unwrap();
                    assert!(!outcome.is_ok_and(|outcome| outcome.is_applied()), "{id} to {to}");
                }
            }
        }
        assert_eq!(queue.reap_expired_leases(Some(1e9)).unwrap(), Default::default());
        assert_eq!(snapshot(&mut raw), before, "{engine:?}");
    }
}

#[test]
fn raw_sql_cannot_change_a_run_that_has_ended_but_may_prune_it() {
    for engine in engines() {
        let place = Place::new(engine);
        drop(place.queue());
        let mut raw = place.raw();
        ended_runs(&mut raw);
        let before = snapshot(&mut raw);
        for status in ENDED {
            for set in [
                "status = 'queued'",
                "status = status",
                "ended_at = 10",
                "ended_at = NULL",
                "exit_code = 1",
                "leased_by = NULL",
                "lease_expires_at = 7",
                "lease_attempts = 2",
                "updated_at = 3, status = 'running'",
            ] {
                let sql = format!("UPDATE schedule_runs SET {set} WHERE id = '{status}'");
                let error = raw.try_run(&sql).expect_err(&sql);
                assert!(error.to_string().contains("a terminal run never changes"), "{error}");
            }
            let upsert = format!(
                "INSERT INTO schedule_runs SELECT * FROM schedule_runs WHERE id = '{status}' ON CONFLICT (id) DO UPDATE SET status = 'queued'"
            );
            let error = raw.try_run(&upsert).expect_err(&upsert);
            assert!(error.to_string().contains("a terminal run never changes"), "{error}");
        }
        assert_eq!(snapshot(&mut raw), before, "{engine:?}");
        // What the original's retention does.
        raw.run("UPDATE schedule_runs SET chain_parent_id = NULL, updated_at = 11");
        raw.run("DELETE FROM schedule_runs WHERE status = 'completed'");
    }
}

#[test]
fn a_lease_without_end_is_refused_by_the_table_itself() {
    for engine in engines() {
        let place = Place::new(engine);
        store(&place).write(&crate::kit::submit("r")).unwrap();
        let mut raw = place.raw();
        let endless: &[&str] = match engine {
            Engine::Sqlite => &["9e999", "-9e999"],
            Engine::Postgres => &["'NaN'", "'Infinity'", "'-Infinity'"],
        };
        for value in endless {
            for sql in [
                format!("UPDATE schedule_runs SET lease_expires_at = {value}"),
                format!(
                    "INSERT INTO schedule_runs (id, trigger_context, action_kind, action_args, fired_at, created_at, lease_expires_at)
                     VALUES ('x', '{{}}', 'agent', '{{}}', 0, 0, {value})"
                ),
            ] {
                let error = raw.try_run(&sql).expect_err(&sql);
                assert!(error.to_string().to_lowercase().contains("check"), "{error}");
            }
        }
        for value in ["0", "-1", "1.7976931348623157e308", "NULL"] {
            raw.run(&format!("UPDATE schedule_runs SET lease_expires_at = {value}"));
        }
    }
}
