//! Where cgroups may be made for tasks.

use std::fs::read_to_string;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, Mode, OFlags, access, getxattr, open};

use super::guard::cgroup::is_cgroup;

/// The attributes by which a service manager says that it leaves what is below a cgroup to whoever is in it.
const DELEGATED: [&str; 2] = ["user.delegate", "trusted.delegate"];

/// The cgroup of this process, if others may be made below it. Nothing where there is no cgroup v2, where it cannot be
/// written, or where a service manager has not delegated it.
pub fn delegated() -> Option<PathBuf> {
    let own = own_path(
        &read_to_string("/proc/self/mountinfo").ok()?,
        &read_to_string("/proc/self/cgroup").ok()?,
    )?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = open(&own, flags, Mode::empty()).ok()?;
    let managed = Path::new("/run/systemd/system").exists();
    let may = is_cgroup(directory.as_fd())
        && access(&own, Access::WRITE_OK | Access::EXEC_OK).is_ok()
        && access(own.join("cgroup.procs"), Access::WRITE_OK).is_ok()
        && (!managed || is_delegated(&own));
    may.then_some(own)
}

fn is_delegated(cgroup: &Path) -> bool {
    DELEGATED.iter().any(|name| {
        let mut value = [0; 8];
        getxattr(cgroup, *name, &mut value).is_ok_and(|length| value[..length] == *b"1")
    })
}

/// Where the cgroup of this process stands in the file system, from what the kernel says of mounts and of it.
fn own_path(mounts: &str, cgroups: &str) -> Option<PathBuf> {
    let own = cgroups.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        // number parent device root place options ... - type source options
        let (before, after) = line.split_once(" - ")?;
        if after.split(' ').next() != Some("cgroup2") {
            return None;
        }
        let mut fields = before.split(' ').skip(3);
        let (root, place) = (fields.next()?, fields.next()?);
        // A mount may show a part of the hierarchy only; a process outside of it has no path there.
        let below = own.strip_prefix(root.trim_end_matches('/'))?;
        let is_clean = (below.is_empty() || below.starts_with('/')) && !own.contains("/..");
        is_clean.then(|| Path::new(place).join(below.trim_start_matches('/')))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIFIED: &str = "28 1 0:25 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_path_is_found_in_either_layout() {
        let hybrid = "30 29 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      31 29 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        for (mounts, cgroups, path) in [
            (UNIFIED, "0::/a.slice/b.service\n", Some("/sys/fs/cgroup/a.slice/b.service")),
            (UNIFIED, "0::/\n", Some("/sys/fs/cgroup/")),
            (hybrid, "4:memory:/x\n0::/y\n", Some("/sys/fs/cgroup/unified/y")),
            (hybrid, "4:memory:/x\n", None),
            ("", "0::/y\n", None),
        ] {
            assert_eq!(own_path(mounts, cgroups).as_deref(), path.map(Path::new), "{cgroups}");
        }
    }

    #[test]
    fn what_is_not_visible_has_no_path() {
        let part = "28 1 0:25 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(own_path(part, "0::/docker/1/x\n"), Some("/sys/fs/cgroup/x".into()));
        assert_eq!(own_path(part, "0::/docker/12\n"), None);
        assert_eq!(own_path(part, "0::/other\n"), None);
        assert_eq!(own_path(UNIFIED, "0::/../outside\n"), None);
    }
}
