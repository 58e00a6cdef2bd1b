//! Requests for a change that carry a key: asked once or many times, the change is made once.

use std::collections::BTreeMap;

use leasehold::domain::dispatch::DispatchStatus;
use leasehold::domain::transition::{
    Checked, DispatchGuard, DispatchPatch, Guard, Outcome, Patch, Principal, StateReason,
    TransitionRequest,
};
use leasehold::{Config, Error, Queue};
use serde_json::json;

use crate::children::{self, Beside};
use crate::kit::{assert_one_path, at_once, claim, count, snapshot, store, submit, task, write};
use crate::places::{Place, engines};

fn queue(place: &Place) -> Queue {
    Queue::open(&place.url, Config::daemon()).unwrap()
}

/// `from` absent takes whatever there is.
fn request(run_id: &str, from: Option<&str>, to: &str, key: &str) -> TransitionRequest {
    TransitionRequest {
        entity_type: "schedule_run".into(),
        entity_id: run_id.into(),
        from_state: from.map(str::to_owned),
        to_state: to.into(),
        reason: StateReason { code: "run.cancelled.operator".into(), ..StateReason::default() },
        actor: Principal::operator("ada"),
        idempotency_key: key.into(),
    }
}

/// Asks again for as long as the store is busy.
fn ask(queue: &mut Queue, request: &TransitionRequest) -> Result<Outcome, Error> {
    loop {
        match queue.transition(request, Guard::default(), Patch::default()) {
            Err(error) if error.is_retryable() => {}
            answer => return answer,
        }
    }
}

#[test]
fn the_same_request_is_answered_with_the_first_result_whatever_has_happened_since() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut queue = queue(&place);
        let id = queue.submit_task(&task()).unwrap();
        store(&place).write(&claim(&id, None, "w", "f")).unwrap();
        let back = request(&id, None, "queued", "k");
        let first = ask(&mut queue, &back).unwrap();
        assert!(matches!(first, Outcome::Applied { event_id: Some(_), .. }), "{first:?}");
        // The edge would be there again: without its key it would be made again.
        store(&place).write(&claim(&id, None, "w", "f2")).unwrap();
        let before = snapshot(&mut place.raw());
        assert_eq!(ask(&mut queue, &back).unwrap(), first);
        // Another process, and through the JSON door with its names in another order.
        let json = json!({
            "idempotency_key": "k", "actor": {"id": "ada", "type": "operator"}, "to_state": "queued",
            "reason": {"code": "run.cancelled.operator"}, "entity_id": id, "entity_type": "schedule_run",
        });
        let other = TransitionRequest::from_json(&json).unwrap().check_columns(None, None).unwrap();
        let Checked::Run(other) = other else { panic!("{other:?}") };
        assert_eq!(self::queue(&place).change(other, None).unwrap(), first);
        assert_eq!(snapshot(&mut place.raw()), before, "nothing was written again");
        // Another key is another request.
        let again = ask(&mut queue, &request(&id, None, "queued", "k2")).unwrap();
        assert!(again.is_applied() && again != first);
        // It has even ended.
        ask(&mut queue, &request(&id, None, "cancelled", "k3")).unwrap();
        assert_eq!(ask(&mut queue, &back).unwrap(), first);
        assert_one_path(&mut place.raw(), &id);
    }
}

#[test]
fn a_key_stands_for_one_change_of_its_run() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut queue = queue(&place);
        let (a, b) = (queue.submit_task(&task()).unwrap(), queue.submit_task(&task()).unwrap());
        let first = ask(&mut queue, &request(&a, Some("queued"), "running", "k")).unwrap();
        let Outcome::Applied { transition_id, .. } = first else { panic!("{first:?}") };
        let before = snapshot(&mut place.raw());
        let same = || request(&a, Some("queued"), "running", "k");
        let mut others = vec![
            request(&a, None, "running", "k"),
            request(&a, Some("running"), "completed", "k"),
            // Refused as an edge, if it were asked.
            request(&a, None, "skipped", "k"),
        ];
        others.push(TransitionRequest { actor: Principal::operator("eve"), ..same() });
        let summary = StateReason { summary: "why".into(), ..same().reason };
        others.push(TransitionRequest { reason: summary, ..same() });
        for other in &others {
            let error = ask(&mut queue, other).unwrap_err();
            let Error::TransitionKeyTaken { key, id, existing, .. } = &error else {
                panic!("{error}")
            };
            assert_eq!((key.as_str(), id, existing), ("k", &a, &transition_id));
            assert_eq!((error.code(), error.is_invalid()), ("idempotency_conflict", false));
            assert!(error.to_string().contains(&transition_id), "{error}");
        }
        let guard = Guard { lease_attempts: Some(0), ..Guard::default() };
        let guarded = queue.transition(&same(), guard, Patch::default());
        assert!(matches!(guarded, Err(Error::TransitionKeyTaken { .. })), "{guarded:?}");
        assert_eq!(snapshot(&mut place.raw()), before);
        // Of another run it is another key.
        assert!(
            ask(&mut queue, &request(&b, Some("queued"), "running", "k")).unwrap().is_applied()
        );
    }
}

#[test]
fn what_is_refused_or_lost_leaves_its_key_free() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut queue = queue(&place);
        let id = queue.submit_task(&task()).unwrap();
        let before = snapshot(&mut place.raw());
        let lost = ask(&mut queue, &request(&id, Some("running"), "completed", "k")).unwrap();
        assert!(!lost.is_applied(), "{lost:?}");
        let refused = ask(&mut queue, &request(&id, None, "completed", "k")).unwrap_err();
        assert_eq!(refused.code(), "undeclared_edge");
        let missing = ask(&mut queue, &request("nobody", None, "cancelled", "k")).unwrap_err();
        assert!(missing.is_not_found(), "{missing}");
        assert_eq!(snapshot(&mut place.raw()), before);
        assert!(ask(&mut queue, &request(&id, None, "cancelled", "k")).unwrap().is_applied());
    }
}

#[test]
fn a_key_without_its_form_is_refused_and_the_contract_looks_at_none() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut queue = queue(&place);
        let id = queue.submit_task(&task()).unwrap();
        let before = snapshot(&mut place.raw());
        for key in ["", "two words", "a\n", "a\0", "\u{200b}", &"k".repeat(256)] {
            let error = ask(&mut queue, &request(&id, None, "running", key)).unwrap_err();
            assert_eq!((error.code(), error.is_invalid()), ("idempotency_key", true), "{key:?}");
        }
        assert_eq!(snapshot(&mut place.raw()), before);
        let mut plain = place.queue();
        for (to, key) in [("running", "two words"), ("queued", "two words"), ("running", "")] {
            let applied = ask(&mut plain, &request(&id, None, to, key)).unwrap();
            assert!(matches!(applied, Outcome::Applied { event_id: None, .. }), "{applied:?}");
        }
        assert_eq!(count(&mut place.raw(), "leasehold_transition_keys"), 0);
    }
}

#[test]
fn a_key_is_forgotten_with_its_run() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut queue = queue(&place);
        let id = queue.submit_task(&task()).unwrap();
        let cancel = request(&id, None, "cancelled", "k");
        assert!(ask(&mut queue, &cancel).unwrap().is_applied());
        place.raw().run("DELETE FROM schedule_runs");
        assert!(ask(&mut queue, &cancel).unwrap_err().is_not_found());
        assert_eq!(count(&mut place.raw(), "leasehold_transition_keys"), 0);
    }
}

const NOTICE: &str =
    "INSERT INTO dispatch_outbox (id, kind, deliver_to, payload, status, attempt, max_attempts,
        next_attempt_at, ack_required, created_at)
    VALUES ('n', 'terminal_notify', 'x', '{}', 'pending', 0, 8, 1, 0, 1)";

fn ask_notice(
    queue: &mut Queue,
    from: Option<&str>,
    to: &str,
    key: &str,
) -> Result<Outcome<DispatchStatus>, Error> {
    let request = TransitionRequest {
        entity_type: "dispatch".into(),
        reason: StateReason {
            code: "dispatch.delivering.attempt".into(),
            ..StateReason::default()
        },
        ..request("n", from, to, key)
    };
    let guard = DispatchGuard { attempt: Some(0), ..DispatchGuard::default() };
    let change = request.check_dispatch(guard, DispatchPatch::default()).unwrap();
    loop {
        match queue.change_dispatch(change.clone()) {
            Err(error) if error.is_retryable() => {}
            answer => return answer,
        }
    }
}

#[test]
fn a_key_of_a_notice_counts_as_one_of_a_run() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut queue = queue(&place);
        place.raw().run(NOTICE);
        let lost = ask_notice(&mut queue, Some("delivering"), "pending", "k").unwrap();
        assert!(!lost.is_applied(), "{lost:?}");
        let refused = ask_notice(&mut queue, None, "dead_letter", "k").unwrap_err();
        assert_eq!(refused.code(), "undeclared_edge");
        assert_eq!(count(&mut place.raw(), "leasehold_dispatch_keys"), 0, "the key is free");

        // `delivering` has an edge to itself: each repetition would apply.
        let first = ask_notice(&mut queue, None, "delivering", "k").unwrap();
        let Outcome::Applied { transition_id, .. } = &first else { panic!("{first:?}") };
        let before = snapshot(&mut place.raw());
        assert_eq!(ask_notice(&mut queue, None, "delivering", "k").unwrap(), first);
        let error = ask_notice(&mut queue, Some("pending"), "delivering", "k").unwrap_err();
        assert_eq!((error.code(), error.is_invalid()), ("idempotency_conflict", false));
        assert!(
            error.to_string().contains(&format!("{transition_id} of the dispatch n")),
            "{error}"
        );
        let blank = ask_notice(&mut queue, None, "delivering", "two words").unwrap_err();
        assert_eq!(blank.code(), "idempotency_key");
        assert_eq!(snapshot(&mut place.raw()), before, "nothing was written");

        // Whatever has become of it since.
        assert!(ask_notice(&mut queue, None, "delivered", "k2").unwrap().is_applied());
        assert_eq!(ask_notice(&mut queue, None, "delivering", "k").unwrap(), first);
        place.raw().run("DELETE FROM dispatch_outbox");
        assert!(ask_notice(&mut queue, None, "delivering", "k").unwrap_err().is_not_found());
        assert_eq!(count(&mut place.raw(), "leasehold_dispatch_keys"), 0);

        // The contract by itself looks at no key.
        let mut plain = place.queue();
        place.raw().run(NOTICE);
        for _ in 0..2 {
            assert!(ask_notice(&mut plain, None, "delivering", "k").unwrap().is_applied());
        }
        assert_eq!(count(&mut place.raw(), "leasehold_dispatch_keys"), 0);
    }
}

#[test]
fn of_many_who_ask_for_a_change_of_a_notice_under_one_key_one_makes_it() {
    for engine in engines() {
        let place = Place::new(engine);
        queue(&place);
        place.raw().run(NOTICE);
        let answers = at_once(8, |_| {
            let mut queue = queue(&place);
            [(); 4].map(|()| ask_notice(&mut queue, None, "delivering", "one").unwrap())
        });
        let first = &answers[0][0];
        assert!(first.is_applied() && answers.iter().flatten().all(|answer| answer == first));
        assert_eq!(count(&mut place.raw(), "status_transitions"), 1);
    }
}

/// What a child does: asks 16 times for one change, on four threads, and says each answer.
pub fn asks(url: &str) {
    let answers = at_once(4, |_| {
        let mut queue = Queue::open(url, Config::daemon()).unwrap();
        [(); 4].map(|()| format!("{:?}", ask(&mut queue, &request("r", None, "running", "one"))))
    });
    answers.iter().flatten().for_each(|answer| children::say(answer));
}

#[test]
fn of_sixty_four_requests_of_four_processes_one_makes_the_change() {
    for engine in engines() {
        let place = Place::new(engine);
        store(&place).write(&submit("r")).unwrap();
        let children = [(); 4].map(|()| Beside::start("ask", &place.url));
        let mut answers: BTreeMap<String, usize> = BTreeMap::new();
        for child in children {
            while let Some(answer) = child.line() {
                *answers.entry(answer).or_default() += 1;
            }
            assert!(child.wait().success(), "{engine:?}: {answers:?}");
        }
        assert_eq!(answers.len(), 1, "{engine:?}: {answers:?}");
        let (answer, times) = answers.pop_first().unwrap();
        assert!(answer.starts_with("Ok(Applied") && times == 64, "{engine:?}: {times} {answer}");
        assert_eq!(count(&mut place.raw(), "status_transitions"), 1);
    }
}

/// The run has moved on and back before a late repetition gets its turn: it waits for the row, and then sees the key.
#[test]
fn a_request_that_waited_for_its_own_repetition_is_not_made_again() {
    for engine in engines() {
        let place = Place::new(engine);
        store(&place).write(&submit("r")).unwrap();
        let applied = at_once(8, |number| {
            let mut queue = queue(&place);
            let mut store = store(&place);
            let mut answers = Vec::new();
            for round in 0..10 {
                let key = format!("k{round}");
                if number % 2 == 0 {
                    let back = request("r", None, "queued", &key);
                    answers.push((round, ask(&mut queue, &back)));
                } else {
                    let fact = format!("{number}-{round}");
                    write(&mut store, &claim("r", None, "w", &fact));
                }
            }
            answers
        });
        let mut first: BTreeMap<usize, Outcome> = BTreeMap::new();
        for (round, answer) in applied.into_iter().flatten() {
            // Nothing to give back at that moment is no answer that counts.
            if let Ok(outcome @ Outcome::Applied { .. }) = answer {
                assert_eq!(*first.entry(round).or_insert_with(|| outcome.clone()), outcome);
            }
        }
        let mut raw = place.raw();
        let back = "status_transitions WHERE reason_code = 'run.cancelled.operator'";
        assert_eq!(count(&mut raw, back), first.len(), "{engine:?}");
        assert_one_path(&mut raw, "r");
    }
}
