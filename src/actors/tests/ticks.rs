//! What a tick does, and when there is one.

use std::sync::{Arc, Mutex};

use super::support::{Bench, NOW, Plan, wait};
use crate::db::Seam;
use crate::domain::settings::{RunSettings, When};
use crate::domain::submission::Submission;
use crate::domain::task::TaskApplication;
use crate::queue::WorkerCall;

/// The names of all writes, in order.
fn journal() -> (Arc<Mutex<Vec<&'static str>>>, Seam) {
    let names = Arc::new(Mutex::new(Vec::new()));
    let written = names.clone();
    (names, Arc::new(move |name, _| written.lock().unwrap().push(name)))
}

#[test]
fn a_tick_is_heartbeat_then_reaping_then_claiming() {
    let (names, seam) = journal();
    // No other tick comes in between.
    let bench = Bench::with(|config| config.own_ticks = false, Some(seam));
    bench.tasks.plan("agent", Plan::Wait);
    // A run whose lease has run out, and a heartbeat that is due again.
    bench.submit("agent");
    assert_eq!(wait(bench.runtime.handle().tick()).unwrap().claimed, 1);
    names.lock().unwrap().clear();
    bench.clock.advance(1000.0);
    let ticked = wait(bench.runtime.handle().tick()).unwrap();
    assert_eq!((ticked.requeued, ticked.claimed), (1, 1));
    let order: Vec<_> = names.lock().unwrap().clone();
    let place = |name| {
        order.iter().position(|there| *there == name).unwrap_or_else(|| panic!("{name}: {order:?}"))
    };
    assert!(place("write a heartbeat") < place("reap an expired lease"), "{order:?}");
    assert!(place("reap an expired lease") < place("claim a run"), "{order:?}");
}

#[test]
fn a_submit_in_this_process_starts_a_tick_at_once() {
    let bench = Bench::with(|config| config.poll = std::time::Duration::from_secs(3600), None);
    let mut endings = bench.runtime.handle().endings();
    let id = bench.submit("agent");
    let ended = wait(endings.recv()).unwrap();
    assert_eq!((ended.run_id, ended.exit_code), (id, Some(0)));
}

#[test]
fn a_submit_by_another_process_is_noticed_without_the_timer() {
    let bench = Bench::new();
    let id = bench.other().submit_task(&TaskApplication::new("agent", "host")).unwrap();
    bench.until(&id, "completed");
}

#[test]
fn an_ended_task_makes_room_for_the_next_at_once() {
    let bench = Bench::with(
        |config| {
            config.concurrency = 1;
            config.poll = std::time::Duration::from_secs(3600);
        },
        None,
    );
    let ids: Vec<_> = (0..10).map(|_| bench.submit("agent")).collect();
    for id in &ids {
        bench.until(id, "completed");
    }
    assert_eq!(bench.tasks.launches(), ids, "oldest first");
}

#[test]
fn ticks_that_come_during_a_tick_are_folded_into_one() {
    // The first heartbeat blocks its tick until the other ticks have been asked for.
    let gate = Arc::new(std::sync::Barrier::new(2));
    let held = Mutex::new(Some(gate.clone()));
    let seam: Seam = Arc::new(move |name, _| {
        if name == "write a heartbeat"
            && let Some(gate) = held.lock().unwrap().take()
        {
            gate.wait();
        }
    });
    let bench = Bench::with(|_| {}, Some(seam));
    let handle = bench.runtime.handle();
    let ticked = wait(async {
        let ticks = futures_util::future::join_all((0..100).map(|_| handle.tick()));
        let open = tokio::task::spawn_blocking(move || gate.wait());
        let (ticks, _) = tokio::join!(ticks, open);
        ticks
    });
    // Each of the hundred is answered, and all by the same tick or two.
    assert_eq!(ticked.len(), 100);
    assert!(ticked.into_iter().all(|tick| tick.is_ok()));
    assert_eq!(bench.heartbeats(), [NOW]);
}

#[test]
fn a_wake_up_writes_no_heartbeat_that_is_young_enough() {
    let (names, seam) = journal();
    let bench = Bench::with(|_| {}, Some(seam));
    wait(bench.runtime.handle().tick()).unwrap();
    // What a start does by itself may be late.
    let written = || {
        let names = std::mem::take(&mut *names.lock().unwrap());
        names.into_iter().filter(|name| *name != "forget workers").collect::<Vec<_>>()
    };
    written();
    for _ in 0..5 {
        wait(bench.runtime.handle().tick()).unwrap();
    }
    assert_eq!(written(), [""; 0], "an idle tick writes nothing");
    bench.clock.advance(31.0);
    wait(bench.runtime.handle().tick()).unwrap();
    assert_eq!(written(), ["write a heartbeat"]);
}

#[test]
fn a_lost_claim_is_somebody_else_s_run() {
    let rival: Arc<Mutex<Option<crate::Queue>>> = Arc::default();
    let stealing = rival.clone();
    let seam: Seam = Arc::new(move |name, _| {
        if name == "claim a run"
            && let Some(mut rival) = stealing.lock().unwrap().take()
        {
            let call = WorkerCall::new("host:rival", rival.config());
            let mut hold = |_: &_| panic!("the rival dies with its run");
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                rival.claim_and_execute(&call, &mut hold)
            }));
        }
    });
    let bench = Bench::with(|_| {}, Some(seam));
    *rival.lock().unwrap() = Some(bench.other());
    let id = bench.submit("agent");
    let run = bench.until(&id, "running");
    wait(bench.runtime.handle().tick()).unwrap();
    assert_eq!(run.leased_by.as_deref(), Some("host:rival"));
    assert_eq!(bench.tasks.launches(), Vec::<String>::new());
    assert_eq!(bench.run(&id).lease_attempts, 1);
}

#[test]
fn a_stale_worker_claims_nothing() {
    // No tick of its own may have looked at the heartbeat before it is set back, and at the queue after that.
    let bench = Bench::with(|config| config.own_ticks = false, None);
    wait(bench.runtime.handle().tick()).unwrap();
    // Its own heartbeat is set back behind its back; the next one is not due yet.
    let mut other = bench.other();
    let mut call = WorkerCall::new(bench.runtime.handle().worker_id(), other.config());
    call.now = Some(NOW - 1000.0);
    other.register_heartbeat(&call).unwrap();
    let id = bench.submit("agent");
    wait(bench.runtime.handle().tick()).unwrap();
    assert_eq!(bench.run(&id).status, "queued");
    bench.clock.advance(31.0);
    wait(bench.runtime.handle().tick()).unwrap();
    bench.until(&id, "completed");
}

#[test]
fn rows_for_somebody_else_do_not_hide_the_one_behind_them() {
    let bench = Bench::new();
    let mut app = TaskApplication::new("agent", "host");
    app.required_capabilities = vec!["lean".into()];
    let foreign = vec![Submission::from(app); 5001];
    assert!(bench.other().submit_tasks(&foreign).iter().all(Result::is_ok));
    let id = bench.submit("agent");
    bench.until(&id, "completed");
}

#[test]
fn a_need_that_is_longer_than_a_name_hides_nothing_and_is_met() {
    let token = |number: usize| format!("{}{number}", "x".repeat(700));
    let bench = Bench::with(|config| config.advertise = vec![token(70)], None);
    let mut other = bench.other();
    let submit = |number| {
        let mut app = TaskApplication::new("agent", "host");
        app.required_capabilities = vec![token(number)];
        other.submit_task(&app).unwrap()
    };
    let mut ids: Vec<String> = (0..=70).map(submit).collect();
    let mine = ids.pop().unwrap();
    bench.until(&mine, "completed");
    assert!(ids.iter().all(|id| bench.run(id).status == "queued"));
}

/// Its place is before that of tasks which a worker has looked at long ago.
#[test]
fn a_task_with_a_priority_is_found_before_old_ones_of_somebody_else() {
    let bench = Bench::new();
    let mut other = bench.other();
    for _ in 0..60 {
        other.submit_task(&TaskApplication::new("agent", "daytona")).unwrap();
    }
    bench.clock.advance(30.0);
    wait(bench.runtime.handle().tick()).unwrap();
    let urgent =
        RunSettings { when: When { priority: 1, ..When::default() }, ..RunSettings::default() };
    let app = TaskApplication::new("agent", "host");
    let id = other.submit_task_with(&app, urgent, None).unwrap();
    bench.until(&id, "completed");
}

#[test]
fn tasks_on_one_key_run_one_after_another() {
    let bench = Bench::with(|config| config.advertise = vec!["gpu-exclusive".into()], None);
    bench.tasks.plan("agent", Plan::Wait);
    let mut app = TaskApplication::new("agent", "host");
    app.required_capabilities = vec!["gpu-exclusive".into()];
    let handle = bench.runtime.handle();
    let ids: Vec<_> = (0..3).map(|_| wait(handle.submit(&app)).unwrap()).collect();
    bench.until(&ids[0], "running");
    wait(handle.tick()).unwrap();
    let statuses: Vec<_> = ids.iter().map(|id| bench.run(id).status).collect();
    assert_eq!(statuses, ["running", "queued", "queued"]);
    bench.tasks.release();
    for id in &ids {
        bench.until(id, "completed");
    }
    assert_eq!(bench.tasks.launches(), ids);
}

#[test]
fn a_full_mailbox_refuses_a_submit_and_loses_none_that_it_took() {
    let gate = Arc::new((Mutex::new(false), std::sync::Condvar::new()));
    let held = gate.clone();
    let seam: Seam = Arc::new(move |name, _| {
        if name == "submit a task" {
            let open = held.0.lock().unwrap();
            drop(held.1.wait_while(open, |open| !*open).unwrap());
        }
    });
    let bench = Bench::with(|config| config.mailbox = 16, Some(seam));
    let handle = bench.runtime.handle();
    let app = TaskApplication::new("agent", "host");
    // The writer goes on when one was refused.
    let submit = || async {
        let result = handle.submit(&app).await;
        if result.is_err() {
            *gate.0.lock().unwrap() = true;
            gate.1.notify_all();
        }
        result
    };
    let results = wait(futures_util::future::join_all((0..200).map(|_| submit())));
    let (taken, refused): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    assert!(!refused.is_empty() && !taken.is_empty(), "{} taken", taken.len());
    assert!(
        refused.iter().all(|error| error.as_ref().is_err_and(|error| error.code() == "overloaded"))
    );
    for id in taken {
        bench.until(&id.unwrap(), "completed");
    }
}

#[test]
fn after_a_jump_of_the_clock_the_leases_of_others_are_waited_for() {
    // What is due is left to the ticks that are asked for here.
    let bench = Bench::with(|config| config.own_ticks = false, None);
    let mut rival = bench.other();
    let id = rival.submit_task(&TaskApplication::new("agent", "daytona")).unwrap();
    let mut call = WorkerCall::new("host:rival", rival.config());
    call.execution_targets = vec!["daytona".into()];
    let dies = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        rival.claim_and_execute(&call, &mut |_: &_| panic!("the rival dies with its run"))
    }));
    assert!(dies.is_err());
    let handle = bench.runtime.handle();
    let tick = || wait(handle.tick()).unwrap();
    assert_eq!(tick().requeued, 0);

    // By this clock the lease ran out long ago; its owner has had no time to renew it.
    bench.clock.set(3600.0);
    assert_eq!(tick().requeued, 0);
    bench.clock.advance(299.0);
    assert_eq!(tick().requeued, 0);
    assert_eq!(bench.run(&id).status, "running");
    bench.clock.advance(2.0);
    assert_eq!(tick().requeued, 1);
    assert_eq!(bench.reasons(&id).len(), 2);
}
