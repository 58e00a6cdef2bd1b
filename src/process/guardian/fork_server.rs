//! A process that makes guardians by forking itself, for as long as many are started.

use std::fmt;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, sendmsg, shutdown,
};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::child::Child;
use super::start::execute;
use super::{GuardianProgram, StartError};
use crate::process::guard::FORK_SERVER;
use crate::process::guard::wire::FORKS;

/// How long one may take until it listens.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one that is no longer wanted may take to leave before its zombie is left for later.
const LEAVE_PATIENCE: Duration = Duration::from_millis(100);

/// Makes guardians, each of which costs a third of one that is executed. Dropping it ends it, and leaves the guardians
/// that it has made running; they have another parent then, so whoever is the first process of a container keeps it until
/// they have left.
pub struct ForkServer {
    program: GuardianProgram,
    socket: StdStream,
    child: Child,
    gone: AtomicBool,
}

impl ForkServer {
    /// Starts one, and waits until it listens.
    ///
    /// Must be called inside a tokio runtime with IO and time enabled.
    ///
    /// # Errors
    /// It cannot be executed, or is of another version.
    pub async fn start(program: &GuardianProgram) -> Result<ForkServer, StartError> {
        let (ours, theirs) = StdStream::pair().map_err(StartError::System)?;
        ours.set_nonblocking(true).map_err(StartError::System)?;
        let mut child = execute(program, &[FORK_SERVER], theirs)?;
        let socket = UnixStream::from_std(ours).map_err(StartError::System)?;
        if timeout(PATIENCE, first_byte(&socket)).await.ok().flatten() != Some(FORKS) {
            child.kill();
            child.leave(LEAVE_PATIENCE).await;
            return Err(StartError::Version { program: program.path().into() });
        }
        let socket = socket.into_std().map_err(StartError::System)?;
        Ok(ForkServer { program: program.clone(), socket, child, gone: AtomicBool::new(false) })
    }

    /// What it executes.
    pub fn program(&self) -> &GuardianProgram {
        &self.program
    }

    /// Its number, for people to read.
    pub fn pid(&self) -> u32 {
        self.child.number()
    }

    /// Whether it was found dead.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Has it make a guardian that listens at this end of a conversation.
    pub(super) fn make(&self, conversation: &StdStream) -> Result<(), Errno> {
        let descriptors = [conversation.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        loop {
            match sendmsg(&self.socket, &[IoSlice::new(&[FORKS])], &mut ancillary, flags) {
                Err(Errno::INTR) => {}
                sent => {
                    let is_full = matches!(sent, Err(Errno::AGAIN));
                    self.gone.fetch_or(sent.is_err() && !is_full, Ordering::Relaxed);
                    return sent.map(drop);
                }
            }
        }
    }
}

async fn first_byte(socket: &UnixStream) -> Option<u8> {
    let mut word = [0];
    loop {
        socket.readable().await.ok()?;
        match socket.try_read(&mut word) {
            Ok(length) => return (length > 0).then_some(word[0]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
    }
}

impl Drop for ForkServer {
    fn drop(&mut self) {
        let _ = shutdown(&self.socket, Shutdown::Both);
        self.child.leave_blocking(LEAVE_PATIENCE);
    }
}

impl fmt::Debug for ForkServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForkServer").field("program", &self.program).finish_non_exhaustive()
    }
}
