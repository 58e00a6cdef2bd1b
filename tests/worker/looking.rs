//! `leasehold runs`: what is seen of running tasks from outside, and that nobody is disturbed by the look.

use leasehold::db::ops::StoreId;
use leasehold::process::guardian::RunDir;
use leasehold::process::slot::Slot;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::bench::{Bench, on_engines, on_sqlite, sh, until};
use crate::machine;

/// Starts a process beside itself, notes its number, and ends with `code` once there is a file `go`.
fn waits(code: i32) -> leasehold::domain::task::TaskApplication {
    let script = format!(
        "sleep 600 & echo $LEASEHOLD_RUN_ID $$ >>starts; until [ -e go ]; do sleep 0.05; done; exit {code}"
    );
    sh(script)
}

fn looked(bench: &Bench) -> Vec<Value> {
    let output = bench.program(["runs", "--json"]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn shown(bench: &Bench) -> String {
    let output = bench.program(["runs"]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What each of so many tasks wrote at its start: its id and its number.
fn started(bench: &Bench, count: usize) -> Vec<(String, u32)> {
    let lines = until(|| {
        let lines = bench.lines("starts");
        if lines.len() == count { Ok(lines) } else { Err(format!("{lines:?}")) }
    });
    let parts = lines.iter().map(|line| line.split_once(' ').unwrap());
    parts.map(|(id, pid)| (id.to_owned(), pid.parse().unwrap())).collect()
}

/// Waits until each run has this state.
fn until_state(bench: &Bench, state: &str) -> Vec<Value> {
    until(|| {
        let rows = looked(bench);
        if rows.iter().all(|row| row["state"] == state) {
            Ok(rows)
        } else {
            Err(format!("{rows:?}"))
        }
    })
}

fn number(row: &Value, name: &str) -> u32 {
    row[name].as_u64().unwrap_or_else(|| panic!("{name}: {row}")).try_into().unwrap()
}

#[test]
fn what_runs_is_seen_beside_its_worker_and_after_its_death() {
    on_engines(|bench| {
        let mut first = bench.worker(&["--concurrency", "4"]).ready();
        let ids = bench.submit_all(&[waits(0), waits(7)]);
        let started = started(bench, 2);
        // A guardian that is kept waiting is silent for a look.
        let rows = until_state(bench, "running");
        assert_eq!(rows.len(), 2, "{rows:?}");
        for (id, pid) in &started {
            let row = rows.iter().find(|row| row["run_id"] == **id).unwrap();
            assert_eq!(row["epoch"], 1);
            assert_eq!((&row["kind"], &row["status"]), (&"command".into(), &"running".into()));
            assert_eq!(row["owner"], bench.run(id).leased_by.unwrap());
            assert_eq!((&row["state"], &row["worker_lives"]), (&"running".into(), &true.into()));
            assert_eq!((number(row, "worker_pid"), number(row, "task_pid")), (first.pid(), *pid));
            assert!(machine::children(number(row, "guardian_pid")).contains(pid), "{row}");
            let fence = row["fence_left"].as_f64().unwrap();
            assert!(0.0 < fence && fence < 300.0, "{row}");
            // The shell, what it waits with and what it has started.
            assert!(number(row, "processes") >= 2, "{row}");
            assert!(row["memory_bytes"].as_u64().unwrap() > 0, "{row}");
            assert!(row["age"].as_f64().unwrap() >= 0.0, "{row}");
        }
        let table = shown(bench);
        assert_eq!(table.lines().count(), 3, "{table}");

        first.signal(Signal::KILL);
        assert_eq!(first.exit().code(), None);
        // Looked at again and again, and by several at once.
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..5).for_each(|_| assert_eq!(looked(bench).len(), 2)));
            }
        });
        let dead = until_state(bench, "running");
        for row in &dead {
            assert_eq!((&row["worker_lives"], &row["worker_pid"]), (&false.into(), &Value::Null));
            let before = rows.iter().find(|other| other["run_id"] == row["run_id"]).unwrap();
            for same in ["owner", "status", "state", "guardian_pid", "task_pid"] {
                assert_eq!(row[same], before[same], "{same}");
            }
        }
        assert!(shown(bench).lines().skip(1).all(|line| line.contains("  dead  ")));

        let second = bench.worker(&["--concurrency", "4"]).ready();
        until(|| {
            let rows = looked(bench);
            let adopted =
                |row: &Value| row["worker_pid"] == second.pid() && row["owner"] != dead[0]["owner"];
            if rows.iter().all(adopted) { Ok(()) } else { Err(format!("{rows:?}")) }
        });
        std::fs::write(bench.file("go"), "").unwrap();
        for (id, code) in ids.iter().zip([0, 7]) {
            let status = if code == 0 { "completed" } else { "failed" };
            let run = bench.until_status(id, status);
            assert_eq!((run.exit_code, run.lease_attempts), (Some(code), 1));
        }
        assert_eq!(bench.lines("starts").len(), 2);
        until(|| match looked(bench) {
            rows if rows.is_empty() => Ok(()),
            rows => Err(format!("{rows:?}")),
        });
    });
}

#[test]
fn a_guardian_that_was_killed_one_that_hangs_and_one_that_has_left_are_told_apart() {
    on_sqlite(|bench| {
        let mut worker = bench.worker(&[]).ready();
        let id = bench.submit(&waits(3));
        started(bench, 1);
        worker.signal(Signal::KILL);
        assert_eq!(worker.exit().code(), None);
        let guardian = number(&until_state(bench, "running")[0], "guardian_pid");
        let signal = |signal| {
            let pid = Pid::from_raw(guardian.cast_signed()).unwrap();
            kill_process(pid, signal).unwrap();
        };
        signal(Signal::STOP);
        let row = until_state(bench, "silent").remove(0);
        assert_eq!(number(&row, "guardian_pid"), guardian);
        assert_eq!(row["fence_left"], Value::Null);
        signal(Signal::CONT);
        until_state(bench, "running");
        signal(Signal::KILL);
        let row = until_state(bench, "killed").remove(0);
        assert_eq!((&row["guardian_pid"], &row["processes"]), (&Value::Null, &Value::Null));
        assert_eq!((&row["run_id"], &row["status"]), (&id.as_str().into(), &"running".into()));
        // The look has sealed nothing: the next worker finds out by itself.
        let _next = bench.worker(&["--target", "elsewhere"]).ready();
        bench.until_status(&id, "queued");

        std::fs::remove_file(bench.file("starts")).unwrap();
        let mut worker = bench.worker(&[]).ready();
        started(bench, 1);
        worker.signal(Signal::KILL);
        assert_eq!(worker.exit().code(), None);
        std::fs::write(bench.file("go"), "").unwrap();
        let row = until_state(bench, "ended").remove(0);
        assert_eq!((&row["epoch"], &row["status"]), (&2.into(), &"running".into()));
    });
}

#[test]
fn of_stored_names_nothing_reaches_a_terminal_and_other_stores_stay_out() {
    on_sqlite(|bench| {
        let state = bench.file(".local/state/leasehold");
        let store_id = bench.queue().read(&StoreId).unwrap();
        assert_eq!(looked(bench).len(), 0);
        assert!(!state.exists(), "a look makes no directory");
        let slot = Slot::take(&state, &store_id).unwrap();
        let id = bench.submit(&sh("exit 0"));
        bench.place.raw().run("UPDATE schedule_runs SET action_kind = 'k' || char(27) || '[2J', leased_by = 'o' || char(10)");
        let dir = RunDir::create(slot.path(), &id, 1, 4096).unwrap();
        RunDir::create(slot.path(), "un\u{1b}known\u{202e}", 1, 4096).unwrap();
        let other = Slot::take(&state, "another-store").unwrap();
        RunDir::create(other.path(), "elsewhere", 1, 4096).unwrap();
        let rows = looked(bench);
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert!(rows.iter().all(|row| row["state"] == "starting"), "{rows:?}");
        let text = shown(bench);
        assert!(
            !text.contains(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}'),
            "{text:?}"
        );
        assert!(text.contains(r"k\u{1b}[2J") && text.contains(r"un\u{1b}known\u{202e}"), "{text}");
        assert!(!text.contains("elsewhere"), "{text}");
        drop(slot);
        until_state(bench, "not started");
        assert!(dir.path().join("guard.lock").exists(), "it took a lock away");
    });
}

/// The state of one check, and what was found.
fn examined(bench: &Bench, check: &str) -> (String, String) {
    let output = bench.program(["doctor", "--json"]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let row = rows.iter().find(|row| row["check"] == check).unwrap();
    (row["state"].as_str().unwrap().to_owned(), row["what"].as_str().unwrap().to_owned())
}

#[test]
fn the_doctor_sees_workers_and_what_they_left_and_disturbs_nothing() {
    on_engines(|bench| {
        let state = |check: &str| examined(bench, check).0;
        let mut worker = bench.worker(&[]).ready();
        let id = bench.submit(&waits(5));
        started(bench, 1);
        assert!(examined(bench, "slots").1.contains("store: 1, with a living worker: 1"));
        assert_eq!((state("unowned-tasks"), state("earlier-runs")), ("ok".into(), "ok".into()));

        worker.signal(Signal::KILL);
        assert_eq!(worker.exit().code(), None);
        assert!(examined(bench, "slots").1.contains("with a living worker: 0"));
        assert_eq!(
            (state("unowned-tasks"), state("earlier-runs")),
            ("warning".into(), "ok".into())
        );

        std::fs::write(bench.file("go"), "").unwrap();
        until(|| match (state("unowned-tasks"), state("earlier-runs")) {
            (unowned, left) if unowned == "ok" && left == "warning" => Ok(()),
            seen => Err(format!("{seen:?}")),
        });
        let _next = bench.worker(&[]).ready();
        assert_eq!(bench.until_status(&id, "failed").exit_code, Some(5));
        // What it has left is put away when its end is stored.
        until(|| match (state("unowned-tasks"), state("earlier-runs")) {
            (unowned, left) if unowned == "ok" && left == "ok" => Ok(()),
            seen => Err(format!("{seen:?}")),
        });
        assert_eq!(bench.lines("starts").len(), 1);
    });
}
