//! The exit record of a run: written once, whole or not at all.

use std::fmt::{self, Write};
use std::os::fd::BorrowedFd;

use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, fsync, ftruncate, openat, renameat};
use rustix::io::{Errno, pwrite};

use super::layout::{RECORD, RECORD_BYTES, RECORD_DRAFT};
use super::output::Output;
use super::wire::{Cause, Outcome, Summary};

/// The file that becomes the record, with its space set aside: a disk that is full at the end of a
/// run does not take the result away.
pub(super) struct Draft {
    file: std::os::fd::OwnedFd,
}

impl Draft {
    pub(super) fn create(directory: BorrowedFd<'_>) -> Result<Self, Errno> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(directory, RECORD_DRAFT, flags, Mode::RUSR | Mode::WUSR)?;
        match fallocate(&file, FallocateFlags::empty(), 0, RECORD_BYTES as u64) {
            // Not every file system can do that.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Self { file }),
            Err(errno) => Err(errno),
        }
    }

    /// Writes the record, then gives it its name.
    pub(super) fn publish(
        &self,
        directory: BorrowedFd<'_>,
        record: &[u8],
        durability: Durability,
    ) -> Result<(), Errno> {
        let mut written = 0;
        while written < record.len() {
            match pwrite(&self.file, &record[written..], written as u64) {
                Ok(0) => return Err(Errno::IO),
                Ok(length) => written += length,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        ftruncate(&self.file, record.len() as u64)?;
        if durability == Durability::Power {
            fsync(&self.file)?;
        }
        renameat(directory, RECORD_DRAFT, directory, RECORD)?;
        if durability == Durability::Power { sync_names(directory) } else { Ok(()) }
    }

    /// Lets a record that has its name survive a loss of power.
    pub(super) fn sync(&self, directory: BorrowedFd<'_>) -> Result<(), Errno> {
        fsync(&self.file)?;
        sync_names(directory)
    }
}

/// What a record has to survive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// That processes are killed: the kernel has it.
    Kill,
    /// A loss of power.
    Power,
}

/// The name of the record, and of what leads to it below the slot: the worker syncs neither when it
/// makes the directory.
fn sync_names(directory: BorrowedFd<'_>) -> Result<(), Errno> {
    fsync(directory)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    for above in ["..", "../.."] {
        fsync(openat(directory, above, flags, Mode::empty())?)?;
    }
    Ok(())
}

/// What the record says.
pub(super) struct End<'a> {
    pub(super) summary: Summary,
    pub(super) unkillable: &'a [i32],
    pub(super) stdout: &'a Output,
    pub(super) stderr: &'a Output,
}

impl End<'_> {
    /// Writes the record as JSON into `buffer`.
    pub(super) fn write<'b>(&self, buffer: &'b mut [u8]) -> Result<&'b [u8], fmt::Error> {
        let mut out = Fixed { buffer, len: 0 };
        self.compose(&mut out)?;
        let len = out.len;
        Ok(&buffer[..len])
    }

    fn compose(&self, out: &mut Fixed<'_>) -> fmt::Result {
        let end = &self.summary;
        let by = Cause::from_number(end.ended_by).unwrap_or(Cause::Stop);
        write!(out, "{{\"version\":1,\"ended_by\":\"{}\"", by.word())?;
        match Outcome::from_number(end.outcome) {
            Some(Outcome::Exited) => write!(out, ",\"code\":{}", end.value)?,
            Some(Outcome::Signalled) => write!(out, ",\"signal\":{}", end.value)?,
            Some(Outcome::Dumped) => write!(out, ",\"signal\":{},\"core\":true", end.value)?,
            _ => {}
        }
        for (name, micros) in [
            ("user_seconds", end.user_micros),
            ("system_seconds", end.system_micros),
            ("started_at", end.started_micros),
            ("ended_at", end.ended_micros),
        ] {
            write!(out, ",\"{name}\":{}.{:06}", micros / 1_000_000, micros % 1_000_000)?;
        }
        write!(out, ",\"max_rss_kib\":{}", end.max_rss_kib)?;
        write!(out, ",\"leftovers_killed\":{},\"unkillable\":[", end.leftovers)?;
        for (index, pid) in self.unkillable.iter().enumerate() {
            write!(out, "{}{pid}", if index == 0 { "" } else { "," })?;
        }
        out.write_str("]")?;
        for (name, output) in [("stdout", self.stdout), ("stderr", self.stderr)] {
            let log = &output.log;
            write!(
                out,
                ",\"{name}\":{{\"bytes\":{},\"head\":{},\"cut\":{},\"lost\":{},\"whole\":{},\
                 \"tail\":\"",
                log.total,
                log.head_bytes(),
                log.cut,
                log.lost,
                log.whole
            )?;
            let (older, newer) = output.tail.pieces();
            for byte in older.iter().chain(newer) {
                match byte {
                    b'"' | b'\\' => write!(out, "\\{}", char::from(*byte))?,
                    b'\n' => out.write_str("\\n")?,
                    b' '..=b'~' => out.write_char(char::from(*byte))?,
                    // Not text but bytes: each character stands for the byte of its number.
                    _ => write!(out, "\\u{byte:04x}")?,
                }
            }
            out.write_str("\"}")?;
        }
        out.write_str("}\n")
    }
}

/// A text in memory that was set aside.
struct Fixed<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl Write for Fixed<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let place = self.buffer.get_mut(self.len..self.len + text.len()).ok_or(fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}
