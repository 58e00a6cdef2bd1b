//! What the tests share.

use std::path::{Path, PathBuf};

use leasehold::process::direct::{Running, run_to_end};
use leasehold::process::{Ending, RunIdentity, TaskCommand};

pub(crate) use crate::machine::*;

pub(crate) fn identity() -> RunIdentity {
    RunIdentity { run_id: "run-1".into(), epoch: 7, invocation_id: "0123456789ab".into() }
}

pub(crate) fn command<const N: usize>(argv: [&str; N]) -> TaskCommand {
    TaskCommand::new(argv, identity())
}

/// A shell script as a task.
pub(crate) fn sh(script: &str) -> TaskCommand {
    command(["/bin/sh", "-c", script])
}

/// The same for one that is to hear every signal: whoever has started these tests may ignore some, as `nohup` and the
/// background of a shell do, and a direct child ignores them too.
pub(crate) fn hearing_sh(script: &str) -> TaskCommand {
    command(["env", "--default-signal", "sh", "-c", script])
}

pub(crate) fn run(command: &TaskCommand) -> Ending {
    run_to_end(command).expect("the task starts")
}

pub(crate) async fn gone(pid: i32) {
    eventually("a process is gone", || (!is_alive(pid)).then_some(())).await;
}

pub(crate) fn pid(running: &Running) -> i32 {
    i32::try_from(running.pid()).unwrap()
}

pub(crate) fn is_stopped(pid: i32) -> bool {
    stat(pid).is_some_and(|(state, ..)| state == 'T')
}

pub(crate) fn kib_of(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

pub(crate) fn write_script(directory: &Path, name: &str, contents: &str, mode: u32) -> PathBuf {
    let path = directory.join(name);
    write_program(&path, contents, mode);
    path
}
