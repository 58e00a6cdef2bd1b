//! What a task reads from its standard input.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::process::Stdio;

/// These bytes and then the end of the file, or nothing at all. They lie in a file, so a task that never reads them
/// holds nobody up.
pub(super) fn stdin(bytes: Option<&[u8]>) -> io::Result<Stdio> {
    bytes.map_or_else(|| Ok(Stdio::null()), |bytes| input(bytes).map(Stdio::from))
}

/// A file without a name that has these bytes, at its beginning.
pub(super) fn input(bytes: &[u8]) -> io::Result<File> {
    let mut file = nameless()?;
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

#[cfg(target_os = "linux")]
fn nameless() -> io::Result<File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    Ok(rustix::fs::memfd_create("leasehold-stdin", flags)?.into())
}

#[cfg(not(target_os = "linux"))]
fn nameless() -> io::Result<File> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = format!(
        "leasehold-stdin-{}-{}",
        std::process::id(),
        NUMBER.fetch_add(1, Ordering::Relaxed)
    );
    let path = std::env::temp_dir().join(name);
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}
