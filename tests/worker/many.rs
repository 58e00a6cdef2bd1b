//! Many short tasks under guardians: what they leave, and what they cost beside direct children.
//!
//! `cargo test` runs 1,000 of them on each engine. With `LEASEHOLD_ROUNDS` set, to anything, it is 10,000. The rates are
//! printed and decide nothing; `cargo bench --bench guardians` measures them with optimization.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::bench::{Bench, PATIENCE, Worker, command, on_engines, on_sqlite, until};
use crate::machine::{children, count, is_alive};

const AT_ONCE: usize = 16;

fn tasks() -> usize {
    if std::env::var_os("LEASEHOLD_ROUNDS").is_some() { 10_000 } else { 1000 }
}

/// The directories below the slots of a worker's store that have this name.
fn places(bench: &Bench, name: &str) -> Vec<PathBuf> {
    let below = |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().flatten();
    let stores = below(bench.file(".local/state/leasehold"));
    let slots = stores.flat_map(|store| below(store.path()));
    slots.map(|slot| slot.path().join(name)).filter(|place| place.is_dir()).collect()
}

fn entries(bench: &Bench, name: &str) -> usize {
    let count = |place: PathBuf| fs::read_dir(place).map_or(0, Iterator::count);
    places(bench, name).into_iter().map(count).sum()
}

/// What a worker holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    descriptors: usize,
    threads: usize,
    children: usize,
    runs: usize,
}

impl Held {
    fn now(bench: &Bench, worker: &Worker) -> Held {
        let pid = worker.pid();
        Held {
            descriptors: count(pid, "fd"),
            threads: count(pid, "task"),
            children: children(pid).len(),
            runs: entries(bench, "runs"),
        }
    }

    /// When nothing runs any more, and what was made for many starts is gone.
    fn at_rest(bench: &Bench, worker: &Worker) -> Held {
        let mut last = Held::now(bench, worker);
        until(|| {
            let before = std::mem::replace(&mut last, Held::now(bench, worker));
            let rests = (last.children, last.runs) == (0, 0) && last == before;
            if rests { Ok(last) } else { Err(format!("{last:?}")) }
        })
    }
}

fn run(bench: &Bench, worker: &Worker, tasks: usize) -> f64 {
    bench.submit_all(&vec![command("true", &[]); tasks]);
    let began = Instant::now();
    let mut left = tasks;
    while left > 0 {
        // However many there are: only something broken ends none for so long.
        left = until(|| {
            // Whatever the moment: no more than belongs to those that are running. A look that is interrupted is more
            // than a moment, and counts what has come and gone meanwhile.
            let within = |now: Held| {
                now.runs <= AT_ONCE
                    && now.children <= 2 * AT_ONCE
                    && now.descriptors < 100 + 8 * AT_ONCE
            };
            let looks = std::iter::repeat_with(|| Held::now(bench, worker)).take(5);
            let beyond: Vec<_> = looks.take_while(|now| !within(*now)).collect();
            assert!(beyond.len() < 5, "{beyond:?}");
            // Looking takes time from those that are watched.
            std::thread::sleep(Duration::from_millis(200));
            let statuses = bench.statuses();
            let ended = statuses.get("completed").copied().unwrap_or(0);
            let open = statuses.values().sum::<usize>() - ended;
            if open < left { Ok(open) } else { Err(format!("{statuses:?}")) }
        });
    }
    tasks as f64 / began.elapsed().as_secs_f64()
}

#[test]
fn many_short_tasks_leave_nothing() {
    on_engines(|bench| {
        let at_once = AT_ONCE.to_string();
        let worker = bench.worker(&["--concurrency", &at_once, "--log", "warn"]);
        run(bench, &worker, 100);
        let before = Held::at_rest(bench, &worker);
        let quarter = tasks() / 4;
        for _ in 0..4 {
            let rate = run(bench, &worker, quarter);
            let after = until(|| match Held::at_rest(bench, &worker) {
                after if after.descriptors <= before.descriptors => Ok(after),
                after => Err(format!("before {before:?}, now {after:?}")),
            });
            println!("{}: {rate:.0} a second under guardians, {after:?}", bench.engine());
        }
        // Threads without work leave after ten seconds.
        until(|| {
            let threads = count(worker.pid(), "task");
            if threads <= before.threads { Ok(()) } else { Err(format!("{threads} threads")) }
        });

        let all = 100 + 4 * quarter;
        assert_eq!(entries(bench, "kept"), all, "each is kept for its outputs, once");
        let attempts = "SELECT CAST(lease_attempts AS TEXT) AS value FROM schedule_runs";
        assert_eq!(bench.texts(attempts), vec!["1"; all]);
        let once_each = [
            ("queued>running run.started.ok".to_owned(), all),
            ("running>completed run.completed.ok".to_owned(), all),
        ];
        assert_eq!(bench.changes(), BTreeMap::from(once_each));

        drop(worker);
        // Only to be seen: nothing depends on it.
        bench.submit_all(&vec![command("true", &[]); quarter]);
        let began = Instant::now();
        bench.work(&["--until-empty", "--concurrency", &at_once, "--supervision", "direct"]);
        let rate = quarter as f64 / began.elapsed().as_secs_f64();
        println!("{}: {rate:.0} a second as direct children", bench.engine());
    });
}

/// What forks the guardians is killed again and again while they are started.
#[test]
fn guardians_whose_parent_is_killed_carry_on() {
    on_sqlite(|bench| {
        let tasks = vec![command("sh", &["-c", "sleep 0.05; exit 3"]); 200];
        let mut ids = bench.submit_all(&tasks);
        let worker = bench.worker(&["--concurrency", "8"]);
        let forks = |pid: &u32| {
            let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.contains("fork-server")
        };
        let (mut killed, mut ended, mut since) = (0, 0, Instant::now());
        while killed == 0 || ended < ids.len() {
            let now = bench.statuses().get("failed").copied().unwrap_or(0);
            if now > ended {
                (ended, since) = (now, Instant::now());
            }
            assert!(since.elapsed() < PATIENCE, "{killed} killed, {:?}", bench.statuses());
            if killed == 0 && ended == ids.len() {
                // They were quicker than the looks here.
                assert!(ids.len() < 10 * tasks.len(), "none was forked");
                ids.extend(bench.submit_all(&tasks));
            }
            if killed < 3
                && let Some(server) = children(worker.pid()).into_iter().find(forks)
                && is_alive(server)
            {
                let pid = Pid::from_raw(i32::try_from(server).unwrap()).unwrap();
                kill_process(pid, Signal::KILL).unwrap();
                killed += 1;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(ids.iter().all(|id| bench.run(id).exit_code == Some(3)));
        Held::at_rest(bench, &worker);
        let lost = "running>queued run.queued.guardian_lost".to_owned();
        assert!(!bench.changes().contains_key(&lost), "{:?}", bench.changes());
    });
}
