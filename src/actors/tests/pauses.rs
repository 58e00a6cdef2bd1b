//! A worker beside pauses.

use super::support::{Bench, Plan, until, wait};
use crate::domain::pause::Scope;
use crate::domain::task::TaskApplication;
use crate::domain::transition::Principal;
use crate::queue::Paused;

fn ada() -> Principal {
    Principal::operator("ada")
}

fn flows() -> Scope {
    Scope::kind("flow").unwrap()
}

#[test]
fn what_runs_goes_on_and_what_is_paused_waits_until_the_resume() {
    // Nothing comes of itself: a resume is noticed since it wakes.
    let bench = Bench::with(|config| config.poll = std::time::Duration::from_secs(3600), None);
    let handle = bench.runtime.handle();
    bench.tasks.plan("flow", Plan::Wait);
    let running = bench.submit("flow");
    bench.until(&running, "running");
    assert_eq!(wait(handle.pause(flows(), ada(), Some("r".into()))).unwrap(), Paused::Now);
    assert!(matches!(wait(handle.pause(flows(), ada(), None)).unwrap(), Paused::Before(_)));
    let held = bench.submit("flow");
    let free = bench.submit("agent");
    bench.until(&free, "completed");
    assert_eq!(wait(handle.tick()).unwrap().claimed, 0);
    assert_eq!(bench.run(&held).status, "queued");
    assert_eq!(bench.run(&running).status, "running");
    bench.tasks.release();
    bench.until(&running, "completed");

    assert!(!wait(handle.is_work_left()).unwrap(), "nobody waits for what is paused");
    let pauses = wait(handle.pauses()).unwrap();
    assert_eq!((pauses[0].scope.clone(), pauses[0].reason.as_deref()), (flows(), Some("r")));
    assert_eq!(wait(handle.resume(&flows())).unwrap().map(|pause| pause.by), Some(ada()));
    bench.until(&held, "completed");
    assert!(wait(handle.resume(&flows())).unwrap().is_none());
}

/// What is not this worker's stands before and behind what is held.
#[test]
fn a_resume_by_another_process_finds_what_was_held_between_others() {
    let bench = Bench::new();
    let handle = bench.runtime.handle();
    let mut other = bench.other();
    let foreign = |other: &mut crate::Queue| {
        other.submit_task(&TaskApplication::new("agent", "daytona")).unwrap()
    };
    other.pause(flows(), ada(), None).unwrap();
    foreign(&mut other);
    bench.clock.advance(1.0);
    let held = other.submit_task(&TaskApplication::new("flow", "host")).unwrap();
    bench.clock.advance(1.0);
    foreign(&mut other);
    wait(handle.tick()).unwrap();
    let behind = other.submit_task(&TaskApplication::new("agent", "host")).unwrap();
    bench.until(&behind, "completed");
    assert_eq!(bench.run(&held).status, "queued");
    other.resume(&flows()).unwrap();
    bench.until(&held, "completed");
}

/// What it needs is longer than the name of a class, so it is looked at by itself, and must not be tried again and again.
#[test]
fn a_pause_holds_a_task_whatever_the_length_of_its_needs() {
    let token = "x".repeat(700);
    let bench = Bench::with(|config| config.advertise = vec![token.clone()], None);
    let handle = bench.runtime.handle();
    let mut other = bench.other();
    other.pause(flows(), ada(), None).unwrap();
    let mut app = TaskApplication::new("flow", "host");
    app.required_capabilities = vec![token];
    let held = other.submit_task(&app).unwrap();
    assert_eq!(wait(handle.tick()).unwrap().claimed, 0);
    assert_eq!(bench.run(&held).status, "queued");
    assert!(!wait(handle.is_work_left()).unwrap(), "nobody waits for what is paused");
    other.resume(&flows()).unwrap();
    bench.until(&held, "completed");
}

#[test]
fn while_the_whole_queue_is_paused_submits_are_taken_and_nothing_starts() {
    let bench = Bench::new();
    let handle = bench.runtime.handle();
    wait(handle.pause(Scope::Queue, ada(), None)).unwrap();
    let ids: Vec<String> = (0..5).map(|_| bench.submit("agent")).collect();
    assert_eq!(wait(handle.tick()).unwrap().claimed, 0);
    assert!(ids.iter().all(|id| bench.run(id).status == "queued"));
    assert!(!wait(handle.is_work_left()).unwrap());
    wait(handle.resume(&Scope::Queue)).unwrap();
    until(|| match ids.iter().all(|id| bench.run(id).status == "completed") {
        true => Ok(()),
        false => Err("some wait".into()),
    });
    assert_eq!(bench.tasks.launches(), ids, "in their old places");
}
