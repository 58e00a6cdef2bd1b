//! Finds the program of a command, and says afterwards why it could not be executed.
//!
//! The lookup is our own for two reasons: the `PATH` that counts is the task's, and a command whose
//! program is a path is started by `posix_spawn`. The standard library forks instead when it must
//! search a changed `PATH`, and forking a large process is slow.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::SpawnFault;
use super::spawn_error::exhausted;

/// What `execvp` searches when there is no `PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// The path to execute, which counts from the task's directory when it is relative.
pub(super) fn find(
    program: &OsStr,
    path: Option<&OsStr>,
    cwd: Option<&Path>,
) -> Result<PathBuf, SpawnFault> {
    if program.is_empty() {
        return Err(SpawnFault::NoProgram);
    }
    if program.as_bytes().contains(&b'/') {
        return Ok(program.into());
    }
    let mut refused = None;
    for directory in path.unwrap_or(OsStr::new(DEFAULT_PATH)).as_bytes().split(|byte| *byte == b':')
    {
        // An empty element is the current directory, and a path without a slash would be looked up
        // again.
        let directory = if directory.is_empty() { b"." } else { directory };
        let candidate = Path::new(OsStr::from_bytes(directory)).join(program);
        let here = from(cwd, &candidate);
        if here.is_dir() {
            refused.get_or_insert(SpawnFault::ProgramIsADirectory(candidate));
        } else if access(&here, Access::EXEC_OK).is_ok() {
            return Ok(candidate);
        } else if here.exists() {
            refused.get_or_insert(SpawnFault::ProgramNotExecutable(candidate));
        }
    }
    Err(refused.unwrap_or_else(|| SpawnFault::ProgramMissing(program.into())))
}

/// What is wrong with a working directory, if anything is.
pub(super) fn cwd_fault(cwd: &Path) -> Option<(SpawnFault, io::Error)> {
    match std::fs::metadata(cwd) {
        Ok(metadata) if !metadata.is_dir() => {
            Some((SpawnFault::CwdNotADirectory(cwd.into()), Errno::NOTDIR.into()))
        }
        Ok(_) => match access(cwd, Access::EXEC_OK) {
            Ok(()) => None,
            Err(errno) => Some((SpawnFault::CwdDenied(cwd.into()), errno.into())),
        },
        Err(error) => {
            let fault = Errno::from_io_error(&error)
                .map_or(SpawnFault::Other, |errno| cwd_errno_fault(cwd, errno));
            Some((fault, error))
        }
    }
}

/// What the errno of entering a working directory means.
pub(super) fn cwd_errno_fault(cwd: &Path, errno: Errno) -> SpawnFault {
    match errno {
        Errno::NOENT => SpawnFault::CwdMissing(cwd.into()),
        Errno::NOTDIR => SpawnFault::CwdNotADirectory(cwd.into()),
        Errno::ACCESS | Errno::PERM => SpawnFault::CwdDenied(cwd.into()),
        _ => SpawnFault::Other,
    }
}

/// What the errno of a failed start means. The kernel gives one number for the directory, the
/// program and its interpreter, so they are looked at again.
pub(super) fn exec_fault(
    program: &Path,
    cwd: Option<&Path>,
    sizes: (usize, usize),
    error: &io::Error,
) -> SpawnFault {
    if exhausted(error) {
        return SpawnFault::ResourcesExhausted;
    }
    if let Some((fault, _)) = cwd.and_then(cwd_fault) {
        return fault;
    }
    let path = || program.to_path_buf();
    let here = from(cwd, program);
    match Errno::from_io_error(error) {
        Some(Errno::NOENT) if here.exists() => SpawnFault::InterpreterMissing(path()),
        Some(Errno::NOENT | Errno::NOTDIR) => SpawnFault::ProgramMissing(path()),
        Some(Errno::ACCESS | Errno::ISDIR) if here.is_dir() => {
            SpawnFault::ProgramIsADirectory(path())
        }
        Some(Errno::ACCESS | Errno::PERM) => SpawnFault::ProgramNotExecutable(path()),
        Some(Errno::NOEXEC) => SpawnFault::ProgramFormat(path()),
        Some(Errno::TXTBSY) => SpawnFault::ProgramBusy(path()),
        Some(Errno::TOOBIG) => SpawnFault::ArgumentTooLong { longest: sizes.0, total: sizes.1 },
        _ => SpawnFault::Other,
    }
}

fn from(cwd: Option<&Path>, path: &Path) -> PathBuf {
    cwd.map_or_else(|| path.to_path_buf(), |cwd| cwd.join(path))
}
