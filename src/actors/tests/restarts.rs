//! A panic in each actor, through the seams it is given, and what works afterwards.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::support::{Bench, Plan, until, wait};
use crate::RuntimeConfig;
use crate::db::Seam;
use crate::domain::restart::RestartLimit;
use crate::domain::task::TaskApplication;
use crate::runtime::{ExitReason, Outside, Runtime};

/// A seam that panics before the next write with this name, as often as it is told to.
fn mine(name: &'static str) -> (Arc<AtomicU32>, Seam) {
    let left = Arc::new(AtomicU32::new(0));
    let armed = left.clone();
    let seam: Seam = Arc::new(move |there, _| {
        let take = |left: u32| left.checked_sub(1);
        if there == name && armed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok() {
            panic!("armed: {name}");
        }
    });
    (left, seam)
}

#[test]
fn the_writer_dies_and_no_submit_is_lost() {
    let (mine, seam) = mine("submit a task");
    let bench = Bench::with(|_| {}, Some(seam));
    let first = bench.submit("agent");
    bench.until(&first, "completed");
    mine.store(1, Ordering::SeqCst);
    let second = bench.submit("agent");
    bench.until(&second, "completed");
    assert_eq!(bench.history(&second).len(), 2);
    assert_eq!(bench.end(), ExitReason::Shutdown);
}

#[test]
fn the_writer_dies_at_an_end_and_the_end_is_written_all_the_same() {
    let (mine, seam) = mine("change a status");
    let bench = Bench::with(|_| {}, Some(seam));
    mine.store(2, Ordering::SeqCst);
    let id = bench.submit("agent");
    let run = bench.until(&id, "completed");
    assert_eq!(run.lease_attempts, 1);
    assert_eq!(bench.reasons(&id), ["run.started.ok", "run.completed.ok"]);
}

#[test]
fn an_executor_dies_and_its_run_fails_while_others_go_on() {
    let bench = Bench::new();
    bench.tasks.plan("flow", Plan::Panic);
    bench.tasks.plan("agent", Plan::Wait);
    let healthy = bench.submit("agent");
    bench.until(&healthy, "running");
    let poisoned = bench.submit("flow");
    let run = bench.until(&poisoned, "failed");
    assert_eq!(run.status_reason_code.as_deref(), Some("run.failed.exception"));
    assert_eq!(run.exit_code, Some(1));
    bench.tasks.release();
    bench.until(&healthy, "completed");
    wait(bench.runtime.handle().idle()).unwrap();
    assert_eq!(bench.end(), ExitReason::Shutdown);
}

/// A seam that makes an actor panic at its next message, as often as it is told to.
#[derive(Debug, Default)]
struct Mine {
    left: AtomicU32,
    actor: Mutex<&'static str>,
}

impl Mine {
    fn arm(&self, actor: &'static str, times: u32) {
        *self.actor.lock().unwrap() = actor;
        self.left.store(times, Ordering::SeqCst);
    }

    fn pass(&self, actor: &'static str) {
        let armed = *self.actor.lock().unwrap() == actor;
        let take = |left: u32| left.checked_sub(1);
        if armed && self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok() {
            panic!("armed: {actor}");
        }
    }

    fn is_spent(&self) -> bool {
        self.left.load(Ordering::SeqCst) == 0
    }
}

fn mined(settings: impl FnOnce(&mut RuntimeConfig)) -> (Arc<Mine>, Bench) {
    let mine = Arc::new(Mine::default());
    let passed = mine.clone();
    (mine, Bench::mined(settings, Arc::new(move |actor| passed.pass(actor))))
}

const LOOPS: [&str; 7] = ["scheduler", "worker", "heartbeat", "reaper", "claim", "dispatch", "db"];

#[test]
fn a_panic_in_each_actor_is_followed_by_a_working_tick() {
    for actor in LOOPS {
        let (mine, bench) = mined(|_| {});
        let first = bench.submit("agent");
        bench.until(&first, "completed");
        mine.arm(actor, 1);
        let second = bench.submit("agent");
        bench.until(&second, "completed");
        until(|| if mine.is_spent() { Ok(()) } else { Err(format!("{actor} did not panic")) });
        // The panic may be so fresh that the tick meets the restart.
        until(|| match wait(bench.runtime.handle().tick()) {
            Err(error) if error.is_retryable() => Err(format!("{actor}: {error}")),
            answer => Ok(answer.unwrap_or_else(|error| panic!("{actor}: {error}"))),
        });
        let third = bench.submit("agent");
        bench.until(&third, "completed");
        for id in [first, second, third] {
            assert_eq!(bench.history(&id).len(), 2, "{actor}: {id} ran once");
        }
        assert_eq!(bench.end(), ExitReason::Shutdown, "{actor}");
    }
}

#[test]
fn a_restart_of_the_loops_leaves_running_tasks_alone() {
    for actor in LOOPS {
        let (mine, bench) = mined(|_| {});
        bench.tasks.plan("flow", Plan::Wait);
        let running = bench.submit("flow");
        bench.until(&running, "running");
        mine.arm(actor, 1);
        let other = bench.submit("agent");
        bench.until(&other, "completed");
        bench.tasks.release();
        let run = bench.until(&running, "completed");
        assert_eq!(run.lease_attempts, 1, "{actor}");
    }
}

#[test]
fn twenty_panics_in_a_row_lose_no_task() {
    let (mine, bench) = mined(|config| {
        config.restarts = RestartLimit { deaths: 100, within: Duration::from_millis(50) };
    });
    let mut ids = Vec::new();
    for round in 0..20 {
        mine.arm(LOOPS[round % LOOPS.len()], 1);
        ids.push(bench.submit("agent"));
        until(|| if mine.is_spent() { Ok(()) } else { Err(format!("round {round}: no panic")) });
    }
    for id in &ids {
        bench.until(id, "completed");
        assert_eq!(bench.history(id).len(), 2);
    }
    assert_eq!(bench.end(), ExitReason::Shutdown);
}

#[test]
fn an_actor_that_dies_too_often_ends_the_runtime_with_70() {
    let (mine, bench) = mined(|_| {});
    let mut other = bench.other();
    mine.arm("claim", 1000);
    // Not by way of the runtime: it may have ended by now.
    let id = other.submit_task(&TaskApplication::new("agent", "host")).unwrap();
    let reason = bench.runtime.join();
    assert_eq!((reason, reason.code()), (ExitReason::RestartsSpent { actor: "claim" }, 70));
    assert_eq!(other.run(&id).unwrap().status, "queued", "nothing is lost");
}

#[test]
fn a_handle_to_a_runtime_that_has_ended_says_so() {
    let bench = Bench::new();
    let handle = bench.runtime.handle();
    assert_eq!(bench.end(), ExitReason::Shutdown);
    let app = TaskApplication::new("agent", "host");
    assert_eq!(wait(handle.submit(&app)).unwrap_err().code(), "runtime_restarted");
}

#[test]
fn settings_that_cannot_be_safe_are_refused_with_the_numbers() {
    let mut config = RuntimeConfig::new(crate::db::StoreUrl::Sqlite("/nowhere/queue.db".into()));
    config.queue.lease_ttl = 1.0;
    let error = Runtime::start_with(config, Outside::default()).unwrap_err();
    assert!(error.to_string().contains("1 s"), "{error}");
}
