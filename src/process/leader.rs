//! The first process of a task, which leads its process group: who may signal it, and until when.
//!
//! A number of a process or a group is ours to signal exactly as long as the leader has not been
//! reaped, because until then the kernel gives the number to nobody else. So the one place that
//! reaps and the ones that signal take the same lock, and looking at the leader never reaps it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpgid, getpgrp, kill_process, kill_process_group, waitid,
};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::End;

/// How long a process that was sent SIGKILL may take to leave.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// Longer than any task; a deadline beyond what a clock can say becomes this.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

pub(super) struct Leader {
    pid: Pid,
    state: Mutex<State>,
    /// Tells whoever watches the leader that a deadline has moved or that it was killed.
    pub(super) changed: Notify,
}

#[derive(Default)]
struct State {
    /// The number is not ours any more.
    reaped: bool,
    /// A signal was sent while the leader was running.
    stopped: bool,
    /// When to kill what has not ended by itself.
    kill_at: Option<Instant>,
    /// When SIGKILL was first sent.
    killed_at: Option<Instant>,
}

impl Leader {
    /// `pid` must be a child of this process that leads its group and has not been reaped; it is
    /// reaped only here.
    pub(super) fn new(pid: Pid) -> Self {
        Self { pid, state: Mutex::default(), changed: Notify::new() }
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// How the leader has left, or nothing while it runs. It stays a zombie.
    pub(super) fn look(&self) -> Option<End> {
        look(self.pid)
    }

    /// Sends TERM to the group, and has it killed after `grace`. The second and later calls only
    /// bring the kill forward: many programs take a second TERM as an order to leave at once.
    ///
    /// Returns whether the task was still running.
    pub(super) fn terminate(&self, grace: Duration) -> bool {
        let mut state = self.lock();
        if state.reaped || self.look().is_some() {
            return false;
        }
        let now = Instant::now();
        let at = now.checked_add(grace).unwrap_or(now + FAR);
        if state.kill_at.is_none() && state.killed_at.is_none() {
            self.signal(&mut state, Signal::TERM);
            // A stopped task would not see the TERM until somebody lets it run again.
            self.signal(&mut state, Signal::CONT);
        }
        state.stopped = true;
        state.kill_at = Some(state.kill_at.map_or(at, |earlier| earlier.min(at)));
        self.changed.notify_one();
        true
    }

    /// Sends KILL to the group. Returns whether the task was still running.
    pub(super) fn kill(&self) -> bool {
        let mut state = self.lock();
        let running = !state.reaped && self.look().is_none();
        state.stopped |= running;
        state.killed_at.get_or_insert_with(Instant::now);
        self.signal(&mut state, Signal::KILL);
        self.changed.notify_one();
        running
    }

    pub(super) fn was_stopped(&self) -> bool {
        self.lock().stopped
    }

    pub(super) fn was_killed(&self) -> bool {
        self.lock().killed_at.is_some()
    }

    /// When to kill what has not ended by itself.
    pub(super) fn kill_at(&self) -> Option<Instant> {
        self.lock().kill_at
    }

    /// When [`press`](Self::press) is due next.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let state = self.lock();
        state.killed_at.map(|at| at + KILL_PATIENCE).or(state.kill_at)
    }

    /// Kills what has outlived its grace, and says whether SIGKILL itself has had no effect for too
    /// long.
    pub(super) fn press(&self) -> bool {
        let now = Instant::now();
        let (killed_at, kill_at) = {
            let state = self.lock();
            (state.killed_at, state.kill_at)
        };
        match killed_at {
            Some(at) => now >= at + KILL_PATIENCE,
            None => {
                if kill_at.is_some_and(|at| now >= at) {
                    self.kill();
                }
                false
            }
        }
    }

    /// Kills what is left of the group, then reaps the leader. From here on the number is nobody's.
    pub(super) fn kill_and_reap(&self) {
        let mut state = self.lock();
        self.signal(&mut state, Signal::KILL);
        if !state.reaped && !reap(self.pid) {
            unreaped().push(self.pid);
        }
        state.reaped = true;
    }

    /// [`kill_and_reap`](Self::kill_and_reap), waiting for the leader to leave, for when there is
    /// nobody to do so later. Blocks, as a rule for less than a millisecond.
    pub(super) fn kill_and_reap_blocking(&self) -> End {
        self.kill();
        let patience = std::time::Instant::now() + Duration::from_secs(2);
        let end = loop {
            match self.look() {
                Some(end) => break end,
                None if std::time::Instant::now() >= patience => break End::Unkillable,
                None => std::thread::sleep(Duration::from_micros(200)),
            }
        };
        self.kill_and_reap();
        end
    }

    fn signal(&self, state: &mut State, signal: Signal) {
        if state.reaped {
            return;
        }
        if self.look() == Some(End::Lost) {
            // Reaped behind our back: the number may already be a stranger's.
            state.reaped = true;
            return;
        }
        if self.pid.is_init() || self.pid == getpgrp() {
            return;
        }
        let sent = kill_process_group(self.pid, signal);
        // Not without need: the leader would get every signal twice.
        let sent = match getpgid(Some(self.pid)) {
            Ok(group) if group != self.pid => kill_process(self.pid, signal),
            _ => sent,
        };
        if let Err(errno) = sent {
            let pid = self.pid.as_raw_nonzero().get();
            tracing::warn!(pid, ?signal, %errno, "a task could not be signalled");
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reaps the unkillable ones that have left after all.
pub(super) fn reap_stragglers() {
    unreaped().retain(|pid| !reap(*pid));
}

/// Has a child reaped when it has left: not now, but before many more are started.
#[cfg(target_os = "linux")]
pub(super) fn reap_later(pid: Pid) {
    unreaped().push(pid);
}

fn unreaped() -> MutexGuard<'static, Vec<Pid>> {
    static UNREAPED: Mutex<Vec<Pid>> = Mutex::new(Vec::new());
    UNREAPED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether there is nothing left to reap.
fn reap(pid: Pid) -> bool {
    !matches!(
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG),
        Ok(None) | Err(Errno::INTR)
    )
}

fn look(pid: Pid) -> Option<End> {
    match waitid(
        WaitId::Pid(pid),
        WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT,
    ) {
        Ok(None) | Err(Errno::INTR) => None,
        Ok(Some(status)) => Some(match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => End::Exited(code),
            (None, Some(signal)) => End::Signalled { signal, core_dumped: status.dumped() },
            (None, None) => End::Lost,
        }),
        Err(_) => Some(End::Lost),
    }
}
