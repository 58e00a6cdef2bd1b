//! The guardian: one small process per run that outlives the daemon.
//!
//! A guardian owns everything of a run that must not end with the daemon: the processes, the fence,
//! the log files, the machine locks, the record of the end. It is this same program, executed again
//! with the hidden verb `__guard`, and everything it needs comes over the socket that is its standard
//! input. It has one thread and no runtime; once its task has been started it asks for no memory.
//!
//! What it promises, in the order in which a run meets it:
//!
//! * It holds the lock of the run's directory until it leaves. Without the lock, or after the fence,
//!   it starts nothing.
//! * The task is a session of its own with nothing of ours: descriptors 0, 1 and 2, default signals,
//!   the environment that it was given. It dies when its guardian dies.
//! * At the fence the task is ended, whatever became of the daemon.
//! * When the task has ended, so has everything that it started: first TERM to its group, then,
//!   after a grace, KILL to every descendant, in whatever session, and to its cgroup if it has one.
//! * How it ended is written before anybody is told, and on disk where nobody is there to be told.

#[cfg(target_os = "linux")]
pub(in crate::process) mod cgroup;
#[cfg(target_os = "linux")]
pub(in crate::process) mod facilities;
#[cfg(target_os = "linux")]
pub(in crate::process) mod layout;
#[cfg(target_os = "linux")]
pub(in crate::process) mod spec;
#[cfg(target_os = "linux")]
pub(crate) mod steps;
#[cfg(target_os = "linux")]
pub(in crate::process) mod wire;

#[cfg(target_os = "linux")]
mod ending;
#[cfg(target_os = "linux")]
mod fork_server;
#[cfg(target_os = "linux")]
mod link;
#[cfg(target_os = "linux")]
mod opening;
#[cfg(target_os = "linux")]
mod output;
#[cfg(target_os = "linux")]
mod program;
#[cfg(target_os = "linux")]
mod record;
#[cfg(target_os = "linux")]
mod sys;
#[cfg(target_os = "linux")]
mod task;
#[cfg(target_os = "linux")]
mod tree;
#[cfg(target_os = "linux")]
mod watch;

#[cfg(target_os = "linux")]
use program::{Failed, clock_now, own_descriptor_path, run};

use std::sync::atomic::{AtomicBool, Ordering};

/// The verb that makes a guardian of a program.
#[cfg(target_os = "linux")]
pub(in crate::process) const VERB: &str = "__guard";
/// After the verb: no guardian, but one that makes guardians.
#[cfg(target_os = "linux")]
pub(in crate::process) const FORK_SERVER: &str = "fork-server";

static ENTERED: AtomicBool = AtomicBool::new(false);

/// When this process was started to be a guardian, it is one, and leaves from here. It is a part of
/// [`guardian_entry`](crate::guardian_entry).
pub(crate) fn guardian_entry() {
    #[cfg(target_os = "linux")]
    {
        let mut words = std::env::args_os().skip(1);
        if words.next().is_some_and(|verb| verb == VERB) {
            match words.next() {
                Some(word) if word == FORK_SERVER => fork_server::serve(),
                _ => run(),
            }
        }
    }
    ENTERED.store(true, Ordering::Relaxed);
}

/// Whether executing this program again gives a guardian.
#[cfg(target_os = "linux")]
pub(in crate::process) fn is_entered() -> bool {
    ENTERED.load(Ordering::Relaxed)
}
