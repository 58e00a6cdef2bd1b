//! Standard output, on which only the answer stands.

use std::io::{self, ErrorKind, Write};

use super::failure::Failure;

/// Writes the whole answer. A reader that has gone away, as `head` does, has seen enough: that is no failure.
pub(super) fn print(answer: &str) -> Result<(), Failure> {
    write(answer).map_err(|error| Failure::Refused(format!("cannot write the answer: {error}")))
}

/// The same, for a caller that has more to say about a failure.
pub(super) fn write(answer: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(answer.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Writes bytes as they are. Says whether the reader has gone away.
pub(super) fn copy(bytes: &[u8]) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(false),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(true),
        Err(error) => Err(Failure::Refused(format!("cannot write the output: {error}"))),
    }
}
