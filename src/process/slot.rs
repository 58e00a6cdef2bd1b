//! The place in which one daemon keeps its runs, and the name of its host.
//!
//! A daemon works in one slot, `<state dir>/<store id>/<n>/`: the first whose lock is free. It holds the lock until its
//! process ends, so several daemons live beside each other on one host and one store, and in a slot that one holds every
//! other incarnation is dead. That is what adoption rests on.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

#[cfg(target_os = "linux")]
use super::lock_table::LockTable;

const LOCK: &str = "lock";
const INCARNATIONS: &str = "incarnations";
const HOST: &str = "host.json";
/// More daemons than this on one host and one store are a mistake.
const MOST_SLOTS: u32 = 1024;

/// A slot that this process holds.
#[derive(Debug)]
pub struct Slot {
    path: PathBuf,
    /// Closed at the end of the process and not inherited: no guardian holds it.
    _lock: File,
}

impl Slot {
    /// Takes the first free slot of this store, and makes it if none is.
    ///
    /// # Errors
    /// When the state directory cannot be used.
    pub fn take(state_dir: &Path, store_id: &str) -> io::Result<Slot> {
        let store = state_dir.join(store_id);
        for number in 0..MOST_SLOTS {
            let path = store.join(number.to_string());
            private_directory(&path)?;
            if let Some(slot) = Slot::lock(path)? {
                return Ok(slot);
            }
        }
        Err(io::Error::other(format!("all {MOST_SLOTS} slots are taken")))
    }

    /// Takes every other free slot of this store that has runs in it: what their daemons left is this one's to adopt.
    ///
    /// # Errors
    /// When the state directory cannot be read.
    pub fn take_orphans(&self) -> io::Result<Vec<Slot>> {
        let mut orphans = Vec::new();
        for path in self.siblings()? {
            if path != self.path
                && has_runs(&path)
                && let Some(slot) = Slot::lock(path)?
            {
                orphans.push(slot);
            }
        }
        Ok(orphans)
    }

    /// Where the slots of a store are, taken or not.
    ///
    /// # Errors
    /// When the state directory cannot be read.
    pub fn paths(state_dir: &Path, store_id: &str) -> io::Result<Vec<PathBuf>> {
        slots_below(&state_dir.join(store_id))
    }

    /// Where the slots of its store are, this one among them, taken or not.
    ///
    /// # Errors
    /// When the state directory cannot be read.
    pub fn siblings(&self) -> io::Result<Vec<PathBuf>> {
        self.path.parent().map_or_else(|| Ok(Vec::new()), slots_below)
    }

    /// The number of the worker that holds the slot at `path`, for people to read; nothing when none does. The lock is
    /// left alone: a worker that starts meanwhile finds it as it is.
    ///
    /// # Errors
    /// When the lock cannot be looked at.
    #[cfg(target_os = "linux")]
    pub fn worker_pid(path: &Path, locks: &LockTable) -> io::Result<Option<u32>> {
        locks.holder(&path.join(LOCK))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes down that `owner` works in this slot.
    ///
    /// # Errors
    /// When it cannot be written durably.
    pub fn enlist(&self, owner: &str) -> io::Result<()> {
        let path = self.path.join(INCARNATIONS);
        let mut list = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        list.write_all(format!("{owner}\n").as_bytes())?;
        list.sync_all()
    }

    /// Every owner that has worked in this slot.
    ///
    /// # Errors
    /// When the list cannot be read.
    pub fn owners(&self) -> io::Result<HashSet<String>> {
        match File::open(self.path.join(INCARNATIONS)) {
            Ok(list) => BufReader::new(list).lines().collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(HashSet::new()),
            Err(error) => Err(error),
        }
    }

    fn lock(path: PathBuf) -> io::Result<Option<Slot>> {
        let mut options = OpenOptions::new();
        let lock =
            options.write(true).create(true).truncate(false).mode(0o600).open(path.join(LOCK))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Slot { path, _lock: lock })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn slots_below(store: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(store) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.map(|entry| Ok(entry?.path())).collect(),
    }
}

fn has_runs(slot: &Path) -> bool {
    fs::read_dir(slot.join("runs")).is_ok_and(|mut runs| runs.next().is_some())
}

#[derive(Serialize, Deserialize)]
struct Host {
    host_id: String,
    machine_id: String,
}

/// The name of this host in owners of leases: made once and kept in the state directory. A copied image runs on another
/// machine and gets a name of its own; a new host name changes nothing.
///
/// # Errors
/// When the state directory cannot be used.
pub fn host_id(state_dir: &Path, fresh: impl FnOnce() -> String) -> io::Result<String> {
    private_directory(state_dir)?;
    let machine_id = fs::read_to_string("/etc/machine-id").unwrap_or_default().trim().to_owned();
    let path = state_dir.join(HOST);
    let kept = fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Host>(&text).ok());
    if let Some(host) = kept.filter(|host| host.machine_id == machine_id) {
        return Ok(host.host_id);
    }
    let host = Host { host_id: fresh(), machine_id };
    let written = path.with_extension(format!("{}.new", std::process::id()));
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&written)?;
    file.write_all(&serde_json::to_vec(&host)?)?;
    file.sync_all()?;
    fs::rename(&written, &path)?;
    File::open(state_dir)?.sync_all()?;
    Ok(host.host_id)
}

fn private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use tempfile::TempDir;

    use super::*;

    /// A process that another test is just starting may have a copy of a lock until it executes its program.
    fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(seen) = look() {
                return seen;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "too late: {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn each_daemon_has_a_slot_of_its_own_and_stores_are_apart() {
        let state = TempDir::new().unwrap();
        let first = Slot::take(state.path(), "store").unwrap();
        let second = Slot::take(state.path(), "store").unwrap();
        let other = Slot::take(state.path(), "other").unwrap();
        assert_eq!(first.path(), state.path().join("store/0"));
        assert_eq!(second.path(), state.path().join("store/1"));
        assert_eq!(other.path(), state.path().join("other/0"));
        drop(first);
        let freed = || Slot::take(state.path(), "store").unwrap().path().ends_with("store/0");
        until("the slot is free", || freed().then_some(()));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_look_at_a_slot_tells_its_daemon_and_takes_nothing() {
        let state = TempDir::new().unwrap();
        let slot = Slot::take(state.path(), "store").unwrap();
        let free = state.path().join("store/1");
        fs::create_dir(&free).unwrap();
        let locks = LockTable::read().unwrap();
        assert_eq!(Slot::worker_pid(slot.path(), &locks).unwrap(), Some(std::process::id()));
        assert_eq!(Slot::worker_pid(&free, &locks).unwrap(), None);
        assert!(!free.join(LOCK).exists(), "it made a lock");
        assert_eq!(Slot::take(state.path(), "store").unwrap().path(), free);
    }

    #[test]
    fn only_free_slots_with_runs_are_orphans() {
        let state = TempDir::new().unwrap();
        let slots: Vec<_> = (0..4).map(|_| Slot::take(state.path(), "store").unwrap()).collect();
        for slot in &slots[..3] {
            fs::create_dir_all(slot.path().join("runs/r.1")).unwrap();
        }
        let [mine, living, dead, empty] = <[Slot; 4]>::try_from(slots).unwrap();
        let left = dead.path().to_owned();
        drop((dead, empty));
        let orphans = until("there are orphans", || {
            Some(mine.take_orphans().unwrap()).filter(|orphans| !orphans.is_empty())
        });
        assert_eq!(orphans.iter().map(Slot::path).collect::<Vec<_>>(), [&*left]);
        drop(living);
    }

    #[test]
    fn owners_are_kept() {
        let state = TempDir::new().unwrap();
        let slot = Slot::take(state.path(), "store").unwrap();
        assert!(slot.owners().unwrap().is_empty());
        slot.enlist("h:1").unwrap();
        slot.enlist("h:2").unwrap();
        assert_eq!(slot.owners().unwrap(), HashSet::from(["h:1".into(), "h:2".into()]));
    }

    #[test]
    fn a_host_keeps_its_name_and_a_copied_image_gets_another() {
        let state = TempDir::new().unwrap();
        let name = |fresh: &str| host_id(state.path(), || fresh.to_owned()).unwrap();
        assert_eq!(name("aaaaaaaa"), "aaaaaaaa");
        assert_eq!(name("bbbbbbbb"), "aaaaaaaa");
        let elsewhere = Host { host_id: "cccccccc".into(), machine_id: "another".into() };
        fs::write(state.path().join(HOST), serde_json::to_vec(&elsewhere).unwrap()).unwrap();
        assert_eq!(name("dddddddd"), "dddddddd");
    }
}
