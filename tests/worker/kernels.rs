//! Kernels, and filters of system calls, that lack something: a worker says at its start what is weaker.

use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::Value;

use crate::bench::{Bench, Worker, on_sqlite, sh};

/// The program, for which a system call is not there.
fn without(call: libc::c_long, mut program: Command) -> Command {
    let call = u32::try_from(call).unwrap();
    let filter = move || {
        let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        let mut steps = [
            // The number of the call is what the kernel's structure begins with.
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
        #[expect(unsafe_code, reason = "there is no safe way to filter one's own system calls")]
        // SAFETY: the program and its steps live as long as the call, which copies them.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
                    == 0
        };
        if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    #[expect(unsafe_code, reason = "the filter must be set between the fork and the new program")]
    // SAFETY: it allocates nothing and calls nothing but the kernel.
    unsafe {
        program.pre_exec(filter);
    }
    program
}

fn worked(bench: &Bench, call: libc::c_long) -> String {
    let program = bench.program(["worker", "--once", "--log", "warn"]);
    let mut worker = Worker::start(without(call, program), bench.log_file());
    worker.leaves_with(0);
    worker.log()
}

fn examined(bench: &Bench, call: libc::c_long, check: &str) -> (Option<i32>, Value) {
    let output = without(call, bench.program(["doctor", "--json"])).output().unwrap();
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let row = rows.into_iter().find(|row| row["check"] == check).unwrap();
    (output.status.code(), row)
}

#[test]
fn without_close_range_a_start_is_only_slower() {
    on_sqlite(|bench| {
        let id = bench.submit(&sh("exit 4"));
        let log = worked(bench, libc::SYS_close_range);
        assert_eq!(bench.run(&id).exit_code, Some(4));
        let said: Vec<&str> = log.lines().collect();
        assert_eq!(said.len(), 1, "{log}");
        assert!(said[0].contains("WARN") && said[0].contains("close_range"), "{log}");
        let (code, row) = examined(bench, libc::SYS_close_range, "close-range");
        assert_eq!((code, &row["state"]), (Some(0), &"warning".into()), "{row}");
    });
}

#[test]
fn without_pidfds_no_task_can_be_started_under_a_guardian() {
    on_sqlite(|bench| {
        // A worker that cannot start any would make each one fail that it claims.
        let id = bench.submit(&sh("true"));
        let program = bench.program(["worker", "--once", "--log", "warn"]);
        let mut worker = Worker::start(without(libc::SYS_pidfd_open, program), bench.log_file());
        worker.leaves_with(1);
        let said = worker.log();
        assert_eq!(said.lines().count(), 1, "{said}");
        for words in ["pidfd_open", "cannot be started here", "--supervision direct"] {
            assert!(said.contains(words), "{said}");
        }
        let run = bench.run(&id);
        assert_eq!((run.status.as_str(), run.lease_attempts), ("queued", 0));
        let (code, row) = examined(bench, libc::SYS_pidfd_open, "pidfd");
        assert_eq!((code, &row["state"]), (Some(1), &"problem".into()), "{row}");
    });
}
