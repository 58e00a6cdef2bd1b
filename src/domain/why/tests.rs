use super::super::capability::CapabilityClasses;
use super::super::pause::Scope;
use super::super::transition::Principal;
use super::*;

const NOW: f64 = 1000.0;

fn worker(id: &str, capabilities: &[&str], seen_at: f64) -> SeenWorker {
    SeenWorker {
        id: id.into(),
        capabilities: capabilities.iter().map(|token| (*token).into()).collect(),
        targets: ["host".to_owned()].into(),
        kinds: None,
        seen_at,
        running: 0,
    }
}

fn around(workers: Vec<SeenWorker>) -> Surroundings {
    let classes = CapabilityClasses::default();
    Surroundings { workers, pauses: Vec::new(), classes, now: NOW, stale: 90.0 }
}

/// One that lives and two that are stale, which alone have a `gpu`.
fn three() -> Surroundings {
    around(vec![worker("a", &[], 990.0), worker("b", &["gpu"], 10.0), worker("c", &["gpu"], 20.0)])
}

fn view(status: Status) -> View {
    View {
        status,
        reason: None,
        exit_code: None,
        kind: "agent".into(),
        is_scheduled: false,
        needs: Some(vec!["gpu".into()]),
        target: "host".into(),
        key: None,
        ahead: 2,
        wake_at: None,
        expires_at: None,
        is_cancel_requested: false,
        owner: Some("a".into()),
        lease_expires_at: Some(NOW + 60.0),
        progress: None,
    }
}

fn explained(view: &View) -> Vec<String> {
    explained_in(view, &three())
}

fn explained_in(view: &View, around: &Surroundings) -> Vec<String> {
    let found = explain(view, around);
    let line = |finding: &Finding| {
        format!("{}{}: {}", if finding.blocks { "! " } else { "" }, finding.check, finding.what)
    };
    found.iter().map(line).collect()
}

#[test]
fn a_queued_run_tells_each_predicate_with_its_numbers() {
    assert_eq!(
        explained(&view(Status::Queued)),
        [
            "adapter: an adapter for the kind \"agent\" is on 1 of 1 live workers (2 are stale)",
            "! capability: \"gpu\" is advertised by 0 of 1 live workers (2 are stale)",
            "target: the target \"host\" is served by 1 of 1 live workers (2 are stale)",
            "! worker: all of it together is served by 0 of 1 live workers (2 are stale)",
            "place: 2 are before it in the queue",
        ]
    );
    let mut held = view(Status::Queued);
    let around = Surroundings {
        pauses: vec![
            pause(Scope::Queue, Some("a fire")),
            pause(Scope::Kind("flow".into()), None),
            pause(Scope::Target("host".into()), None),
        ],
        ..around(vec![SeenWorker { running: 3, ..worker("a", &["gpu", "warmed-cache"], NOW) }])
    };
    held.needs = Some(vec!["gpu".into(), "warmed-cache".into()]);
    held.kind = "workflow".into();
    held.key = Some(Key {
        key: "h:gpu".into(),
        held_by: Some(("r2".into(), Some("a".into()), Some(970.0))),
    });
    held.expires_at = Some(NOW + 5.0);
    assert_eq!(
        explained_in(&held, &around),
        [
            "! pause: paused since 60 s by operator ada: the whole queue: a fire",
            "! pause: paused since 60 s by operator ada: the target \"host\"",
            "! adapter: an adapter for the kind \"workflow\" is on 0 of 1 live workers",
            "capability: \"gpu\" is advertised by 1 of 1 live workers",
            "capability: \"warmed-cache\" is advertised by 1 of 1 live workers; it is a preference",
            "target: the target \"host\" is served by 1 of 1 live workers",
            "! worker: all of it together is served by 0 of 1 live workers",
            "! key: its key \"h:gpu\" is held by r2 of a, since 30 s",
            "place: 2 are before it in the queue",
            "expiry: it is skipped if it is not started in 5 s",
        ]
    );
}

fn pause(scope: Scope, reason: Option<&str>) -> Pause {
    let reason = reason.map(str::to_owned);
    Pause { scope, since: NOW - 60.0, by: Principal::operator("ada"), reason }
}

#[test]
fn a_few_words_say_the_first_thing_that_blocks_a_run() {
    let said = |view: &View, around: &Surroundings| {
        let found = explain(view, around);
        short(&found).map(|short| (short.words.clone(), short.at))
    };
    let words = |text: &str| Some((text.to_owned(), None));
    let mut run = view(Status::Queued);
    assert_eq!(said(&run, &three()), words("no worker has gpu"));
    assert_eq!(said(&run, &around(vec![])), words("no live worker"));
    run.needs = None;
    assert_eq!(said(&run, &three()), words("unreadable requirement"));
    run.needs = Some(vec![]);
    assert_eq!(said(&run, &three()), words("next (3rd)"));
    run.ahead = 0;
    assert_eq!(said(&run, &three()), words("next"));
    let held_by = Some(("1a2b3c4d-5e6f".into(), None, None));
    run.key = Some(Key { key: "vm:gpu".into(), held_by });
    assert_eq!(said(&run, &three()), words("waits for key vm:gpu held by 1a2b3c4d"));
    let paused = Surroundings { pauses: vec![pause(Scope::Queue, None)], ..three() };
    assert_eq!(said(&run, &paused), words("paused"));
    let moment = |word: &str, at| Some((word.to_owned(), Some(at)));
    run.wake_at = Some(NOW + 5.0);
    run.status = Status::RetryWait;
    assert_eq!(said(&run, &paused), moment("retry at", NOW + 5.0));
    run.status = Status::WaitingDependency;
    assert_eq!(said(&run, &paused), moment("not before", NOW + 5.0));
    run.status = Status::Running;
    assert_eq!(said(&run, &paused), None);
    run.owner = Some("b".into());
    assert_eq!(said(&run, &paused), words("its worker is gone"));
    run.status = Status::Completed;
    assert_eq!(said(&run, &paused), None);
}

#[test]
fn places_are_counted_as_people_do() {
    let said: Vec<_> = [1, 2, 3, 4, 11, 12, 13, 21, 102, 111, 113].map(ordinal).into();
    let all = "1st 2nd 3rd 4th 11th 12th 13th 21st 102nd 111th 113th";
    assert_eq!(said.join(" "), all);
}

#[test]
fn a_task_that_is_not_submitted_could_start_or_names_what_it_would_wait_for() {
    let mut run = view(Status::Queued);
    run.needs = Some(vec![]);
    let found = start(&explain(&run, &three()));
    assert!(!found.blocks);
    assert_eq!(
        found.what,
        "it could be claimed now; all of it together is served by 1 of 1 live workers (2 are stale): a (runs 0); \
         2 are before it in the queue"
    );
    run.wake_at = Some(NOW + 5.0);
    let found = start(&explain(&run, &three()));
    assert!(found.blocks);
    assert_eq!(found.what, "it would wait; not before: it goes to the queue in 5 s");
}

#[test]
fn what_a_task_has_said_is_not_repeated() {
    let failed =
        View { exit_code: Some(7), reason: Some("hunter2".into()), ..view(Status::Failed) };
    let said = explained(&failed);
    assert_eq!(said, ["ended: it is failed: exit code 7; `leasehold show` has what it said"]);
}

#[test]
fn what_waits_runs_or_has_ended_is_told_apart() {
    let mut waits = view(Status::RetryWait);
    waits.reason = Some("failure 1 of 3".into());
    waits.wake_at = Some(NOW + 10.0);
    assert_eq!(
        explained(&waits),
        [
            "! status: it is retry_wait: failure 1 of 3",
            "! not before: it goes back to the queue in 10 s"
        ]
    );
    let mut runs = view(Status::Running);
    assert_eq!(
        explained(&runs),
        [
            "owner: it runs under a, seen 10 s ago",
            "lease: its lease runs out in 60 s, unless it is renewed"
        ]
    );
    runs.owner = Some("b".into());
    runs.lease_expires_at = Some(NOW - 5.0);
    runs.is_cancel_requested = true;
    let said = explained(&runs);
    assert!(said.iter().all(|line| line.starts_with("! ")), "{said:?}");
    let ended = View { reason: Some("done".into()), ..view(Status::Completed) };
    assert_eq!(explained(&ended), ["ended: it is completed: done"]);
}
