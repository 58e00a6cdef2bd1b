//! A guardian as a child of this process, which somebody has to reap.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, waitid,
};
use rustix::time::Timespec;
use tokio::time::timeout;

use crate::process::exit_watch::watch;
use crate::process::leader::reap_later;

pub(super) struct Child {
    pid: Pid,
    reaped: bool,
}

impl Child {
    pub(super) fn new(pid: Pid) -> Self {
        Self { pid, reaped: false }
    }

    /// Its number, for people to read.
    pub(super) fn number(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits until it has left, not longer than that, and reaps it. Dropping the future loses
    /// nothing.
    pub(super) async fn leave(&mut self, patience: Duration) {
        if !self.reap()
            && let Some(watch) = pidfd_open(self.pid, PidfdFlags::empty()).ok().and_then(watch)
        {
            let _ = timeout(patience, watch.readable()).await;
            self.reap();
        }
    }

    /// The same, and blocks for as long.
    pub(super) fn leave_blocking(&mut self, patience: Duration) {
        if !self.reap()
            && let Ok(process) = pidfd_open(self.pid, PidfdFlags::empty())
        {
            let patience = Timespec::try_from(patience).ok();
            let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], patience.as_ref());
            self.reap();
        }
    }

    /// Kills it. Its number is nobody else's, because it has not been reaped.
    pub(super) fn kill(&mut self) {
        if !self.reap() {
            let _ = kill_process(self.pid, Signal::KILL);
        }
    }

    fn reap(&mut self) -> bool {
        self.reaped = self.reaped
            || !matches!(
                waitid(WaitId::Pid(self.pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG),
                Ok(None)
            );
        self.reaped
    }
}

/// The guardian lives on; only its zombie will be ours.
impl Drop for Child {
    fn drop(&mut self) {
        if !self.reap() {
            reap_later(self.pid);
        }
    }
}
