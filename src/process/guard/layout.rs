//! The files in the directory of a run, and which bytes of an output are where.
//!
//! The first half of what may be kept of an output, the *head*, goes to `out.log` (or `err.log`).
//! What follows goes to numbered *segments* beside it, each a quarter of the cap long; when a third
//! segment begins, the oldest is removed, so that between a quarter and a half of the cap is kept of
//! the end. All of them are only ever appended to: who reads while the task runs sees nothing move.
//! When the run ends, a line that says how much was cut and the segments are appended to the head,
//! and one file is left.

use std::fmt::Write;

/// Held by the guardian for as long as it lives. Gone when the run was given up.
pub(in crate::process) const LOCK: &str = "guard.lock";
/// Where a guardian listens.
pub(in crate::process) const SOCKET: &str = "guard.sock";
/// A symbolic link to the cgroup that was made for the task, if one was.
pub(in crate::process) const CGROUP: &str = "cgroup";
/// How the run ended.
pub(in crate::process) const RECORD: &str = "exit.json";
/// The record while it is written. Its space is set aside before the task is started.
pub(in crate::process) const RECORD_DRAFT: &str = "exit.json.tmp";
/// A file made for the task's own use.
pub(in crate::process) const TASK_FILE: &str = "leasehold-task.yaml";
/// How many bytes an exit record has at most.
pub(in crate::process) const RECORD_BYTES: usize = 32 * 1024;

/// The least cap; a smaller one would leave no room for the line that marks a cut.
pub(in crate::process) const LEAST_CAP: u64 = 4096;
/// What the line that marks a cut may take.
const MARK_ROOM: u64 = 128;

/// One of the outputs of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl LogStream {
    /// The file's name.
    pub(in crate::process) fn file(self) -> &'static str {
        match self {
            Self::Stdout => "out.log",
            Self::Stderr => "err.log",
        }
    }
}

/// Which bytes of an output are where, for a cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::process) struct Layout {
    /// How many bytes the head takes.
    pub head: u64,
    /// How many bytes a segment takes.
    pub segment: u64,
}

impl Layout {
    pub(in crate::process) fn of(cap: u64) -> Self {
        let cap = cap.max(LEAST_CAP);
        let segment = (cap - MARK_ROOM) / 4;
        Self { head: cap - MARK_ROOM - 2 * segment, segment }
    }

    /// The segment that holds the byte at `offset`, which is not in the head.
    pub(in crate::process) fn segment_of(&self, offset: u64) -> u64 {
        offset.saturating_sub(self.head) / self.segment
    }

    /// The offset of the first byte of a segment.
    pub(in crate::process) fn start_of(&self, segment: u64) -> u64 {
        self.head + segment * self.segment
    }
}

/// A short text that needs no memory of its own.
#[derive(Clone, Copy)]
pub(in crate::process) struct ShortText<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> ShortText<N> {
    pub(in crate::process) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl<const N: usize> Write for ShortText<N> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let place = self.bytes.get_mut(self.len..self.len + text.len()).ok_or(std::fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

/// The name of a segment's file.
pub(in crate::process) fn segment_name(stream: LogStream, segment: u64) -> ShortText<32> {
    let mut name = ShortText { bytes: [0; 32], len: 0 };
    // Neither can be too long: 7 bytes, a dot and 20 digits.
    let _ = write!(name, "{}.{segment}", stream.file());
    name
}

/// The line between the head and the rest, when there is something missing in between.
pub(in crate::process) fn cut_mark(bytes: u64) -> ShortText<{ MARK_ROOM as usize }> {
    let mut mark = ShortText { bytes: [0; MARK_ROOM as usize], len: 0 };
    let _ = write!(mark, "\n[leasehold: {bytes} bytes were cut here]\n");
    mark
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_fits_under_the_cap() {
        for cap in [0, 4096, 4097, 5000, 16 << 20, u64::MAX / 2] {
            let layout = Layout::of(cap);
            let most = layout.head + 2 * layout.segment + cut_mark(u64::MAX).bytes().len() as u64;
            assert!(most <= cap.max(LEAST_CAP), "{cap}: {layout:?}");
            assert_eq!(layout.segment_of(layout.head), 0);
            assert_eq!(layout.segment_of(layout.start_of(3) - 1), 2);
            assert_eq!(layout.segment_of(layout.start_of(3)), 3);
        }
        assert_eq!(segment_name(LogStream::Stderr, u64::MAX).bytes().len(), 28);
    }
}
