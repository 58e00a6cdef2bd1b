//! Why a task could not be started.

use std::fmt;
use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

/// A task that could not be started: nothing runs, and nothing is left behind.
///
/// Its `Display` form is one line: what was being done, what is wrong, what to do. It shows the
/// program, never the arguments or the environment.
#[derive(Debug)]
pub struct SpawnError {
    run_id: String,
    fault: SpawnFault,
    source: Option<io::Error>,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpawnFault {
    /// `argv` is empty, or its first element is.
    NoProgram,
    /// The temporary file is to replace an element that `argv` does not have.
    NoPlaceholder {
        /// The index asked for.
        index: usize,
        /// How many elements there are.
        len: usize,
    },
    /// A NUL byte, which no argument, variable or path can carry.
    NulByte {
        /// Where it is.
        place: String,
    },
    /// The name of a variable is empty or has a `=` in it.
    VariableName,
    /// The temporary file could not be written.
    TempFile,
    /// The working directory does not exist.
    CwdMissing(PathBuf),
    /// The working directory is not a directory.
    CwdNotADirectory(PathBuf),
    /// The working directory may not be entered.
    CwdDenied(PathBuf),
    /// There is no such program.
    ProgramMissing(PathBuf),
    /// The program is a directory.
    ProgramIsADirectory(PathBuf),
    /// The program may not be executed.
    ProgramNotExecutable(PathBuf),
    /// The program is neither a binary of this machine nor a script with a `#!` line.
    ProgramFormat(PathBuf),
    /// The program exists, but the interpreter that it names does not.
    InterpreterMissing(PathBuf),
    /// The program is open for writing, still after three more tries.
    ProgramBusy(PathBuf),
    /// The arguments and the environment, or one of the arguments, are longer than the kernel
    /// takes.
    ArgumentTooLong {
        /// Bytes of the longest argument.
        longest: usize,
        /// Bytes of all arguments and variables.
        total: usize,
    },
    /// The machine, or this process, has no more of something: descriptors, processes, memory,
    /// disk.
    ResourcesExhausted,
    /// The process of the task could not be prepared.
    Setup {
        /// What was being done.
        step: &'static str,
    },
    /// There is no tokio runtime here to watch the task.
    NoRuntime,
    /// Anything else; the cause is in `source`.
    Other,
}

/// What was being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// Reading the command.
    Command,
    /// Writing the temporary file.
    TempFile,
    /// Making the pipes and their watch.
    Pipes,
    /// Entering the working directory.
    Cwd,
    /// Preparing the process: its session, descriptors, limits.
    Setup,
    /// Creating the process and executing the program.
    Exec,
}

impl SpawnError {
    pub(super) fn new(run_id: &str, fault: SpawnFault, source: Option<io::Error>) -> Self {
        Self { run_id: run_id.to_owned(), fault, source }
    }

    /// An error of the system outside `exec`, where all errnos but the lack of something mean
    /// `otherwise`.
    pub(super) fn system(run_id: &str, otherwise: SpawnFault, source: io::Error) -> Self {
        let fault = if exhausted(&source) { SpawnFault::ResourcesExhausted } else { otherwise };
        Self::new(run_id, fault, Some(source))
    }

    /// What is wrong.
    pub fn fault(&self) -> &SpawnFault {
        &self.fault
    }

    /// The number that the kernel gave, if it was asked.
    pub fn errno(&self) -> Option<i32> {
        self.source.as_ref().and_then(io::Error::raw_os_error)
    }

    /// Whether the machine lacked something that another time may be there: the fault is not the
    /// task's, and it may be tried again without counting against it.
    pub fn is_resource_exhausted(&self) -> bool {
        self.fault == SpawnFault::ResourcesExhausted
    }

    /// What was being done.
    pub fn stage(&self) -> Stage {
        match self.fault {
            SpawnFault::NoProgram
            | SpawnFault::NoPlaceholder { .. }
            | SpawnFault::NulByte { .. }
            | SpawnFault::VariableName => Stage::Command,
            SpawnFault::TempFile => Stage::TempFile,
            SpawnFault::NoRuntime => Stage::Pipes,
            SpawnFault::Setup { .. } => Stage::Setup,
            SpawnFault::CwdMissing(_)
            | SpawnFault::CwdNotADirectory(_)
            | SpawnFault::CwdDenied(_) => Stage::Cwd,
            _ => Stage::Exec,
        }
    }

    /// A stable word for the fault, for reasons and logs.
    pub fn code(&self) -> &'static str {
        match self.fault {
            SpawnFault::NoProgram => "no_program",
            SpawnFault::NoPlaceholder { .. } => "no_placeholder",
            SpawnFault::NulByte { .. } => "nul_byte",
            SpawnFault::VariableName => "variable_name",
            SpawnFault::TempFile => "temp_file",
            SpawnFault::CwdMissing(_) => "cwd_missing",
            SpawnFault::CwdNotADirectory(_) => "cwd_not_a_directory",
            SpawnFault::CwdDenied(_) => "cwd_denied",
            SpawnFault::ProgramMissing(_) => "program_missing",
            SpawnFault::ProgramIsADirectory(_) => "program_is_a_directory",
            SpawnFault::ProgramNotExecutable(_) => "program_not_executable",
            SpawnFault::ProgramFormat(_) => "program_format",
            SpawnFault::InterpreterMissing(_) => "interpreter_missing",
            SpawnFault::ProgramBusy(_) => "program_busy",
            SpawnFault::ArgumentTooLong { .. } => "arg_too_long",
            SpawnFault::ResourcesExhausted => "resources_exhausted",
            SpawnFault::Setup { .. } => "setup_failed",
            SpawnFault::NoRuntime => "no_runtime",
            SpawnFault::Other => "spawn_failed",
        }
    }
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "starting run {:?}: {}", self.run_id, self.fault)?;
        match self.errno() {
            Some(errno) => write!(f, " (errno {errno})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for SpawnError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

// Paths are written in their `Debug` form: a name may hold a newline or an escape sequence.
impl fmt::Display for SpawnFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProgram => write!(f, "the command is empty; give a program to run"),
            Self::NoPlaceholder { index, len } => write!(
                f,
                "the temporary file is to be argument {index} of {len}; reserve an argument for it"
            ),
            Self::NulByte { place } => write!(f, "there is a NUL byte in {place}; take it out"),
            Self::VariableName => write!(
                f,
                "the name of a variable is empty or contains '='; correct the additional variables"
            ),
            Self::TempFile => write!(
                f,
                "the temporary file could not be written; check the directory that TMPDIR names"
            ),
            Self::CwdMissing(path) => write!(
                f,
                "the working directory {path:?} does not exist; create it or name another"
            ),
            Self::CwdNotADirectory(path) => {
                write!(f, "the working directory {path:?} is not a directory; name a directory")
            }
            Self::CwdDenied(path) => write!(
                f,
                "the working directory {path:?} may not be entered; grant search permission on it"
            ),
            Self::ProgramMissing(path) => write!(
                f,
                "there is no program {path:?}; install it, correct PATH, or give its whole path"
            ),
            Self::ProgramIsADirectory(path) => {
                write!(f, "the program {path:?} is a directory; name the file in it")
            }
            Self::ProgramNotExecutable(path) => write!(
                f,
                "the program {path:?} may not be executed; check its mode (chmod +x) and its mount"
            ),
            Self::ProgramFormat(path) => write!(
                f,
                "the program {path:?} is neither a binary of this machine nor a script; \
                 begin it with a #! line"
            ),
            Self::InterpreterMissing(path) => write!(
                f,
                "the interpreter that {path:?} asks for does not exist; \
                 correct its #! line or install it"
            ),
            Self::ProgramBusy(path) => write!(
                f,
                "the program {path:?} is open for writing; try again when it has been installed"
            ),
            Self::ArgumentTooLong { longest, total } => write!(
                f,
                "the arguments and variables are too long for the kernel ({total} bytes, the \
                 longest argument {longest}); pass long text in a file"
            ),
            Self::ResourcesExhausted => write!(
                f,
                "the machine has no more descriptors, processes, memory or disk; \
                 raise the limit or run fewer at once"
            ),
            Self::Setup { step } => {
                write!(f, "the process could not be prepared, {step}; see the cause")
            }
            Self::NoRuntime => {
                write!(f, "there is no tokio runtime; call from inside one, or use run_to_end")
            }
            Self::Other => write!(f, "the system refused; see the cause"),
        }
    }
}

pub(super) fn exhausted(error: &io::Error) -> bool {
    const LACKING: [Errno; 6] =
        [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM, Errno::NOSPC, Errno::DQUOT];
    Errno::from_io_error(error).is_some_and(|errno| LACKING.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_machine_lacks_is_told_from_what_the_task_did() {
        for errno in [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM] {
            let error = SpawnError::system("r", SpawnFault::Other, errno.into());
            assert!(error.is_resource_exhausted(), "{errno}");
            assert_eq!(error.errno(), Some(errno.raw_os_error()));
        }
        assert!(
            !SpawnError::system("r", SpawnFault::TempFile, Errno::ACCESS.into())
                .is_resource_exhausted()
        );
    }

    #[test]
    fn a_message_is_one_line_whatever_the_name() {
        let fault = SpawnFault::ProgramMissing("a\nb\u{1b}[31m".into());
        let text = SpawnError::new("r\n1", fault, Some(Errno::NOENT.into())).to_string();
        assert!(!text.chars().any(char::is_control), "{text:?}");
        assert!(text.starts_with("starting run "), "{text:?}");
    }
}
