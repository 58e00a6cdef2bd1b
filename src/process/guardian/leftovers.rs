//! Kills what a guardian that was killed has left.
//!
//! The task itself dies with its guardian. What it has started may live on, without anybody who
//! knows its numbers: it is found by the environment that it was started with, which carries the
//! run, the epoch and a secret that nothing else on this machine has, or by the cgroup of the run if
//! there is one. Its living children belong to it too.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use rustix::time::Timespec;

use super::RunDir;
use crate::process::children::children_of;
use crate::process::guard::cgroup::is_cgroup;
use crate::process::guard::layout::CGROUP;

/// How long a guardian that is dying may take.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// How long what was sent SIGKILL may take to be gone.
const KILL_PATIENCE: Duration = Duration::from_secs(5);
/// How often to kill what has been found, if there is always more.
const ROUNDS: usize = 100;
/// How soon to try the lock again.
const AGAIN: Duration = Duration::from_millis(5);

/// What was left of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Whether a guardian got so far that it may have started the task.
    pub begun: bool,
    /// How many processes were killed.
    pub killed: usize,
    /// Processes that are still there.
    pub unkillable: Vec<i32>,
}

/// Why nothing was killed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeftoversError {
    /// A guardian lives: it is the one to ask.
    #[error("killing what is left of a run: its guardian lives; stop the run through it")]
    GuardianLives,
    /// The processes of this machine, or the directory of the run, cannot be looked at.
    #[error("killing what is left of a run: the processes or its directory cannot be looked at")]
    System(#[from] io::Error),
}

/// Kills every process that a run without a guardian has left, and waits until they are gone. After
/// that no guardian can start a task in this directory.
///
/// Where there are no cgroups, a process that cleared its environment and whose parent is dead is not
/// found.
///
/// # Errors
/// Nothing was killed.
pub async fn kill_leftovers(dir: &RunDir) -> Result<Leftovers, LeftoversError> {
    let dir = dir.clone();
    tokio::task::spawn_blocking(move || sweep(&dir))
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error).into()))
}

fn sweep(dir: &RunDir) -> Result<Leftovers, LeftoversError> {
    let patience = Instant::now() + LOCK_PATIENCE;
    let _lock = loop {
        match dir.try_lock_guard()? {
            Some(lock) => break lock,
            None if Instant::now() >= patience => return Err(LeftoversError::GuardianLives),
            None => sleep(AGAIN),
        }
    };
    let mut sweep = Sweep { badge: Badge::of(dir), found: HashMap::new() };
    let mut killed = 0;
    for _ in 0..ROUNDS {
        // Stopped first: what does not run cannot start others while we look for them.
        while sweep.find()? > 0 {}
        if sweep.found.is_empty() {
            break;
        }
        let before = sweep.found.len();
        sweep.kill();
        killed += before - sweep.found.len();
        if !sweep.found.is_empty() {
            break;
        }
    }
    remove_cgroup(dir, sweep.found.is_empty());
    // Nobody begins any more, since the lock is ours.
    let begun = dir.has_begun()?;
    Ok(Leftovers { begun, killed, unkillable: sweep.found.into_keys().collect() })
}

/// Kills what came into the cgroup of the run meanwhile, and removes it.
fn remove_cgroup(dir: &RunDir, is_empty: bool) {
    let Ok(path) = std::fs::read_link(dir.path().join(CGROUP)) else { return };
    let opened = open(&path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let is_ours = path.file_name() == Some(OsStr::new(&dir.cgroup_name()));
    if !is_ours || !opened.is_ok_and(|directory| is_cgroup(directory.as_fd())) {
        return;
    }
    let _ = std::fs::write(path.join("cgroup.kill"), "1");
    let patience = Instant::now() + if is_empty { KILL_PATIENCE } else { Duration::ZERO };
    // What was killed leaves it a moment later.
    while std::fs::remove_dir(&path).is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
        && Instant::now() < patience
    {
        sleep(AGAIN);
    }
}

/// What a process of the run carries in its environment, and the name of the cgroup that it is in.
struct Badge {
    entries: [Vec<u8>; 3],
    cgroup: String,
}

impl Badge {
    fn of(dir: &RunDir) -> Self {
        let entries = dir.badge().map(|(name, value)| format!("{name}={value}").into_bytes());
        Self { entries, cgroup: dir.cgroup_name() }
    }

    /// Whether the process with this number carries it. One that may not be asked does not.
    fn is_on(&self, pid: i32) -> bool {
        self.is_in_environment(pid) || self.is_in_cgroup(pid)
    }

    fn is_in_environment(&self, pid: i32) -> bool {
        let Ok(environ) = std::fs::read(format!("/proc/{pid}/environ")) else { return false };
        let mut entries = self.entries.iter();
        entries.all(|entry| environ.split(|byte| *byte == 0).any(|other| other == entry))
    }

    fn is_in_cgroup(&self, pid: i32) -> bool {
        let Ok(cgroups) = std::fs::read_to_string(format!("/proc/{pid}/cgroup")) else {
            return false;
        };
        let unified = cgroups.lines().find_map(|line| line.strip_prefix("0::"));
        unified.is_some_and(|path| path.split('/').any(|name| name == self.cgroup))
    }
}

struct Sweep {
    badge: Badge,
    /// Processes of the run that are stopped.
    found: HashMap<i32, OwnedFd>,
}

impl Sweep {
    /// Stops every process of the run that has not been found before, and counts them.
    fn find(&mut self) -> io::Result<usize> {
        let mut new = 0;
        for entry in std::fs::read_dir("/proc")? {
            let Ok(entry) = entry else { continue };
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            if self.badge.is_on(pid) {
                new += usize::from(self.stop(pid, |sweep| sweep.badge.is_on(pid)));
            }
        }
        let parents: Vec<i32> = self.found.keys().copied().collect();
        for parent in parents {
            for child in children_of(parent) {
                let is_child = |sweep: &Self| {
                    parent_of(child) == Some(parent)
                        && sweep.found.get(&parent).is_some_and(|parent| !has_left(parent, None))
                };
                new += usize::from(self.stop(child, is_child));
            }
        }
        Ok(new)
    }

    /// Stops a process if it still belongs to the run. The number may be another's by now; so it is
    /// asked again while a descriptor holds on to whoever has it.
    fn stop(&mut self, pid: i32, belongs: impl FnOnce(&Self) -> bool) -> bool {
        let Some(number) = Pid::from_raw(pid) else { return false };
        if number == getpid() || number.is_init() || self.found.contains_key(&pid) {
            return false;
        }
        let Ok(process) = pidfd_open(number, PidfdFlags::empty()) else { return false };
        if !belongs(self) || has_left(&process, None) {
            return false;
        }
        let _ = pidfd_send_signal(&process, Signal::STOP);
        self.found.insert(pid, process);
        true
    }

    /// Kills what was found, and keeps what is still there after that.
    fn kill(&mut self) {
        for process in self.found.values() {
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
        let patience = Instant::now() + KILL_PATIENCE;
        self.found.retain(|_, process| !has_left(process, Some(patience)));
    }
}

/// Whether a process has ended, now or before `patience` is over.
fn has_left(process: &OwnedFd, patience: Option<Instant>) -> bool {
    loop {
        let left =
            patience.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        let mut fds = [PollFd::new(process, PollFlags::IN)];
        match poll(&mut fds, Some(&left)) {
            Err(Errno::INTR) => {}
            Ok(ready) => return ready > 0,
            Err(_) => return false,
        }
    }
}

/// `pid (name) state parent ...`, where the name may hold anything.
fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(&stat[end + 1..]).ok()?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}
