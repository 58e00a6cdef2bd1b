//! Workers that are killed, stopped or slow, and what becomes of their runs.

use std::time::{Duration, Instant};

use leasehold::db::ops::StoreId;
use leasehold::process::guardian::RunDir;
use leasehold::process::slot::Slot;
use rustix::process::Signal;

use crate::bench::{Bench, needing, on_engines, sh, until};
use crate::machine;

/// No shorter: a worker whose machine keeps it waiting for seconds must not lose them.
const TTL: f64 = 10.0;
const SHORT_LEASES: [&str; 4] = ["--lease-ttl", "10s", "--tick", "1s"];

fn with_short_leases<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [&SHORT_LEASES, words].concat()
}

/// Says which epoch it is and under which pid; the first epoch never ends by itself. A later one
/// says so if the process of the first is there still.
const FIRST_HANGS: &str = "first=$(sed -n \"s/^$LEASEHOLD_RUN_ID 1 //p\" starts); \
    [ -z \"$first\" ] || ! [ -d /proc/$first ] || echo $LEASEHOLD_RUN_ID >>overlaps; \
    echo $LEASEHOLD_RUN_ID $LEASEHOLD_EPOCH $$ >>starts; \
    [ $LEASEHOLD_EPOCH -gt 1 ] || exec sleep 600";

/// The pids that tasks have written at the end of their lines.
fn pids(lines: &[String]) -> Vec<u32> {
    lines.iter().filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect()
}

/// #18 too: the key of a killed holder is free after its lease. What the killed worker had started
/// is dead before anybody starts it again, though nobody was left to end it but its guardians. And the attempts count each claim, which the original
/// could lose between a claim, a reaping and a second claim.
#[test]
fn the_runs_of_a_killed_worker_are_run_by_another() {
    on_engines(|bench| {
        // Between its fence and its end a lease leaves guardians that are kept waiting some time to kill.
        let words = ["--lease-ttl", "15s", "--tick", "1s", "--concurrency", "51"];
        let words = [&words[..], &["--advertise", "gpu-exclusive"]].concat();
        let first = bench.worker(&words).ready();
        let mut apps = vec![sh(FIRST_HANGS); 50];
        apps.push(needing("gpu-exclusive", sh(FIRST_HANGS)));
        let ids = bench.submit_all(&apps);
        let first_starts = until(|| {
            let starts = bench.lines("starts");
            if starts.len() == 51 { Ok(starts) } else { Err(format!("{} started", starts.len())) }
        });
        let second = bench.worker(&words).ready();
        first.signal(Signal::KILL);
        let behind = bench.submit(&needing("gpu-exclusive", sh("true")));
        let killed = Instant::now();
        bench.until_all("completed");
        println!("{}: all ended {:.1?} after the kill", bench.engine(), killed.elapsed());

        assert_eq!(bench.lines("overlaps"), [""; 0]);
        let alive: Vec<_> =
            pids(&first_starts).into_iter().filter(|pid| machine::is_alive(*pid)).collect();
        assert_eq!(alive, [0; 0]);
        assert_eq!(bench.lines("starts").len(), 102, "each was started twice, and no more");
        for id in &ids {
            assert_eq!(bench.run(id).lease_attempts, 2);
            assert_eq!(
                bench.steps(id),
                [
                    "queued>running run.started.ok",
                    "running>queued run.queued.lease_expired",
                    "queued>running run.started.ok",
                    "running>completed run.completed.ok",
                ]
            );
        }
        assert_eq!(bench.run(&behind).lease_attempts, 1);
        drop(second);
    });
}

/// #5: elsewhere, a job that was longer than the rescue period ran two or three times.
#[test]
fn a_task_of_two_ttls_runs_once_beside_a_worker_that_would_take_it() {
    on_engines(|bench| {
        let words = with_short_leases(&["--concurrency", "2"]);
        let _first = bench.worker(&words).ready();
        let id = bench.submit(&sh("echo start >>starts; exec sleep 20.5"));
        bench.until_status(&id, "running");
        let _second = bench.worker(&words).ready();
        let run = bench.until_status(&id, "completed");
        assert_eq!((run.lease_attempts, bench.lines("starts").len()), (1, 1));
        assert_eq!(bench.facts(&id).len(), 2, "renewals are no facts");
        assert!(run.ended_at.unwrap() - bench.facts(&id)[0].created_at > 2.0 * TTL);
    });
}

/// #30: elsewhere, a host threw away jobs of a kind that it did not know.
#[test]
fn a_worker_returns_expired_runs_that_it_could_not_serve_itself() {
    on_engines(|bench| {
        let id = bench.submit(&needing("gpu", sh("true")));
        bench.place.raw().run(
            "UPDATE schedule_runs SET status = 'running', leased_by = 'host:gone', lease_attempts = 1, lease_expires_at = 1.5",
        );
        bench.work(&["--once"]);
        let run = bench.run(&id);
        assert_eq!((run.status.as_str(), run.leased_by, run.lease_attempts), ("queued", None, 1));
        assert_eq!(bench.steps(&id), ["running>queued run.queued.lease_expired"]);
        bench.work(&["--once", "--advertise", "gpu"]);
        assert_eq!(bench.run(&id).status, "completed");
    });
}

/// A run that ends its workers is not given to others for ever: after three claims it fails.
#[test]
fn a_run_whose_lease_expires_three_times_fails() {
    on_engines(|bench| {
        let id = bench.submit(&sh("true"));
        for attempts in 1..=3 {
            bench.place.raw().run(&format!(
                "UPDATE schedule_runs SET status = 'running', leased_by = 'host:gone', lease_attempts = {attempts}, lease_expires_at = 1.5"
            ));
            // It advertises nothing that serves the target, so it only takes leases back.
            bench.work(&["--once", "--target", "elsewhere"]);
        }
        let run = bench.run(&id);
        assert_eq!((run.status.as_str(), run.lease_attempts), ("failed", 3));
        assert_eq!(run.status_reason_code.as_deref(), Some("run.failed.lease_attempts_exhausted"));
    });
}

/// Two workers of which one only reaps: nothing that is alive is taken back.
#[test]
fn a_live_lease_is_not_taken_back() {
    on_engines(|bench| {
        let words = with_short_leases(&["--concurrency", "4"]);
        let _owner = bench.worker(&words).ready();
        let ids = bench.submit_all(&vec![sh("exec sleep 600"); 4]);
        bench.until_all("running");
        let began = Instant::now();
        while began.elapsed().as_secs_f64() < TTL + 1.0 {
            bench.work(&["--once", "--target", "elsewhere"]);
            std::thread::sleep(Duration::from_millis(300));
        }
        ids.iter().for_each(|id| assert_eq!(bench.steps(id).len(), 1, "{:?}", bench.steps(id)));
    });
}

/// To a clock that was set forward every lease has run out. A host knows better of the runs that stand in its own
/// directories, and renews their leases.
#[test]
fn a_worker_takes_no_lease_back_of_a_run_that_it_has_in_hand() {
    on_engines(|bench| {
        let _worker = short_leases(bench, &["--concurrency", "4"]);
        let task = sh("echo start >>starts; until [ -e go ]; do sleep 0.05; done; exit 7");
        let ids = bench.submit_all(&vec![task; 4]);
        until(|| match bench.lines("starts").len() {
            4 => Ok(()),
            started => Err(format!("{started} started")),
        });
        bench.place.raw().run("UPDATE schedule_runs SET lease_expires_at = 1.5");
        for id in &ids {
            until(|| match bench.run(id).lease_expires_at {
                Some(at) if at > crate::stopping::now() => Ok(()),
                at => Err(format!("{at:?}")),
            });
        }
        std::fs::write(bench.file("go"), "").unwrap();
        bench.until_all("failed");
        for id in &ids {
            let run = bench.run(id);
            assert_eq!((run.exit_code, run.lease_attempts), (Some(7), 1), "{:?}", bench.steps(id));
        }
        assert_eq!(bench.lines("starts").len(), 4);
    });
}

/// Words of a bench for other tests of this room.
pub(crate) fn short_leases(bench: &Bench, words: &[&str]) -> crate::bench::Worker {
    bench.worker(&with_short_leases(words)).ready()
}

/// A worker that had taken over runs from another slot has died. Of two that come after it one has its slot, and with that
/// its name; the other has the slot in which those runs stand.
#[test]
fn a_run_whose_directory_another_worker_holds_was_not_claimed_in_vain() {
    on_engines(|bench| {
        let id = bench.submit(&sh("touch started"));
        let store_id = bench.queue().read(&StoreId).unwrap();
        let state = bench.file(".local/state/leasehold");
        let named = Slot::take(&state, &store_id).unwrap();
        named.enlist("host:gone").unwrap();
        let held = Slot::take(&state, &store_id).unwrap();
        RunDir::create(held.path(), &id, 1, 1 << 20).unwrap();
        drop(named);
        bench.place.raw().run(
            "UPDATE schedule_runs SET status = 'running', leased_by = 'host:gone', lease_attempts = 1, lease_expires_at = 9e9",
        );
        bench.work(&["--once"]);
        assert_eq!(bench.run(&id).status, "running", "{:?}", bench.steps(&id));
        // Who comes when nobody holds it finds that nothing was started.
        drop(held);
        bench.work(&["--until-empty"]);
        assert_eq!(bench.run(&id).status, "completed");
        assert_eq!(bench.steps(&id)[0], "running>queued run.queued.start_failed");
    });
}
