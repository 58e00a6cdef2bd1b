//! Nothing is left over, however often.

use std::time::Duration;

use leasehold::process::direct::{Running, run_to_end};

use super::support::*;

fn held() -> (usize, usize, Vec<i32>) {
    (count("fd"), count("task"), children())
}

#[test]
fn five_hundred_runs_leave_nothing() {
    alone("leaks::five_hundred_runs_leave_nothing", || {
        local(async {
            let mut first = Running::spawn(&command(["true"])).unwrap();
            first.wait().await;
            let before = held();
            let begin = std::time::Instant::now();
            for _ in 0..500 {
                let mut running = Running::spawn(&command(["true"])).unwrap();
                assert_eq!(running.wait().await.exit_code(), 0);
            }
            println!("500 runs, one after the other: {:?}", begin.elapsed());
            assert_eq!(held(), before);
        });
    });
}

#[test]
fn a_hundred_at_once_need_no_threads_and_leave_nothing() {
    alone("leaks::a_hundred_at_once_need_no_threads_and_leave_nothing", || {
        local(async {
            let mut first = Running::spawn(&command(["true"])).unwrap();
            first.wait().await;
            let before = held();
            let mut all: Vec<Running> =
                (0..100).map(|_| Running::spawn(&sh("echo x; exec sleep 99")).unwrap()).collect();
            assert_eq!(count("task"), before.1, "no thread per task");
            assert_eq!(count("fd"), before.0 + 300, "two pipes and one process descriptor each");
            for running in &all {
                assert!(running.stopper().terminate(Duration::from_secs(60)));
            }
            for running in &mut all {
                assert_eq!(running.wait().await.exit_code(), -15);
            }
            assert_eq!(held(), before);
        });
    });
}

#[test]
fn drops_and_failures_leave_nothing() {
    alone("leaks::drops_and_failures_leave_nothing", || {
        local(async {
            let mut first = Running::spawn(&command(["true"])).unwrap();
            first.wait().await;
            let before = held();
            for _ in 0..50 {
                drop(Running::spawn(&sh("sleep 99 & wait")).unwrap());
                assert!(Running::spawn(&command(["/nowhere/program"])).is_err());
                assert!(Running::spawn(&command(["true", "a\0"])).is_err());
            }
            eventually("everything is as before", || (held() == before).then_some(())).await;
        });
        let before = held();
        for _ in 0..20 {
            assert_eq!(run_to_end(&command(["true"])).unwrap().exit_code(), 0);
        }
        assert_eq!(held(), before, "run_to_end takes its runtime along");
    });
}
