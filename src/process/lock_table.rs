//! Who holds a lock, without trying it: whoever tries it has it for a moment, and a worker or guardian that starts in
//! that moment would find it taken.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

const EXCLUSIVE: &[&str] = &["WRITE"];
const ANY: &[&str] = &["WRITE", "READ"];

/// How often a list that comes in pieces is read.
const LOOKS: usize = 4;

/// The locks of this machine at one moment, as far as this process may see them: not those of other containers.
///
/// To read it takes the kernel some milliseconds on a busy machine: one is enough for many questions.
#[derive(Debug)]
pub struct LockTable {
    locks: String,
    mounts: String,
}

impl LockTable {
    /// Reads it.
    ///
    /// # Errors
    /// When the kernel does not show locks or mounts.
    pub fn read() -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let mut locks = String::new();
        for _ in 0..LOOKS {
            if read_locks(&mut locks)? {
                break;
            }
        }
        Ok(Self { locks, mounts })
    }

    /// The process that has locked the file by `flock`; nothing when none has, or there is no such file.
    pub(in crate::process) fn holder(&self, path: &Path) -> io::Result<Option<u32>> {
        let mut options = OpenOptions::new();
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        options.read(true).custom_flags(flags.bits().cast_signed());
        match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            file => Ok(holder_in(&self.locks, &Place::of(file?, &self.mounts)?, EXCLUSIVE)),
        }
    }

    /// The process that has taken a lock on the open file by `flock`, alone or beside others.
    pub(in crate::process) fn taker(&self, file: impl AsFd) -> Option<u32> {
        holder_in(&self.locks, &Place::of(file, &self.mounts).ok()?, ANY)
    }
}

/// Adds the kernel's list to `locks`, and says whether it came in one piece. Between two pieces it may move under the
/// reader, who then misses an entry.
fn read_locks(locks: &mut String) -> io::Result<bool> {
    let mut list = File::open("/proc/locks")?;
    let mut piece = vec![0; 1 << 16];
    let mut pieces = 0;
    loop {
        match list.read(&mut piece) {
            Ok(0) => return Ok(pieces <= 1),
            // A piece ends with a line.
            Ok(length) => locks.push_str(&String::from_utf8_lossy(&piece[..length])),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        pieces += 1;
    }
}

/// A file as the kernel's list of locks names it.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    major: u32,
    minor: u32,
    inode: u64,
}

impl Place {
    /// What `stat` says is not what the list says on file systems that lie on others: the list has the device of the
    /// mount and the number inside the kernel.
    fn of(file: impl AsFd, mounts: &str) -> io::Result<Self> {
        let file = file.as_fd();
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
        let unknown = || io::Error::other("the kernel does not say on which device the lock is");
        let mount = field(&info, "mnt_id:").ok_or_else(unknown)?;
        let (major, minor) = device_of(mounts, mount).ok_or_else(unknown)?;
        let inode = match field(&info, "ino:").and_then(|number| number.parse().ok()) {
            Some(inode) => inode,
            // Before Linux 5.14.
            None => rustix::fs::fstat(file)?.st_ino,
        };
        Ok(Self { major, minor, inode })
    }
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// The device of a mount: `<mount> <parent> <major>:<minor> ...`.
fn device_of(mounts: &str, mount: &str) -> Option<(u32, u32)> {
    let mut fields = mounts.lines().map(str::split_ascii_whitespace);
    let device = fields
        .find_map(|mut fields| (fields.next() == Some(mount)).then(|| fields.nth(1)).flatten())?;
    let (major, minor) = device.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// `<n>: FLOCK ADVISORY WRITE <pid> <major>:<minor>:<inode> 0 EOF`, the device in hex. Who waits has an arrow.
fn holder_in(locks: &str, place: &Place, kinds: &[&str]) -> Option<u32> {
    let name = format!("{:02x}:{:02x}:{}", place.major, place.minor, place.inode);
    locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        match fields[..] {
            [_, "FLOCK", _, kind, pid, file, ..] if file == name && kinds.contains(&kind) => {
                pid.parse().ok()
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FlockOperation, flock};

    use super::*;

    const LOCKS: &str = "\
1: POSIX  ADVISORY  WRITE 700 fe:00:41 0 EOF
2: FLOCK  ADVISORY  WRITE 701 fe:01:42 0 EOF
3: FLOCK  ADVISORY  WRITE 702 fe:00:42 0 EOF
3: -> FLOCK  ADVISORY  WRITE 703 fe:00:42 0 EOF
4: FLOCK  ADVISORY  READ 704 fe:00:43 0 EOF
5: FLOCK  ADVISORY  WRITE -1 fe:00:44 0 EOF
nonsense
";

    #[test]
    fn only_who_has_the_lock_of_this_very_file_holds_it() {
        let at = |inode| Place { major: 254, minor: 0, inode };
        assert_eq!(holder_in(LOCKS, &at(42), EXCLUSIVE), Some(702));
        assert_eq!(holder_in(LOCKS, &at(41), ANY), None);
        assert_eq!(holder_in(LOCKS, &at(43), EXCLUSIVE), None);
        assert_eq!(holder_in(LOCKS, &at(43), ANY), Some(704));
        assert_eq!(holder_in(LOCKS, &at(4), ANY), None);
        assert_eq!(holder_in(LOCKS, &at(44), ANY), None, "of another container");
    }

    #[test]
    fn a_mount_s_device_is_decimal() {
        let mounts = "25 1 254:0 / / rw - ext4 /dev/vda rw\n31 25 0:26 / /run rw - tmpfs run rw\n";
        assert_eq!(device_of(mounts, "31"), Some((0, 26)));
        assert_eq!(device_of(mounts, "2"), None);
    }

    fn holder_now(path: &Path) -> Option<u32> {
        LockTable::read().unwrap().holder(path).unwrap()
    }

    #[test]
    fn a_holder_is_found_in_a_list_of_several_pieces() {
        let dir = tempfile::tempdir().unwrap();
        let locked = |name: String| {
            let lock = File::create(dir.path().join(name)).unwrap();
            flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
            lock
        };
        let _locks: Vec<_> = (0..200).map(|number| locked(number.to_string())).collect();
        let table = LockTable::read().unwrap();
        for number in 0..200 {
            let path = dir.path().join(number.to_string());
            assert_eq!(table.holder(&path).unwrap(), Some(std::process::id()), "{number}");
        }
    }

    #[test]
    fn the_kernel_s_own_words_are_understood_and_the_lock_stays_where_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        assert_eq!(holder_now(&path), None);
        let lock = File::create(&path).unwrap();
        for _ in 0..3 {
            assert_eq!(holder_now(&path), None);
            flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
            assert_eq!(holder_now(&path), Some(std::process::id()));
            flock(&lock, FlockOperation::Unlock).unwrap();
        }
    }
}
