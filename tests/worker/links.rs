//! Connections to PostgreSQL that fall silent or are cut.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::bench::{Bench, Worker, on_postgres, sh, until};
use crate::machine;
use crate::proxy::Proxy;

fn worker_by(bench: &Bench, proxy: &Proxy, words: &[&str]) -> Worker {
    let mut program: Command = bench.program(["worker"].iter().chain(words));
    program.env("LEASEHOLD_STORE", &proxy.url);
    Worker::start(program, bench.log_file()).ready()
}

/// #15: elsewhere, a half-open connection kept a worker silent for hours, and it could not even be stopped.
#[test]
fn a_worker_whose_connection_fell_silent_can_be_ended() {
    on_postgres(|bench| {
        let proxy = Proxy::to(&bench.place.url);
        // Longer than anybody here waits.
        let mut idle = worker_by(bench, &proxy, &["--drain", "1h"]);
        proxy.fall_silent();
        // Its look for changes hangs now, within two polls.
        std::thread::sleep(Duration::from_millis(200));
        let told = Instant::now();
        idle.signal(Signal::TERM);
        idle.leaves_with(0);
        println!("an idle worker left {:.2?} after TERM", told.elapsed());
    });
}

/// Nor does a worker wait for its whole drain when it cannot learn what it is to adopt: nothing runs here.
#[test]
fn a_worker_whose_connection_fell_silent_before_it_could_adopt_can_be_ended() {
    on_postgres(|bench| {
        let proxy = Proxy::to(&bench.place.url);
        // What it asks for first waits for this lock, and then gets no answer.
        let mut raw = bench.place.raw();
        raw.run("BEGIN");
        raw.run("LOCK TABLE schedule_runs IN ACCESS EXCLUSIVE MODE");
        let mut worker = worker_by(bench, &proxy, &["--drain", "1h"]);
        proxy.fall_silent();
        let told = Instant::now();
        worker.signal(Signal::TERM);
        worker.leaves_with(0);
        println!("left {:.1?} after TERM", told.elapsed());
        raw.run("ROLLBACK");
    });
}

/// And #4, #10: what cannot be renewed is stopped by its fence, so that another worker may run it.
#[test]
fn a_task_whose_lease_cannot_be_renewed_is_stopped_before_another_worker_runs_it() {
    on_postgres(|bench| {
        let proxy = Proxy::to(&bench.place.url);
        // Between its fence and its end a lease leaves a guardian that is kept waiting some time to kill.
        let words = ["--lease-ttl", "15s", "--tick", "1s", "--drain", "0"];
        let mut cut_off = worker_by(bench, &proxy, &words);
        let script = "echo $$ >>pids; [ $LEASEHOLD_EPOCH -gt 1 ] || exec sleep 600; kill -0 $(head -1 pids) && exit 9; exit 0";
        let id = bench.submit(&sh(script));
        let pid: u32 = until(|| bench.lines("pids").first().cloned().ok_or("no start".into()))
            .parse()
            .unwrap();
        proxy.fall_silent();
        let _other = bench.worker(&["--tick", "1s"]).ready();
        bench.until_status(&id, "completed");
        assert!(!machine::is_alive(pid));
        assert_eq!(bench.run(&id).lease_attempts, 2);
        // It finds its way back by itself, and finds nothing to write.
        proxy.speak_again();
        let ids: Vec<_> = (0..4).map(|_| bench.submit(&sh("true"))).collect();
        ids.iter().for_each(|id| drop(bench.until_status(id, "completed")));
        assert_eq!(bench.steps(&id).len(), 4);
        cut_off.signal(Signal::TERM);
        cut_off.leaves_with(0);
    });
}

/// With a task that runs when the silence falls, there is an end that cannot be written; the wait for it is bounded.
#[test]
fn an_end_that_cannot_be_written_does_not_keep_a_worker_for_ever() {
    on_postgres(|bench| {
        let proxy = Proxy::to(&bench.place.url);
        let mut worker = worker_by(bench, &proxy, &["--drain", "0"]);
        let id = bench.submit(&sh("echo $$ >>pids; exec sleep 600"));
        let pid: u32 = until(|| bench.lines("pids").first().cloned().ok_or("no start".into()))
            .parse()
            .unwrap();
        proxy.fall_silent();
        worker.signal(Signal::TERM);
        until(|| if machine::is_alive(pid) { Err("alive".into()) } else { Ok(()) });
        let told = Instant::now();
        // The second signal leaves ten seconds for what is still to be written.
        worker.signal(Signal::TERM);
        worker.leaves_with(0);
        println!("left {:.1?} after the second signal", told.elapsed());
        assert_eq!(bench.run(&id).status, "running", "its lease will say so");
    });
}

/// #6 and #11: elsewhere, the loss of a connection wedged the supervisor or ran jobs twice.
#[test]
fn connections_that_are_cut_again_and_again_cost_no_run() {
    on_postgres(|bench| {
        let proxy = Proxy::to(&bench.place.url);
        bench.submit_all(&vec![sh("echo $LEASEHOLD_RUN_ID >>starts; exec sleep 0.02"); 150]);
        let words = ["--lease-ttl", "10s", "--tick", "1s", "--concurrency", "4", "--until-empty"];
        let mut worker = worker_by(bench, &proxy, &words);
        let mut cuts = 0;
        until(|| {
            proxy.cut();
            cuts += 1;
            // Time to connect, and to get something done.
            std::thread::sleep(Duration::from_millis(150));
            let statuses = bench.statuses();
            if statuses.len() == 1 && statuses.contains_key("completed") {
                Ok(())
            } else {
                Err(format!("{statuses:?}"))
            }
        });
        worker.leaves_with(0);
        println!("{cuts} cuts, {:?}", bench.changes());
        let mut starts = bench.lines("starts");
        starts.sort();
        starts.dedup();
        assert_eq!((bench.lines("starts").len(), starts.len()), (150, 150), "each once");
    });
}
