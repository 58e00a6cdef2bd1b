//! The file that is made for one run.

use std::fs::OpenOptions;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file that exists as long as this value.
pub(super) struct OwnedFile(PathBuf);

impl OwnedFile {
    /// Writes a new `leasehold-*.yaml`, mode 0600, in the directory for temporary files. Its path
    /// is absolute: the task may run in another directory.
    pub(super) fn create(contents: &[u8]) -> io::Result<Self> {
        let directory = std::path::absolute(std::env::temp_dir())?;
        loop {
            // Not for secrecy, but so that nobody can guess a name and sit on it.
            let random = RandomState::new().build_hasher().finish();
            let path = directory.join(format!("leasehold-{random:016x}.yaml"));
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(mut file) => {
                    let owned = Self(path);
                    file.write_all(contents)?;
                    return Ok(owned);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for OwnedFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = ?self.0, %error, "a temporary file could not be removed");
        }
    }
}
