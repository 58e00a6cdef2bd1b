//! Runs one task as a process of this machine, and ends it.
//!
//! A task is *over* if and only if its leader, the process that was started, has exited. Who still
//! holds its pipes does not matter. What is left in the leader's process group is killed before the
//! leader is reaped, because until then the number of the group cannot belong to a stranger.
//!
//! | part | what it knows |
//! |---|---|
//! | [`TaskCommand`] | what to start: arguments, environment, directory, a file made for the run |
//! | [`child_environment`], [`Inherit`] | which variables a task sees |
//! | [`SpawnError`] | why a task could not be started, and what to do |
//! | [`Ending`] | how it ended, as the kernel said it, and the last bytes it wrote |
//! | [`direct`] | a task as a direct child of this process |
//! | [`guardian`] | a task under a process of its own that outlives this one |
//! | [`cgroup`] | where tasks can be given a cgroup each |
//! | [`machine_lock`] | locks of this machine, which tasks hold to the last of their processes |
//! | [`guardian_entry`](crate::guardian_entry) | what makes a guardian of a program |
//!
//! Nothing here knows a database, a lease or an actor.

#[cfg(target_os = "linux")]
pub mod cgroup;
pub mod direct;
#[cfg(target_os = "linux")]
pub mod guardian;

mod boot_time;
#[cfg(target_os = "linux")]
mod children;
#[cfg(target_os = "linux")]
mod clock_sync;
mod command;
mod ending;
mod environment;
mod exit_watch;
mod fnv;
mod group;
mod guard;
mod leader;
mod lock_table;
pub mod machine_lock;
mod output;
mod program;
pub mod slot;
mod spawn;
mod spawn_error;
mod stdin;
mod tail;
mod temp_file;
#[cfg(target_os = "linux")]
mod tree_use;

pub use boot_time::BootTime;
#[cfg(target_os = "linux")]
pub use clock_sync::is_clock_synchronised;
pub use command::{RunIdentity, TaskCommand, TempFile};
pub use ending::{End, Ending};
pub(crate) use environment::connection_variables;
pub use environment::{Inherit, NoVariableName, child_environment};
pub(crate) use guard::guardian_entry;
#[cfg(target_os = "linux")]
pub(crate) use guard::steps;
#[cfg(target_os = "linux")]
pub use lock_table::LockTable;
pub use spawn_error::{SpawnError, SpawnFault, Stage};
pub use tail::{TAIL_BYTES, Tail};
