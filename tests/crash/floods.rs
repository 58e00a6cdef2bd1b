//! Outputs that somebody holds open, and outputs without end.

use std::time::Instant;

use leasehold::process::guardian::DEFAULT_LOG_CAP;

use crate::aftermath::{guardians, on_engines, on_sqlite, task_processes};
use crate::bench::{Bench, sh, until};
use crate::machine;
use crate::tasks::printed;

/// Who holds it would hold it for ten minutes, in the task's group or out of it.
#[test]
fn whoever_holds_the_output_is_ended_and_what_came_before_is_whole() {
    on_engines(|bench| {
        let _worker = bench.worker(&["--concurrency", "3"]).ready();
        let holders = ["sleep 600 &", "setsid sleep 600 &", "(trap '' TERM; setsid sleep 600 &)"];
        let ids =
            bench.submit_all(&holders.map(|holder| sh(format!("{holder}\nseq 100000; exit 6"))));
        let expected: String = (1..=100_000).map(|number| format!("{number}\n")).collect();
        for id in &ids {
            let run = bench.until_status(id, "failed");
            assert_eq!(run.exit_code, Some(6));
            let facts = bench.facts(id);
            let took = facts[1].created_at - facts[0].created_at;
            println!("{}: ended {took:.2} s after its claim", bench.engine());
            assert!(printed(bench, id) == expected, "the output of {id} is not whole");
        }
        assert!(task_processes(bench).is_empty(), "the holders are gone");
    });
}

/// The last number of the flood, which makes 200 MB and more.
const LAST: usize = 24_000_000;

#[test]
fn a_flood_before_the_exit_has_its_end_and_takes_no_memory() {
    on_sqlite(|bench| {
        let worker = bench.worker(&["--concurrency", "2"]).ready();
        let endless = bench.submit(&sh("exec yes"));
        let flood = bench.submit(&sh(format!("seq {LAST}; echo the end; exit 3")));
        let (mut of_worker, mut of_guardians) = ((0, 0), (0, 0));
        let began = Instant::now();
        let run = until(|| {
            of_worker = most(of_worker, machine::memory_kib(worker.pid()));
            for guardian in guardians(bench) {
                of_guardians = most(of_guardians, machine::memory_kib(guardian));
            }
            let run = bench.run(&flood);
            if run.status == "running" || run.status == "queued" {
                Err(run.status)
            } else {
                Ok(run)
            }
        });
        println!(
            "KiB resident, and of that its own: the worker {of_worker:?}, a guardian {of_guardians:?}, in {:.1?}",
            began.elapsed()
        );
        assert_eq!((run.status.as_str(), run.exit_code), ("failed", Some(3)));
        assert!(run.error_detail.unwrap().ends_with(&format!("\n{LAST}\nthe end\n")));

        let files = logs(bench);
        assert!(files.iter().all(|length| *length <= DEFAULT_LOG_CAP), "{files:?}");
        let output = bench.program(["logs", &flood]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let cut: usize = said
            .strip_prefix("leasehold: ")
            .and_then(|said| said.strip_suffix(" bytes are not kept\n"))
            .unwrap_or_else(|| panic!("{said}"))
            .parse()
            .unwrap();
        let all = (1..=LAST).map(|number| number.ilog10() as usize + 2).sum::<usize>() + 8;
        assert_eq!(output.stdout.len() + cut, all, "what is kept and what was cut");
        let output = String::from_utf8(output.stdout).unwrap();
        let head = (1..=100_000).map(|number| format!("{number}\n")).collect::<String>();
        let tail = (LAST - 100_000..=LAST).map(|number| format!("{number}\n")).collect::<String>();
        assert!(output.starts_with(&head) && output.ends_with(&(tail + "the end\n")));

        bench.program(["cancel", &endless]).status().unwrap();
        bench.until_status(&endless, "cancelled");
        // Without optimisation the program's own pages alone are as many as these bounds allow a release build.
        let (worker_most, guardian_most) = (20 << 10, 4 << 10);
        assert!(of_worker.1 < worker_most, "the worker: {of_worker:?}");
        assert!(of_guardians.1 < guardian_most, "a guardian: {of_guardians:?}");
        if !cfg!(debug_assertions) {
            assert!(of_worker.0 < 20 << 10 && of_guardians.0 < 20 << 10, "resident in all");
        }
    });
}

fn most(before: (u64, u64), now: Option<(u64, u64)>) -> (u64, u64) {
    let now = now.unwrap_or_default();
    (before.0.max(now.0), before.1.max(now.1))
}

/// How long each log file of the bench is.
fn logs(bench: &Bench) -> Vec<u64> {
    fn below(dir: &std::path::Path, found: &mut Vec<u64>) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => below(&entry.path(), found),
                Ok(metadata) if entry.file_name().to_string_lossy().contains(".log") => {
                    found.push(metadata.len());
                }
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    below(&bench.file(".local/state/leasehold"), &mut found);
    found
}
