//! Workers that die or are replaced, and the next one on this host, which takes over what they left running. Leases last
//! 300 s here, so nothing that these tests wait for comes of a lease that ran out.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use leasehold::db::ops::StoreId;
use leasehold::domain::transition::Principal;
use leasehold::process::guardian::{Guardian, RunDir};
use leasehold::process::slot::Slot;
use rustix::process::Signal;

use crate::aftermath::{guardians, on_engines, on_sqlite, task_processes};
use crate::bench::{Bench, PROGRAM, Worker, sh, until};
use crate::machine::signal;
use crate::places::engines;
use crate::processes::{alone, local};
use crate::tasks::{
    ENDS, STARTS, assert_counted, assert_ended_once, counts, owner, run_dir, started, touch,
    until_adopted,
};
use crate::{count, machine};

const WORDS: [&str; 2] = ["--concurrency", "4"];

/// Notes that it has started, and ends with `code` once there is a file `go`.
fn waits(code: i32) -> leasehold::domain::task::TaskApplication {
    sh(format!("{STARTS}; until [ -e go ]; do sleep 0.05; done; exit {code}"))
}

#[test]
fn the_next_worker_takes_over_what_a_killed_one_left_running() {
    on_engines(|bench| a_crash_and_the_next_worker(bench, &[PROGRAM.into()]));
}

/// An upgrade by a crash. The first worker starts guardians of its own version, though its file is another by then.
#[test]
fn so_it_does_when_the_program_was_replaced_meanwhile() {
    on_sqlite(|bench| {
        let versions = ["leasehold-1", "leasehold-2"].map(|name| bench.file(name));
        for version in &versions {
            // By another process: what a parallel test starts meanwhile would have our descriptor of the copy for a
            // moment, and what is open for writing cannot be executed.
            assert!(Command::new("cp").arg(PROGRAM).arg(version).status().unwrap().success());
        }
        a_crash_and_the_next_worker(bench, &versions);
    });
}

/// With two versions of the program the second takes the place of the first while tasks run.
fn a_crash_and_the_next_worker(bench: &Bench, versions: &[PathBuf]) {
    let tasks = count(20, 50);
    let program = &versions[0];
    let first = worker_at(bench, program, tasks + 1);
    // A quarter of them ends while no worker lives.
    let ends: Vec<_> = (0..tasks).map(|number| ENDS[number % ENDS.len()]).collect();
    let go = |number: usize| if number.is_multiple_of(4) { "early" } else { "late" };
    let apps: Vec<_> =
        ends.iter().enumerate().map(|(number, (end, _))| counts(go(number), end)).collect();
    let mut ids = bench.submit_all(&apps);
    let mut codes: Vec<_> = ends.iter().map(|(_, code)| *code).collect();
    started(bench, tasks);
    let dead = owner(bench, &ids[0]);
    if let [_, next] = versions {
        std::fs::rename(next, program).unwrap();
        let exe = std::fs::read_link(format!("/proc/{}/exe", first.pid())).unwrap();
        assert!(exe.to_str().unwrap().ends_with(" (deleted)"), "{exe:?}");
        ids.push(bench.submit(&sh(format!("{STARTS}; echo end; exit 9"))));
        codes.push(9);
        assert_eq!(bench.until_status(&ids[tasks], "failed").exit_code, Some(9));
    }
    first.kill();

    touch(bench, "early");
    let late: HashSet<_> = (0..tasks)
        .filter(|number| go(*number) == "late")
        .map(|number| ids[number].clone())
        .collect();
    until(|| {
        let alive: HashSet<_> = task_processes(bench).into_iter().map(|one| one.run_id).collect();
        if alive == late { Ok(()) } else { Err(format!("{} live", alive.len())) }
    });
    assert!(ids[..tasks].iter().all(|id| bench.run(id).status == "running"));

    let _second = worker_at(bench, program, tasks);
    until_adopted(bench, &late, &dead);
    touch(bench, "late");
    assert_ended_once(bench, &ids, &codes);
    let lines: usize = ids.iter().map(|id| assert_counted(bench, id)).sum();
    println!("{}: {tasks} tasks, {lines} lines", bench.engine());
    assert!(lines >= 20 * tasks);
}

fn worker_at(bench: &Bench, program: &Path, concurrency: usize) -> Worker {
    let concurrency = concurrency.to_string();
    let program = bench.program_at(program, ["worker", "--concurrency", &concurrency]);
    Worker::start(program, bench.log_file()).ready()
}

/// An upgrade: the old worker leaves at once, the new one goes on.
#[test]
fn a_worker_that_detaches_leaves_its_tasks_to_the_next() {
    on_engines(|bench| {
        let mut first = bench.worker(&["--on-stop", "detach"]).ready();
        let id = bench.submit(&waits(4));
        let pids = started(bench, 1);
        first.signal(Signal::TERM);
        first.leaves_with(0);
        assert!(machine::is_alive(pids[0]));
        assert_eq!(bench.run(&id).status, "running");
        let _second = bench.worker(&WORDS).ready();
        touch(bench, "go");
        assert_ended_once(bench, &[id], &[4]);
    });
}

/// The takeover cannot be over when the worker is told to stop, since a guardian does not answer.
#[test]
fn a_worker_that_is_told_to_stop_while_it_takes_over_stops_what_it_takes_over() {
    on_engines(|bench| {
        let first = bench.worker(&WORDS).ready();
        let ids = bench.submit_all(&[waits(0), waits(0)]);
        started(bench, 2);
        let there = guardians(bench);
        first.kill();
        machine::stop(there[0]);
        let mut second = bench.worker(&["--drain", "0"]).ready();
        second.signal(Signal::TERM);
        until(|| if second.log().contains("shutting down") { Ok(()) } else { Err(second.log()) });
        signal(there[0], Signal::CONT);
        second.leaves_with(0);
        assert!(task_processes(bench).is_empty(), "they were this worker's to stop");
        for id in &ids {
            let steps = ["queued>running run.started.ok", "running>queued run.queued.shutdown"];
            assert_eq!(bench.steps(id), steps);
        }
    });
}

/// Nothing is claimed before the end of each run is known. What was taken over until then is kept all the same.
#[test]
fn a_guardian_that_does_not_answer_costs_the_other_runs_nothing() {
    on_engines(|bench| {
        let words = ["--concurrency", "4", "--lease-ttl", "10s", "--tick", "1s"];
        let first = bench.worker(&words).ready();
        let ids = bench.submit_all(&[waits(0), waits(3), waits(4)]);
        let lines = until(|| match bench.lines("starts") {
            lines if lines.len() == 3 => Ok(lines),
            lines => Err(format!("{lines:?}")),
        });
        let silent = lines[0].split(' ').next().unwrap().to_owned();
        let task = lines[0].rsplit(' ').next().unwrap().parse().unwrap();
        let guardian = machine::parent(task).unwrap();
        let answering: Vec<_> = ids.iter().filter(|id| **id != silent).collect();
        let dead = owner(bench, &ids[0]);
        first.kill();
        machine::stop(guardian);
        let _second = bench.worker(&words).ready();
        until_adopted(bench, answering.clone(), &dead);
        // By then each of them has outlived its first lease, and the one that it was taken over with.
        let taken_over = answering.iter().map(|id| bench.run(id).lease_expires_at.unwrap());
        let latest = taken_over.fold(0.0, f64::max);
        for id in &answering {
            until(|| match bench.run(id).lease_expires_at {
                Some(at) if at > latest + 10.0 => Ok(()),
                at => Err(format!("{at:?} after {latest}")),
            });
        }
        assert_eq!(bench.lines("starts").len(), 3);
        assert_eq!(owner(bench, &silent), dead);
        touch(bench, "go");
        for id in &answering {
            until(|| match bench.run(id) {
                run if run.ended_at.is_some() && run.lease_attempts == 1 => Ok(()),
                run => Err(format!("{run:?}")),
            });
        }
        signal(guardian, Signal::CONT);
        until(|| match bench.run(&silent) {
            run if run.ended_at.is_some() => Ok(()),
            run => Err(format!("{run:?}")),
        });
    });
}

#[test]
fn a_cancel_that_was_asked_for_while_no_worker_lived_is_carried_out_by_the_next() {
    on_engines(|bench| {
        let first = bench.worker(&WORDS).ready();
        let id = bench.submit(&waits(0));
        let pids = started(bench, 1);
        first.kill();
        let cancel = bench.program(["cancel", &id]).output().unwrap();
        assert!(cancel.status.success(), "{cancel:?}");
        assert_eq!(bench.run(&id).status, "running");
        let _second = bench.worker(&WORDS).ready();
        bench.until_status(&id, "cancelled");
        assert!(!machine::is_alive(pids[0]), "it was still there");
        assert_eq!(bench.lines("starts").len(), 1);
    });
}

/// Whoever may read the directory of a run can have its guardian obey him. What its worker has started is not started again
/// for that, and the worker has it back.
#[test]
fn a_worker_takes_back_what_somebody_else_has_taken_from_it() {
    on_engines(|bench| {
        let worker = bench.worker(&WORDS).ready();
        let ids = bench.submit_all(&[waits(3), waits(4)]);
        started(bench, 2);
        for id in &ids {
            drop(local(Guardian::connect(&run_dir(bench, id))).unwrap());
        }
        until(|| match worker.log().matches("the guardian had obeyed somebody else").count() {
            2 => Ok(()),
            _ => Err(worker.log()),
        });
        bench.queue().cancel(&ids[0], &Principal::operator("test")).unwrap();
        bench.until_status(&ids[0], "cancelled");
        touch(bench, "go");
        bench.until_status(&ids[1], "failed");
        let run = bench.run(&ids[1]);
        assert_eq!((run.exit_code, run.lease_attempts), (Some(4), 1));
        assert_eq!(bench.lines("starts").len(), 2);
    });
}

/// A worker that dies again and again before it could start a task is not the task's fault.
///
/// Alone: what a parallel test starts has our descriptor of the slot's lock until it becomes its program.
#[test]
fn a_start_that_a_dead_worker_had_not_finished_is_not_counted() {
    alone("adopting::a_start_that_a_dead_worker_had_not_finished_is_not_counted", || {
        engines().into_iter().for_each(|engine| starts_that_are_not_finished(&Bench::new(engine)));
    });
}

/// Its claims are written by hand, without facts: there is no path to look for.
fn starts_that_are_not_finished(bench: &Bench) {
    let id = bench.submit(&sh("echo start >>starts"));
    let store_id = bench.queue().read(&StoreId).unwrap();
    for epoch in 1..=4 {
        // What a worker leaves that dies between the directory of a run and its guardian.
        let slot = Slot::take(&bench.file(".local/state/leasehold"), &store_id).unwrap();
        slot.enlist("host:gone").unwrap();
        RunDir::create(slot.path(), &id, epoch, 1 << 20).unwrap();
        drop(slot);
        bench.place.raw().run(&format!(
            "UPDATE schedule_runs SET status = 'running', leased_by = 'host:gone', lease_attempts = {epoch}, lease_expires_at = 9e9"
        ));
        bench.work(&["--once", "--target", "elsewhere"]);
        assert_eq!(bench.run(&id).status, "queued");
    }
    assert_eq!(bench.steps(&id), ["running>queued run.queued.start_failed"; 4]);
    bench.work(&["--once"]);
    assert_eq!(bench.run(&id).status, "completed");
    assert_eq!(bench.lines("starts").len(), 1);
}

/// Whatever a worker was doing when it was killed: claiming, starting, adopting, writing an end.
#[test]
fn kills_at_any_moment_lose_and_double_nothing() {
    on_engines(|bench| {
        let tasks: Vec<_> = (0..40)
            .map(|number| {
                let code = number % 3;
                let length = 1 + number % 9;
                sh(format!("echo $LEASEHOLD_RUN_ID >>starts; sleep 0.{length}; exit {code}"))
            })
            .collect();
        let ids = bench.submit_all(&tasks);
        let mut kills = 0_u64;
        while bench.statuses().keys().any(|status| status == "queued" || status == "running") {
            assert!(kills < 500, "{:?}", bench.statuses());
            let worker = bench.worker(&WORDS);
            // Not a time that anything needs: the moments at which they die are spread, and the more so the slower the
            // machine is.
            std::thread::sleep(Duration::from_millis(20 + kills * 97 % (400 + 5 * kills)));
            worker.kill();
            kills += 1;
        }
        for (number, id) in ids.iter().enumerate() {
            let run = bench.run(id);
            assert_eq!(run.exit_code, i32::try_from(number % 3).ok(), "{:?}", bench.steps(id));
        }
        let mut starts = bench.lines("starts");
        starts.sort();
        let mut ids = ids;
        ids.sort();
        assert_eq!(starts, ids, "each was started once");
        println!("{}: {kills} workers were killed", bench.engine());
    });
}
