//! Guardians and workers that are killed at random moments, one or several, together or one after the other.

use std::collections::HashMap;
use std::time::Duration;

use leasehold::clock::{Clock, SystemClock};

use crate::aftermath::{
    assert_ledger, assert_owned, guardians, on_engines, task_processes, until_none_is_left,
};
use crate::bench::{Bench, Worker, sh, until};
use crate::count;
use crate::machine::kill;
use crate::tasks::{STARTS, started};

const TASKS: usize = 20;

/// Numbers by chance (xorshift). What they begin with is printed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn wait(&mut self, most_millis: u64) {
        std::thread::sleep(Duration::from_micros(self.below(most_millis * 1000)));
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        let count = u64::try_from(all.len()).unwrap();
        (count > 0).then(|| all[usize::try_from(self.below(count)).unwrap()])
    }
}

fn start(bench: &Bench) -> Worker {
    bench.worker(&["--concurrency", &TASKS.to_string()])
}

#[test]
fn whoever_is_killed_and_whenever_each_run_ends_or_waits_and_nothing_is_left() {
    on_engines(|bench| {
        let mut chance = Chance(SystemClock.now().to_bits());
        println!("{}: begins with {}", bench.engine(), chance.0);
        let mut codes = HashMap::new();
        let rounds = count(5, 200);
        for round in 0..rounds {
            let tasks: Vec<_> = (0..TASKS)
                .map(|_| {
                    let (code, tenths) = (chance.below(4), 1 + chance.below(8));
                    let leaves = match chance.below(3) {
                        0 => "setsid sleep 600 >/dev/null 2>&1 &",
                        _ => ":;",
                    };
                    (code, sh(format!("{STARTS}; {leaves} sleep 0.{tenths}; exit {code}")))
                })
                .collect();
            let mut worker = start(bench);
            let apps: Vec<_> = tasks.iter().map(|(_, app)| app.clone()).collect();
            let ids = bench.submit_all(&apps);
            codes.extend(ids.into_iter().zip(tasks.iter().map(|(code, _)| *code)));
            for _ in 0..2 + chance.below(4) {
                chance.wait(500);
                worker = kill_some(bench, &mut chance, worker);
            }
            worker = worker.ready();
            chance.wait(1500);
            worker.end_at_once();
            worker.leaves_with(0);

            assert_owned(bench);
            until_none_is_left(bench);
            assert_ledger(bench);
            for run in bench.runs() {
                let ended =
                    run.exit_code == codes.get(&run.id).map(|code| i32::try_from(*code).unwrap());
                let exhausted = run.status_reason_code.as_deref()
                    == Some("run.failed.lease_attempts_exhausted");
                let as_it_may = match run.status.as_str() {
                    "queued" => run.exit_code.is_none(),
                    "completed" => ended && run.exit_code == Some(0),
                    "failed" => exhausted || ended && run.exit_code != Some(0),
                    _ => false,
                };
                assert!(as_it_may, "round {round}: {run:?} {:?}", bench.steps(&run.id));
            }
            let mut starts = attempts(bench);
            let all = starts.len();
            starts.sort();
            starts.dedup();
            assert_eq!(starts.len(), all, "round {round}: an attempt was started twice");
        }
        println!(
            "{}: {rounds} rounds, {:?}, {:?}",
            bench.engine(),
            bench.statuses(),
            bench.changes()
        );
    });
}

fn attempts(bench: &Bench) -> Vec<String> {
    let lines = bench.lines("starts");
    lines.iter().map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
}

/// Kills what chance says. Afterwards there is a worker, which may be just starting.
fn kill_some(bench: &Bench, chance: &mut Chance, worker: Worker) -> Worker {
    let there = guardians(bench);
    match chance.below(6) {
        0 | 1 => {
            chance.one_of(&there).into_iter().for_each(kill);
            return worker;
        }
        2 => {
            there.into_iter().for_each(kill);
            return worker;
        }
        3 => worker.kill(),
        // Both, the one or the other first.
        4 => {
            worker.kill();
            chance.one_of(&there).into_iter().for_each(kill);
        }
        _ => {
            there.into_iter().for_each(kill);
            worker.kill();
        }
    }
    chance.wait(150);
    start(bench)
}

/// A guardian is killed, its worker lives: what ran under it is found, and the run is another's again.
#[test]
fn a_killed_guardian_costs_its_run_one_attempt() {
    on_engines(|bench| {
        let _worker = bench.worker(&["--concurrency", "3"]).ready();
        let script = format!(
            "{STARTS}; [ $LEASEHOLD_EPOCH -eq 1 ] || exit 4; setsid sleep 600 & sleep 600; :"
        );
        let ids = bench.submit_all(&vec![sh(script); 3]);
        started(bench, 3);
        until(|| match task_processes(bench).len() {
            9 => Ok(()),
            processes => Err(processes.to_string()),
        });
        guardians(bench).into_iter().for_each(kill);
        for id in &ids {
            let run = bench.until_status(id, "failed");
            assert_eq!((run.exit_code, run.lease_attempts), (Some(4), 2));
            assert_eq!(bench.steps(id)[1], "running>queued run.queued.guardian_lost");
        }
    });
}

/// Guardian and worker die together: before anything is claimed, the next worker ends what they left.
#[test]
fn what_a_killed_guardian_and_its_killed_worker_left_is_dead_before_the_next_attempt() {
    on_engines(|bench| {
        let first = bench.worker(&["--concurrency", "3"]).ready();
        let script = format!(
            "{STARTS}
             if [ $LEASEHOLD_EPOCH -gt 1 ]; then
                 for pid in $(cat daemons); do
                     grep -q '^State:.[^ZX]' /proc/$pid/status && echo $pid >>overlaps
                 done
                 exit 0
             fi
             setsid sh -c 'echo $$ >>daemons; exec sleep 600' & sleep 600; :"
        );
        let ids = bench.submit_all(&vec![sh(script); 3]);
        until(|| match (bench.lines("daemons").len(), task_processes(bench).len()) {
            (3, 9) => Ok(()),
            there => Err(format!("{there:?}")),
        });
        let there = guardians(bench);
        assert_eq!(there.len(), 3);
        first.kill();
        there.into_iter().for_each(kill);
        // The first processes die with their guardians. What they have started lives on as long as nobody comes.
        until(|| match task_processes(bench).len() {
            6 => Ok(()),
            processes => Err(processes.to_string()),
        });
        let _next = bench.worker(&["--concurrency", "3"]).ready();
        for id in &ids {
            let run = bench.until_status(id, "completed");
            assert_eq!(run.lease_attempts, 2);
            assert_eq!(bench.steps(id)[1], "running>queued run.queued.guardian_lost");
        }
        assert_eq!(bench.lines("overlaps"), [""; 0]);
    });
}
