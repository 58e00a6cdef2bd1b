//! A connection to a guardian.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::child::Child;
use super::{BootTime, ExitRecord, RunDir};
use crate::process::boot_time::nanos;
use crate::process::guard::wire::{Assembly, Cause, FRAME, Message, Summary};

/// How long a guardian that has said its last may take to leave.
const LEAVE_PATIENCE: Duration = Duration::from_secs(2);

/// A guardian that listens to us, until another connection is made. Dropping it leaves the guardian
/// and its task running.
pub struct Guardian {
    dir: RunDir,
    socket: Arc<UnixStream>,
    assembly: Assembly,
    /// If it is a child of this process.
    child: Option<Child>,
    known: Known,
    last: Option<Last>,
    end: Option<GuardianEnd>,
}

/// Sends orders to a guardian while somebody else waits for its end.
#[derive(Clone)]
pub struct GuardianControl {
    socket: Arc<UnixStream>,
}

/// Why a task is stopped: it stands in the record, and decides what becomes of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// Somebody cancelled it.
    Cancel,
    /// It has had its time.
    Timeout,
    /// Its lease was lost.
    Fence,
    /// Anything else: a shutdown.
    Stop,
}

/// How the watch over a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum GuardianEnd {
    /// The run is over, and this is how. No process of it is left, but those named as unkillable.
    Ended(Box<ExitRecord>),
    /// The guardian is gone and has said nothing: it was killed, and the task with it. What the task
    /// has started may live: [`kill_leftovers`](super::kill_leftovers).
    Lost,
    /// Another connection is obeyed now. The run goes on.
    Displaced,
}

/// What a guardian has told of itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    guardian: u32,
    task: u32,
    fence: u64,
}

/// The last message.
#[derive(Clone, Copy)]
enum Last {
    Exited(Summary),
    Displaced,
    Nothing,
}

impl Known {
    pub(super) fn new(guardian: u64, task: u64, fence: BootTime) -> Self {
        let number = |pid| u32::try_from(pid).unwrap_or(0);
        Self { guardian: number(guardian), task: number(task), fence: fence.as_nanos() }
    }
}

impl Guardian {
    pub(super) fn new(dir: RunDir, socket: UnixStream, child: Option<Child>, known: Known) -> Self {
        let assembly = Assembly::new();
        Self { dir, socket: Arc::new(socket), assembly, child, known, last: None, end: None }
    }

    pub(super) fn know(&mut self, known: Known) {
        self.known = known;
    }

    /// The directory of the run.
    pub fn dir(&self) -> &RunDir {
        &self.dir
    }

    /// The number of the task's first process, for people to read. It is never to be signalled.
    pub fn task_pid(&self) -> u32 {
        self.known.task
    }

    /// The number of the guardian itself, for people to read.
    pub fn guardian_pid(&self) -> u32 {
        self.known.guardian
    }

    /// The fence as it was when this connection was made.
    pub fn fence_at_connect(&self) -> BootTime {
        BootTime::from_nanos(self.known.fence)
    }

    /// A handle for orders.
    pub fn control(&self) -> GuardianControl {
        GuardianControl { socket: Arc::clone(&self.socket) }
    }

    /// See [`GuardianControl::extend`].
    ///
    /// # Errors
    /// As there.
    pub fn extend(&self, fence: BootTime) -> io::Result<()> {
        say(&self.socket, Message::Extend { fence: fence.as_nanos() })
    }

    /// See [`GuardianControl::stop`].
    ///
    /// # Errors
    /// As there.
    pub fn stop(&self, grace: Duration, reason: StopReason) -> io::Result<()> {
        say(&self.socket, stop_message(grace, reason))
    }

    /// Waits for the end of the run. Dropping the future changes nothing, and a later call gives the
    /// same answer.
    pub async fn exited(&mut self) -> GuardianEnd {
        if let Some(end) = &self.end {
            return end.clone();
        }
        let last = match self.last {
            Some(last) => last,
            None => {
                let last = loop {
                    match self.next_message().await {
                        Some(Message::Exited(summary)) => break Last::Exited(summary),
                        Some(Message::Displaced) => break Last::Displaced,
                        Some(_) => {}
                        None => break Last::Nothing,
                    }
                };
                *self.last.insert(last)
            }
        };
        let end = match last {
            Last::Displaced => GuardianEnd::Displaced,
            Last::Exited(summary) => {
                // It stays as long as it has something that cannot be killed.
                if summary.unkillable == 0 {
                    self.leave().await;
                }
                let record = self.dir.exit_record().ok().flatten();
                GuardianEnd::Ended(Box::new(record.unwrap_or_else(|| ExitRecord::of(&summary))))
            }
            Last::Nothing => {
                self.leave().await;
                match self.dir.exit_record() {
                    Ok(Some(record)) => GuardianEnd::Ended(Box::new(record)),
                    _ => GuardianEnd::Lost,
                }
            }
        };
        self.end.insert(end).clone()
    }

    /// Waits until the guardian is gone, but not long.
    pub(super) async fn leave(&mut self) {
        let _ =
            timeout(LEAVE_PATIENCE, async { while self.next_message().await.is_some() {} }).await;
        if let Some(child) = &mut self.child {
            child.leave(LEAVE_PATIENCE).await;
        }
    }

    pub(super) fn kill(&mut self) {
        if let Some(child) = &mut self.child {
            child.kill();
        }
    }

    /// The next message, or nothing when there is none to come. Dropping the future loses nothing.
    pub(super) async fn next_message(&mut self) -> Option<Message> {
        loop {
            self.socket.readable().await.ok()?;
            match self.socket.try_read(self.assembly.room()) {
                Ok(0) => return None,
                Ok(length) => {
                    // A guardian that we do not understand is one that we cannot reach.
                    if let Some(message) = self.assembly.add(length) {
                        return message;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }

    pub(super) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.socket.writable().await?;
            match self.socket.try_write(bytes) {
                Ok(length) => bytes = &bytes[length..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(super) fn say(&self, message: Message) -> io::Result<()> {
        say(&self.socket, message)
    }
}

impl GuardianControl {
    /// Moves the fence forward to this moment, which is to be counted from *before* the renewal was
    /// requested. A fence is never moved back, and not at all once the end of the task has begun.
    ///
    /// # Errors
    /// When the guardian is gone, or does not read what it is told.
    pub fn extend(&self, fence: BootTime) -> io::Result<()> {
        say(&self.socket, Message::Extend { fence: fence.as_nanos() })
    }

    /// Has the task ended: TERM to its group, KILL after `grace` to everything it has started. The
    /// grace is cut where it would reach beyond the fence by more than the spec's grace of the lease.
    ///
    /// A task that has ended keeps its own end. Asked again, the first reason stands and only an
    /// earlier kill can be asked for.
    ///
    /// # Errors
    /// When the guardian is gone, or does not read what it is told.
    pub fn stop(&self, grace: Duration, reason: StopReason) -> io::Result<()> {
        say(&self.socket, stop_message(grace, reason))
    }
}

fn stop_message(grace: Duration, reason: StopReason) -> Message {
    let reason = match reason {
        StopReason::Cancel => Cause::Cancel,
        StopReason::Timeout => Cause::Timeout,
        StopReason::Fence => Cause::Fence,
        StopReason::Stop => Cause::Stop,
    };
    Message::Stop { grace: nanos(grace), reason: reason.number() }
}

/// Not by way of the runtime, which learns only later that a new socket can be written to.
fn say(socket: &UnixStream, message: Message) -> io::Result<()> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        match send(socket, &message.to_bytes(), flags) {
            Ok(FRAME) => return Ok(()),
            // Half a message could be followed by nothing sensible.
            Ok(_) => {
                let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
                return Err(io::ErrorKind::WriteZero.into());
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

impl std::fmt::Debug for Guardian {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guardian")
            .field("dir", &self.dir.path())
            .field("guardian_pid", &self.known.guardian)
            .field("task_pid", &self.known.task)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for GuardianControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GuardianControl").finish_non_exhaustive()
    }
}
