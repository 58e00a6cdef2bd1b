//! What is to be started.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;

use super::Inherit;

/// One task, ready to be started: plain data, nothing has been touched yet.
///
/// Its `Debug` form names the program and counts the rest: arguments carry prompts and variables
/// carry keys.
#[derive(Clone, Default)]
pub struct TaskCommand {
    /// The program and its arguments. A program without a slash is looked up in the `PATH` that the
    /// task will see; one with a slash counts from [`cwd`](Self::cwd).
    pub argv: Vec<OsString>,
    /// What is executed, if that is not the program that `argv` names; it is not looked up.
    pub executable: Option<PathBuf>,
    /// A file that is written for this run only, and named in `argv`.
    pub temp_file: Option<TempFile>,
    /// Which variables of this process it inherits.
    pub inherit: Inherit,
    /// Variables in addition to the inherited ones; they win over those, but not over the run's
    /// identity.
    pub env: Vec<(OsString, OsString)>,
    /// What the task reads from its standard input; absent means nothing.
    pub stdin: Option<Vec<u8>>,
    /// The working directory, or that of this process.
    pub cwd: Option<PathBuf>,
    /// So many bytes of its standard output are kept whole, for who has to read it all; 0 keeps none so. Of a direct child
    /// only: a guardian writes logs.
    pub keep_stdout: usize,
    /// Which run this is.
    pub identity: RunIdentity,
}

/// Which run a process belongs to, as the task itself is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunIdentity {
    /// `LEASEHOLD_RUN_ID`.
    pub run_id: String,
    /// `LEASEHOLD_EPOCH`: the fencing token of this attempt, greater at each claim.
    pub epoch: i64,
    /// `LIONAGI_INVOCATION_ID`: 12 hex digits.
    pub invocation_id: String,
}

/// A file `leasehold-*.yaml`, mode 0600, in the system's directory for temporary files.
///
/// It is removed when the run is over, however it ends, and when it could not be started.
#[derive(Clone, PartialEq, Eq)]
pub struct TempFile {
    /// The element of `argv` that is replaced by the path of the file.
    pub argv_index: usize,
    /// The bytes of the file.
    pub contents: Vec<u8>,
}

impl TaskCommand {
    /// A command without a file of its own, additional variables or a directory of its own.
    ///
    /// ```
    /// use leasehold::process::{RunIdentity, TaskCommand};
    ///
    /// let identity =
    ///     RunIdentity { run_id: "r1".into(), epoch: 1, invocation_id: "0123456789ab".into() };
    /// let command = TaskCommand::new(["echo", "hello"], identity);
    /// assert_eq!(command.argv, ["echo", "hello"]);
    /// ```
    pub fn new<A>(argv: impl IntoIterator<Item = A>, identity: RunIdentity) -> Self
    where
        A: Into<OsString>,
    {
        let argv = argv.into_iter().map(Into::into).collect();
        Self { argv, identity, ..Self::default() }
    }

    pub(super) fn program(&self) -> &OsStr {
        self.argv.first().map_or(OsStr::new(""), OsString::as_os_str)
    }
}

impl fmt::Debug for TaskCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskCommand")
            .field("program", &self.program())
            .field("arguments", &self.argv.len().saturating_sub(1))
            .field("temp_file", &self.temp_file)
            .field("inherit", &self.inherit)
            .field("env", &self.env.len())
            .field("stdin", &self.stdin.as_ref().map(Vec::len))
            .field("cwd", &self.cwd)
            .field("keep_stdout", &self.keep_stdout)
            .field("identity", &self.identity)
            .finish()
    }
}

impl fmt::Debug for TempFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TempFile")
            .field("argv_index", &self.argv_index)
            .field("bytes", &self.contents.len())
            .finish()
    }
}
