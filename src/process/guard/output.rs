//! The outputs of the task: read without end, kept in bounded files and in bounded memory.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use rustix::io::{Errno, pread, pwrite, read};

use super::layout::{Layout, LogStream, cut_mark, segment_name};
use crate::process::TAIL_BYTES;

/// How many reads of one pipe may follow each other before anything else is looked at.
const READS: usize = 8;

/// One output.
pub(super) struct Output {
    /// Our end, until it is at its end.
    pub(super) pipe: Option<OwnedFd>,
    pub(super) log: Log,
    pub(super) tail: LastBytes,
}

impl Output {
    pub(super) fn new(pipe: OwnedFd, log: Log) -> Self {
        Self { pipe: Some(pipe), log, tail: LastBytes::new() }
    }

    /// Takes what is there. The pipe is closed when nobody can write to it any more.
    pub(super) fn drain(&mut self, directory: BorrowedFd<'_>, buffer: &mut [u8]) -> Drained {
        for _ in 0..READS {
            let Some(pipe) = &self.pipe else { return Drained::Ended };
            match read(pipe, &mut *buffer) {
                Ok(0) => self.pipe = None,
                Ok(length) => {
                    self.tail.push(&buffer[..length]);
                    self.log.append(directory, &buffer[..length]);
                }
                Err(Errno::AGAIN) => return Drained::Empty,
                Err(Errno::INTR) => {}
                Err(_) => self.pipe = None,
            }
        }
        Drained::More
    }
}

/// What a look into a pipe has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drained {
    /// There may be more.
    More,
    /// There is nothing now.
    Empty,
    /// There will never be anything again.
    Ended,
}

/// The last [`TAIL_BYTES`] bytes.
pub(super) struct LastBytes {
    ring: [u8; TAIL_BYTES],
    next: usize,
    total: u64,
}

impl LastBytes {
    fn new() -> Self {
        Self { ring: [0; TAIL_BYTES], next: 0, total: 0 }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.total = self.total.saturating_add(bytes.len() as u64);
        let bytes = &bytes[bytes.len().saturating_sub(TAIL_BYTES)..];
        let first = bytes.len().min(TAIL_BYTES - self.next);
        self.ring[self.next..self.next + first].copy_from_slice(&bytes[..first]);
        self.ring[..bytes.len() - first].copy_from_slice(&bytes[first..]);
        self.next = (self.next + bytes.len()) % TAIL_BYTES;
    }

    /// The bytes, oldest first, in two pieces.
    pub(super) fn pieces(&self) -> (&[u8], &[u8]) {
        if self.total < TAIL_BYTES as u64 {
            (&self.ring[..self.next], &[])
        } else {
            (&self.ring[self.next..], &self.ring[..self.next])
        }
    }
}

/// The files of one output; see [`layout`](super::layout).
pub(super) struct Log {
    stream: LogStream,
    layout: Layout,
    head: OwnedFd,
    /// The last two segments, the older one first.
    segments: [Option<Segment>; 2],
    /// How many bytes the task has written.
    pub(super) total: u64,
    /// How many of them could not be written to their file.
    pub(super) lost: u64,
    /// How many of them lie between the head and what was kept of the end.
    pub(super) cut: u64,
    /// Whether one file has everything that was kept.
    pub(super) whole: bool,
}

struct Segment {
    number: u64,
    file: OwnedFd,
}

impl Log {
    pub(super) fn create(
        directory: BorrowedFd<'_>,
        stream: LogStream,
        cap: u64,
    ) -> Result<Self, Errno> {
        Ok(Self {
            stream,
            layout: Layout::of(cap),
            head: create(directory, stream.file().as_bytes())?,
            segments: [None, None],
            total: 0,
            lost: 0,
            cut: 0,
            whole: true,
        })
    }

    /// How many bytes the head has.
    pub(super) fn head_bytes(&self) -> u64 {
        self.total.min(self.layout.head)
    }

    fn append(&mut self, directory: BorrowedFd<'_>, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (file, at, room) = if self.total < self.layout.head {
                (Some(self.head.as_fd()), self.total, self.layout.head - self.total)
            } else {
                let number = self.layout.segment_of(self.total);
                self.roll(directory, number);
                let at = self.total - self.layout.start_of(number);
                let [_, last] = &self.segments;
                let file = last.as_ref().filter(|segment| segment.number == number);
                (file.map(|segment| segment.file.as_fd()), at, self.layout.segment - at)
            };
            let length = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
            let (now, later) = bytes.split_at(length);
            // Every byte has its place, so one that could not be written leaves a gap of NULs and
            // moves nothing.
            let written = file.map_or(0, |file| write_all(file, now, at));
            self.lost += (length - written) as u64;
            self.total += length as u64;
            bytes = later;
        }
    }

    /// Sees to it that the last segment is this one. If it cannot be made, its bytes are lost, and
    /// it is tried again with the next ones.
    fn roll(&mut self, directory: BorrowedFd<'_>, number: u64) {
        let [_, last] = &self.segments;
        if last.as_ref().is_some_and(|segment| segment.number == number) {
            return;
        }
        let Ok(file) = create(directory, segment_name(self.stream, number).bytes()) else { return };
        let older = self.segments[1].replace(Segment { number, file });
        if let Some(gone) = std::mem::replace(&mut self.segments[0], older) {
            self.remove(directory, gone.number);
        }
    }

    /// Brings everything that was kept into one file. The segments stay until
    /// [`remove_segments`](Self::remove_segments), for those who read.
    pub(super) fn join(&mut self, buffer: &mut [u8]) {
        let Some(first) = self.segments.iter().flatten().next() else { return };
        self.cut = self.layout.start_of(first.number) - self.layout.head;
        let mut end = self.layout.head;
        if self.cut > 0 {
            let mark = cut_mark(self.cut);
            self.whole &= write_all(self.head.as_fd(), mark.bytes(), end) == mark.bytes().len();
            end += mark.bytes().len() as u64;
        }
        for segment in self.segments.iter().flatten() {
            let start = self.layout.start_of(segment.number);
            let length = (self.total - start).min(self.layout.segment);
            let mut at = 0;
            while at < length {
                let want = usize::try_from(length - at).unwrap_or(usize::MAX).min(buffer.len());
                let got = match pread(&segment.file, &mut buffer[..want], at) {
                    Ok(got) if got > 0 => got,
                    // The end of it was lost.
                    _ => break,
                };
                self.whole &= write_all(self.head.as_fd(), &buffer[..got], end + at) == got;
                at += got as u64;
            }
            end += length;
        }
    }

    /// Once the record of the end says that the head has everything.
    pub(super) fn remove_segments(&mut self, directory: BorrowedFd<'_>) {
        if !self.whole {
            return;
        }
        for slot in 0..self.segments.len() {
            if let Some(segment) = self.segments[slot].take() {
                self.remove(directory, segment.number);
            }
        }
    }

    fn remove(&self, directory: BorrowedFd<'_>, number: u64) {
        let name = segment_name(self.stream, number);
        // What cannot be removed now goes with the directory.
        let _ = unlinkat(directory, name.bytes(), AtFlags::empty());
    }
}

fn create(directory: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    openat(directory, name, flags, Mode::RUSR | Mode::WUSR)
}

/// How many of the bytes were written.
fn write_all(file: BorrowedFd<'_>, bytes: &[u8], at: u64) -> usize {
    let mut written = 0;
    while written < bytes.len() {
        match pwrite(file, &bytes[written..], at + written as u64) {
            Ok(0) => break,
            Ok(length) => written += length,
            Err(Errno::INTR) => {}
            Err(_) => break,
        }
    }
    written
}
