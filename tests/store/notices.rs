//! Notices of ended tasks in the store: left once by every end, changed along their own edges, sent by one at a time.

use leasehold::clock::Clock;
use leasehold::db::ops::{self, ChangeDispatch, Rejected, Taken};
use leasehold::db::{Notice, Store};
use leasehold::domain::dispatch::DispatchStatus;
use leasehold::domain::ending::{Ending, Execution};
use leasehold::domain::notice::{Backoff, Failed, KIND, LATER, Notify};
use leasehold::domain::reason::{Reason, ReasonCode};
use leasehold::domain::run::RunEpoch;
use leasehold::domain::settings::RunSettings;
use leasehold::domain::status::Status;
use leasehold::domain::transition::{
    Checked, DispatchGuard, DispatchPatch, Outcome, Principal, Transition, TransitionRequest,
};
use leasehold::{Config, Error};
use serde_json::json;

use crate::kit::{at_once, change, claim, count, one, snapshot, store, submit, task, write};
use crate::places::{Engine, Place, Raw, engines};

const HOOK: &str = "https://example.com/hook";

/// A submit of a task that is to leave a notice.
fn told(id: &str) -> ops::Submit {
    let mut told = submit(id);
    told.settings.notify = Some(Notify { within: Some(100.0), ..Notify::to(HOOK) });
    told
}

fn notice_of(store: &mut Store, run_id: &str) -> Option<Notice> {
    store.read(&ops::NoticeOf { run_id: run_id.into() }).unwrap()
}

/// A store with one notice, whose id is `end`.
fn with_a_notice(place: &Place) -> Store {
    let mut store = store(place);
    store.write(&told("r")).unwrap();
    let end = change("r", Some(Status::Queued), Status::Cancelled, "end");
    assert!(store.write(&end).unwrap().unwrap().is_applied());
    store
}

fn take(from: DispatchStatus, attempt: i32, fact: &str) -> ops::TakeNotice {
    ops::TakeNotice {
        id: "end".into(),
        from,
        attempt,
        worker_id: "w".into(),
        lease: 15.0,
        at: 1_010.0,
        fact_id: fact.into(),
    }
}

fn settle(attempt: i32, result: Result<(), Failed>, fact: &str) -> ops::SettleNotice {
    ops::SettleNotice {
        id: "end".into(),
        attempt,
        worker_id: "w".into(),
        result,
        backoff: Backoff { base: 2.0, cap: 3600.0 },
        at: 1_020.0,
        fact_id: fact.into(),
    }
}

fn depart(run_id: &str, way: ops::Way, fact: &str) -> ops::Depart {
    ops::Depart {
        run: RunEpoch { run_id: run_id.into(), epoch: 1 },
        owner: "w".into(),
        way,
        attempt: None,
        at: 1_500.0,
        fact_id: fact.into(),
    }
}

#[test]
fn every_end_leaves_one_notice_that_tells_of_it() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut store = store(&place);
        let failed: Ending = Execution { exit_code: 7, detail: "a secret".into() }.into();
        let timeout = Some(1.0);
        let ways = [
            ("completed", ops::Way::Ended(Execution::OK.into())),
            ("failed", ops::Way::Ended(failed)),
            ("cancelled", ops::Way::Cancelled),
            ("timed_out", ops::Way::TimedOut { timeout }),
        ];
        let mut ended: Vec<(String, &str)> = Vec::new();
        for (status, way) in ways {
            let id = format!("r-{status}");
            store.write(&told(&id)).unwrap();
            store.write(&claim(&id, None, "w", &format!("claim-{id}"))).unwrap();
            let fact = format!("end-{id}");
            assert!(store.write(&depart(&id, way, &fact)).unwrap().is_some());
            ended.push((id, status));
        }
        // While it waits.
        store.write(&told("waits")).unwrap();
        let by = Principal::operator("o");
        let cancel = ops::Cancel::new("waits", by, 1_500.0, "end-waits".into()).unwrap();
        let cancelled = store.write(&cancel).unwrap();
        assert!(matches!(cancelled, ops::Cancelled::Yes { .. }), "{cancelled:?}");
        ended.push(("waits".into(), "cancelled"));
        // Not started in time.
        let mut late = told("late");
        late.settings.when.expires = Some(1_200.0);
        store.write(&late).unwrap();
        let (run_id, due, fact_id) = ("late".into(), ops::Due::Expiry, "end-late".into());
        let skipped = store.write(&ops::Wake { run_id, due, at: 1_500.0, fact_id }).unwrap();
        assert_eq!(skipped, Some(Status::Skipped));
        ended.push(("late".into(), "skipped"));
        // Its last lease ran out.
        store.write(&told("lost")).unwrap();
        store.write(&claim("lost", None, "w", "claim-lost")).unwrap();
        let seen = ops::ExpiredLease {
            run_id: "lost".into(),
            lease_expires_at: 2_000.0,
            lease_attempts: 1,
            claimed_at: None,
        };
        let (counted, max_attempts) = (ops::Counted::Attempts, 1);
        let reap =
            ops::Reap { seen, counted, max_attempts, at: 1_500.0, fact_id: "end-lost".into() };
        assert_eq!(store.write(&reap).unwrap(), Some(Status::Failed));
        ended.push(("lost".into(), "failed"));
        // By a program that changes statuses itself.
        store.write(&told("raw")).unwrap();
        let mut end = change("raw", Some(Status::Queued), Status::Skipped, "end-raw");
        end.at = 1_500.0;
        assert!(store.write(&end).unwrap().unwrap().is_applied());
        ended.push(("raw".into(), "skipped"));

        for (id, status) in &ended {
            let notice = notice_of(&mut store, id).unwrap();
            assert_eq!(notice.id, format!("end-{id}"), "the fact of the end");
            assert_eq!((notice.status.as_str(), notice.attempt), ("pending", 0));
            assert_eq!((notice.kind.as_str(), notice.deliver_to.as_str()), (KIND, HOOK));
            assert_eq!(notice.max_attempts, 12);
            assert_eq!(notice.expires_at, Some(1_600.0), "so long after the end");
            let said = notice.payload.value();
            assert_eq!(said["event"], notice.id.as_str());
            assert_eq!(said["data"]["run_id"], id.as_str());
            assert_eq!(said["data"]["status"], *status, "{said}");
            assert_eq!(said["data"]["ended_at"], json!(1500.0));
            let code = if *status == "failed" && id != "lost" { json!(7) } else { json!(null) };
            let code = if *status == "completed" { json!(0) } else { code };
            assert_eq!(said["data"]["exit_code"], code, "{said}");
            assert!(!notice.payload.0.contains("secret"), "{said}");
        }
        assert_eq!(count(&mut place.raw(), "dispatch_outbox"), ended.len());
        // One that asks for none leaves none, and one that has not ended has none yet.
        store.write(&submit("plain")).unwrap();
        store.write(&told("queued")).unwrap();
        let end = change("plain", Some(Status::Queued), Status::Cancelled, "end-plain");
        store.write(&end).unwrap().unwrap();
        assert_eq!(count(&mut place.raw(), "dispatch_outbox"), ended.len());
        let verified = verify(&mut store);
        assert_eq!((verified.notices, verified.faults), (ended.len(), vec![]), "{engine:?}");
    }
}

fn verify(store: &mut Store) -> ops::Verified {
    store.read(&ops::Verify { most_expiries: 3, is_complete: true }).unwrap()
}

#[test]
fn a_run_that_is_tried_again_or_goes_back_leaves_none() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut store = store(&place);
        store.write(&told("r")).unwrap();
        store.write(&claim("r", None, "w", "c")).unwrap();
        let back = ops::Way::Back(Reason::new(ReasonCode::SHUTDOWN, ""));
        assert_eq!(store.write(&depart("r", back, "f")).unwrap(), Some(Status::Queued));
        assert_eq!(notice_of(&mut store, "r"), None);
    }
}

#[test]
fn what_is_in_the_way_keeps_no_run_from_ending() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut store = store(&place);
        store.write(&told("r")).unwrap();
        place.raw().run(
            "INSERT INTO dispatch_outbox (id, kind, deliver_to, payload, dedup_key, next_attempt_at, created_at)
             VALUES ('x', 'other', 'y', '{}', 'leasehold.task_ended:r', 0, 0)",
        );
        let end = change("r", Some(Status::Queued), Status::Cancelled, "end");
        assert!(store.write(&end).unwrap().unwrap().is_applied());
        assert_eq!(count(&mut place.raw(), "dispatch_outbox"), 1);
    }
}

fn set_status(raw: &mut Raw, status: DispatchStatus, ack_required: i32) {
    raw.run("DELETE FROM status_transitions; DELETE FROM dispatch_outbox");
    raw.run(&format!(
        "INSERT INTO dispatch_outbox (id, kind, deliver_to, payload, status, attempt, next_attempt_at, last_error, ack_required, created_at)
         VALUES ('n', 'terminal_notify', 'x', '{{}}', '{status}', 2, 5.5, 'bad', {ack_required}, 0)"
    ));
}

fn asked(from: Option<DispatchStatus>, to: DispatchStatus, wrong: &str) -> ChangeDispatch {
    ChangeDispatch {
        transition: Transition {
            id: "n".into(),
            from: from.map(|status| status.as_str().into()),
            to,
            reason: Reason::new(ReasonCode::DISPATCH_BACKOFF, "because a test says so"),
            principal: Principal::operator("test"),
            guard: DispatchGuard {
                attempt: Some(if wrong == "attempt" { 1 } else { 2 }),
                next_attempt_at: Some(if wrong == "time" { 5.0 } else { 5.5 }),
                last_error: Some(if wrong == "error" { "good".into() } else { "bad".into() }),
            },
            patch: DispatchPatch {
                attempt: Some(7),
                next_attempt_at: Some(9.25),
                last_error: Some(None),
            },
            idempotency_key: None,
        },
        key: None,
        at: 1_002.0,
        fact_id: "f".into(),
    }
}

#[test]
fn only_edges_of_the_policy_apply_and_whatever_does_not_apply_writes_nothing() {
    use DispatchStatus::Acked;
    for engine in engines() {
        let place = Place::new(engine);
        let mut store = store(&place);
        let mut raw = place.raw();
        let pairs =
            DispatchStatus::ALL.iter().flat_map(|from| DispatchStatus::ALL.map(|to| (*from, to)));
        for (from, to) in pairs {
            let declared = from.may_become(to);
            set_status(&mut raw, from, 1);
            let before = snapshot(&mut raw);
            let right = (!declared).then_some("");
            for wrong in ["attempt", "time", "error"].into_iter().chain(right) {
                for named in [Some(from), None] {
                    let outcome = store.write(&asked(named, to, wrong)).unwrap();
                    let what =
                        format!("{engine:?}: {named:?} {from} to {to}, {wrong:?}: {outcome:?}");
                    match declared {
                        true => {
                            assert_eq!(outcome, Ok(Outcome::Conflict { found: from }), "{what}")
                        }
                        false => assert!(matches!(outcome, Err(Rejected::Refused(_))), "{what}"),
                    }
                }
            }
            assert_eq!(snapshot(&mut raw), before, "{engine:?}: {from} to {to}");
            if !declared {
                continue;
            }
            for named in [Some(from), None] {
                set_status(&mut raw, from, 1);
                let outcome = store.write(&asked(named, to, "")).unwrap();
                let (transition_id, previous) = ("f".into(), from);
                let (event_id, current) = (None, to);
                let applied = Outcome::Applied { transition_id, event_id, previous, current };
                assert_eq!(outcome, Ok(applied));
                let row = "SELECT status || ' ' || attempt || ' ' || next_attempt_at || ' ' || coalesce(last_error, '-') AS value FROM dispatch_outbox";
                assert_eq!(one(&mut raw, row), format!("{to} 7 9.25 -"));
                let fact = "SELECT entity_type || ' ' || entity_id || ' ' || previous_status || ' ' || status || ' ' || source AS value FROM status_transitions";
                assert_eq!(one(&mut raw, fact), format!("dispatch n {from} {to} operator"));
                assert_eq!(count(&mut raw, "status_transitions"), 1);
            }
            if to == Acked {
                set_status(&mut raw, from, 0);
                let refused = store.write(&asked(None, to, "")).unwrap();
                assert!(
                    matches!(refused, Err(Rejected::Refused(_))),
                    "it asks for none: {refused:?}"
                );
            }
        }
        let mut nobody = asked(None, Acked, "");
        nobody.transition.id = "nobody".into();
        assert_eq!(store.write(&nobody).unwrap(), Err(Rejected::NotFound));
    }
}

#[test]
fn the_door_takes_the_columns_of_each_entity_and_no_others() {
    let place = Place::new(Engine::Sqlite);
    let mut queue = place.queue();
    let mut raw = place.raw();
    let request = |entity: &str, to: &str| {
        TransitionRequest::from_json(&json!({
            "entity_type": entity, "entity_id": "n", "from_state": null, "to_state": to,
            "reason": {"code": "dispatch.acked.consumer"}, "actor": {"type": "webhook", "id": "w"},
            "idempotency_key": "k",
        }))
        .unwrap()
    };
    let columns = |value: serde_json::Value| value.as_object().cloned();
    let check = |request: &TransitionRequest, guard, patch| {
        let (guard, patch) = (columns(guard), columns(patch));
        request.check_columns(guard.as_ref(), patch.as_ref())
    };
    let ack = request("dispatch", "acked");
    set_status(&mut raw, DispatchStatus::Delivered, 1);
    match check(&ack, json!({"attempt": 2.0}), json!({"last_error": null})).unwrap() {
        Checked::Dispatch(transition) => {
            assert!(queue.change_dispatch(transition).unwrap().is_applied());
        }
        Checked::Run(_) => panic!("it is about a notice"),
    }
    assert_eq!(one(&mut raw, "SELECT status AS value FROM dispatch_outbox"), "acked");
    for (guard, patch, category) in [
        (json!({"leased_by": "w"}), json!({}), "guard_column_not_allowed"),
        (json!({}), json!({"lease_attempts": 1}), "patch_column_not_allowed"),
        (json!({"attempt": null}), json!({}), "guard_none"),
        (json!({"attempt": "x"}), json!({}), "column_value_invalid"),
        (json!({}), json!({"next_attempt_at": null}), "column_value_invalid"),
    ] {
        let refusal = check(&ack, guard.clone(), patch).unwrap_err();
        assert_eq!(refusal.category(), category, "{guard}");
    }
    let run = request("schedule_run", "cancelled");
    let refusal = check(&run, json!({"attempt": 1}), json!({})).unwrap_err();
    assert_eq!(refusal.category(), "guard_column_not_allowed");
    assert!(refusal.to_string().contains("leased_by"), "{refusal}");
    let refusal = check(&request("dispatch", "completed"), json!({}), json!({})).unwrap_err();
    assert_eq!(refusal.category(), "to_status_invalid");
    let missing = TransitionRequest { entity_id: "nobody".into(), ..ack };
    let transition = missing.check_dispatch(DispatchGuard::default(), DispatchPatch::default());
    match queue.change_dispatch(transition.unwrap()) {
        Err(Error::NotFound { entity: "dispatch", .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn of_sixteen_who_take_a_notice_one_sends_it() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut first = with_a_notice(&place);
        let all = |from: DispatchStatus, attempt: i32| {
            let taken = at_once(16, |number| {
                let fact = format!("take-{attempt}-{number}");
                write(&mut store(&place), &take(from, attempt, &fact))
            });
            taken.into_iter().filter(|taken| matches!(taken, Taken::Won(_))).count()
        };
        assert_eq!(all(DispatchStatus::Pending, 0), 1);
        // Whoever was sending is dead.
        assert_eq!(all(DispatchStatus::Delivering, 1), 1);
        assert_eq!(count(&mut place.raw(), "status_transitions WHERE entity_type = 'dispatch'"), 2);
        // It comes back, and is late: what it says of its attempt counts for nothing.
        assert_eq!(first.write(&settle(1, Ok(()), "late")).unwrap(), None);
        let delivered = first.write(&settle(2, Ok(()), "in-time")).unwrap();
        assert_eq!(delivered, Some(DispatchStatus::Delivered));
        assert_eq!(verify(&mut first).faults, []);
    }
}

#[test]
fn a_failure_is_tried_again_later_and_given_up_at_the_last_attempt() {
    let place = Place::new(Engine::Sqlite);
    let mut store = with_a_notice(&place);
    let failed = || Err(Failed { wait: Some(30.0), ..Failed::again("it is\0 down") });
    store.write(&take(DispatchStatus::Pending, 0, "t1")).unwrap();
    let leased = notice_of(&mut store, "r").unwrap();
    assert!((leased.next_attempt_at - 1_025.0).abs() < 1e-4, "{leased:?}");
    let pending = store.write(&settle(1, failed(), "s1")).unwrap();
    assert_eq!(pending, Some(DispatchStatus::Pending));
    let waits = notice_of(&mut store, "r").unwrap();
    assert!((waits.next_attempt_at - 1_050.0).abs() < 1e-4, "{waits:?}");
    assert_eq!(waits.last_error.as_deref(), Some("it is\u{fffd} down"));
    // Not past its end: it is looked at then, and expires.
    store.write(&take(DispatchStatus::Pending, 1, "t2")).unwrap();
    let far = Err(Failed { wait: Some(3000.0), ..Failed::again("x") });
    store.write(&settle(2, far, "s2")).unwrap();
    let waits = notice_of(&mut store, "r").unwrap();
    assert!((waits.next_attempt_at - waits.expires_at.unwrap()).abs() < 1e-4, "{waits:?}");
    let mut over = take(DispatchStatus::Pending, 2, "t3");
    over.at = waits.expires_at.unwrap();
    assert_eq!(store.write(&over).unwrap(), Taken::Settled(DispatchStatus::Expired));
    // Sent again it has all its attempts, and no end.
    let retry = |fact: &str| ops::RetryNotice {
        id: "end".into(),
        by: Principal::operator("o"),
        at: 2_000.0,
        fact_id: fact.into(),
    };
    assert_eq!(store.write(&retry("again")).unwrap(), ops::Resent::Yes);
    let not = ops::Resent::NotGivenUp(DispatchStatus::Pending);
    assert_eq!(store.write(&retry("twice")).unwrap(), not);
    let again = notice_of(&mut store, "r").unwrap();
    assert_eq!((again.attempt, again.expires_at, again.last_error), (0, None, None));
    place.raw().run("UPDATE dispatch_outbox SET max_attempts = 1");
    store.write(&take(DispatchStatus::Pending, 0, "t4")).unwrap();
    let dead = store.write(&settle(1, failed(), "s4")).unwrap();
    assert_eq!(dead, Some(DispatchStatus::DeadLetter));
    // A last attempt that nobody has finished is not made once more.
    assert_eq!(store.write(&retry("third")).unwrap(), ops::Resent::Yes);
    store.write(&take(DispatchStatus::Pending, 0, "t5")).unwrap();
    let lost = store.write(&take(DispatchStatus::Delivering, 1, "t6")).unwrap();
    assert_eq!(lost, Taken::Settled(DispatchStatus::DeadLetter));
    assert_eq!(verify(&mut store).faults, []);
}

#[test]
fn notices_of_others_are_none_of_our_business() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut store = with_a_notice(&place);
        let mut raw = place.raw();
        raw.run(
            "INSERT INTO dispatch_outbox (id, kind, deliver_to, payload, status, next_attempt_at, created_at)
             VALUES ('theirs', 'terminal_notify', 'x', '{}', 'pending', 0, 0),
                    ('dead', 'terminal_notify', 'x', '{}', 'dead_letter', 0, 0)",
        );
        let now = (leasehold::clock::SystemClock.now() + 1e6).into();
        let due = store.read(&ops::DueNotices { now, after: None }).unwrap();
        let ids: Vec<&str> = due.iter().map(|notice| notice.id.as_str()).collect();
        assert_eq!(ids, ["end"]);
        assert!(due[0].next_attempt_at >= LATER, "it is due for us alone");
        let first = store.read(&ops::NextNotice { now: None }).unwrap();
        assert_eq!(first, Some(due[0].next_attempt_at));
        let all = store.read(&ops::ListNotices { status: None, limit: 9 }).unwrap();
        assert_eq!(all.len(), 1);
        let retry = ops::RetryNotice {
            id: "dead".into(),
            by: Principal::operator("o"),
            at: 1.0,
            fact_id: "f".into(),
        };
        assert_eq!(store.write(&retry).unwrap(), ops::Resent::NotFound);
        assert_eq!(verify(&mut store).notices, 1);
    }
}

/// The column of a notice of ours holds a later moment than is meant, also for those who change it by `transition()`.
#[test]
fn a_moment_that_was_set_is_the_one_that_is_meant() {
    let place = Place::new(Engine::Sqlite);
    let mut store = with_a_notice(&place);
    store.write(&take(DispatchStatus::Pending, 0, "t1")).unwrap();
    let there = notice_of(&mut store, "r").unwrap();
    let mut again = asked(None, DispatchStatus::Pending, "");
    again.transition.id = "end".into();
    let seen = Some(there.next_attempt_at);
    again.transition.guard = DispatchGuard { next_attempt_at: seen, ..DispatchGuard::default() };
    assert!(store.write(&again).unwrap().unwrap().is_applied());
    let there = notice_of(&mut store, "r").unwrap();
    assert!((there.next_attempt_at - 9.25).abs() < 1e-4, "{there:?}");
    let column = "SELECT CAST(next_attempt_at AS TEXT) AS value FROM dispatch_outbox";
    assert!(one(&mut place.raw(), column).parse::<f64>().unwrap() >= LATER);
}

#[test]
fn verify_names_a_notice_that_is_missing_or_tells_what_is_not_so() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut store = with_a_notice(&place);
        let mut raw = place.raw();
        assert_eq!(verify(&mut store).faults, []);
        raw.run("UPDATE dispatch_outbox SET status = 'delivered'");
        let found = verify(&mut store).faults;
        assert_eq!((found.len(), found[0].0.as_str(), found[0].1.check), (1, "r", "notice"));
        raw.run("DELETE FROM dispatch_outbox");
        let found = verify(&mut store).faults;
        assert!(found.len() == 1 && found[0].1.what.contains("missing"), "{found:?}");
        // One that was sent may be removed by those who tidy up.
        raw.run(
            "INSERT INTO status_transitions (id, entity_type, entity_id, previous_status, status, reason_code, source, created_at)
             VALUES ('d', 'dispatch', 'end', 'pending', 'delivering', 'x', 'system', 0)",
        );
        assert_eq!(verify(&mut store).faults, []);
    }
}

#[test]
fn a_command_that_is_not_allowed_is_refused_at_submit() {
    let place = Place::new(Engine::Sqlite);
    let (mut queue, _) = place.manual_queue(Config::default());
    let settings =
        RunSettings { notify: Some(Notify::to("command:tell")), ..RunSettings::default() };
    let refused = queue.submit_task_with(&task(), settings, None).unwrap_err();
    assert!(refused.is_invalid() && refused.to_string().contains("tell"), "{refused}");
    assert_eq!(count(&mut place.raw(), "schedule_runs"), 0);
}

#[test]
fn a_run_that_is_removed_takes_its_notice_along_unless_that_is_still_to_be_sent() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut queue = place.queue();
        let settings = RunSettings { notify: Some(Notify::to(HOOK)), ..RunSettings::default() };
        let ids = [0, 1, 2].map(|_| {
            let id = queue.submit_task_with(&task(), settings.clone(), None).unwrap();
            assert!(queue.cancel_task(&id, &Principal::operator("test")).unwrap());
            id
        });
        let notices =
            ids.clone().map(|run_id| queue.read(&ops::NoticeOf { run_id }).unwrap().unwrap().id);
        let mut store = store(&place);
        // Only the last two were sent, and the third of them is sent again while the runs are removed.
        for (number, id) in notices.iter().enumerate().skip(1) {
            let sent = ops::TakeNotice {
                id: id.clone(),
                ..take(DispatchStatus::Pending, 0, &format!("take-{number}"))
            };
            assert!(matches!(store.write(&sent).unwrap(), Taken::Won(_)));
            let result = if number == 1 {
                Ok(())
            } else {
                Err(Failed { is_final: true, ..Failed::again("no") })
            };
            let settled = ops::SettleNotice {
                id: id.clone(),
                ..settle(1, result, &format!("settle-{number}"))
            };
            assert!(store.write(&settled).unwrap().is_some());
        }
        let mut found = store.read(&ops::SettledNotices { run_ids: ids.to_vec() }).unwrap();
        found.sort();
        let mut expected = notices[1..].to_vec();
        expected.sort();
        assert_eq!(found, expected);
        assert_eq!(
            queue.retry_notice(&notices[2], &Principal::operator("o")).unwrap(),
            ops::Resent::Yes
        );
        let prune = ops::Prune { run_ids: ids.to_vec(), notice_ids: found, with_facts: true };
        let pruned = store.write(&prune).unwrap();
        assert_eq!((pruned.runs, pruned.facts), (3, 3 + 2), "{engine:?}");
        let left = queue.read(&ops::ListNotices { status: None, limit: 9 }).unwrap();
        let left: Vec<_> =
            left.iter().map(|notice| (notice.id.as_str(), &notice.schedule_run_id)).collect();
        let mut expected = vec![(notices[0].as_str(), &None), (notices[2].as_str(), &None)];
        expected.sort_by_key(|(id, _)| notices.iter().position(|notice| notice == id));
        assert_eq!(left, expected);
        assert_eq!(verify(&mut store).faults, []);
        // What it says still names its task.
        let pending = queue.read(&ops::FindNotice { id: notices[0].clone() }).unwrap().unwrap();
        assert_eq!(pending.payload.value()["data"]["run_id"], ids[0].as_str());
    }
}
