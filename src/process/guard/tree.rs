//! The processes of a task: who they are, and how they end.
//!
//! A number is ours to signal exactly as long as nobody else can get it: that of the leader and its
//! group until the leader is reaped, that of another child until it is. Orphans of the tree become
//! children of the guardian, and it alone reaps them. Numbers deeper in the tree are never used:
//! when those above them are dead, they are children too.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, pread};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, getpgid, getpgrp, kill_process,
    kill_process_group, waitid,
};

use super::cgroup::Cgroup;
use super::wire::Outcome;

/// How many processes that cannot be killed are named.
pub(super) const NAMED: usize = 8;

/// What a round of killing has found, besides the leader.
pub(super) struct Round {
    /// Children that were there.
    pub(super) seen: usize,
    /// Those of them that are gone now.
    pub(super) reaped: usize,
}

/// The leader, its group, and the list of all children.
pub(super) struct Tree {
    leader: Pid,
    reaped: bool,
    children: OwnedFd,
    cgroup: Option<Cgroup>,
    /// How many processes besides the leader our signals have ended.
    pub(super) leftovers: u64,
}

impl Tree {
    /// The list of our children, opened before the first one is made.
    pub(super) fn open_children() -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        open("/proc/thread-self/children", flags, Mode::empty())
    }

    /// `leader` is a child of this process that has not been reaped, and leads its session and group
    /// or is about to.
    pub(super) fn new(leader: Pid, children: OwnedFd, cgroup: Option<Cgroup>) -> Self {
        Self { leader, reaped: false, children, cgroup, leftovers: 0 }
    }

    /// How the leader has left, or nothing while it runs. It stays a zombie.
    pub(super) fn leader_end(&self) -> Option<(Outcome, u64)> {
        if self.reaped {
            return Some((Outcome::Lost, 0));
        }
        match look(self.leader) {
            Ok(None) => None,
            Ok(Some(status)) => Some(outcome(&status)),
            Err(_) => Some((Outcome::Lost, 0)),
        }
    }

    /// Signals the group of the leader, and the leader itself while it has no group yet.
    pub(super) fn signal(&self, signal: Signal) {
        if self.reaped || self.leader.is_init() || self.leader == getpgrp() {
            return;
        }
        let _ = kill_process_group(self.leader, signal);
        if getpgid(Some(self.leader)) != Ok(self.leader) {
            let _ = kill_process(self.leader, signal);
        }
    }

    /// Reaps every orphan that has died. Returns how many children are left besides the leader.
    pub(super) fn reap_orphans(&mut self, ending: bool, buffer: &mut [u8]) -> usize {
        loop {
            let (mut left, mut reaped) = (0, 0);
            let (leader, mut killed) = (self.unreaped_leader(), 0);
            each_child(&self.children, buffer, |pid| {
                if Some(pid) == leader {
                    return;
                }
                match reap(pid) {
                    Reaped::Ended(signal) => {
                        reaped += 1;
                        killed += u64::from(ending && is_ours(signal));
                    }
                    Reaped::Alive => left += 1,
                    Reaped::Stranger => {}
                }
            });
            self.leftovers += killed;
            // While children are reaped the list moves under the reader, who may have missed some.
            if reaped == 0 {
                return left;
            }
        }
    }

    /// Kills the group and every child, and reaps those that have died.
    pub(super) fn kill(&mut self, buffer: &mut [u8]) -> Round {
        self.signal(Signal::KILL);
        if let Some(cgroup) = &self.cgroup {
            cgroup.kill();
        }
        let (mut seen, mut reaped) = (0, 0);
        let (leader, mut killed) = (self.unreaped_leader(), 0);
        each_child(&self.children, buffer, |pid| {
            if Some(pid) == leader {
                return;
            }
            seen += 1;
            // A dead process cannot change its group any more, and until it is reaped the group
            // keeps its number: killed as a whole, a group cannot fork ahead of us.
            if let Ok(Some(_)) = look(pid)
                && let Ok(group) = getpgid(Some(pid))
                && group != getpgrp()
                && !group.is_init()
            {
                let _ = kill_process_group(group, Signal::KILL);
            }
            match reap(pid) {
                Reaped::Ended(signal) => {
                    reaped += 1;
                    killed += u64::from(is_ours(signal));
                }
                // It is our child, and nobody but us can reap it.
                Reaped::Alive => drop(kill_process(pid, Signal::KILL)),
                Reaped::Stranger => {}
            }
        });
        self.leftovers += killed;
        Round { seen, reaped }
    }

    /// Kills the leader, which has not become its program, and waits until it is gone.
    pub(super) fn abandon(&mut self) {
        self.signal(Signal::KILL);
        while matches!(waitid(WaitId::Pid(self.leader), WaitIdOptions::EXITED), Err(Errno::INTR)) {}
        self.reaped = true;
    }

    fn unreaped_leader(&self) -> Option<Pid> {
        (!self.reaped).then_some(self.leader)
    }

    /// Reaps the leader, if it has died. From here on its number is nobody's.
    pub(super) fn reap_leader(&mut self) {
        self.reaped = self.reaped
            || !matches!(
                waitid(WaitId::Pid(self.leader), WaitIdOptions::EXITED | WaitIdOptions::NOHANG),
                Ok(None) | Err(Errno::INTR)
            );
    }

    /// Whether there is no child at all, dead or alive.
    pub(super) fn is_gone(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        matches!(waitid(WaitId::All, options), Err(Errno::CHILD))
    }

    /// Some of the children that are alive.
    pub(super) fn living(&self, buffer: &mut [u8]) -> ([i32; NAMED], usize) {
        let (mut pids, mut count) = ([0; NAMED], 0);
        each_child(&self.children, buffer, |pid| {
            if let Ok(None) = look(pid)
                && let Some(place) = pids.get_mut(count)
            {
                *place = pid.as_raw_nonzero().get();
                count += 1;
            }
        });
        (pids, count)
    }
}

fn look(pid: Pid) -> Result<Option<WaitIdStatus>, Errno> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    loop {
        match waitid(WaitId::Pid(pid), options) {
            Err(Errno::INTR) => {}
            answer => return answer,
        }
    }
}

enum Reaped {
    /// By this signal, or 0.
    Ended(i32),
    Alive,
    /// No child of ours: the list changed while it was read. Its number is not to be signalled.
    Stranger,
}

fn reap(pid: Pid) -> Reaped {
    match waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
        Ok(Some(status)) => Reaped::Ended(status.terminating_signal().unwrap_or(0)),
        Ok(None) => Reaped::Alive,
        Err(_) => Reaped::Stranger,
    }
}

fn is_ours(signal: i32) -> bool {
    signal == Signal::KILL.as_raw() || signal == Signal::TERM.as_raw()
}

fn outcome(status: &WaitIdStatus) -> (Outcome, u64) {
    let number = |value: i32| u64::try_from(value).unwrap_or(0);
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => (Outcome::Exited, number(code)),
        (None, Some(signal)) if status.dumped() => (Outcome::Dumped, number(signal)),
        (None, Some(signal)) => (Outcome::Signalled, number(signal)),
        (None, None) => (Outcome::Lost, 0),
    }
}

/// Calls `act` with every child in the list. While processes come and go the list may miss some:
/// whoever must see all of them looks again until nothing is left.
fn each_child(list: &OwnedFd, buffer: &mut [u8], mut act: impl FnMut(Pid)) {
    let (mut offset, mut number) = (0, 0i32);
    loop {
        let length = match pread(list, &mut *buffer, offset) {
            Ok(length) => length,
            Err(Errno::INTR) => continue,
            Err(_) => return,
        };
        if length == 0 {
            return;
        }
        offset += length as u64;
        for byte in &buffer[..length] {
            match byte {
                b'0'..=b'9' => {
                    number = number.saturating_mul(10).saturating_add(i32::from(byte - b'0'));
                }
                _ => {
                    if let Some(pid) = Pid::from_raw(number) {
                        act(pid);
                    }
                    number = 0;
                }
            }
        }
    }
}
