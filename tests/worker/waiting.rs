//! `submit --wait`.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::bench::{Bench, PATIENCE, on_engines, until};

fn submit_and_wait(bench: &Bench, script: &str) -> Command {
    bench.program(["submit", "command", "--wait", "--", "sh", "-c", script])
}

#[test]
fn it_exits_as_the_task_did() {
    on_engines(|bench| {
        let _worker = bench.worker(&[]).ready();
        for (script, code, said) in [
            ("exit 0", 0, ""),
            ("echo why >&2; exit 7", 7, "is failed: why"),
            ("exit 255", 255, "is failed: exit code 255"),
            ("kill -KILL $$", 137, "is failed: exit code -9"),
            ("kill -TERM $$", 143, "is failed: exit code -15"),
            ("exec no-such-program", 127, "no-such-program"),
        ] {
            let output = submit_and_wait(bench, script).output().unwrap();
            let (out, err) = (
                String::from_utf8(output.stdout).unwrap(),
                String::from_utf8(output.stderr).unwrap(),
            );
            assert_eq!(output.status.code(), Some(code), "{script}: {err}");
            assert!(
                err.contains(said) && err.lines().count() == usize::from(code != 0),
                "{script}: {err}"
            );
            assert_eq!(
                bench.run(out.trim()).exit_code,
                if code > 128 && code < 255 { Some(128 - code) } else { Some(code) }
            );
        }
    });
}

#[test]
fn what_no_process_ended_has_codes_of_its_own() {
    on_engines(|bench| {
        for (sql, code) in [
            ("status = 'cancelled'", 3),
            ("status = 'timed_out'", 4),
            ("status = 'skipped'", 4),
            // As a run has it that failed for its attempts: no exit code is known.
            ("status = 'failed'", 1),
            // Nor does a failure look like a success, whatever somebody has written.
            ("status = 'failed', exit_code = 0", 1),
            ("status = 'failed', exit_code = 256", 1),
            ("status = 'failed', exit_code = -500", 255),
        ] {
            let mut program = submit_and_wait(bench, "true");
            let mut child = program.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let id = until(|| bench.runs().pop().map(|run| run.id).ok_or("no run".into()));
            // Two looks of the waiting program, at least.
            std::thread::sleep(Duration::from_millis(150));
            assert_eq!(child.try_wait().unwrap(), None, "it waits");
            bench.place.raw().run(&format!("UPDATE schedule_runs SET {sql} WHERE id = '{id}'"));
            let began = Instant::now();
            let status = until(|| child.try_wait().unwrap().ok_or("it waits".into()));
            assert_eq!(status.code(), Some(code), "{sql}");
            assert!(began.elapsed() < PATIENCE);
            bench.place.raw().run("DELETE FROM schedule_runs");
        }
    });
}
