//! Stores that are out of reach for longer than a lease lasts.

use std::time::Instant;

use crate::aftermath::{assert_settled, on_sqlite, until_none_is_left};
use crate::bench::{Bench, Worker, on_postgres, sh, until};
use crate::proxy::Proxy;
use crate::tasks::{STARTS, touch};

const WORDS: [&str; 7] = ["worker", "--lease-ttl", "8s", "--tick", "1s", "--concurrency", "12"];

#[test]
fn a_store_that_another_program_has_locked() {
    on_sqlite(|bench| {
        let worker = Worker::start(bench.program(WORDS), bench.log_file()).ready();
        let mut lock = bench.place.raw();
        outage(bench, worker, |locked| match locked {
            true => lock.run("PRAGMA busy_timeout = 30000; BEGIN IMMEDIATE"),
            false => lock.run("ROLLBACK"),
        });
    });
}

#[test]
fn a_server_that_has_fallen_silent() {
    on_postgres(|bench| {
        let proxy = Proxy::to(&bench.place.url);
        let mut program = bench.program(WORDS);
        program.env("LEASEHOLD_STORE", &proxy.url);
        let worker = Worker::start(program, bench.log_file()).ready();
        outage(bench, worker, |silent| match silent {
            true => proxy.fall_silent(),
            false => proxy.speak_again(),
        });
        assert_settled(bench);
    });
}

/// What runs longer than the outage ends at its fence and is run again; what ends meanwhile has its own end, once.
fn outage(bench: &Bench, worker: Worker, mut out_of_reach: impl FnMut(bool)) {
    let lasting = sh(format!(
        "{STARTS}; [ $LEASEHOLD_EPOCH -eq 1 ] || exit 4; trap '' TERM; setsid sleep 600 & while :; do sleep 600; done"
    ));
    let ending = sh(format!("{STARTS}; until [ -e go ]; do sleep 0.05; done; exit 7"));
    let lasting = bench.submit_all(&vec![lasting; 8]);
    let ending = bench.submit_all(&vec![ending; 4]);
    until(|| match bench.lines("starts").len() {
        12 => Ok(()),
        starts => Err(format!("{starts}")),
    });
    out_of_reach(true);
    let began = Instant::now();
    touch(bench, "go");
    until_none_is_left(bench);
    println!("{}: all is gone {:.1?} after the loss", bench.engine(), began.elapsed());
    // Nobody could be told.
    assert_eq!(bench.statuses().keys().collect::<Vec<_>>(), ["running"]);
    out_of_reach(false);

    bench.until_all("failed");
    for id in &ending {
        let run = bench.run(id);
        assert_eq!((run.exit_code, run.lease_attempts), (Some(7), 1), "{:?}", bench.steps(id));
        assert_eq!(bench.steps(id).len(), 2, "{:?}", bench.steps(id));
    }
    for id in &lasting {
        let run = bench.run(id);
        assert_eq!((run.exit_code, run.lease_attempts), (Some(4), 2), "{:?}", bench.steps(id));
        assert_eq!(bench.steps(id).len(), 4, "{:?}", bench.steps(id));
    }
    let ended = bench.texts("SELECT CAST(COUNT(*) AS TEXT) AS value FROM leasehold_attempts");
    assert_eq!(ended, ["20"], "an end for each attempt");
    assert_eq!(bench.lines("starts").len(), 4 + 2 * 8);
    println!("{}: {:?}", bench.engine(), bench.changes());
    drop(worker);
}
