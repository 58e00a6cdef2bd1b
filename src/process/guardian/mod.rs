//! A task under a guardian: a process of its own that owns the task and outlives the daemon.
//!
//! A run *lives* if and only if a process holds the lock of its directory. No number of a process is
//! ever trusted to say so, and none is signalled: a run is reached through its guardian's socket.
//!
//! | part | what it knows |
//! |---|---|
//! | [`RunDir`] | the directory of a run: who it is, how it ended, whether it lives |
//! | [`RunSpec`] | what a guardian is told |
//! | [`Guardian`] | a connection to one: the fence, the stop, the end |
//! | [`ForkServer`] | guardians that are forked, where many are started |
//! | [`ExitRecord`] | how a run ended, as its guardian wrote it |
//! | [`kill_leftovers`] | what a guardian that was killed has left |
//! | [`LogReader`] | what the task has written, while it runs and after |
//!
//! Dropping a [`Guardian`] leaves the guardian and its task running; that is what it is for. If it
//! belongs to nobody, the fence ends it.

mod child;
mod connect;
mod exit_record;
mod fork_server;
mod handle;
mod leftovers;
mod logs;
mod names;
mod retention;
mod run_dir;
mod spec;
mod start;

pub use super::boot_time::BootTime;
pub use super::guard::facilities::Facility;
pub use super::guard::layout::LogStream;
pub use super::tree_use::TreeUse;
pub use connect::{ConnectError, Glimpse};
pub use exit_record::{EndedBy, ExitRecord, StreamRecord};
pub use fork_server::ForkServer;
pub use handle::{Guardian, GuardianControl, GuardianEnd, StopReason};
pub use leftovers::{Leftovers, LeftoversError, kill_leftovers};
pub use logs::{LogPiece, LogReader};
pub use retention::Retention;
pub use run_dir::{GuardLock, RunDir, RunDirs};
pub use spec::{DEFAULT_LOG_CAP, GuardianProgram, Limits, RunSpec, Stdin};
pub use start::StartError;
