//! Exclusive keys.

use crate::bench::{Bench, needing, on_engines, sh};
use crate::dying::short_leases;

/// #9 and #18: elsewhere a permit ran out while it was held, or a batch of claims went past it, and two overlapped.
#[test]
fn tasks_on_one_key_never_overlap_whoever_runs_them_and_however_long() {
    on_engines(|bench| {
        let words = ["--concurrency", "4", "--advertise", "gpu-exclusive"];
        let _workers: Vec<_> = (0..4).map(|_| short_leases(bench, &words)).collect();
        // The first one holds the key for longer than a lease. `mkdir` tells whether anybody else is in there.
        let body = |seconds: &str| {
            let script = format!("mkdir inside || exit 9; sleep {seconds}; rmdir inside || exit 8");
            needing("gpu-exclusive", sh(script))
        };
        let mut apps = vec![body("11")];
        apps.extend(vec![body("0.05"); 11]);
        // Others are not held up meanwhile.
        apps.extend(vec![sh("true"); 4]);
        bench.submit_all(&apps);
        bench.until_all("completed");
        let attempts =
            bench.texts("SELECT DISTINCT CAST(lease_attempts AS TEXT) AS value FROM schedule_runs");
        assert_eq!(attempts, ["1"]);
    });
}

fn submit(bench: &Bench, options: &[&str], script: &str) -> String {
    bench.submit_script(&[&["--needs", "gpu-exclusive"], options].concat(), script)
}

/// #14: elsewhere a task for later kept those back that could have had its lock at once.
#[test]
fn a_task_for_later_does_not_hold_its_key() {
    on_engines(|bench| {
        let later = submit(bench, &["--after", "1h"], "true");
        let now = submit(bench, &[], "true");
        let _worker = bench.worker(&["--advertise", "gpu-exclusive"]).ready();
        bench.until_status(&now, "completed");
        assert_eq!(bench.run(&later).status, "waiting_dependency");
    });
}

/// #16: elsewhere a retry met a twin that had its key meanwhile, and failed for ever.
#[test]
fn a_task_that_is_to_be_tried_again_while_another_has_its_key_waits_for_that() {
    on_engines(|bench| {
        let options = ["--max-failures", "1000", "--backoff", "0.3", "--backoff-cap", "0.3"];
        // A pause may be too short for the twin to come in between.
        let first = submit(bench, &options, "echo first >>order; [ -e go ]");
        let twin = "echo twin >>order; until [ -e go ]; do sleep 0.02; done; echo done >>order";
        let twin = submit(bench, &[], twin);
        let _worker = bench.worker(&["--concurrency", "4", "--advertise", "gpu-exclusive"]).ready();
        bench.until_status(&twin, "running");
        bench.until_status(&first, "queued");
        // Whoever looks for work now looks past it.
        let other = bench.submit(&sh("true"));
        bench.until_status(&other, "completed");
        assert_eq!(bench.run(&first).status, "queued");
        std::fs::write(bench.file("go"), "").unwrap();
        bench.until_status(&first, "completed");
        assert_eq!(bench.run(&twin).status, "completed");
        let order = bench.lines("order").join(" ");
        assert!(order.ends_with("first twin done first"), "{order}");
    });
}
