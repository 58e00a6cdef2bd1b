//! What a guardian is told.

use std::ffi::OsString;
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use super::super::guard;
use super::BootTime;
use crate::domain::settings::TaskLimits;
use crate::process::TaskCommand;

/// How many bytes of each output are kept, unless another number is asked for.
pub const DEFAULT_LOG_CAP: u64 = 16 * 1024 * 1024;

/// Everything that a guardian is told about its run, besides the directory.
///
/// Its `Debug` form shows neither arguments nor variables nor input.
pub struct RunSpec {
    /// What to start. A file made for the run is written in its directory.
    pub command: TaskCommand,
    /// The variables that the task inherits, before our own secrets are taken away.
    pub inherited: Vec<(OsString, OsString)>,
    /// What the task reads.
    pub stdin: Stdin,
    /// When the kill of the task begins, unless the fence is moved.
    pub fence: BootTime,
    /// How long the task has between TERM and KILL at its timeout.
    pub grace: Duration,
    /// How long it has at its fence, if that is less, and whatever ends it how long after the fence: by then the lease
    /// may be another's.
    pub lease_grace: Duration,
    /// How long the task may run.
    pub timeout: Option<Duration>,
    /// What the task may use.
    pub limits: Limits,
    /// Whether programs that the task executes get no more rights than it has. It breaks `sudo` and
    /// containers without root.
    pub no_new_privileges: bool,
    /// The cgroup below which one is made for the task, if that works: see
    /// [`delegated`](crate::process::cgroup::delegated).
    pub cgroup: Option<PathBuf>,
    /// Locks of this machine, at most [`RunSpec::MOST_LOCKS`]. The guardian keeps them until every process of the task
    /// is gone; a lock by `flock` that this process then closes is the guardian's alone.
    pub locks: Vec<OwnedFd>,
}

/// What a task reads from its standard input.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Stdin {
    /// Nothing.
    #[default]
    Null,
    /// These bytes, then the end. They lie in a file that has no name, so a task that does not read
    /// keeps nobody waiting.
    Bytes(Vec<u8>),
}

/// The limits of each process of a task (`setrlimit`). More than this process may use itself makes
/// the start fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Open descriptors.
    pub open_files: Option<u64>,
    /// Bytes of address space.
    pub address_space: Option<u64>,
    /// Seconds of processor time: then SIGXCPU, and KILL five seconds later.
    pub cpu_seconds: Option<u64>,
}

impl From<TaskLimits> for Limits {
    fn from(set: TaskLimits) -> Limits {
        let TaskLimits { open_files, address_space, cpu_seconds } = set;
        Limits { open_files, address_space, cpu_seconds }
    }
}

impl RunSpec {
    /// The most descriptors that the kernel passes with one message, but for the directory's.
    pub const MOST_LOCKS: usize = 252;

    /// A run that inherits what its command says, reads nothing and has no limits. It has the same grace at its
    /// fence as elsewhere.
    pub fn new(command: TaskCommand, fence: BootTime, grace: Duration) -> Self {
        Self {
            inherited: command.inherit.variables().collect(),
            command,
            stdin: Stdin::Null,
            fence,
            grace,
            lease_grace: grace,
            timeout: None,
            limits: Limits::default(),
            no_new_privileges: false,
            cgroup: None,
            locks: Vec::new(),
        }
    }
}

impl fmt::Debug for RunSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunSpec")
            .field("command", &self.command)
            .field("inherited", &self.inherited.len())
            .field("stdin", &self.stdin)
            .field("fence", &self.fence)
            .field("grace", &self.grace)
            .field("lease_grace", &self.lease_grace)
            .field("timeout", &self.timeout)
            .field("limits", &self.limits)
            .field("no_new_privileges", &self.no_new_privileges)
            .field("cgroup", &self.cgroup)
            .field("locks", &self.locks.len())
            .finish()
    }
}

impl fmt::Debug for Stdin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("Null"),
            Self::Bytes(bytes) => write!(f, "Bytes({})", bytes.len()),
        }
    }
}

/// The program that becomes a guardian: one whose `main` begins with
/// [`guardian_entry`](crate::guardian_entry).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardianProgram {
    path: PathBuf,
}

impl GuardianProgram {
    /// The program of this process, as it was when it was started: what was installed over it since
    /// does not matter. Nothing unless its `main` has called
    /// [`guardian_entry`](crate::guardian_entry), without which it would start a second host
    /// instead of a guardian.
    pub fn this() -> Option<Self> {
        guard::is_entered().then(|| Self { path: "/proc/self/exe".into() })
    }

    /// An installed `leasehold`, or another program whose `main` calls
    /// [`guardian_entry`](crate::guardian_entry).
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    pub(super) fn path(&self) -> &std::path::Path {
        &self.path
    }
}
