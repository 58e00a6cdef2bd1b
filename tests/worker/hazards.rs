//! The hazards that the original's own worker shows when it is run as it ships, asked of ours.

use crate::bench::{command, needing, on_engines, sh};
use crate::places::Engine;

/// The original fixes the time once for a whole pass and runs its tasks between the claims, so the third lease of a
/// pass can begin after its own end.
#[test]
fn no_lease_is_dead_on_arrival() {
    on_engines(|bench| {
        let ids = bench.submit_all(&vec![sh("exec sleep 0.6"); 4]);
        bench.work(&["--until-empty", "--concurrency", "1", "--lease-ttl", "60s", "--tick", "1s"]);
        for id in ids {
            let (run, facts) = (bench.run(&id), bench.facts(&id));
            let left = run.lease_expires_at.unwrap() - facts[0].created_at;
            assert!(left >= 60.0, "the lease was {left} s long when it was claimed");
            assert_eq!((run.lease_attempts, run.status.as_str()), (1, "completed"));
        }
    });
}

/// The original looks at twenty rows, and an idle worker then never sees the one behind them.
#[test]
fn twenty_five_tasks_on_a_busy_key_do_not_hide_the_free_task_behind_them() {
    on_engines(|bench| {
        let keyed = |script: &str| needing("gpu-exclusive", sh(script));
        let _busy = bench.worker(&["--concurrency", "1", "--advertise", "gpu-exclusive"]).ready();
        let holder = bench.submit(&keyed("until [ -e go ]; do sleep 0.05; done"));
        bench.until_status(&holder, "running");
        bench.submit_all(&vec![keyed("true"); 25]);
        let free = bench.submit(&sh("true"));
        let _idle = bench.worker(&["--concurrency", "4", "--advertise", "gpu-exclusive"]).ready();
        bench.until_status(&free, "completed");
        let statuses = bench.statuses();
        assert_eq!((statuses["queued"], statuses["running"]), (25, 1));
        std::fs::write(bench.file("go"), "").unwrap();
        bench.until_all("completed");
    });
}

/// The original reads five thousand rows and no further. #19 asks it of a much deeper head.
#[test]
fn a_deep_head_of_ineligible_rows_neither_hides_nor_delays_the_one_behind_it() {
    const HEAD: usize = 20_000;
    on_engines(|bench| {
        let id = bench.submit(&needing("no-such-token", command("true", &[])));
        let (numbers, text) = match bench.place.engine {
            Engine::Sqlite => (
                format!(
                    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {HEAD})"
                ),
                "FROM n",
            ),
            Engine::Postgres => (String::new(), "FROM generate_series(1, 20000) AS n(i)"),
        };
        bench.place.raw().run(&format!(
            "INSERT INTO schedule_runs (id, trigger_context, action_kind, action_args, status, fired_at, created_at,
                 queued_at, required_capabilities, execution_target)
             {numbers} SELECT 'copy-' || i, trigger_context, action_kind, action_args, status, fired_at, created_at,
                 queued_at, required_capabilities, execution_target
             {text}, schedule_runs WHERE id = '{id}'"
        ));
        // The timer would be an hour late.
        let _worker = bench.worker(&["--concurrency", "2", "--tick", "1h"]).ready();
        let mut starts = Vec::new();
        for _ in 0..3 {
            let eligible = bench.submit(&command("true", &[]));
            let run = bench.until_status(&eligible, "completed");
            starts.push(bench.facts(&eligible)[0].created_at - run.queued_at.unwrap());
        }
        println!(
            "{}: behind {HEAD} rows, started after {:.0}, {:.0} and {:.0} ms",
            bench.engine(),
            starts[0] * 1e3,
            starts[1] * 1e3,
            starts[2] * 1e3
        );
    });
}
