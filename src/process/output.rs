//! Both output streams of a task, read without end so that it never blocks on a full pipe.

use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe::Receiver;

use super::Tail;

/// How much one read takes. It lies on the stack, so a task that says nothing costs no memory.
const CHUNK: usize = 16 * 1024;

pub(super) struct Output {
    stdout: Stream,
    stderr: Stream,
}

struct Stream {
    pipe: Option<Receiver>,
    tail: Tail,
    whole: Whole,
}

/// All of a stream, as long as it is not longer than this.
struct Whole {
    bytes: Option<Vec<u8>>,
    most: usize,
}

impl Whole {
    fn new(most: usize) -> Self {
        Self { bytes: (most > 0).then(Vec::new), most }
    }

    fn push(&mut self, chunk: &[u8]) {
        self.bytes = self.bytes.take().filter(|bytes| bytes.len() + chunk.len() <= self.most);
        if let Some(bytes) = &mut self.bytes {
            bytes.extend_from_slice(chunk);
        }
    }
}

/// The ends that the task writes to.
pub(super) struct Writers {
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

impl Output {
    /// Makes both pipes and has the runtime watch our ends. All descriptors are close-on-exec. Of standard output so many
    /// bytes are kept whole.
    pub(super) fn open(keep_stdout: usize) -> io::Result<(Self, Writers)> {
        let (out_read, out_write) = io::pipe()?;
        let (err_read, err_write) = io::pipe()?;
        let output = Self {
            stdout: Stream::new(out_read.into(), keep_stdout)?,
            stderr: Stream::new(err_read.into(), 0)?,
        };
        Ok((output, Writers { stdout: out_write.into(), stderr: err_write.into() }))
    }

    /// Reads until every writer is gone. Dropping the future loses nothing.
    pub(super) async fn drain(&mut self) {
        tokio::join!(self.stdout.drain(), self.stderr.drain());
    }

    pub(super) fn is_ended(&self) -> bool {
        self.stdout.pipe.is_none() && self.stderr.pipe.is_none()
    }

    /// Closes our ends and hands over what was kept: standard output, standard error, and the whole of the former if it
    /// was short enough.
    pub(super) fn take(&mut self) -> (Tail, Tail, Option<Vec<u8>>) {
        let (stdout, stderr) = (self.stdout.take(), self.stderr.take());
        (stdout, stderr, self.stdout.whole.bytes.take())
    }
}

impl Stream {
    fn new(read: OwnedFd, keep: usize) -> io::Result<Self> {
        let pipe = Some(Receiver::from_owned_fd(read)?);
        Ok(Self { pipe, tail: Tail::default(), whole: Whole::new(keep) })
    }

    async fn drain(&mut self) {
        while self.pipe.is_some() {
            poll_fn(|cx| self.poll_chunk(cx)).await;
        }
    }

    // By `poll_read` and not by `readable` and `try_read`: only the former spends the task's
    // budget, without which a flood would keep everything else on this thread waiting.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(pipe) = &mut self.pipe else { return Poll::Ready(()) };
        let mut chunk = [0; CHUNK];
        let mut chunk = ReadBuf::new(&mut chunk);
        match ready!(Pin::new(pipe).poll_read(cx, &mut chunk)) {
            Ok(()) if !chunk.filled().is_empty() => {
                self.tail.push(chunk.filled());
                self.whole.push(chunk.filled());
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(()) | Err(_) => self.pipe = None,
        }
        Poll::Ready(())
    }

    fn take(&mut self) -> Tail {
        self.pipe = None;
        std::mem::take(&mut self.tail)
    }
}
