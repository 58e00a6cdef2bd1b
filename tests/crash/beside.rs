//! Several workers on one host, and several stores in one state directory.

use std::collections::BTreeMap;

use crate::aftermath::{assert_settled, on_engines, task_processes};
use crate::bench::{Bench, Worker, until};
use crate::count;
use crate::tasks::{assert_counted, assert_ended_once, counts, name, owner, started, touch};

/// Whose each run is.
fn owners(bench: &Bench, ids: &[String]) -> BTreeMap<String, String> {
    ids.iter().map(|id| (id.clone(), owner(bench, id))).collect()
}

/// How often it says that it has taken a run over.
fn takeovers(worker: &Worker) -> usize {
    worker.log().lines().filter(|line| line.contains("taken over")).count()
}

/// Waits until each run belongs to one of these workers.
#[track_caller]
fn until_owned(bench: &Bench, ids: &[String], workers: &[&Worker]) {
    let names: Vec<_> = workers.iter().map(|worker| name(worker)).collect();
    until(|| {
        let owners = owners(bench, ids);
        match owners.iter().find(|(_, owner)| !names.contains(owner)) {
            Some(other) => Err(format!("{other:?} of {names:?}")),
            None => Ok(()),
        }
    });
}

#[test]
fn of_two_workers_that_start_after_a_crash_one_adopts_each_run() {
    const MORE: usize = 6;
    on_engines(|bench| {
        let rounds = count(3, 8);
        let concurrency = (rounds * MORE).to_string();
        let words = ["--concurrency", &concurrency];
        let mut before = vec![bench.worker(&words).ready()];
        let mut ids = Vec::new();
        for round in 1..=rounds {
            // Both of the last pair have runs in their slots, as a rule.
            ids.extend(bench.submit_all(&vec![counts("go", "exit 5"); MORE]));
            started(bench, round * MORE);
            before.drain(..).for_each(Worker::kill);
            let pair = [bench.worker(&words), bench.worker(&words)];
            let pair = pair.map(Worker::ready);
            until_owned(bench, &ids, &[&pair[0], &pair[1]]);
            // They say so a moment after it is stored; and none says it of a run that the other has.
            let taken = until(|| match pair.each_ref().map(takeovers) {
                taken if taken.iter().sum::<usize>() >= ids.len() => Ok(taken),
                taken => Err(format!("{taken:?} {:?}", bench.changes())),
            });
            assert_eq!(taken.iter().sum::<usize>(), ids.len(), "each once: {taken:?}");
            println!("{}: round {round}: taken over {taken:?}", bench.engine());
            before.extend(pair);
        }
        touch(bench, "go");
        assert_ended_once(bench, &ids, &vec![5; ids.len()]);
        for id in &ids {
            assert_counted(bench, id);
        }
    });
}

#[test]
fn a_third_worker_leaves_alone_what_two_living_ones_run() {
    on_engines(|bench| {
        let few = ["--concurrency", "5"];
        let first = bench.worker(&few).ready();
        let second = bench.worker(&few).ready();
        let mut ids = bench.submit_all(&vec![counts("go", "exit 0"); 10]);
        started(bench, 10);
        let held = owners(bench, &ids);
        let (one, two) = (name(&first), name(&second));
        for owner in [&one, &two] {
            assert_eq!(held.values().filter(|held| *held == owner).count(), 5, "{held:?}");
        }
        // It works, and so it has looked for something to adopt before.
        let third = bench.worker(&["--concurrency", "6"]).ready();
        ids.push(bench.submit(&counts("go", "exit 0")));
        started(bench, 11);
        assert_eq!(owner(bench, &ids[10]), name(&third));
        assert_eq!((takeovers(&third), owners(bench, &ids[..10])), (0, held.clone()));

        first.kill();
        let fourth = bench.worker(&few).ready();
        let (left, kept): (Vec<_>, Vec<_>) =
            ids[..10].iter().cloned().partition(|id| held[id] == one);
        until_owned(bench, &left, &[&fourth]);
        until(|| match takeovers(&fourth) {
            5 => Ok(()),
            taken => Err(format!("{taken} taken over")),
        });
        assert_eq!(takeovers(&third), 0);
        kept.iter().for_each(|id| assert_eq!(owner(bench, id), two));
        assert_eq!(owner(bench, &ids[10]), name(&third));
        touch(bench, "go");
        assert_ended_once(bench, &ids, &[0; 11]);
        for id in &ids {
            assert_counted(bench, id);
        }
        drop(second);
    });
}

#[test]
fn a_worker_of_another_store_touches_nothing_in_the_same_state_directory() {
    on_engines(|bench| {
        let state = bench.file("state");
        let words = ["--concurrency", "4", "--state-dir", state.to_str().unwrap()];
        let other = Bench::new(bench.place.engine);
        let first = bench.worker(&words).ready();
        let ids = bench.submit_all(&vec![counts("go", "exit 7"); 4]);
        started(bench, 4);
        let held = owners(bench, &ids);
        first.kill();

        // By the end of its own task it has long looked for something to adopt.
        let stranger = other.worker(&words).ready();
        let own = other.submit(&counts("go", "exit 0"));
        touch(&other, "go");
        other.until_status(&own, "completed");
        assert_eq!(takeovers(&stranger), 0);
        assert_eq!(owners(bench, &ids), held);
        let mut alive: Vec<_> =
            task_processes(bench).into_iter().map(|process| process.run_id).collect();
        alive.sort();
        alive.dedup();
        assert_eq!(alive.len(), 4, "all of them run");

        let next = bench.worker(&words).ready();
        until_owned(bench, &ids, &[&next]);
        drop(stranger);
        assert_settled(&other);
        touch(bench, "go");
        assert_ended_once(bench, &ids, &[7; 4]);
        ids.iter().for_each(|id| {
            let output =
                bench.program(["logs", id, "--state-dir", state.to_str().unwrap()]).output();
            assert!(output.unwrap().stdout.ends_with(b"\nend\n"));
        });
    });
}
