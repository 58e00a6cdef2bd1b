//! The directory of a run: everything that a later daemon needs to find it again.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, open, openat, unlinkat};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};

use super::super::guard::layout::{LOCK, LogStream, RECORD};
use super::super::guard::wire::Token;
use super::exit_record::ExitRecord;
use super::logs::LogReader;
use super::names::{directory_name, from_hex, hex};
use crate::process::lock_table::LockTable;

/// The variable with the secret of a run. It opens nothing: it only says who belongs to the run.
const MARK: &str = "LEASEHOLD_RUN_MARK";
/// Below a slot: the runs whose end is stored.
pub(super) const KEPT: &str = "kept";
const RUNS: &str = "runs";
const IDENTITY: &str = "run.json";
const TOKEN: &str = "token";
/// There if the run has no guardian: it is a part of its worker's process.
const IN_PROCESS: &str = "in-process";
/// The name of a directory that is being made ends so.
const UNFINISHED: &str = ".new";

/// The directory of one run in one epoch, `<slot>/runs/<run id>.<epoch>/`, mode 0700.
///
/// It is there, whole, before the guardian is started: that it exists proves that the claim came from
/// this slot. After a loss of power it may have lost what was in it, see [`RunDirs::unreadable`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDir {
    path: PathBuf,
    identity: Identity,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    run_id: String,
    epoch: i64,
    /// The value of [`MARK`] in the environment of the run's processes.
    mark: String,
    log_cap: u64,
}

/// What [`RunDir::list`] has found.
#[derive(Clone, Debug, Default)]
pub struct RunDirs {
    /// The runs.
    pub runs: Vec<RunDir>,
    /// Directories that do not say which run they belong to. Nothing was ever started in one that
    /// was not finished; what else is here has lost its contents, most likely when the power went.
    pub unreadable: Vec<PathBuf>,
}

/// Proves that no guardian of a run lives, or can ever start a task.
#[derive(Debug)]
pub struct GuardLock {
    _lock: Option<OwnedFd>,
}

impl RunDir {
    /// Makes the directory of a run in a slot. Blocks for as long as the file system takes: in a
    /// runtime this belongs on a thread for blocking work.
    ///
    /// Of each output of the task at most `log_cap` bytes are kept, the first and the last ones.
    ///
    /// # Errors
    /// `AlreadyExists` when there is one for this run and epoch. Nothing is left of what could not be
    /// finished.
    pub fn create(slot: &Path, run_id: &str, epoch: i64, log_cap: u64) -> io::Result<Self> {
        let runs = slot.join(RUNS);
        DirBuilder::new().recursive(true).mode(0o700).create(&runs)?;
        let name = directory_name(run_id, epoch);
        let path = runs.join(&name);
        if path.try_exists()? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let mut mark = [0; 16];
        let mut token: Token = [0; 32];
        random(&mut mark)?;
        random(&mut token)?;
        let identity = Identity { run_id: run_id.to_owned(), epoch, mark: hex(&mark), log_cap };

        let unfinished = runs.join(name + UNFINISHED);
        let made = make(&unfinished, &token, &serde_json::to_vec(&identity)?)
            // Nothing is synced: what the directory is for lives no longer than the kernel does. A
            // process that is killed takes nothing of it away; when the power goes, so does the run,
            // and its row goes back to the queue whether or not its directory can still be read.
            .and_then(|()| std::fs::rename(&unfinished, &path));
        if made.is_err() {
            let _ = std::fs::remove_dir_all(&unfinished);
        }
        made.map(|()| Self { path, identity })
    }

    /// The directory of this run in this epoch, if there is one.
    ///
    /// # Errors
    /// When it cannot be read, or belongs to another run.
    pub fn find(slot: &Path, run_id: &str, epoch: i64) -> io::Result<Option<Self>> {
        Self::find_below(&slot.join(RUNS), run_id, epoch)
    }

    /// The same among those that were [kept](Self::keep) after their end.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn find_kept(slot: &Path, run_id: &str, epoch: i64) -> io::Result<Option<Self>> {
        Self::find_below(&slot.join(KEPT), run_id, epoch)
    }

    fn find_below(parent: &Path, run_id: &str, epoch: i64) -> io::Result<Option<Self>> {
        let found = match Self::open(&parent.join(directory_name(run_id, epoch))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => found?,
        };
        if (found.run_id(), found.epoch()) != (run_id, epoch) {
            return Err(io::Error::other("the directory belongs to another run"));
        }
        Ok(Some(found))
    }

    /// A directory that was made before.
    ///
    /// # Errors
    /// When it does not say which run it belongs to.
    pub fn open(path: &Path) -> io::Result<Self> {
        let identity = serde_json::from_slice(&std::fs::read(path.join(IDENTITY))?)?;
        Ok(Self { path: path.to_owned(), identity })
    }

    /// All runs of a slot, in no order.
    ///
    /// # Errors
    /// When the slot cannot be read.
    pub fn list(slot: &Path) -> io::Result<RunDirs> {
        let mut found = RunDirs::default();
        let entries = match std::fs::read_dir(slot.join(RUNS)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            match Self::open(&path) {
                Ok(run)
                    if !path.as_os_str().as_encoded_bytes().ends_with(UNFINISHED.as_bytes()) =>
                {
                    found.runs.push(run);
                }
                _ => found.unreadable.push(path),
            }
        }
        Ok(found)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whose it is.
    pub fn run_id(&self) -> &str {
        &self.identity.run_id
    }

    /// In which epoch.
    pub fn epoch(&self) -> i64 {
        self.identity.epoch
    }

    /// How many bytes are kept of each output.
    pub fn log_cap(&self) -> u64 {
        self.identity.log_cap
    }

    /// How the run ended, if its guardian has written that. The record is whole or not there.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn exit_record(&self) -> io::Result<Option<ExitRecord>> {
        match std::fs::read(self.path.join(RECORD)) {
            Ok(bytes) => ExitRecord::parse(&bytes).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes the lock of the run away from every guardian, for good. Nothing when a guardian holds
    /// it: that one lives.
    ///
    /// From then on no guardian can start a task here, one that was started and is slow included,
    /// also after the lock has been dropped.
    ///
    /// # Errors
    /// When the lock cannot be opened or removed.
    pub fn try_lock_guard(&self) -> io::Result<Option<GuardLock>> {
        try_lock_guard(&self.path)
    }

    /// When it was made, by the wall clock.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn made_at(&self) -> io::Result<SystemTime> {
        std::fs::metadata(self.path.join(IDENTITY))?.modified()
    }

    /// Whether a guardian got so far that it may have started the task.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn has_begun(&self) -> io::Result<bool> {
        // Made before there is a process, and never removed.
        self.path.join(LogStream::Stdout.file()).try_exists()
    }

    /// Writes down that the run is a part of this process and has no guardian. It counts as begun from then on.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn mark_in_process(&self) -> io::Result<()> {
        File::create_new(self.path.join(IN_PROCESS)).map(drop)
    }

    /// Whether the run is, or was, a part of its worker's own process. Then no guardian is looked for.
    pub fn is_in_process(&self) -> bool {
        self.path.join(IN_PROCESS).exists()
    }

    /// The number of the guardian that lives in it, for people to read; nothing when none does. The lock is left alone.
    ///
    /// # Errors
    /// When the lock cannot be looked at.
    pub fn guardian_pid(&self, locks: &LockTable) -> io::Result<Option<u32>> {
        locks.holder(&self.path.join(LOCK))
    }

    /// Puts the directory of a run whose end is stored where it is only looked at, and says whether there was one.
    ///
    /// # Errors
    /// It stays where it was.
    pub fn keep(slot: &Path, run_id: &str, epoch: i64) -> io::Result<bool> {
        let name = directory_name(run_id, epoch);
        let (from, kept) = (slot.join(RUNS).join(&name), slot.join(KEPT));
        let moved = || std::fs::rename(&from, kept.join(&name));
        let moved = match moved() {
            // The first one that is kept.
            Err(error) if error.kind() == io::ErrorKind::NotFound && from.try_exists()? => {
                DirBuilder::new().recursive(true).mode(0o700).create(&kept).and_then(|()| moved())
            }
            moved => moved,
        };
        match moved {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sees to it that the record of the end survives a loss of power, if there is one. Its guardian does so itself
    /// unless somebody was there to store the end.
    ///
    /// # Errors
    /// When it cannot be written to the disk.
    pub fn sync_record(slot: &Path, run_id: &str, epoch: i64) -> io::Result<()> {
        let path = slot.join(RUNS).join(directory_name(run_id, epoch));
        match File::open(path.join(RECORD)) {
            Ok(record) => record.sync_all()?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
        // The names that lead to it: nobody else has synced those.
        for directory in [path.as_path(), &slot.join(RUNS), slot] {
            File::open(directory)?.sync_all()?;
        }
        Ok(())
    }

    /// Removes the directory with everything in it. Blocks, for milliseconds where files are large.
    ///
    /// # Errors
    /// `WouldBlock`, and nothing is removed, when a guardian lives in it.
    pub fn remove(self) -> io::Result<()> {
        Self::remove_at(&self.path)
    }

    /// The same with one that may be [unreadable](RunDirs::unreadable).
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    pub fn remove_at(path: &Path) -> io::Result<()> {
        let Some(_lock) = try_lock_guard(path)? else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        std::fs::remove_dir_all(path)
    }

    /// Whether this is where the directory of that run in that epoch would be.
    pub fn is_place_of(path: &Path, run_id: &str, epoch: i64) -> bool {
        path.file_name().is_some_and(|name| name == directory_name(run_id, epoch).as_str())
    }

    /// Reads an output of the task from its beginning, while it runs or afterwards.
    pub fn log(&self, stream: LogStream) -> LogReader {
        LogReader::new(self.clone(), stream)
    }

    /// What every process of the run has in its environment.
    pub(super) fn badge(&self) -> [(&'static str, String); 3] {
        [
            ("LEASEHOLD_RUN_ID", self.run_id().to_owned()),
            ("LEASEHOLD_EPOCH", self.epoch().to_string()),
            (MARK, self.identity.mark.clone()),
        ]
    }

    /// The name of the cgroup that a guardian may make for the run: nothing else on this machine has it.
    pub(super) fn cgroup_name(&self) -> String {
        format!("leasehold.{}", self.identity.mark)
    }

    pub(super) fn token(&self) -> io::Result<Token> {
        let text = std::fs::read_to_string(self.path.join(TOKEN))?;
        from_hex(&text).ok_or_else(|| io::Error::other("the token of the run is damaged"))
    }

    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        descriptor(&self.path)
    }
}

/// A directory of a run that is not finished yet.
fn make(path: &Path, token: &Token, identity: &[u8]) -> io::Result<()> {
    let new = || DirBuilder::new().mode(0o700).create(path);
    match new() {
        // What one that died meanwhile has left.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            std::fs::remove_dir_all(path)?;
            new()?;
        }
        made => made?,
    }
    for (name, contents) in [(LOCK, &b""[..]), (TOKEN, hex(token).as_bytes()), (IDENTITY, identity)]
    {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(path.join(name))?;
        file.write_all(contents)?;
    }
    Ok(())
}

fn try_lock_guard(path: &Path) -> io::Result<Option<GuardLock>> {
    let directory = descriptor(path)?;
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let lock = match openat(&directory, LOCK, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(Some(GuardLock { _lock: None })),
        lock => lock?,
    };
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(None),
        locked => locked?,
    }
    // A guardian takes the lock and then looks whether it has still a name.
    match unlinkat(&directory, LOCK, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    Ok(Some(GuardLock { _lock: Some(lock) }))
}

fn descriptor(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(open(path, flags, Mode::empty())?)
}

fn random(bytes: &mut [u8]) -> io::Result<()> {
    // Fewer than 256 bytes come all at once.
    match getrandom(&mut *bytes, GetRandomFlags::empty())? {
        length if length == bytes.len() => Ok(()),
        _ => Err(io::Error::other("the kernel gave too few random bytes")),
    }
}
