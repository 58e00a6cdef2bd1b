//! What guardians need of the kernel, and what is weaker where it is missing.

use std::io;

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{PidfdFlags, child_subreaper, getpid, pidfd_open};
use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};

use super::sys;

/// Something that the kernel, or a filter of system calls, may not let a process have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Facility {
    /// `pidfd_open`: Linux 5.3.
    Pidfd,
    /// `/proc/<pid>/task/<tid>/children`: CONFIG_PROC_CHILDREN.
    ChildrenFiles,
    /// `close_range` with its flag: Linux 5.11.
    CloseRange,
    /// `PR_SET_CHILD_SUBREAPER`: Linux 3.4.
    Subreaper,
    /// `signalfd`.
    SignalFd,
    /// `timerfd` on CLOCK_BOOTTIME: Linux 3.15.
    BootTimer,
}

impl Facility {
    /// All of them.
    pub const ALL: [Facility; 6] = [
        Facility::Pidfd,
        Facility::ChildrenFiles,
        Facility::CloseRange,
        Facility::Subreaper,
        Facility::SignalFd,
        Facility::BootTimer,
    ];

    /// Those that this process cannot have.
    pub fn missing() -> Vec<Facility> {
        Facility::ALL.into_iter().filter(|facility| facility.probe().is_err()).collect()
    }

    /// Its name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Facility::Pidfd => "pidfd",
            Facility::ChildrenFiles => "children-files",
            Facility::CloseRange => "close-range",
            Facility::Subreaper => "subreaper",
            Facility::SignalFd => "signalfd",
            Facility::BootTimer => "boot-timer",
        }
    }

    /// Whether no task can be started under a guardian without it.
    pub fn is_needed(self) -> bool {
        self != Facility::CloseRange
    }

    /// What is so where it is missing, in one sentence.
    pub fn without(self) -> &'static str {
        match self {
            Facility::Pidfd => {
                "the kernel gives no descriptor of a process (pidfd_open): no task can be started under a guardian"
            }
            Facility::ChildrenFiles => {
                "the kernel does not list the children of a process (/proc/<pid>/task/<tid>/children): no task can be started under a guardian"
            }
            Facility::CloseRange => {
                "the kernel cannot close many descriptors at once (close_range): of more than 65536 open ones a task would inherit the rest, and starts are slower"
            }
            Facility::Subreaper => {
                "the kernel gives no orphans to a guardian (PR_SET_CHILD_SUBREAPER): no task can be started under one"
            }
            Facility::SignalFd => {
                "the kernel gives no descriptor of signals (signalfd): no task can be started under a guardian"
            }
            Facility::BootTimer => {
                "the kernel has no timer that counts sleep (timerfd on CLOCK_BOOTTIME): no task can be started under a guardian"
            }
        }
    }

    /// What to do about it.
    pub fn remedy(self) -> &'static str {
        match self {
            Facility::CloseRange => {
                "use Linux 5.11 or later, or let the container's filter of system calls allow it"
            }
            Facility::ChildrenFiles => {
                "mount /proc and use a kernel with CONFIG_PROC_CHILDREN, or run the worker with --supervision direct"
            }
            _ => {
                "use Linux 5.3 or later and let the container's filter of system calls allow it, or run the worker with --supervision direct"
            }
        }
    }

    fn probe(self) -> io::Result<()> {
        match self {
            Facility::Pidfd => pidfd_open(getpid(), PidfdFlags::empty()).map(drop)?,
            Facility::ChildrenFiles => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                open("/proc/thread-self/children", flags, Mode::empty()).map(drop)?;
            }
            Facility::CloseRange => sys::try_close_range()?,
            Facility::Subreaper => child_subreaper().map(drop)?,
            Facility::SignalFd => sys::child_signals().map(drop)?,
            Facility::BootTimer => {
                timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC).map(drop)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_name_of_its_own_and_says_what_is_weaker() {
        for facility in Facility::ALL {
            let same = Facility::ALL.iter().filter(|other| other.name() == facility.name());
            assert_eq!(same.count(), 1);
            let says = facility.without().contains("no task can be started");
            assert_eq!(says, facility.is_needed(), "{facility:?}");
        }
    }

    #[test]
    fn nothing_is_missing_where_guardians_are_tested() {
        assert_eq!(Facility::missing(), []);
    }
}
