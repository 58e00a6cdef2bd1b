//! Tasks that tell what happens to them.

use leasehold::db::ops::StoreId;
use leasehold::domain::task::TaskApplication;
use leasehold::process::guardian::RunDir;
use leasehold::process::slot::Slot;

use crate::bench::{Bench, Worker, sh, until};

/// Notes that it has started: which run, which attempt, which process.
pub(crate) const STARTS: &str = "echo $LEASEHOLD_RUN_ID $LEASEHOLD_EPOCH $$ >>starts";

/// How tasks end by themselves, and the codes that are to be stored.
pub(crate) const ENDS: [(&str, i32); 6] = [
    ("exit 0", 0),
    ("exit 3", 3),
    ("exit 255", 255),
    ("kill -TERM $$", -15),
    ("kill -KILL $$", -9),
    ("kill -SEGV $$", -11),
];

/// Counts on its output, twenty lines at a time, until there is a file `go`, and ends so.
pub(crate) fn counts(go: &str, end: &str) -> TaskApplication {
    sh(format!(
        "{STARTS}; ulimit -c 0; n=0
         while :; do
             m=$((n+20)); while [ $n -lt $m ]; do n=$((n+1)); echo $n; done
             [ ! -e {go} ] || break
             sleep 0.2
         done
         echo end; {end}"
    ))
}

/// Its whole output is there, in order.
#[track_caller]
pub(crate) fn assert_counted(bench: &Bench, id: &str) -> usize {
    let output = printed(bench, id);
    let lines: Vec<&str> = output.lines().collect();
    let (last, numbers) = lines.split_last().unwrap_or((&"", &[]));
    for (index, line) in numbers.iter().enumerate() {
        assert_eq!(*line, (index + 1).to_string(), "{id}: a gap");
    }
    assert_eq!(*last, "end", "{id}: after {} numbers", numbers.len());
    numbers.len()
}

/// What `leasehold logs` says.
#[track_caller]
pub(crate) fn printed(bench: &Bench, id: &str) -> String {
    let output = bench.program(["logs", id]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Waits until so many have started, and answers their first processes.
#[track_caller]
pub(crate) fn started(bench: &Bench, count: usize) -> Vec<u32> {
    let lines = until(|| {
        let lines = bench.lines("starts");
        if lines.len() == count { Ok(lines) } else { Err(format!("{} started", lines.len())) }
    });
    lines.iter().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect()
}

pub(crate) fn touch(bench: &Bench, name: &str) {
    std::fs::write(bench.file(name), "").unwrap();
}

/// Each ended with its code, in its first attempt.
#[track_caller]
pub(crate) fn assert_ended_once(bench: &Bench, ids: &[String], codes: &[i32]) {
    for (id, code) in ids.iter().zip(codes) {
        let (status, reason) = match code {
            0 => ("completed", "run.completed.ok"),
            _ => ("failed", "run.failed.exit_nonzero"),
        };
        let run = bench.until_status(id, status);
        assert_eq!((run.exit_code, run.lease_attempts), (Some(*code), 1));
        assert_eq!(
            bench.steps(id),
            ["queued>running run.started.ok".to_owned(), format!("running>{status} {reason}")]
        );
    }
    assert_eq!(bench.lines("starts").len(), ids.len(), "{:?}", bench.lines("starts"));
}

/// Waits until each of them is another's than `owner`'s.
#[track_caller]
pub(crate) fn until_adopted<'a>(
    bench: &Bench,
    ids: impl IntoIterator<Item = &'a String>,
    owner: &str,
) {
    for id in ids {
        until(|| {
            let run = bench.run(id);
            match &run.leased_by {
                Some(by) if by != owner => Ok(()),
                _ => Err(format!("{run:?}")),
            }
        });
    }
}

/// Whose it is.
#[track_caller]
pub(crate) fn owner(bench: &Bench, id: &str) -> String {
    bench.run(id).leased_by.expect("it has an owner")
}

/// The directory of a run's first attempt.
pub(crate) fn run_dir(bench: &Bench, id: &str) -> RunDir {
    let store_id = bench.queue().read(&StoreId).unwrap();
    let slots = Slot::paths(&bench.file(".local/state/leasehold"), &store_id).unwrap();
    let find = |slot| {
        RunDir::find(slot, id, 1).unwrap().or_else(|| RunDir::find_kept(slot, id, 1).unwrap())
    };
    slots.iter().find_map(|slot| find(slot)).expect("it was started")
}

/// The name that a worker has given itself, from its log.
pub(crate) fn name(worker: &Worker) -> String {
    let log = worker.log();
    let line = log.lines().find(|line| line.contains("ready")).expect("it is ready");
    let (_, name) = line.split_once("worker=").unwrap();
    name.split(' ').next().unwrap().trim_matches('"').to_owned()
}
