//! Real processes: looking at them, waiting for them, and tests in a process of their own.

#![allow(dead_code, reason = "each test program uses its own part of this")]

use std::future::Future;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything here takes on a slow machine; a test that reaches it has failed.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The runtime of an actor system: one thread and a `LocalSet`.
pub(crate) fn local<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        tokio::time::timeout(DEADLINE * 4, future).await.expect("the test is stuck")
    })
}

/// Looks again and again until there is a value.
pub(crate) async fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(value) = look() {
            return value;
        }
        assert!(Instant::now() < deadline, "{what}: not within {DEADLINE:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A number that a script has written to a file.
pub(crate) async fn number_in(file: &Path) -> i32 {
    eventually(&format!("a number in {}", file.display()), || {
        std::fs::read_to_string(file).ok()?.strip_suffix('\n')?.parse().ok()
    })
    .await
}

/// Writes a file that is to be executed. Another process does it: what a parallel test starts just then has all of our
/// descriptors until it becomes its program, and what anybody has open for writing cannot be executed.
pub(crate) fn write_program(path: &Path, contents: &str, mode: u32) {
    let mut writer = Command::new("sh")
        .args(["-c", "cat >\"$0\" && chmod \"$1\" \"$0\""])
        .arg(path)
        .arg(format!("{mode:o}"))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    writer.stdin.take().unwrap().write_all(contents.as_bytes()).unwrap();
    assert!(writer.wait().unwrap().success());
}

/// The state letter, parent and group of a process.
pub(crate) fn stat(pid: i32) -> Option<(char, i32, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    Some((
        fields.next()?.chars().next()?,
        fields.next()?.parse().ok()?,
        fields.next()?.parse().ok()?,
    ))
}

/// Whether a process runs. A zombie does not: who adopted it may reap it late.
pub(crate) fn is_alive(pid: i32) -> bool {
    stat(pid).is_some_and(|(state, ..)| state != 'Z' && state != 'X')
}

/// Children of this process, zombies included.
pub(crate) fn children() -> Vec<i32> {
    let me = i32::try_from(std::process::id()).unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| stat(*pid).is_some_and(|(_, parent, _)| parent == me)).collect()
}

/// How many entries `/proc/self/<name>` has.
pub(crate) fn count(name: &str) -> usize {
    std::fs::read_dir(format!("/proc/self/{name}")).unwrap().count()
}

/// Runs the body of a test in a process of its own. `name` is the test's whole name; `wrap` may
/// start the process by way of another program, given the program and arguments that it is to
/// execute.
pub(crate) fn alone_by(name: &str, wrap: impl FnOnce(&Path) -> Command, body: impl FnOnce()) {
    if is_alone(name) {
        return body();
    }
    let mut process = wrap(&std::env::current_exe().unwrap());
    let output = process.args(arguments(name)).env("TEST_ALONE", name).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let passed = output.status.success() && stdout.contains("1 passed");
    assert!(passed, "{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    print!("{stdout}");
}

pub(crate) fn alone(name: &str, body: impl FnOnce()) {
    alone_by(name, |exe| Command::new(exe), body);
}

pub(crate) fn is_alone(name: &str) -> bool {
    std::env::var_os("TEST_ALONE").is_some_and(|alone| alone == name)
}

/// What makes the test program run only this test.
pub(crate) fn arguments(name: &str) -> [&str; 4] {
    ["--exact", name, "--test-threads=1", "--nocapture"]
}
