//! Workers that are stopped for longer than their leases last, as a host is that sleeps.

use leasehold::clock::{Clock, SystemClock};
use leasehold::domain::fence::LeaseTimes;
use leasehold::domain::task::TaskApplication;
use leasehold::process::BootTime;
use leasehold::process::guardian::Guardian;
use rustix::process::Signal;

use crate::aftermath::{assert_owned, on_engines};
use crate::bench::{Bench, Worker, sh, until};
use crate::count;
use crate::machine;
use crate::places::Engine;
use crate::processes::local;
use crate::tasks::{name, owner, run_dir, touch};

/// Whoever lives says so in a file of the run, all the time: which attempt it is of. The first attempt goes on until it is
/// let go; it has a descendant in another session. A later one ends soon.
fn beats(go: &str) -> TaskApplication {
    sh(format!(
        "beats=beats.$LEASEHOLD_RUN_ID
         echo $LEASEHOLD_EPOCH >>$beats
         if [ $LEASEHOLD_EPOCH -gt 1 ]; then sleep 0.3; exit 0; fi
         setsid sh -c \"while :; do echo 1 >>$beats; sleep 0.1; done\" &
         trap '' TERM
         until [ -e {go} ]; do echo 1 >>$beats; sleep 0.1; done"
    ))
}

/// Stops a worker at a moment at which it holds no lock of the store, which nobody could take from it then.
fn stop(bench: &Bench, worker: &Worker) {
    let mut raw = bench.place.raw();
    let lock = match bench.place.engine {
        Engine::Sqlite => "PRAGMA busy_timeout = 0; BEGIN IMMEDIATE",
        Engine::Postgres => {
            "BEGIN; SET LOCAL lock_timeout = '100ms'; LOCK TABLE schedule_runs, workers IN SHARE MODE"
        }
    };
    until(|| {
        machine::stop(worker.pid());
        let locked = raw.try_run(lock);
        let _ = raw.try_run("ROLLBACK");
        if let Err(error) = &locked {
            worker.signal(Signal::CONT);
            return Err(error.to_string());
        }
        Ok(())
    });
}

/// #10: elsewhere, a host that slept went on with work that somebody else had been given meanwhile.
#[test]
fn what_a_stopped_worker_ran_is_dead_before_another_starts_it_and_it_writes_nothing() {
    const RUNS: usize = 8;
    on_engines(|bench| {
        let concurrency = (2 * RUNS).to_string();
        let words = ["--lease-ttl", "10s", "--tick", "1s", "--concurrency", &concurrency];
        let workers = [bench.worker(&words).ready(), bench.worker(&words).ready()];
        let (mut lost, mut kept) = (0, 0);
        let rounds = count(2, 100);
        for round in 0..rounds {
            let go = format!("go.{round}");
            let ids = bench.submit_all(&vec![beats(&go); RUNS]);
            until(|| match ids.iter().find(|id| lines(bench, id).is_empty()) {
                Some(id) => Err(format!("{id} has not started")),
                None => Ok(()),
            });
            let its_name = owner(bench, &ids[0]);
            let sleeper = workers.iter().find(|worker| name(worker) == its_name).unwrap();
            let (its, others): (Vec<_>, Vec<_>) =
                ids.iter().partition(|id| owner(bench, id) == its_name);
            let logged = sleeper.log().len();
            stop(bench, sleeper);
            let leases: Vec<_> = its.iter().filter_map(|id| lease(bench, id, 10.0)).collect();
            for id in &its {
                let run = bench.until_status(id, "completed");
                assert_eq!(run.lease_attempts, 2);
            }
            let before: Vec<_> = its.iter().map(|id| (bench.run(id), bench.facts(id))).collect();
            sleeper.signal(Signal::CONT);
            until(|| match sleeper.log()[logged..].contains("lease") {
                true => Ok(()),
                false => Err(sleeper.log()[logged..].to_owned()),
            });
            touch(bench, &go);
            for id in &others {
                let run = bench.until_status(id, "completed");
                assert_eq!(run.lease_attempts, 1, "{:?}", bench.steps(id));
            }
            // It works again, so whatever it had to write about its old runs is written.
            until(|| {
                let id = bench.submit(&sh("sleep 0.1"));
                bench.until_status(&id, "completed");
                let by = bench.facts(&id)[0].actor.clone();
                if by.as_ref() == Some(&its_name) { Ok(()) } else { Err(format!("{by:?} did")) }
            });
            let after: Vec<_> = its.iter().map(|id| (bench.run(id), bench.facts(id))).collect();
            assert_eq!(after, before, "round {round}");
            others.iter().for_each(|id| assert!(lines(bench, id).is_sorted(), "one attempt"));
            assert_no_overlap(bench, &leases);
            assert_owned(bench);
            lost += its.len();
            kept += others.len();
        }
        println!("{}: {rounds} rounds: {lost} runs lost, {kept} kept", bench.engine());
    });
}

fn lines(bench: &Bench, id: &str) -> Vec<i32> {
    bench.lines(&format!("beats.{id}")).iter().map(|line| line.parse().unwrap()).collect()
}

/// A lease of a first attempt that nobody renews any more: whose it is, and when it ends.
struct Lease {
    id: String,
    expires_at: f64,
}

/// Its guardian is to have ended everything by then. On a slow machine a lease may have run out before it was looked at.
#[track_caller]
fn lease(bench: &Bench, id: &str, ttl: f64) -> Option<Lease> {
    let run = bench.run(id);
    let expires_at = run.lease_expires_at.filter(|_| run.lease_attempts == 1)?;
    if let Ok(glimpse) = local(Guardian::look(&run_dir(bench, id))) {
        let now = SystemClock.now();
        let left = glimpse.fence.saturating_since(BootTime::now()).as_secs_f64();
        let killed_at = now + left + LeaseTimes::of(ttl).grace;
        assert!(left == 0.0 || killed_at < expires_at, "{id}: killed {killed_at} of {expires_at}");
    }
    Some(Lease { id: id.into(), expires_at })
}

/// No two attempts lived at once. Only where a guardian was kept from running until its lease was over, longer than any
/// lease allows for, it could not know better; that is never so with all of them.
#[track_caller]
fn assert_no_overlap(bench: &Bench, leases: &[Lease]) {
    let mut in_time = 0;
    for Lease { id, expires_at } in leases {
        let beats = lines(bench, id);
        if beats.is_sorted() {
            in_time += 1;
            continue;
        }
        let ended_at = run_dir(bench, id).exit_record().unwrap().map(|record| record.ended_at);
        let is_late = ended_at.is_some_and(|at| at > *expires_at);
        assert!(is_late, "{id}: two attempts at once, {ended_at:?} of {expires_at}: {beats:?}");
        println!("{id}: its guardian was late: {ended_at:?} of {expires_at}");
    }
    assert!(in_time > 0 || leases.is_empty(), "two attempts of each lived at once");
}

/// The other worker is on another host as far as it knows: nothing of the first one's is its to adopt.
#[test]
fn what_a_killed_worker_ran_is_dead_before_another_host_starts_it() {
    on_engines(|bench| {
        let words = ["--tick", "1s", "--concurrency", "8"];
        let first = bench.worker(&[&words[..], &["--lease-ttl", "5s"]].concat()).ready();
        let ids = bench.submit_all(&vec![beats("never"); 8]);
        until(|| match ids.iter().find(|id| lines(bench, id).is_empty()) {
            Some(id) => Err(format!("{id} has not started")),
            None => Ok(()),
        });
        let elsewhere = bench.file("elsewhere");
        let words = [&words[..], &["--state-dir", elsewhere.to_str().unwrap()]].concat();
        let _second = bench.worker(&words).ready();
        first.kill();
        let leases: Vec<_> = ids.iter().filter_map(|id| lease(bench, id, 5.0)).collect();
        bench.until_all("completed");
        ids.iter().for_each(|id| assert!(bench.run(id).lease_attempts >= 2));
        assert_no_overlap(bench, &leases);
    });
}
