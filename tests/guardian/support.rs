//! What the tests share.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use leasehold::process::direct::Running;
use leasehold::process::guardian::{
    BootTime, ConnectError, DEFAULT_LOG_CAP, ExitRecord, Glimpse, Guardian, GuardianEnd,
    GuardianProgram, LogPiece, LogStream, RunDir, RunSpec, StartError,
};
use leasehold::process::{RunIdentity, TaskCommand};

pub(crate) use crate::machine::*;

/// A fence that no test reaches.
pub(crate) const FAR: Duration = Duration::from_secs(600);
/// What a task gets between TERM and KILL.
pub(crate) const GRACE: Duration = Duration::from_millis(300);
/// How long whoever asks a guardian waits for its answer.
pub(crate) const ANSWER: Duration = Duration::from_secs(2);

/// A task that writes a file `ready` when it would not end by a TERM any more.
pub(crate) const IGNORES_TERM: &str = "trap '' TERM; touch $D/ready; while :; do sleep 0.01; done";

pub(crate) fn program() -> GuardianProgram {
    GuardianProgram::at(env!("CARGO_BIN_EXE_leasehold"))
}

/// A slot with the directory of one run in it.
pub(crate) struct Place {
    pub(crate) slot: tempfile::TempDir,
    pub(crate) dir: RunDir,
}

pub(crate) fn place() -> Place {
    place_with(DEFAULT_LOG_CAP)
}

pub(crate) fn place_with(log_cap: u64) -> Place {
    let slot = tempfile::tempdir().unwrap();
    let dir = RunDir::create(slot.path(), "run-1", 7, log_cap).unwrap();
    Place { slot, dir }
}

impl Place {
    /// A path beside the directory of the run.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.slot.path().join(name)
    }
}

pub(crate) fn command<const N: usize>(argv: [&str; N]) -> TaskCommand {
    let identity =
        RunIdentity { run_id: "run-1".into(), epoch: 7, invocation_id: "0123456789ab".into() };
    TaskCommand::new(argv, identity)
}

pub(crate) fn spec(command: TaskCommand) -> RunSpec {
    RunSpec::new(command, BootTime::now().saturating_add(FAR), GRACE)
}

/// A shell script as a task. `$D` is the slot's directory.
pub(crate) fn sh(place: &Place, script: &str) -> RunSpec {
    let mut command = command(["/bin/sh", "-c", script]);
    command.env.push(("D".into(), place.slot.path().into()));
    spec(command)
}

pub(crate) async fn try_start(place: &Place, spec: &RunSpec) -> Result<Guardian, StartError> {
    Guardian::start(&program(), &place.dir, spec).await
}

pub(crate) async fn start(place: &Place, spec: &RunSpec) -> Guardian {
    try_start(place, spec).await.expect("the task starts")
}

/// Makes an attempt at something that has to come before a fence. A machine can be slower than any fence; then it answers
/// nothing, and the next attempt has one that is further away.
pub(crate) async fn in_time<T>(attempt: impl AsyncFn(Duration) -> Option<T>) -> T {
    let mut reach = Duration::from_millis(500);
    loop {
        if let Some(value) = attempt(reach).await {
            return value;
        }
        reach *= 2;
        assert!(reach < DEADLINE, "never in time");
    }
}

/// For such an attempt: nothing when the fence came first.
pub(crate) async fn start_in_time(place: &Place, spec: &RunSpec) -> Option<Guardian> {
    match try_start(place, spec).await {
        Err(StartError::FencePassed | StartError::Died { .. }) => None,
        started => Some(started.expect("the task starts")),
    }
}

/// For such an attempt: waits until the task has written a file; nothing when it has ended before.
pub(crate) async fn written_in_time(file: &Path, guardian: &mut Guardian) -> Option<()> {
    tokio::select! {
        biased;
        () = written(file) => Some(()),
        _ = guardian.exited() => None,
    }
}

pub(crate) async fn written(file: &Path) {
    eventually(&format!("{} is there", file.display()), || file.exists().then_some(())).await;
}

/// What a guardian says. One that was kept from running for as long as anybody waits for an answer is asked again.
async fn answered<T>(ask: impl AsyncFn() -> Result<T, ConnectError>) -> Result<T, ConnectError> {
    let begin = Instant::now();
    loop {
        let asked = Instant::now();
        match ask().await {
            Err(ConnectError::NoAnswer(_))
                if asked.elapsed() >= ANSWER && begin.elapsed() < DEADLINE => {}
            answer => return answer,
        }
    }
}

pub(crate) async fn connect(dir: &RunDir) -> Result<Guardian, ConnectError> {
    answered(async || Guardian::connect(dir).await).await
}

pub(crate) async fn look(dir: &RunDir) -> Result<Glimpse, ConnectError> {
    answered(async || Guardian::look(dir).await).await
}

/// The end of a run whose guardian has left too, which it does a moment after it has told of the end.
pub(crate) async fn left(guardian: &mut Guardian) -> GuardianEnd {
    let end = guardian.exited().await;
    gone(&[guardian_pid(guardian)]).await;
    end
}

pub(crate) fn record(end: GuardianEnd) -> ExitRecord {
    match end {
        GuardianEnd::Ended(record) => *record,
        other => panic!("{other:?}"),
    }
}

/// Runs a script under a guardian to its end.
pub(crate) async fn run(place: &Place, script: &str) -> ExitRecord {
    record(start(place, &sh(place, script)).await.exited().await)
}

/// What this process holds: descriptors, threads, children.
pub(crate) fn held() -> (usize, usize, Vec<i32>) {
    (count("fd"), count("task"), children())
}

/// Waits until this process holds as much as before.
pub(crate) async fn held_again(before: &(usize, usize, Vec<i32>)) {
    eventually("everything is as before", || {
        // Children that nobody has waited for are reaped with the next start, also with one that fails.
        let _ = Running::spawn(&command(["/nowhere/program"]));
        (held() == *before).then_some(())
    })
    .await;
}

/// The same before there was anything: no child is left.
pub(crate) async fn held_without_children() -> (usize, usize, Vec<i32>) {
    eventually("no child is left", || {
        let _ = Running::spawn(&command(["/nowhere/program"]));
        children().is_empty().then(held)
    })
    .await
}

pub(crate) fn assert_gone(pids: &[i32]) {
    let alive: Vec<i32> = pids.iter().copied().filter(|pid| is_alive(*pid)).collect();
    assert!(alive.is_empty(), "{alive:?} of {pids:?} are alive");
}

pub(crate) async fn gone(pids: &[i32]) {
    eventually("processes are gone", || pids.iter().all(|pid| !is_alive(*pid)).then_some(())).await;
}

/// Waits until a process is stopped.
pub(crate) async fn stopped(pid: i32) {
    let state = || stat(pid).filter(|(state, ..)| *state == 'T').map(drop);
    eventually("a process is stopped", state).await;
}

pub(crate) fn signal(pid: i32, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
}

pub(crate) fn guardian_pid(guardian: &Guardian) -> i32 {
    i32::try_from(guardian.guardian_pid()).unwrap()
}

pub(crate) fn task_pid(guardian: &Guardian) -> i32 {
    i32::try_from(guardian.task_pid()).unwrap()
}

/// Everything that a reader of the log sees now, cuts as `<n>`.
pub(crate) fn whole_log(dir: &RunDir, stream: LogStream) -> Vec<u8> {
    let (mut reader, mut all, mut buffer) = (dir.log(stream), Vec::new(), vec![0; 64 * 1024]);
    loop {
        match reader.read(&mut buffer).unwrap() {
            LogPiece::Bytes(length) => all.extend_from_slice(&buffer[..length]),
            LogPiece::Cut(bytes) => all.extend_from_slice(format!("<{bytes}>").as_bytes()),
            LogPiece::Nothing | LogPiece::End => return all,
        }
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The sum of some fields of a process's `smaps_rollup`, in KiB.
pub(crate) fn memory_kib(pid: i32, fields: &[&str]) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let of = |field: &str| -> u64 {
        let line = rollup.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
    };
    fields.iter().map(|field| of(field)).sum()
}

pub(crate) const PRIVATE: [&str; 2] = ["Private_Dirty", "Private_Clean"];

/// By way of the program that `words` begin with, for [`alone_by`].
pub(crate) fn by(words: &[&str]) -> impl FnOnce(&Path) -> Command {
    let mut wrapper = Command::new(words[0]);
    wrapper.args(&words[1..]);
    move |exe| {
        wrapper.arg(exe);
        wrapper
    }
}
