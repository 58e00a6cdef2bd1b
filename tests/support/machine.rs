//! What `/proc` says of other processes.

#![allow(dead_code, reason = "each test program uses its own part of this")]

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The state letter of a process; nothing when there is none.
pub(crate) fn state(pid: u32) -> Option<char> {
    fields(pid)?.first()?.chars().next()
}

/// The state letters of its threads.
pub(crate) fn thread_states(pid: u32) -> Vec<char> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let stats = threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
    stats.filter_map(|stat| stat.rsplit_once(") ")?.1.chars().next()).collect()
}

/// Whether a process runs. A zombie does not: who adopted it may reap it late.
pub(crate) fn is_alive(pid: u32) -> bool {
    state(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// The processor time that a process has used, in ticks of the clock, of which there are 100 in a second.
pub(crate) fn cpu_ticks(pid: u32) -> u64 {
    let fields = fields(pid).unwrap();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Sends a signal to a process that is there.
pub(crate) fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

/// Stops a process, and waits until none of its threads does anything any more: one that is inside the kernel finishes
/// there what it does, and may have taken a lock meanwhile.
pub(crate) fn stop(pid: u32) {
    signal(pid, Signal::STOP);
    let began = Instant::now();
    while thread_states(pid).iter().any(|state| *state != 'T') {
        assert!(began.elapsed() < Duration::from_secs(60), "{pid}: {:?}", thread_states(pid));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Kills a process that may have left by now. Its number must not be another's yet.
pub(crate) fn kill(pid: u32) {
    let _ = kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL);
}

/// Its resident memory.
pub(crate) fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// How many entries `/proc/PID/<name>` has: `fd` for descriptors, `task` for threads.
pub(crate) fn count(pid: u32, name: &str) -> usize {
    fs::read_dir(format!("/proc/{pid}/{name}")).unwrap().count()
}

/// What its descriptors stand for, as links say it: `/dev/null`, `socket:[123]`; nothing when it has left.
pub(crate) fn open(pid: u32) -> BTreeSet<String> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
    links.map(|link| link.to_string_lossy().into_owned()).collect()
}

/// Its children, zombies included.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let parent = pid.to_string();
    all().filter(|pid| fields(*pid).is_some_and(|fields| fields[1] == parent)).collect()
}

/// The one it is a child of; nothing when it has left.
pub(crate) fn parent(pid: u32) -> Option<u32> {
    Some(fields(pid)?[1].parse().unwrap())
}

/// Its children, as the kernel lists them: quickly.
pub(crate) fn born_of(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Every process there is.
pub(crate) fn all() -> impl Iterator<Item = u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The words that a process was started with; none of a zombie.
pub(crate) fn words(pid: u32) -> Vec<String> {
    texts(pid, "cmdline")
}

/// The environment that a process was started with; nothing of a zombie.
pub(crate) fn environment(pid: u32) -> Vec<String> {
    texts(pid, "environ")
}

fn texts(pid: u32, name: &str) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let texts = bytes.split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text).into());
    texts.filter(|text: &String| !text.is_empty()).collect()
}

/// Its resident memory, and what of that is its own, without the pages of its program's file; in KiB.
pub(crate) fn memory_kib(pid: u32) -> Option<(u64, u64)> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let of = |field: &str| -> Option<u64> {
        let line = rollup.lines().find_map(|line| line.strip_prefix(field))?;
        line.trim().trim_end_matches(" kB").parse().ok()
    };
    Some((of("Rss:")?, of("Anonymous:")?))
}

/// What `/proc/PID/stat` has after the name, which may hold anything.
fn fields(pid: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    Some(rest.split_ascii_whitespace().map(str::to_owned).collect())
}
