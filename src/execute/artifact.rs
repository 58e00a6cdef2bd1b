//! What a task has left behind, looked at and read without waiting for anybody.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

use crate::domain::contract::SeenFile;

/// What stands at a path; a symbolic link is followed.
pub fn look(path: &Path) -> SeenFile {
    match path.metadata() {
        Ok(metadata) if metadata.is_file() => {
            // Nobody can set it, unlike the time of the last write: what is unpacked or copied with its times counts.
            let changed_at = metadata.ctime() as f64 + metadata.ctime_nsec() as f64 / 1e9;
            SeenFile::Regular { bytes: metadata.len(), changed_at }
        }
        Ok(metadata) if metadata.is_dir() => SeenFile::Other("a directory"),
        Ok(_) => SeenFile::Other("a pipe, a socket or a device"),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            SeenFile::Missing
        }
        Err(error) => SeenFile::Unreadable(error.to_string()),
    }
}

/// The bytes of a regular file, and one more than `most` of a longer one.
///
/// # Errors
/// It is none, or cannot be read.
pub fn read(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    // A pipe that took the file's place since it was looked at must not keep anybody waiting, and a terminal must not
    // become this process's own.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_regular_file_is_named_and_nothing_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "abc").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        std::os::unix::fs::symlink("nowhere", at("dangling")).unwrap();
        std::os::unix::fs::symlink("loop", at("loop")).unwrap();
        let fifo = at("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        for name in ["file", "link"] {
            assert!(matches!(look(&at(name)), SeenFile::Regular { bytes: 3, .. }), "{name}");
            assert_eq!(read(&at(name), 10).unwrap(), b"abc");
        }
        assert_eq!(read(&at("file"), 1).unwrap(), b"ab", "one more than asked for");
        for name in ["dangling", "missing", "file/below"] {
            assert_eq!(look(&at(name)), SeenFile::Missing, "{name}");
        }
        assert_eq!(look(dir.path()), SeenFile::Other("a directory"));
        assert!(matches!(look(&fifo), SeenFile::Other(_)));
        assert!(matches!(look(&at("loop")), SeenFile::Unreadable(_)));
        assert!(matches!(look(Path::new("/dev/null")), SeenFile::Other(_)));
        for path in [dir.path().to_owned(), fifo, at("missing"), "/dev/zero".into()] {
            assert!(read(&path, 10).is_err(), "{}", path.display());
        }
    }
}
