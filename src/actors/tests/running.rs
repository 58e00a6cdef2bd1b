//! What becomes of a run: its end, its lease, its way back.

use std::time::Duration;

use super::support::{Bench, NOW, Plan, failing, until, wait};
use crate::db::tests::write_sql;
use crate::domain::ending::Execution;
use crate::domain::settings::RunSettings;
use crate::domain::status::Status;
use crate::domain::task::TaskApplication;
use crate::domain::transition::Principal;
use crate::queue::WorkerCall;
use crate::runtime::{Cancelled, ExitReason, LaunchFailure};

/// Renewals come by the machine's own clock, three in a lease, and so does the fence: not before a machine that pauses for
/// some seconds has renewed.
const TTL: f64 = 15.0;

#[test]
fn ends_are_stored_with_their_code_and_words() {
    let bench = Bench::new();
    let ends = [
        ("agent", Plan::End(Ok(Execution { exit_code: 0, detail: "dropped".into() }))),
        ("flow", Plan::End(Ok(Execution { exit_code: 7, detail: "bad".into() }))),
        ("play", Plan::End(Ok(Execution { exit_code: -9, detail: String::new() }))),
        ("fanout", failing("LiNotFound", "no li")),
    ];
    let ids: Vec<_> = ends
        .into_iter()
        .map(|(kind, plan)| {
            bench.tasks.plan(kind, plan);
            bench.submit(kind)
        })
        .collect();
    let run = bench.until(&ids[0], "completed");
    assert_eq!((run.exit_code, run.error_detail, run.lease_attempts), (Some(0), None, 1));
    let run = bench.until(&ids[1], "failed");
    assert_eq!((run.exit_code, run.error_detail.as_deref()), (Some(7), Some("bad")));
    let run = bench.until(&ids[2], "failed");
    assert_eq!((run.exit_code, run.error_detail.as_deref()), (Some(-9), Some("exit code -9")));
    let run = bench.until(&ids[3], "failed");
    assert_eq!((run.exit_code, run.error_detail.as_deref()), (Some(1), Some("LiNotFound: no li")));
    assert_eq!(bench.reasons(&ids[1]), ["run.started.ok", "run.failed.exit_nonzero"]);
}

#[test]
fn a_task_that_outlives_its_ttl_keeps_its_lease() {
    let bench = Bench::with(|config| config.queue.lease_ttl = TTL, None);
    bench.tasks.plan("agent", Plan::Wait);
    let id = bench.submit("agent");
    let first = bench.until(&id, "running").lease_expires_at.unwrap();
    // The renewal comes by its own timer, a third of a TTL later.
    bench.clock.advance(4.0);
    let renewed = until(|| {
        let expiry = bench.run(&id).lease_expires_at.unwrap();
        if expiry > first { Ok(expiry) } else { Err(format!("still {expiry}")) }
    });
    assert_eq!(renewed, NOW + 4.0 + TTL);
    bench.tasks.release();
    let run = bench.until(&id, "completed");
    assert_eq!(run.lease_attempts, 1);
    assert_eq!(bench.history(&id).len(), 2, "a renewal is no transition");
}

#[test]
fn a_lease_that_somebody_took_stops_the_task_and_drops_its_result() {
    let bench = Bench::with(|config| config.queue.lease_ttl = TTL, None);
    bench.tasks.plan("agent", Plan::Wait);
    let id = bench.submit("agent");
    bench.until(&id, "running");
    // Another worker reaps it, by a clock that is ahead; this one hears of it at its next renewal.
    let reaped = bench.other().reap_expired_leases(Some(NOW + 1000.0)).unwrap();
    assert_eq!(reaped.requeued, 1);
    until(|| {
        let launches = bench.tasks.launches().len();
        if launches == 2 { Ok(()) } else { Err(format!("{launches} launches")) }
    });
    bench.tasks.release();
    let run = bench.until(&id, "completed");
    assert_eq!(run.lease_attempts, 2);
    assert_eq!(
        bench.reasons(&id),
        ["run.started.ok", "run.queued.lease_expired", "run.started.ok", "run.completed.ok"]
    );
}

#[test]
fn a_machine_out_of_resources_gives_the_run_back() {
    let bench = Bench::new();
    bench.tasks.plan("agent", Plan::End(Err(LaunchFailure::NoResources("no descriptors".into()))));
    let id = bench.submit("agent");
    until(|| {
        let reasons = bench.reasons(&id);
        if reasons.iter().any(|code| code == "run.queued.start_failed") {
            Ok(())
        } else {
            Err(format!("{reasons:?}"))
        }
    });
    bench.tasks.plan("agent", Plan::End(Ok(Execution::OK)));
    bench.until(&id, "completed");
}

#[test]
fn arguments_that_nobody_can_read_end_the_run() {
    let bench = Bench::new();
    let mut app = TaskApplication::new("agent", "host");
    app.required_capabilities = vec!["later".into()];
    let mut other = bench.other();
    let id = other.submit_task(&app).unwrap();
    drop(other);
    let path = bench.url.strip_prefix("sqlite:").unwrap();
    write_sql(
        path,
        "UPDATE schedule_runs SET action_args = 'not json', required_capabilities = '[]'",
    );
    wait(bench.runtime.handle().tick()).unwrap();
    let run = bench.until(&id, "failed");
    assert!(run.error_detail.unwrap().contains("action_args"));
    assert!(bench.tasks.launches().is_empty());
}

#[test]
fn a_queued_task_is_cancelled_at_once_and_a_running_one_when_its_tree_is_dead() {
    let bench = Bench::with(|config| config.concurrency = 1, None);
    bench.tasks.plan("agent", Plan::Wait);
    let (running, queued) = (bench.submit("agent"), bench.submit("agent"));
    bench.until(&running, "running");
    let cancel =
        |id: &str| wait(bench.runtime.handle().cancel(id, Principal::operator("test"))).unwrap();
    assert!(matches!(cancel(&queued), Cancelled::Yes { .. }));
    assert_eq!(cancel(&running), Cancelled::Requested);
    let run = bench.until(&running, "cancelled");
    assert_eq!(run.status_reason_code.as_deref(), Some("run.cancelled.operator"));
    assert_eq!(bench.history(&running)[1].actor.as_deref(), Some("test"), "who asked for it");
    assert_eq!(cancel(&running), Cancelled::TooLate(Status::Cancelled));
    assert_eq!(cancel("nobody"), Cancelled::NotFound);
    let nul = wait(bench.runtime.handle().cancel("no\0body", Principal::operator("test")));
    assert_eq!(nul.unwrap_err().code(), "nul");
    assert_eq!(bench.tasks.launches(), [running]);
}

#[test]
fn a_cancel_by_another_process_reaches_the_task() {
    let bench = Bench::new();
    bench.tasks.plan("agent", Plan::Wait);
    let id = bench.submit("agent");
    bench.until(&id, "running");
    let by = Principal::operator("elsewhere");
    assert_eq!(bench.other().cancel(&id, &by).unwrap(), Cancelled::Requested);
    bench.until(&id, "cancelled");
}

#[test]
fn a_cancel_of_a_run_whose_worker_is_gone_is_carried_out_by_the_reaper() {
    let bench = Bench::new();
    let mut rival = bench.other();
    let mut app = TaskApplication::new("agent", "daytona");
    app.required_capabilities = vec!["rival".into()];
    let id = rival.submit_task(&app).unwrap();
    let mut call = WorkerCall::new("host:rival", rival.config());
    call.advertised_capabilities = vec!["rival".into()];
    call.execution_targets = vec!["daytona".into()];
    let dies = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        rival.claim_and_execute(&call, &mut |_: &_| panic!("the rival dies with its run"))
    }));
    assert!(dies.is_err());
    let cancel = wait(bench.runtime.handle().cancel(&id, Principal::operator("test"))).unwrap();
    assert_eq!(cancel, Cancelled::Requested);
    wait(bench.runtime.handle().tick()).unwrap();
    assert_eq!(bench.run(&id).status, "running", "its lease has not run out");
    bench.clock.advance(1000.0);
    wait(bench.runtime.handle().tick()).unwrap();
    assert_eq!(bench.run(&id).status, "cancelled");
    assert_eq!(bench.reasons(&id), ["run.started.ok", "run.cancelled.operator"]);
}

#[test]
fn a_task_that_takes_too_long_times_out() {
    let bench = Bench::new();
    bench.tasks.plan("agent", Plan::Wait);
    let settings = RunSettings { timeout: Some(0.1), ..RunSettings::default() };
    let app = TaskApplication::new("agent", "host");
    let id = wait(bench.runtime.handle().submit_with(&app, settings, None)).unwrap();
    let run = bench.until(&id, "timed_out");
    assert_eq!(run.status_reason_code.as_deref(), Some("run.timed_out.deadline"));
    assert!(run.ended_at.is_some());
}

#[test]
fn the_third_lease_that_runs_out_ends_the_run() {
    let bench = Bench::new();
    let mut rival = bench.other();
    let mut app = TaskApplication::new("agent", "daytona");
    app.args.insert("n".into(), serde_json::json!(1));
    let id = rival.submit_task(&app).unwrap();
    let mut call = WorkerCall::new("host:rival", rival.config());
    call.execution_targets = vec!["daytona".into()];
    for round in 1..=3 {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            rival.claim_and_execute(&call, &mut |_: &_| panic!("the rival dies with its run"))
        }));
        bench.clock.advance(1000.0);
        wait(bench.runtime.handle().tick()).unwrap();
        bench.until(&id, if round < 3 { "queued" } else { "failed" });
    }
    let run = bench.run(&id);
    assert_eq!(run.status_reason_code.as_deref(), Some("run.failed.lease_attempts_exhausted"));
    assert_eq!(run.lease_attempts, 3);
}

#[test]
fn shutting_down_gives_running_tasks_back() {
    let bench = Bench::new();
    bench.tasks.plan("agent", Plan::Wait);
    let ids: Vec<_> = (0..5).map(|_| bench.submit("agent")).collect();
    for id in &ids {
        bench.until(id, "running");
    }
    let mut other = bench.other();
    assert_eq!(bench.end(), ExitReason::Shutdown);
    for id in &ids {
        let run = other.run(id).unwrap();
        assert_eq!((run.status.as_str(), run.leased_by, run.lease_attempts), ("queued", None, 1));
        assert_eq!(run.status_reason_code.as_deref(), Some("run.queued.shutdown"));
    }
}

#[test]
fn draining_lets_tasks_end_and_starts_no_others() {
    let bench = Bench::with(|config| config.concurrency = 1, None);
    bench.tasks.plan("agent", Plan::Wait);
    let (first, second) = (bench.submit("agent"), bench.submit("agent"));
    bench.until(&first, "running");
    let mut other = bench.other();
    bench.runtime.handle().shut_down(Duration::from_secs(3600));
    bench.tasks.release();
    assert_eq!(bench.runtime.join(), ExitReason::Shutdown);
    assert_eq!(other.run(&first).unwrap().status, "completed");
    assert_eq!(other.run(&second).unwrap().status, "queued");
}
