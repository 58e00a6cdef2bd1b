//! Who holds a lock, as `/proc` tells it.
//!
//! `/proc/locks` names the process that took the lock. That one may have given it to another and closed its own
//! descriptor, or be dead: the lock of a task is taken by a worker and held by a guardian. So whoever is named is
//! asked first, and then all others: a process holds the lock if one of its descriptors shows it in `fdinfo`.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::fd::AsFd;

use rustix::fs::fstat;

use crate::process::lock_table::LockTable;

/// A process that holds a lock; there may be others beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its number. For people to read: it may be somebody else's by now.
    pub pid: i32,
    /// The name of its program, the first 15 bytes.
    pub name: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.name)
    }
}

/// Finds who holds the lock of `file`, which is called `name`: `known`, if that still does.
pub(super) fn find(file: impl AsFd, name: &str, known: Option<&Holder>) -> Option<Holder> {
    let stat = fstat(file.as_fd()).ok()?;
    let listed = LockTable::read().ok().and_then(|table| table.taker(file));
    let listed = listed.and_then(|pid| i32::try_from(pid).ok());
    let is_holder = |pid: &i32| match holds(*pid, name, stat.st_ino) {
        Some(holds) => holds,
        // Into a process of another user nobody can look; then it is most likely still the one that took it.
        None => listed == Some(*pid),
    };
    let first = known.map(|holder| holder.pid).into_iter().chain(listed);
    // One that is dead has no name.
    first.chain(all()).filter(is_holder).find_map(of)
}

fn all() -> impl Iterator<Item = i32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether a process holds the lock; nothing when nobody can look. Its descriptors are told by the names of their
/// files, since to ask a file itself may take for ever where a file system of another machine hangs.
fn holds(pid: i32, name: &str, inode: u64) -> Option<bool> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    let mut of_the_name = descriptors.filter(|entry| {
        fs::read_link(entry.path()).is_ok_and(|link| link.file_name() == Some(OsStr::new(name)))
    });
    Some(of_the_name.any(|entry| {
        let path = format!("/proc/{pid}/fdinfo/{}", entry.file_name().to_string_lossy());
        fs::read_to_string(path).is_ok_and(|info| shows_lock(&info, inode))
    }))
}

fn shows_lock(info: &str, inode: u64) -> bool {
    let file = format!(":{inode}");
    info.lines().filter_map(|line| line.strip_prefix("lock:")).any(|lock| {
        let mut fields = lock.split_ascii_whitespace();
        fields.any(|field| field == "FLOCK") && fields.any(|field| field.ends_with(&file))
    })
}

fn of(pid: i32) -> Option<Holder> {
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(Holder { pid, name: String::from_utf8_lossy(&name).trim_end().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_shows_its_lock() {
        let info = "pos:\t0\nflags:\t0100001\nmnt_id:\t27\nino:\t77\n";
        let lock = "lock:\t1: FLOCK  ADVISORY  WRITE 27526 fe:00:77 0 EOF\n";
        assert!(!shows_lock(info, 77), "it waits");
        assert!(shows_lock(&format!("{info}{lock}"), 77));
        assert!(!shows_lock(&format!("{info}{lock}"), 7));
        let other = lock.replace("FLOCK", "POSIX");
        assert!(!shows_lock(&format!("{info}{other}"), 77));
    }
}
