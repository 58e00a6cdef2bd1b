//! Nothing is left over, however often.

use std::time::{Duration, Instant};

use leasehold::process::direct::Running;
use leasehold::process::guardian::{Guardian, StopReason};

use super::support::*;

#[test]
fn five_hundred_runs_leave_nothing() {
    alone("leaks::five_hundred_runs_leave_nothing", || {
        local(async {
            let slot = tempfile::tempdir().unwrap();
            let spent = std::cell::Cell::new([Duration::ZERO; 4]);
            let one_run = async |epoch: i64| {
                let begin = Instant::now();
                let dir = leasehold::process::guardian::RunDir::create(
                    slot.path(),
                    "run-1",
                    epoch,
                    1 << 20,
                );
                let dir = dir.unwrap();
                let created = Instant::now();
                let spec = spec(command(["true"]));
                let mut guardian = Guardian::start(&program(), &dir, &spec).await.unwrap();
                let started = Instant::now();
                let record = record(left(&mut guardian).await);
                let exited = Instant::now();
                assert_eq!(record.ending().exit_code(), 0);
                dir.remove().unwrap();
                let mut all = spent.get();
                let steps =
                    [created - begin, started - created, exited - started, exited.elapsed()];
                for (sum, step) in all.iter_mut().zip(steps) {
                    *sum += step;
                }
                spent.set(all);
            };
            one_run(0).await;
            let before = held_without_children().await;
            let begin = Instant::now();
            for epoch in 1..=500 {
                one_run(epoch).await;
            }
            let guarded = begin.elapsed();
            held_again(&before).await;
            assert_eq!(std::fs::read_dir(slot.path().join("runs")).unwrap().count(), 0);

            let begin = Instant::now();
            for _ in 0..500 {
                let mut running = Running::spawn(&command(["true"])).unwrap();
                running.wait().await;
            }
            println!(
                "500 runs, one after the other: {guarded:?}; as children {:?}",
                begin.elapsed()
            );
            println!("to make the directory, start, end, remove: {:?}", spent.get());
        });
    });
}

#[test]
fn fifty_at_once_need_one_descriptor_each_and_leave_nothing() {
    alone("leaks::fifty_at_once_need_one_descriptor_each_and_leave_nothing", || {
        local(async {
            run(&place(), "exit 0").await;
            let before = held_without_children().await;
            let mut all = Vec::new();
            let begin = Instant::now();
            for _ in 0..50 {
                let place = place();
                let guardian = start(&place, &sh(&place, "exec sleep 300")).await;
                all.push((place, guardian));
            }
            println!("50 tasks started in {:?}", begin.elapsed());
            assert_eq!(count("task"), before.1, "no thread per run");
            assert_eq!(count("fd"), before.0 + 50);
            for (_, guardian) in &all {
                guardian.stop(Duration::from_secs(60), StopReason::Stop).unwrap();
            }
            for (_, guardian) in &mut all {
                assert_eq!(record(guardian.exited().await).ending().exit_code(), -15);
            }
            drop(all);
            held_again(&before).await;
        });
    });
}

#[test]
fn failures_drops_and_kills_leave_nothing() {
    alone("leaks::failures_drops_and_kills_leave_nothing", || {
        local(async {
            run(&place(), "exit 0").await;
            let before = held_without_children().await;
            for _ in 0..20 {
                let place = place();
                assert!(try_start(&place, &spec(command(["/nowhere/program"]))).await.is_err());
                assert!(try_start(&place, &spec(command(["true", "a\0"]))).await.is_err());
                let mut limited = spec(command(["true"]));
                limited.limits.open_files = Some(1 << 40);
                assert!(try_start(&place, &limited).await.is_err());
                let mut guardian = start(&place, &sh(&place, "exec sleep 300")).await;
                signal(guardian_pid(&guardian), rustix::process::Signal::KILL);
                guardian.exited().await;
            }
            held_again(&before).await;
            for _ in 0..20 {
                let place = place();
                let guardian = start(&place, &sh(&place, "exit 0")).await;
                drop(guardian);
                eventually("the record", || place.dir.exit_record().unwrap()).await;
            }
            held_again(&before).await;
        });
    });
}
