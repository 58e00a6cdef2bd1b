//! Waits for a leader to exit without reaping it, and without a signal handler.

use std::time::Duration;

use super::End;
use super::leader::Leader;

#[cfg(target_os = "linux")]
use {std::os::fd::OwnedFd, tokio::io::Interest, tokio::io::unix::AsyncFd};

/// How often to look where the kernel has no process descriptors, or none left.
const POLL: Duration = Duration::from_millis(20);

pub(super) enum ExitWatch {
    #[cfg(target_os = "linux")]
    Descriptor(AsyncFd<OwnedFd>),
    Poll,
}

impl ExitWatch {
    /// Never fails: the process already runs, so looking at it every now and then is better than
    /// killing it.
    #[cfg(target_os = "linux")]
    pub(super) fn new(leader: &Leader) -> Self {
        use rustix::process::{PidfdFlags, pidfd_open};

        pidfd_open(leader.pid(), PidfdFlags::empty())
            .ok()
            .and_then(watch)
            .map_or(Self::Poll, Self::Descriptor)
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn new(_leader: &Leader) -> Self {
        Self::Poll
    }

    /// How the leader left. Dropping the future loses nothing.
    pub(super) async fn exited(&self, leader: &Leader) -> End {
        loop {
            match self {
                #[cfg(target_os = "linux")]
                Self::Descriptor(descriptor) => {
                    let Ok(mut ready) = descriptor.readable().await else {
                        tokio::time::sleep(POLL).await;
                        if let Some(end) = leader.look() {
                            return end;
                        }
                        continue;
                    };
                    if let Some(end) = leader.look() {
                        return end;
                    }
                    ready.clear_ready();
                }
                Self::Poll => {
                    if let Some(end) = leader.look() {
                        return end;
                    }
                    tokio::time::sleep(POLL).await;
                }
            }
        }
    }
}

#[cfg(target_os = "linux")]
#[expect(
    unsafe_code,
    reason = "tokio has no safe way to watch a descriptor that is not a pipe or a socket"
)]
pub(super) fn watch(descriptor: OwnedFd) -> Option<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open, always gives the same number, and belongs to the `AsyncFd` from
    // here on, which only lends it out by shared reference: nobody can close or replace it while it
    // is registered.
    unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }.ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use rustix::process::Pid;

    use super::*;

    #[tokio::test]
    async fn both_ways_of_watching_see_the_same() -> std::io::Result<()> {
        for poll in [false, true] {
            let mut child = Command::new("/bin/sh");
            child.args(["-c", "read line; exit 7"]).stdin(Stdio::piped()).process_group(0);
            let mut child = child.spawn()?;
            let leader = Leader::new(Pid::from_child(&child));
            let watch = if poll { ExitWatch::Poll } else { ExitWatch::new(&leader) };
            assert_eq!(cfg!(target_os = "linux") && !poll, !matches!(watch, ExitWatch::Poll));
            let early = tokio::time::timeout(POLL * 2, watch.exited(&leader)).await;
            assert!(early.is_err(), "{early:?}");
            drop(child.stdin.take());
            assert_eq!(watch.exited(&leader).await, End::Exited(7));
            assert_eq!(watch.exited(&leader).await, End::Exited(7), "looking does not reap");
            leader.kill_and_reap();
            assert_eq!(watch.exited(&leader).await, End::Lost);
        }
        Ok(())
    }
}
