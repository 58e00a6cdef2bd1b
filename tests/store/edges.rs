//! All 81 pairs of statuses, with a guard that matches and one that does not, on a row that the queue did not make.

use leasehold::db::ops::{ChangeStatus, Rejected};
use leasehold::domain::status::Status;
use leasehold::domain::transition::Outcome;

use crate::kit::{change, count, one, snapshot, store};
use crate::places::{Place, Raw, engines};

/// Which part of the guard does not match.
const WRONG: [&str; 3] = ["owner", "expiry", "epoch"];

/// Empties the store and puts one run there that has `status`.
fn one_run(raw: &mut Raw, status: Status) {
    raw.run("DELETE FROM status_transitions; DELETE FROM schedule_runs");
    raw.run(&format!(
        "INSERT INTO schedule_runs (id, trigger_context, action_kind, action_args, status, fired_at, created_at, leased_by, lease_expires_at, lease_attempts)
         VALUES ('r', '{{}}', 'agent', '{{}}', '{status}', 0, 0, 'w', 5.5, 2)"
    ));
}

/// The change, its status named or not, under a guard of which at most one part is wrong.
fn guarded(from: Option<Status>, to: Status, wrong: &str) -> ChangeStatus {
    let mut asked = change("r", from, to, "f");
    let guard = &mut asked.transition.guard;
    guard.leased_by = Some(if wrong == "owner" { "x".into() } else { "w".into() });
    guard.lease_expires_at = Some(if wrong == "expiry" { 5.0 } else { 5.5 });
    guard.lease_attempts = Some(if wrong == "epoch" { 1 } else { 2 });
    asked
}

#[test]
fn only_declared_edges_apply_and_whatever_does_not_apply_writes_nothing() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut store = store(&place);
        let mut raw = place.raw();
        for (from, to) in Status::ALL.iter().flat_map(|from| Status::ALL.map(|to| (*from, to))) {
            let declared = from.may_become(to);
            one_run(&mut raw, from);
            let before = snapshot(&mut raw);
            let right = (!declared).then_some("");
            for wrong in WRONG.into_iter().chain(right) {
                for named in [Some(from), None] {
                    let outcome = store.write(&guarded(named, to, wrong)).unwrap();
                    let what = format!(
                        "{engine:?}: {named:?} {from} to {to}, wrong {wrong:?}: {outcome:?}"
                    );
                    match declared {
                        true => {
                            assert_eq!(outcome, Ok(Outcome::Conflict { found: from }), "{what}")
                        }
                        false => assert!(matches!(outcome, Err(Rejected::Refused(_))), "{what}"),
                    }
                }
            }
            assert_eq!(snapshot(&mut raw), before, "{engine:?}: {from} to {to}");
            for named in [Some(from), None].into_iter().filter(|_| declared) {
                one_run(&mut raw, from);
                let outcome = store.write(&guarded(named, to, "")).unwrap();
                let (transition_id, previous) = ("f".into(), from);
                assert_eq!(
                    outcome,
                    Ok(Outcome::Applied { transition_id, event_id: None, previous, current: to })
                );
                assert_eq!(count(&mut raw, "status_transitions"), 1);
                let there = one(&mut raw, "SELECT status AS value FROM schedule_runs");
                assert_eq!(there, to.as_str());
            }
        }
    }
}

#[test]
fn a_wrong_named_status_and_a_missing_row_write_nothing() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut store = store(&place);
        store.write(&crate::kit::submit("r")).unwrap();
        let before = snapshot(&mut place.raw());
        let asked = change("r", Some(Status::Running), Status::Completed, "f1");
        assert_eq!(store.write(&asked).unwrap(), Ok(Outcome::Conflict { found: Status::Queued }));
        let asked = change("nobody", Some(Status::Queued), Status::Running, "f2");
        assert_eq!(store.write(&asked).unwrap(), Err(Rejected::NotFound));
        assert_eq!(snapshot(&mut place.raw()), before);
    }
}
