//! Finds the guardian of a run that another daemon has started.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout_at};

use super::handle::{Guardian, Known};
use super::{BootTime, ExitRecord, RunDir};
use crate::process::guard::layout::SOCKET;
use crate::process::guard::wire::{Message, VERSION};

/// How long a guardian may take to answer. It does nothing that takes long, but may be kept from
/// running.
const ANSWER: Duration = Duration::from_secs(2);
/// How soon to try again when so many wait to be let in that there is no room for one more.
const CROWDED: Duration = Duration::from_millis(5);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The run is over; this is how it ended.
    #[error("connecting to a guardian: the run has ended")]
    Ended(Box<ExitRecord>),
    /// Nobody answers, and there is no record of an end: the guardian is just starting, or hangs, or
    /// was killed. Only the lock of the directory tells.
    #[error("connecting to a guardian: nobody answers")]
    NoAnswer(#[source] io::Error),
    /// The guardian does not accept the token in the directory.
    #[error("connecting to a guardian: it refuses the token of the run")]
    Refused,
    /// The guardian speaks another version of the protocol: its fence decides.
    #[error(
        "connecting to a guardian: it is of version {0} of the protocol, which is not known here"
    )]
    Version(u64),
    /// The directory of the run cannot be read.
    #[error("connecting to a guardian: the directory of the run cannot be used")]
    Directory(#[source] io::Error),
}

/// What a guardian has told to somebody who only looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glimpse {
    /// The number of the guardian, for people to read.
    pub guardian_pid: u32,
    /// The number of the task's first process, for people to read.
    pub task_pid: u32,
    /// The fence.
    pub fence: BootTime,
    /// Whether the end of the task has begun.
    pub is_ending: bool,
}

impl Guardian {
    /// Connects to the guardian of a run; from then on it obeys this connection only.
    ///
    /// Must be called inside a tokio runtime with IO and time enabled.
    ///
    /// # Errors
    /// [`ConnectError::Ended`] is an answer too: how the run ended.
    pub async fn connect(dir: &RunDir) -> Result<Guardian, ConnectError> {
        let (mut guardian, welcome) = greet(dir, false).await?;
        guardian.know(Known::new(
            welcome.guardian_pid.into(),
            welcome.task_pid.into(),
            welcome.fence,
        ));
        Ok(guardian)
    }

    /// Asks the guardian of a run for its state, and changes nothing.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn look(dir: &RunDir) -> Result<Glimpse, ConnectError> {
        greet(dir, true).await.map(|(_, glimpse)| glimpse)
    }
}

async fn greet(dir: &RunDir, look: bool) -> Result<(Guardian, Glimpse), ConnectError> {
    ended(dir)?;
    match hello(dir, look).await {
        // It may have left in this very moment; its record comes first.
        Err(ConnectError::NoAnswer(error)) => {
            ended(dir)?;
            Err(ConnectError::NoAnswer(error))
        }
        greeted => greeted,
    }
}

fn ended(dir: &RunDir) -> Result<(), ConnectError> {
    match dir.exit_record() {
        Ok(None) => Ok(()),
        Ok(Some(record)) => Err(ConnectError::Ended(Box::new(record))),
        Err(error) => Err(ConnectError::Directory(error)),
    }
}

async fn hello(dir: &RunDir, look: bool) -> Result<(Guardian, Glimpse), ConnectError> {
    let token = dir.token().map_err(ConnectError::Directory)?;
    let directory = dir.descriptor().map_err(ConnectError::Directory)?;
    let deadline = Instant::now() + ANSWER;
    let socket = loop {
        match reach(&directory) {
            Err(Errno::AGAIN) if Instant::now() < deadline => sleep(CROWDED).await,
            socket => break socket.map_err(|errno| ConnectError::NoAnswer(errno.into()))?,
        }
    };
    let socket = UnixStream::from_std(StdStream::from(socket)).map_err(ConnectError::Directory)?;
    let mut guardian = Guardian::new(dir.clone(), socket, None, Known::default());
    guardian
        .say(Message::Hello { version: VERSION, token, look })
        .map_err(ConnectError::NoAnswer)?;
    match timeout_at(deadline, guardian.next_message()).await {
        Ok(Some(Message::Welcome { version, .. })) if version != VERSION => {
            Err(ConnectError::Version(version))
        }
        Ok(Some(Message::Welcome { guardian: pid, task, fence, ending, .. })) => {
            let number = |pid| u32::try_from(pid).unwrap_or(0);
            let glimpse = Glimpse {
                guardian_pid: number(pid),
                task_pid: number(task),
                fence: BootTime::from_nanos(fence),
                is_ending: ending,
            };
            Ok((guardian, glimpse))
        }
        Ok(Some(Message::Refused)) => Err(ConnectError::Refused),
        Ok(_) => Err(ConnectError::NoAnswer(io::ErrorKind::ConnectionReset.into())),
        Err(_) => Err(ConnectError::NoAnswer(io::ErrorKind::TimedOut.into())),
    }
}

/// Never blocks: a guardian that is stopped has a full queue at some time.
fn reach(directory: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Not by the path of the directory, which may be longer than an address.
    let path = format!("/proc/self/fd/{}/{SOCKET}", directory.as_fd().as_raw_fd());
    connect(&socket, &SocketAddrUnix::new(path.as_str())?)?;
    Ok(socket)
}
