//! Locks of this machine, one for each serialization token.
//!
//! A lock is *held* if and only if somebody has an exclusive `flock` on its file, `<directory>/<token>.lock` with the
//! token [percent-encoded](LockDir::path_of). Any program can take part: `flock <directory>/gpu-exclusive.lock make`.
//!
//! The lock belongs to an open description, not to a process: whoever was given a descriptor of it holds it too, and
//! it is free when the last one is closed. So nothing here unlocks; that would take it from all of them.
//!
//! The files stay. If one were removed, its holder and whoever makes it again would both hold the lock; nobody looks
//! whether that has happened.

mod holder;
mod name;

use std::collections::BTreeSet;
use std::fmt;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    Access, FileType, FlockOperation, Mode, OFlags, access, chmod, fchmod, flock, fstat, mkdir,
    open,
};
use rustix::io::Errno;

pub use holder::Holder;

/// Where the locks are that all users of a machine share.
pub const SHARED: &str = "/run/lock/leasehold";

/// The rights of [`SHARED`]: everybody may make a lock, and remove only their own.
const FOR_ALL: Mode = Mode::from_bits_truncate(0o1777);
/// The rights of a lock's file. To lock it one only needs to open it.
const READABLE: Mode = Mode::from_bits_truncate(0o644);

/// A directory of locks.
///
/// ```
/// use std::collections::BTreeSet;
/// use leasehold::process::machine_lock::{LockDir, LockState};
///
/// let dir = tempfile::tempdir().unwrap();
/// let locks = LockDir::open(dir.path()).unwrap();
/// let held = locks.take(&BTreeSet::from(["gpu-exclusive".into()])).unwrap();
/// assert!(matches!(locks.look("gpu-exclusive", None), LockState::Held(_)));
/// drop(held);
/// assert_eq!(locks.look("gpu-exclusive", None), LockState::Free);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockDir {
    path: PathBuf,
}

/// How it stands with a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockState {
    /// It can be had.
    Free,
    /// Somebody holds it; it is not always to be seen who.
    Held(Option<Holder>),
    /// Nobody can tell, and nobody can have it: its file cannot be used.
    Unusable(String),
}

impl LockDir {
    /// The locks in this directory. If it is not there it is made, for this user alone; one that several users are to
    /// share has to be made before, with the mode 1777.
    ///
    /// # Errors
    /// When this user cannot make files there, or files there cannot be locked.
    pub fn open(path: &Path) -> io::Result<LockDir> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        LockDir::checked(path, OFlags::empty())
    }

    /// The locks in [`SHARED`], which is made if it is not there.
    ///
    /// # Errors
    /// As [`LockDir::open`], and when it is a symbolic link: anybody could have put it there.
    pub fn shared() -> io::Result<LockDir> {
        LockDir::for_all(Path::new(SHARED))
    }

    fn for_all(path: &Path) -> io::Result<LockDir> {
        match mkdir(path, FOR_ALL) {
            // The rights without what the mask of this process has taken away.
            Ok(()) => chmod(path, FOR_ALL)?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        LockDir::checked(path, OFlags::NOFOLLOW)
    }

    fn checked(path: &Path, flags: OFlags) -> io::Result<LockDir> {
        let flags = flags | OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(path, flags, Mode::empty())?;
        access(path, Access::WRITE_OK | Access::EXEC_OK)?;
        // A file system without locks says so here; that somebody else has locked the directory means nothing.
        match flock(&directory, FlockOperation::NonBlockingLockShared) {
            Ok(()) | Err(Errno::WOULDBLOCK) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(LockDir { path: std::path::absolute(path)? })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file of a token's lock: the token percent-encoded, with all but ASCII letters, digits and `-._~` as `%XX`,
    /// and `.lock`. Of a name that would be longer than 255 bytes the first 200 are followed by `+` and a hash (FNV-1a
    /// of the token, 128 bits, in hex). If two had the same one they would share a lock, which does no harm but waiting.
    pub fn path_of(&self, token: &str) -> PathBuf {
        self.path.join(name::file_name(token))
    }

    /// Takes all of these locks, or none. They are closed when a program is executed; closing them frees them, unless
    /// a descriptor was passed to another process.
    ///
    /// # Errors
    /// The first token whose lock is not to be had; [`LockDir::look`] says why.
    pub fn take(&self, tokens: &BTreeSet<String>) -> Result<Vec<OwnedFd>, String> {
        // In the order of the set: of two who want the same ones, one gets them all.
        tokens
            .iter()
            .map(|token| self.try_lock(token).ok().flatten().ok_or_else(|| token.clone()))
            .collect()
    }

    /// How it stands with a lock. It blocks for as long as a look at all processes takes, unless `known` still holds
    /// it. A lock that is free is held for the moment of the look.
    pub fn look(&self, token: &str, known: Option<&Holder>) -> LockState {
        let looked = self.file(token).and_then(|file| match lock(&file)? {
            true => Ok(LockState::Free),
            false => match holder::find(&file, &name::file_name(token), known) {
                // It may have been let go meanwhile.
                None if lock(&file)? => Ok(LockState::Free),
                holder => Ok(LockState::Held(holder)),
            },
        });
        looked.unwrap_or_else(|error| LockState::Unusable(error.to_string()))
    }

    fn try_lock(&self, token: &str) -> io::Result<Option<OwnedFd>> {
        let file = self.file(token)?;
        Ok(lock(&file)?.then_some(file))
    }

    /// Opens the file of a lock, and makes it if it is not there.
    fn file(&self, token: &str) -> io::Result<OwnedFd> {
        let path = self.path_of(token);
        // A pipe that somebody has put there keeps nobody waiting.
        let flags =
            OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = loop {
            // At first without CREATE, which `fs.protected_regular` forbids for the file of another user.
            match open(&path, flags, Mode::empty()) {
                Err(Errno::NOENT) => {}
                opened => break opened?,
            }
            match open(&path, flags | OFlags::CREATE | OFlags::EXCL, READABLE) {
                Err(Errno::EXIST) => {}
                made => {
                    let made = made?;
                    fchmod(&made, READABLE)?;
                    break made;
                }
            }
        };
        match FileType::from_raw_mode(fstat(&file)?.st_mode) {
            FileType::RegularFile => Ok(file),
            _ => Err(io::Error::other("it is no regular file")),
        }
    }
}

/// Whether the lock was free; it is not any more.
fn lock(file: impl AsFd) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

impl LockState {
    /// Who holds it, if that is known.
    pub fn holder(&self) -> Option<&Holder> {
        match self {
            LockState::Held(holder) => holder.as_ref(),
            LockState::Free | LockState::Unusable(_) => None,
        }
    }
}

impl fmt::Display for LockState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockState::Free => f.write_str("free"),
            LockState::Held(Some(holder)) => write!(f, "held by {holder}"),
            LockState::Held(None) => f.write_str("held by a process that cannot be seen from here"),
            LockState::Unusable(error) => write!(f, "unusable: {error}"),
        }
    }
}

#[cfg(test)]
mod tests;
