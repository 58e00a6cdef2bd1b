//! Process numbers that come round again.

use std::process::{Child, Command};
use std::time::Duration;

use leasehold::domain::transition::Principal;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::aftermath::{guardians, on_sqlite};
use crate::bench::{Bench, Worker, sh, until};
use crate::count;
use crate::processes::{alone_by, is_alone};
use crate::tasks::STARTS;

/// Processes that are nobody's, and take whatever number is free.
#[derive(Default)]
struct Strangers {
    living: Vec<Child>,
    highest: u32,
    reused: usize,
}

impl Strangers {
    fn more(&mut self, count: usize) {
        for _ in 0..count {
            // Where there is no number left there is no stranger.
            if let Ok(stranger) = Command::new("sleep").arg("3000").spawn() {
                self.reused += usize::from(stranger.id() < self.highest);
                self.highest = self.highest.max(stranger.id());
                self.living.push(stranger);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn assert_untouched(&mut self) {
        for stranger in &mut self.living {
            assert_eq!(stranger.try_wait().unwrap(), None, "a stranger was signalled");
        }
    }

    fn leave(&mut self, count: usize) {
        let count = count.min(self.living.len());
        for mut stranger in self.living.drain(..count) {
            stranger.kill().unwrap();
            stranger.wait().unwrap();
        }
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        self.leave(usize::MAX);
    }
}

/// A worker, as soon as there are numbers for its threads.
fn start(bench: &Bench) -> Worker {
    until(|| {
        let program = bench.program(["worker", "--concurrency", "4"]);
        let mut worker =
            Worker::try_start(program, bench.log_file()).map_err(|error| error.to_string())?;
        loop {
            if worker.log().contains("ready") {
                return Ok(worker);
            }
            if worker.has_left() {
                return Err(worker.log());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    })
}

/// Where a thread cannot be had a worker may end; the next one goes on.
fn replace(bench: &Bench, worker: &mut Worker) {
    if worker.has_left() {
        *worker = start(bench);
    }
}

/// Kills so many of them. A number may be a stranger's a moment after it was read: it is held by a descriptor first.
fn kill_guardians(bench: &Bench, most: usize) {
    for pid in guardians(bench).into_iter().take(most) {
        let number = Pid::from_raw(pid.cast_signed()).unwrap();
        if let Ok(process) = pidfd_open(number, PidfdFlags::empty())
            && guardians(bench).contains(&pid)
        {
            let _ = pidfd_send_signal(&process, Signal::KILL);
        }
    }
}

#[test]
fn a_number_that_was_used_before_is_never_signalled_by_worker_or_guardian() {
    const NAME: &str =
        "numbers::a_number_that_was_used_before_is_never_signalled_by_worker_or_guardian";
    // The shell is the namespace's first process, and reaps whoever is left to it.
    const WORDS: [&str; 6] =
        ["--pid", "--fork", "--mount-proc", "sh", "-c", "\"$0\" \"$@\"; exit $?"];
    if !is_alone(NAME) {
        let allowed = Command::new("unshare").args(&WORDS[..3]).arg("true").status();
        if !allowed.is_ok_and(|status| status.success()) {
            use std::io::Write;
            let why = "SKIPPED numbers that come round again: no namespace can be made here";
            let _ = writeln!(std::io::stderr(), "{why}");
            return;
        }
    }
    let wrap = |exe: &std::path::Path| {
        let mut wrapper = Command::new("unshare");
        wrapper.args(WORDS).arg(exe);
        wrapper
    };
    alone_by(NAME, wrap, || {
        if std::fs::write("/proc/sys/kernel/pid_max", "1000").is_err() {
            println!("SKIPPED: the kernel keeps no limit of numbers per namespace");
            return;
        }
        on_sqlite(|bench| {
            // Numbers are given and taken back all the time, in the trees and beside them.
            let script = format!(
                "[ $LEASEHOLD_EPOCH -eq 1 ] || exit 0; {STARTS}
                 setsid sh -c 'while :; do (true &); (setsid sleep 0.01 &); sleep 0.002; done' &
                 while :; do (true &); sleep 0.01; done"
            );
            let mut strangers = Strangers::default();
            let rounds = count(4, 40);
            for round in 1..=rounds {
                let mut first = start(bench);
                let ids = bench.submit_all(&vec![sh(&script); 4]);
                until(|| {
                    replace(bench, &mut first);
                    match bench.lines("starts").len() {
                        starts if starts == 4 * round => Ok(()),
                        starts => Err(format!("{starts} of {}", 4 * round)),
                    }
                });
                strangers.more(8);
                // One dies beside its worker, one is cancelled, the others die with the worker.
                kill_guardians(bench, 1);
                strangers.more(8);
                bench.queue().cancel(&ids[0], &Principal::operator("test")).unwrap();
                strangers.more(8);
                // It may have ended by itself, as above.
                first.signal(Signal::KILL);
                first.exit();
                kill_guardians(bench, usize::MAX);
                strangers.more(8);
                let mut next = start(bench);
                strangers.more(8);
                for id in &ids {
                    until(|| {
                        replace(bench, &mut next);
                        match bench.run(id) {
                            run if run.ended_at.is_some() => Ok(()),
                            run => Err(format!("{run:?}")),
                        }
                    });
                }
                strangers.assert_untouched();
                strangers.leave(30);
            }
            println!("{rounds} rounds, {} strangers with a number used before", strangers.reused);
            assert!(strangers.reused > 2 * rounds);
        });
    });
}
