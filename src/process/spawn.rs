//! Starts the process of a task.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Pid;

#[cfg(target_os = "linux")]
use super::guard::wire::Step;
#[cfg(target_os = "linux")]
use super::program::cwd_errno_fault;
use super::program::{cwd_fault, exec_fault, find};
use super::stdin::stdin;
use super::temp_file::OwnedFile;
use super::{SpawnError, SpawnFault, TaskCommand, TempFile, child_environment};

/// A program that is being installed is open for writing for a moment; these are the pauses before
/// the three more tries.
const BUSY_PAUSES: [Duration; 3] =
    [Duration::from_millis(2), Duration::from_millis(8), Duration::from_millis(32)];

/// A process that has been started: the leader of a process group of its own, not yet reaped.
pub(super) struct Spawned {
    pub(super) pid: Pid,
    pub(super) temp_file: Option<OwnedFile>,
}

/// Starts the process with null as its standard input and these two as its output.
///
/// There is no `pre_exec` here, nor anything else that keeps the standard library from
/// `posix_spawn`. Once it has returned, the process group exists and the program is being executed.
pub(super) fn spawn(
    command: &TaskCommand,
    stdout: OwnedFd,
    stderr: OwnedFd,
) -> Result<Spawned, SpawnError> {
    let mut temp_file = None;
    let prepared = Prepared::new(command, command.inherit.variables(), |file| {
        Ok(temp_file.insert(OwnedFile::create(&file.contents)?).path().into())
    })?;
    let mut process = Command::new(&prepared.program);
    process
        .arg0(command.program())
        .args(prepared.argv.iter().skip(1))
        .env_clear()
        .envs(&prepared.env)
        .process_group(0);
    let input = stdin(command.stdin.as_deref()).map_err(|source| {
        SpawnError::system(&command.identity.run_id, SpawnFault::TempFile, source)
    })?;
    process.stdin(input).stdout(stdout).stderr(stderr);
    if let Some(cwd) = &command.cwd {
        process.current_dir(cwd);
    }
    let pid = start(&mut process).map_err(|source| prepared.exec_error(command, source))?;
    Ok(Spawned { pid, temp_file })
}

/// A command that could be executed as far as can be seen.
pub(super) struct Prepared {
    /// The path to execute, which counts from the task's directory when it is relative.
    pub(super) program: PathBuf,
    /// The arguments, the name of the program among them.
    pub(super) argv: Vec<OsString>,
    /// The whole environment.
    pub(super) env: BTreeMap<OsString, OsString>,
}

impl Prepared {
    /// Looks for the program, in the task's own environment and directory, and has the temporary
    /// file written if there is one.
    pub(super) fn new(
        command: &TaskCommand,
        inherited: impl IntoIterator<Item = (OsString, OsString)>,
        write_file: impl FnOnce(&TempFile) -> io::Result<PathBuf>,
    ) -> Result<Self, SpawnError> {
        let run_id = command.identity.run_id.as_str();
        let fail = |fault, source| SpawnError::new(run_id, fault, source);
        check(command).map_err(|fault| fail(fault, None))?;
        let cwd = command.cwd.as_deref();
        if let Some((fault, source)) = cwd.and_then(cwd_fault) {
            return Err(SpawnError::system(run_id, fault, source));
        }
        let env = child_environment(inherited, &command.env, &command.identity);
        let path = env.get(OsStr::new("PATH")).map(OsString::as_os_str);
        let program = match &command.executable {
            Some(program) => program.clone(),
            None => find(command.program(), path, cwd).map_err(|fault| {
                let errno = match fault {
                    SpawnFault::ProgramMissing(_) => Errno::NOENT,
                    _ => Errno::ACCESS,
                };
                fail(fault, Some(errno.into()))
            })?,
        };
        let mut argv = command.argv.clone();
        if let Some(file) = &command.temp_file {
            let path = write_file(file)
                .map_err(|source| SpawnError::system(run_id, SpawnFault::TempFile, source))?;
            if let Some(argument) = argv.get_mut(file.argv_index) {
                *argument = path.into();
            }
        }
        Ok(Self { program, argv, env })
    }

    /// What it means that its process did not get past this step; nothing for a step that is not the process's own.
    #[cfg(target_os = "linux")]
    pub(super) fn start_error(
        &self,
        command: &TaskCommand,
        step: Step,
        errno: Errno,
    ) -> Option<SpawnError> {
        let fault = match step {
            Step::Fork => SpawnFault::Setup { step: "creating it" },
            Step::Task => SpawnFault::Setup { step: "making its session" },
            Step::Descriptors => SpawnFault::Setup { step: "giving it its input and outputs" },
            Step::Limits => SpawnFault::Setup { step: "setting its limits" },
            Step::Cwd => cwd_errno_fault(command.cwd.as_deref().unwrap_or(Path::new(".")), errno),
            Step::Exec => return Some(self.exec_error(command, errno.into())),
            _ => return None,
        };
        Some(SpawnError::system(&command.identity.run_id, fault, errno.into()))
    }

    /// What it means that the program could not be executed.
    pub(super) fn exec_error(&self, command: &TaskCommand, source: io::Error) -> SpawnError {
        let longest = self.argv.iter().map(|argument| argument.len()).max().unwrap_or(0);
        let total = self.argv.iter().map(|argument| argument.len() + 1).sum::<usize>()
            + self.env.iter().map(|(name, value)| name.len() + value.len() + 2).sum::<usize>();
        let fault = exec_fault(&self.program, command.cwd.as_deref(), (longest, total), &source);
        SpawnError::new(&command.identity.run_id, fault, Some(source))
    }
}

fn start(process: &mut Command) -> io::Result<Pid> {
    let mut pauses = BUSY_PAUSES.iter();
    loop {
        match process.spawn() {
            // The handle of the standard library is dropped: it could only reap, and when to reap
            // is decided here.
            Ok(child) => return Ok(Pid::from_child(&child)),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::TXTBSY) => {
                match pauses.next() {
                    Some(pause) => sleep(*pause),
                    None => return Err(error),
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Finds what no process could be given, before anything is touched.
fn check(command: &TaskCommand) -> Result<(), SpawnFault> {
    if command.program().is_empty() {
        return Err(SpawnFault::NoProgram);
    }
    if let Some(file) = &command.temp_file
        && file.argv_index >= command.argv.len()
    {
        return Err(SpawnFault::NoPlaceholder { index: file.argv_index, len: command.argv.len() });
    }
    if command.env.iter().any(|(name, _)| name.is_empty() || name.as_bytes().contains(&b'=')) {
        return Err(SpawnFault::VariableName);
    }
    let argument = command
        .argv
        .iter()
        .position(|argument| has_nul(argument))
        .map(|index| format!("argument {index}"));
    let place = argument
        .or_else(|| {
            command
                .env
                .iter()
                .any(|(n, v)| has_nul(n) || has_nul(v))
                .then(|| "a variable".to_owned())
        })
        .or_else(|| {
            let identity = &command.identity;
            let nul = identity.run_id.contains('\0') || identity.invocation_id.contains('\0');
            nul.then(|| "the identity of the run".to_owned())
        })
        .or_else(|| {
            let cwd = command.cwd.as_deref().map(Path::as_os_str);
            cwd.is_some_and(has_nul).then(|| "the working directory".to_owned())
        });
    place.map_or(Ok(()), |place| Err(SpawnFault::NulByte { place }))
}

fn has_nul(text: &OsStr) -> bool {
    text.as_bytes().contains(&0)
}
