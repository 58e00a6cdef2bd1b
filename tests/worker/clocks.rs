//! Hosts whose clocks differ from that of the server that they share.

use crate::bench::{Bench, Worker, on_postgres, sh, until};

fn worker(bench: &Bench, url: &str, words: &[&str]) -> Worker {
    let mut program = bench.program(["worker"].iter().chain(words));
    program.env("LEASEHOLD_STORE", url);
    Worker::start(program, bench.log_file())
}

#[test]
fn a_lease_lasts_by_the_clock_of_the_server() {
    on_postgres(|bench| {
        // Less than a worker takes for too much.
        let url = bench.place.with_a_clock_ahead_by(1.8);
        let id = bench.submit(&sh("true"));
        worker(bench, &url, &["--once", "--lease-ttl", "60s"]).leaves_with(0);
        let run = bench.run(&id);
        assert_eq!(run.status, "completed", "{run:?}");
        let claimed = bench.facts(&id)[0].created_at;
        let beyond = run.lease_expires_at.unwrap() - claimed - 60.0;
        assert!(beyond > 1.7, "it lasts {beyond} s longer than by this host's clock");
    });
}

#[test]
fn a_host_whose_clock_is_off_claims_nothing_says_so_and_still_reaps() {
    on_postgres(|bench| {
        let url = bench.place.with_a_clock_ahead_by(600.0);
        // By the clock of the server, and by no other, this lease has run out.
        let expired = bench.submit(&sh("true"));
        bench.place.raw().run(&format!(
            "UPDATE schedule_runs SET status = 'running', leased_by = 'another:1', lease_attempts = 1,
             lease_expires_at = extract(epoch from clock_timestamp()) + 300 WHERE id = '{expired}'"
        ));
        let mut off = worker(bench, &url, &["--tick", "1s"]).ready();
        bench.until_status(&expired, "queued");
        let log = until(|| match off.log() {
            log if log.contains(" s behind that of the database server") => Ok(log),
            log => Err(log),
        });
        let (before, _) = log.split_once(" s behind that of the database server").unwrap();
        let seconds: f64 = before.rsplit_once(' ').unwrap().1.parse().unwrap();
        // What the look itself has taken is not known to be part of it.
        assert!(500.0 < seconds && seconds <= 600.0, "{log}");
        assert!(off.log().contains("set the clock"), "{}", off.log());
        assert_eq!(bench.steps(&expired), ["running>queued run.queued.lease_expired"]);
        // Somebody sets the clock.
        bench.place.with_a_clock_ahead_by(0.0);
        bench.until_status(&expired, "completed");
        assert!(off.log().contains("right again"), "{}", off.log());
        off.end_at_once();
    });
}
