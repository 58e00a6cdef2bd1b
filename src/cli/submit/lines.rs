//! The lines of a file, one at a time, whatever its bytes are.
//!
//! Lines end with LF or CRLF, and the last one may end with the file. A byte order mark at the beginning is no part of
//! the first. Blank lines are skipped and counted. Of a line that is too long nothing is held.

use std::io::{self, BufRead, ErrorKind};

use thiserror::Error;

/// The most bytes of a line.
pub(super) const MOST_BYTES: usize = 16 << 20;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// What may stand before and after a line: the mark, and the CR of its end.
const MORE: usize = BYTE_ORDER_MARK.len() + 1;

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A line that is not blank.
    Line(Line),
    /// Nothing more is there for now: the next step waits for it.
    Quiet,
    /// Nothing more comes.
    End,
}

/// A line that is not blank.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Counted from 1, blank ones too.
    pub number: u64,
    /// What stands in it, without its end.
    pub text: Result<String, Unreadable>,
}

/// Why a line is no text.
#[derive(Debug, PartialEq, Eq, Error)]
pub(super) enum Unreadable {
    #[error("it has more than {} MiB: make it shorter", MOST_BYTES >> 20)]
    TooLong,
    #[error("it is not valid UTF-8 at byte {0}")]
    NotUtf8(usize),
    #[error("it holds a NUL byte, at byte {0}: JSON writes that character as \\u0000")]
    Nul(usize),
}

pub(super) struct Lines<R, F> {
    reader: R,
    /// Whether the reader has something, so that it would not wait.
    is_ready: F,
    most: usize,
    /// The number of the line that is being read.
    number: u64,
    begun: Vec<u8>,
    is_too_long: bool,
    was_quiet: bool,
}

impl<R: BufRead, F: Fn(&R) -> bool> Lines<R, F> {
    pub(super) fn new(reader: R, is_ready: F) -> Lines<R, F> {
        Lines {
            reader,
            is_ready,
            most: MOST_BYTES,
            number: 1,
            begun: Vec::new(),
            is_too_long: false,
            was_quiet: false,
        }
    }

    /// The number of the line that is being read.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Reads on.
    ///
    /// # Errors
    /// Whatever the reader says; what was read of the line is kept.
    pub(super) fn next(&mut self) -> io::Result<Step> {
        loop {
            if !self.was_quiet && !(self.is_ready)(&self.reader) {
                self.was_quiet = true;
                return Ok(Step::Quiet);
            }
            self.was_quiet = false;
            let piece = match self.reader.fill_buf() {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                piece => piece?,
            };
            if piece.is_empty() {
                return Ok(self.end_of_line().map_or(Step::End, Step::Line));
            }
            let end = piece.iter().position(|byte| *byte == b'\n');
            let part = &piece[..end.unwrap_or(piece.len())];
            if self.is_too_long || self.begun.len() + part.len() > self.most + MORE {
                (self.is_too_long, self.begun) = (true, Vec::new());
            } else {
                let most = self.most + MORE;
                let room = self.begun.len() + part.len();
                if room > self.begun.capacity() {
                    // Twice as much each time would end far beyond what a line may have.
                    let room = room.max(most.min(2 * self.begun.capacity()));
                    self.begun.reserve_exact(room - self.begun.len());
                }
                self.begun.extend_from_slice(part);
            }
            let read = part.len() + usize::from(end.is_some());
            self.reader.consume(read);
            if end.is_some() {
                let line = self.end_of_line();
                self.number += 1;
                if let Some(line) = line {
                    return Ok(Step::Line(line));
                }
            }
        }
    }

    /// The line that has been read, unless it is blank.
    fn end_of_line(&mut self) -> Option<Line> {
        let is_too_long = std::mem::take(&mut self.is_too_long);
        let bytes = std::mem::take(&mut self.begun);
        let mut bytes = bytes.strip_suffix(b"\r").unwrap_or(&bytes);
        if self.number == 1 {
            bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
        }
        let is_blank = |bytes: &[u8]| bytes.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r'));
        let text = if is_too_long || bytes.len() > self.most {
            Err(Unreadable::TooLong)
        } else if is_blank(bytes) {
            return None;
        } else if let Some(place) = bytes.iter().position(|byte| *byte == 0) {
            Err(Unreadable::Nul(place + 1))
        } else {
            match str::from_utf8(bytes) {
                Ok(text) => Ok(text.to_owned()),
                Err(error) => Err(Unreadable::NotUtf8(error.valid_up_to() + 1)),
            }
        };
        Some(Line { number: self.number, text })
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use proptest::prelude::*;

    use super::*;

    /// All lines, read in pieces of `size`, of which the reader has every other one at once.
    fn read(bytes: &[u8], size: usize, most: usize) -> (Vec<Line>, usize) {
        let asked = std::cell::Cell::new(0);
        let is_ready = |_: &BufReader<&[u8]>| {
            asked.set(asked.get() + 1);
            asked.get() % 2 == 0
        };
        let mut lines = Lines::new(BufReader::with_capacity(size, bytes), is_ready);
        lines.most = most;
        let (mut read, mut quiet) = (Vec::new(), 0);
        loop {
            match lines.next().unwrap() {
                Step::Line(line) => read.push(line),
                Step::Quiet => quiet += 1,
                Step::End => return (read, quiet),
            }
        }
    }

    /// The same, of a whole file at once.
    fn expected(bytes: &[u8], most: usize) -> Vec<Line> {
        let cut = bytes.split(|byte| *byte == b'\n').zip(1..);
        let lines = cut.filter_map(|(line, number)| {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let mark = if number == 1 { BYTE_ORDER_MARK } else { b"" };
            let line = line.strip_prefix(mark).unwrap_or(line);
            let text = match std::str::from_utf8(line) {
                _ if line.len() > most => Err(Unreadable::TooLong),
                _ if line.contains(&0) => {
                    Err(Unreadable::Nul(1 + line.iter().position(|byte| *byte == 0).unwrap()))
                }
                Err(error) => Err(Unreadable::NotUtf8(error.valid_up_to() + 1)),
                Ok(text) if text.trim_matches([' ', '\t', '\r']).is_empty() => return None,
                Ok(text) => Ok(text.to_owned()),
            };
            Some(Line { number, text })
        });
        lines.collect()
    }

    #[test]
    fn lines_are_cut_at_their_ends_and_blank_ones_only_counted() {
        let file = b"\xef\xbb\xbfa\r\n\n \t\r\nb\n\xef\xbb\xbfc\nd\xff\ne\0\nlong line\nf";
        let (lines, _) = read(file, 3, 8);
        let texts: Vec<_> = lines.into_iter().map(|line| (line.number, line.text)).collect();
        let text = |text: &str| Ok(text.to_owned());
        assert_eq!(
            texts,
            [
                (1, text("a")),
                (4, text("b")),
                (5, text("\u{feff}c")),
                (6, Err(Unreadable::NotUtf8(2))),
                (7, Err(Unreadable::Nul(2))),
                (8, Err(Unreadable::TooLong)),
                (9, text("f")),
            ]
        );
        // What is around a line does not count, and blanks do.
        for (file, is_too_long) in [
            (&b"\xef\xbb\xbfabcd\r\n"[..], false),
            (b"\xef\xbb\xbfabcde\r\n", true),
            (b"abcd\r", false),
            (b"abcde", true),
            (b"    \n", false),
            (b"     \n", true),
            (b"\r\r\r\r\r \n", true),
        ] {
            let found = read(file, 3, 4).0.into_iter().any(|line| line.text.is_err());
            assert_eq!(found, is_too_long, "{file:?}");
        }
        let (lines, quiet) = read(b"", 3, 8);
        assert_eq!((lines.len(), quiet), (0, 1), "it says that it waits, and finds the end");
    }

    proptest! {
        #[test]
        fn whatever_the_bytes_and_however_they_come_the_lines_are_the_same(
            bytes in prop::collection::vec(
                prop_oneof![
                    3 => prop::sample::select(b"\n\r \t\0\xef\xbb\xbf{}\"".to_vec()),
                    1 => any::<u8>(),
                ],
                0..200,
            ),
            size in 1usize..20,
            most in 4usize..20,
        ) {
            prop_assert_eq!(read(&bytes, size, most).0, expected(&bytes, most));
        }
    }
}
