//! Cancels that meet a task at its start, and in the middle of a shutdown.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use leasehold::domain::settings::RunSettings;
use leasehold::domain::transition::Principal;
use rustix::process::Signal;

use crate::aftermath::{on_engines, task_processes};
use crate::bench::{Bench, Worker, sh, until};
use crate::count;
use crate::tasks::STARTS;

fn cancel(bench: &Bench, id: &str) {
    bench.queue().cancel(id, &Principal::operator("test")).unwrap();
}

/// Waits without a pause.
fn at_once(mut seen: impl FnMut() -> bool) {
    let began = Instant::now();
    while !seen() {
        assert!(began.elapsed() < crate::bench::PATIENCE, "it never came");
        std::hint::spin_loop();
    }
}

#[test]
fn a_cancel_right_at_the_start_never_meets_our_own_group_and_loses_no_slot() {
    const SLOTS: usize = 3;
    on_engines(|bench| {
        let mut program = bench.program(["worker", "--concurrency", &SLOTS.to_string()]);
        // A group of the worker's own, with somebody else in it whom any stray signal would end.
        program.process_group(0);
        let mut worker = Worker::start(program, bench.log_file()).ready();
        let mut canary = Command::new("sleep")
            .arg("3000")
            .process_group(worker.pid().cast_signed())
            .spawn()
            .unwrap();
        let cancels = count(30, 1000);
        for number in 0..cancels {
            let id = bench.submit(&sh(format!("{STARTS}; sleep 600 & wait")));
            at_once(|| bench.run(&id).status == "running");
            match number % 3 {
                0 => {}
                // While the guardian starts it; the task begins some ten milliseconds after the claim.
                1 => std::thread::sleep(Duration::from_micros((number * 700 % 20_000) as u64)),
                // Within a millisecond of its first line.
                _ => at_once(|| {
                    std::fs::read_to_string(bench.file("starts"))
                        .is_ok_and(|starts| starts.contains(&id))
                }),
            }
            cancel(bench, &id);
            at_once(|| bench.run(&id).status != "running");
            assert_eq!(bench.run(&id).status, "cancelled", "{:?}", bench.steps(&id));
            let left = task_processes(bench);
            assert!(left.is_empty(), "cancel {number} left {left:?}");
        }
        println!(
            "{}: of {cancels} tasks {} had begun",
            bench.engine(),
            bench.lines("starts").len()
        );
        assert!(!worker.has_left());
        assert_eq!(canary.try_wait().unwrap(), None, "the group is untouched");
        canary.kill().unwrap();
        canary.wait().unwrap();
        // Each of these ends when all of them run.
        let script = "echo here >>all; until [ $(wc -l <all) -eq 3 ]; do sleep 0.05; done";
        let ids = bench.submit_all(&vec![sh(script); SLOTS]);
        ids.iter().for_each(|id| drop(bench.until_status(id, "completed")));
    });
}

#[test]
fn a_cancel_while_the_worker_drains_ends_the_whole_tree() {
    on_engines(|bench| {
        let mut worker = bench.worker(&["--drain", "10m"]).ready();
        let script = "trap '' TERM; setsid sleep 600 & echo up >>up; while :; do sleep 600; done";
        let grace = Some(1.0);
        let settings = RunSettings { grace, ..RunSettings::default() };
        let id = bench.queue().submit_task_with(&sh(script), settings, None).unwrap();
        until(|| if bench.lines("up").is_empty() { Err("not up".into()) } else { Ok(()) });
        worker.signal(Signal::TERM);
        until(|| if worker.log().contains("shutting down") { Ok(()) } else { Err(worker.log()) });
        assert!(!worker.has_left());
        let told = Instant::now();
        cancel(bench, &id);
        bench.until_status(&id, "cancelled");
        println!("{}: cancelled in {:.1?}, with a grace of 1 s", bench.engine(), told.elapsed());
        assert_eq!(task_processes(bench).len(), 0);
        // Nothing is left to drain.
        worker.leaves_with(0);
        assert!(told.elapsed() < Duration::from_secs(300), "long before the drain is over");
    });
}
