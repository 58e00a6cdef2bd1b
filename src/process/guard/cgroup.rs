//! A cgroup of the task's own, where this system lets us make one: whatever is started in it can be killed at once, and
//! nothing can start others faster than they are killed.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, fstatfs, mkdirat, open, openat, symlinkat, unlinkat};
use rustix::io::{Errno, write};

use super::layout::CGROUP;

/// What `statfs` says of the one hierarchy of cgroup v2.
const CGROUP2: i64 = 0x6367_7270;

/// An empty cgroup, or that of the task. It is removed when the value is dropped, if nothing is in it.
pub(super) struct Cgroup {
    parent: OwnedFd,
    name: CString,
    procs: OwnedFd,
    /// Not before Linux 5.14.
    kill: Option<OwnedFd>,
}

impl Cgroup {
    /// Makes the cgroup at this path, and names it in the directory of the run. Nothing when there is none to be had: the
    /// processes of the task are found without it, too.
    pub(super) fn create(path: &CStr, directory: BorrowedFd<'_>) -> Option<Self> {
        let slash = path.to_bytes().iter().rposition(|byte| *byte == b'/')?;
        let (parent, name) = path.to_bytes().split_at(slash);
        let parent = CString::new(parent).ok()?;
        let name = CString::new(&name[1..]).ok()?;
        Self::make(&parent, name, path, directory).ok()
    }

    fn make(
        parent: &CStr,
        name: CString,
        path: &CStr,
        directory: BorrowedFd<'_>,
    ) -> Result<Self, Errno> {
        let search = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = open(parent, search, Mode::empty())?;
        if !is_cgroup(parent.as_fd()) {
            return Err(Errno::NOTSUP);
        }
        mkdirat(&parent, &name, Mode::from_raw_mode(0o755))?;
        let opened = (|| {
            let leaf = openat(&parent, &name, search | OFlags::NOFOLLOW, Mode::empty())?;
            let flags = OFlags::WRONLY | OFlags::CLOEXEC;
            let procs = openat(&leaf, c"cgroup.procs", flags, Mode::empty())?;
            let kill = openat(&leaf, c"cgroup.kill", flags, Mode::empty()).ok();
            symlinkat(path, directory, CGROUP)?;
            Ok((procs, kill))
        })();
        match opened {
            Ok((procs, kill)) => Ok(Self { parent, name, procs, kill }),
            Err(errno) => {
                let _ = unlinkat(&parent, &name, AtFlags::REMOVEDIR);
                Err(errno)
            }
        }
    }

    /// Has the process that calls this belong to it, and whatever it starts from then on.
    pub(super) fn enter(&self) {
        let _ = write(&self.procs, b"0");
    }

    /// Kills everything in it.
    pub(super) fn kill(&self) {
        if let Some(kill) = &self.kill {
            let _ = write(kill, b"1");
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR);
    }
}

/// Whether a directory is one of cgroup v2.
pub(in crate::process) fn is_cgroup(directory: BorrowedFd<'_>) -> bool {
    fstatfs(directory).is_ok_and(|found| i128::from(found.f_type) == i128::from(CGROUP2))
}
