//! The file systems on which the store and the runs of this host are.

use std::io;
use std::path::Path;

use rustix::fs::{StatVfsMountFlags, statfs, statvfs};

use super::finding::Finding;

/// With less free space than this nothing can be promised, in bytes.
const TOO_LITTLE: u64 = 16 << 20;
/// With less than this a person should look.
const LITTLE: u64 = 512 << 20;

/// File systems whose files are on other machines, or may be, by the number that the kernel gives them.
const REMOTE: [(u64, &str); 15] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9P"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x7461_636f, "OCFS2"),
    (0x0116_1970, "GFS2"),
    (0x0bd0_0bd0, "Lustre"),
    (0x7375_7245, "Coda"),
    (0x564c, "NCP"),
    (0x4750_4653, "GPFS"),
    (0x786f_4256, "a shared folder of VirtualBox"),
];

/// A file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Disk {
    /// The number of its kind.
    kind: u64,
    /// Bytes that this user may still write.
    free: u64,
    read_only: bool,
}

/// The file system of `path`, or of what there is above it.
pub(super) fn look(path: &Path) -> io::Result<Disk> {
    let place = nearest(path);
    let system = statfs(place)?;
    let space = statvfs(place)?;
    Ok(Disk {
        // Of which only four bytes count, whatever the type is.
        kind: system.f_type as u64 & 0xffff_ffff,
        free: space.f_bavail.saturating_mul(space.f_frsize),
        read_only: space.f_flag.contains(StatVfsMountFlags::RDONLY),
    })
}

/// The path, or the first directory above it that is there.
pub(super) fn nearest(path: &Path) -> &Path {
    let above = path.ancestors().find(|place| place.exists() && !place.as_os_str().is_empty());
    above.unwrap_or(Path::new("."))
}

/// `needs` is what does not work over a network.
pub(super) fn judge(
    check: &'static str,
    place: &Path,
    needs: &str,
    disk: io::Result<Disk>,
) -> Finding {
    let place = place.display();
    let disk = match disk {
        Ok(disk) => disk,
        Err(error) => {
            let what = format!("the file system of {place} cannot be looked at ({error})");
            return Finding::problem(check, what, "check that it is mounted and yours");
        }
    };
    let free = disk.free >> 20;
    if let Some((_, name)) = REMOTE.iter().find(|(kind, _)| *kind == disk.kind) {
        let what = format!("{place} is on {name}, where {needs} cannot be relied on");
        return Finding::problem(check, what, "put it on a local file system");
    }
    if disk.read_only {
        let what = format!("{place} is on a file system that is mounted read-only");
        return Finding::problem(check, what, "mount it for writing, or choose another place");
    }
    let what = format!("{place} is on a local file system with {free} MiB free");
    match disk.free {
        0..TOO_LITTLE => Finding::problem(check, what, "free some disk space"),
        TOO_LITTLE..LITTLE => Finding::warning(check, what, "free some disk space soon"),
        LITTLE.. => Finding::ok(check, what),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    const EXT4: u64 = 0xef53;

    fn verdict(disk: Disk) -> State {
        judge("store-disk", Path::new("/x"), "locks", Ok(disk)).state
    }

    #[test]
    fn only_a_local_disk_with_room_is_good() {
        let good = Disk { kind: EXT4, free: 1 << 40, read_only: false };
        assert_eq!(verdict(good), State::Ok);
        for (kind, name) in REMOTE {
            assert_eq!(verdict(Disk { kind, ..good }), State::Problem, "{name}");
        }
        assert_eq!(verdict(Disk { read_only: true, ..good }), State::Problem);
        assert_eq!(verdict(Disk { free: TOO_LITTLE - 1, ..good }), State::Problem);
        assert_eq!(verdict(Disk { free: LITTLE - 1, ..good }), State::Warning);
        let unseen =
            judge("store-disk", Path::new("/x"), "locks", Err(io::ErrorKind::Other.into()));
        assert_eq!(unseen.state, State::Problem);
    }

    #[test]
    fn a_place_that_is_not_there_yet_is_on_the_disk_above_it() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(nearest(&dir.path().join("a/b")), dir.path());
        assert!(look(&dir.path().join("a/b")).unwrap().free > 0);
        assert_eq!(nearest(Path::new("no-such-file")), Path::new("."));
    }
}
