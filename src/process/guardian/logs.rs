//! Reads what a task has written, while it runs and afterwards.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::{RunDir, StreamRecord};
use crate::process::guard::layout::{Layout, LogStream, cut_mark, segment_name};

/// A place in the output of a task. It is a place in what the task wrote, not in a file: the files
/// may change under it.
#[derive(Clone, Debug)]
pub struct LogReader {
    dir: RunDir,
    stream: LogStream,
    layout: Layout,
    offset: u64,
}

/// What comes next in an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogPiece {
    /// So many bytes, which are in the buffer.
    Bytes(usize),
    /// So many bytes were cut.
    Cut(u64),
    /// Nothing more yet.
    Nothing,
    /// Nothing more, ever: the run has ended.
    End,
}

impl LogReader {
    pub(super) fn new(dir: RunDir, stream: LogStream) -> Self {
        let layout = Layout::of(dir.log_cap());
        Self { dir, stream, layout, offset: 0 }
    }

    /// The same place, after the directory of the run was moved.
    #[must_use]
    pub fn moved_to(self, dir: RunDir) -> Self {
        Self { dir, ..self }
    }

    /// How many bytes the task had written before this place.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads on.
    ///
    /// # Errors
    /// When the files cannot be read.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<LogPiece> {
        let read = if self.offset < self.layout.head {
            let room = self.layout.head - self.offset;
            self.read_at(self.stream.file().into(), self.offset, room, buffer)?
        } else {
            let number = self.layout.segment_of(self.offset);
            let at = self.offset - self.layout.start_of(number);
            self.read_at(self.segment(number), at, self.layout.segment - at, buffer)?
        };
        match read {
            Some(length) if length > 0 => Ok(self.advance(length)),
            found => self.look_further(found.is_some(), buffer),
        }
    }

    /// There is nothing here: not yet, not any more, or in one file with the rest.
    fn look_further(&mut self, exists: bool, buffer: &mut [u8]) -> io::Result<LogPiece> {
        let record = self.dir.exit_record()?.map(|record| match self.stream {
            LogStream::Stdout => record.stdout,
            LogStream::Stderr => record.stderr,
        });
        if let Some(record) = &record {
            if self.offset >= record.tail.total() {
                return Ok(LogPiece::End);
            }
            if record.whole {
                return self.read_joined(record, buffer);
            }
        }
        let here = self.layout.segment_of(self.offset);
        match self.oldest_segment_after(here)? {
            Some(later) if !exists && self.offset >= self.layout.head => {
                Ok(self.skip_to(self.layout.start_of(later)))
            }
            // Its end was lost, or all of it.
            Some(_) | None if record.is_some() => Ok(LogPiece::End),
            _ => Ok(LogPiece::Nothing),
        }
    }

    /// Reads the one file of a run that has ended: the head, a line that says what was cut, the rest.
    fn read_joined(&mut self, record: &StreamRecord, buffer: &mut [u8]) -> io::Result<LogPiece> {
        let resumes = record.head + record.cut;
        if self.offset < resumes && record.cut > 0 {
            return Ok(self.skip_to(resumes));
        }
        let mark = if record.cut > 0 { cut_mark(record.cut).bytes().len() as u64 } else { 0 };
        let at = self.offset - record.cut + mark;
        let file = self.stream.file().into();
        match self.read_at(file, at, u64::MAX, buffer)? {
            Some(length) if length > 0 => Ok(self.advance(length)),
            _ => Ok(LogPiece::End),
        }
    }

    fn read_at(
        &self,
        name: PathBuf,
        at: u64,
        room: u64,
        buffer: &mut [u8],
    ) -> io::Result<Option<usize>> {
        let file = match File::open(self.dir.path().join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let length = buffer.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        file.read_at(&mut buffer[..length], at).map(Some)
    }

    fn segment(&self, number: u64) -> PathBuf {
        String::from_utf8_lossy(segment_name(self.stream, number).bytes()).as_ref().into()
    }

    fn oldest_segment_after(&self, number: u64) -> io::Result<Option<u64>> {
        let prefix = format!("{}.", self.stream.file());
        let mut oldest = None;
        for entry in std::fs::read_dir(self.dir.path())? {
            let name = entry?.file_name();
            let found: Option<u64> =
                name.to_str().and_then(|name| name.strip_prefix(&prefix)?.parse().ok());
            oldest = match (oldest, found) {
                (Some(oldest), Some(found)) if found > number => Some(found.min(oldest)),
                (None, Some(found)) if found > number => Some(found),
                (oldest, _) => oldest,
            };
        }
        Ok(oldest)
    }

    fn advance(&mut self, length: usize) -> LogPiece {
        self.offset += length as u64;
        LogPiece::Bytes(length)
    }

    fn skip_to(&mut self, offset: u64) -> LogPiece {
        let cut = offset.saturating_sub(self.offset);
        self.offset = offset;
        LogPiece::Cut(cut)
    }
}
