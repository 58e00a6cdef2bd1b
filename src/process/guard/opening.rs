//! The beginning of a guardian: what it is told, and the claim to be the only one of its run.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, flock, fstat, open, openat, statat, unlinkat,
};
use rustix::io::{Errno, read, write};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix,
    SocketFlags, SocketType, bind, listen, recvmsg, socket_with,
};

use super::Failed;
use super::layout::{LOCK, RECORD, SOCKET};
use super::spec::LONGEST;
use super::wire::{Assembly, Message, NO_STDIN, Step, VERSION};

/// The most descriptors that the kernel passes with one message.
const MOST_DESCRIPTORS: usize = 253;

/// Everything that came over the socket.
pub(super) struct Opening {
    /// The directory of the run.
    pub(super) directory: OwnedFd,
    /// The machine locks.
    pub(super) locks: Vec<OwnedFd>,
    /// The spec.
    pub(super) body: Vec<u8>,
    /// The standard input of the task.
    pub(super) stdin: OwnedFd,
}

/// Why there is no opening.
pub(super) enum NoOpening {
    /// Nobody is there who could be told.
    Gone,
    Failed(Failed),
}

impl From<Failed> for NoOpening {
    fn from(failed: Failed) -> Self {
        Self::Failed(failed)
    }
}

/// Reads the opening. It waits as long as the daemon lives, and holds nothing meanwhile.
pub(super) fn receive(socket: &OwnedFd) -> Result<Opening, NoOpening> {
    let protocol = |errno| NoOpening::Failed(Failed::at(Step::Protocol, errno));
    let mut descriptors = Vec::with_capacity(4);
    let (body, stdin) = match first_message(socket, &mut descriptors)? {
        // Where this process may not have so many, the kernel has left some out: locks, which then
        // nobody would hold.
        Message::Open { version: VERSION, descriptors: sent, .. }
            if sent != descriptors.len() as u64 =>
        {
            return Err(Failed::at(Step::Files, Errno::MFILE).into());
        }
        Message::Open { version: VERSION, body, stdin, .. } if body <= LONGEST => (body, stdin),
        _ => return Err(protocol(Errno::PROTO)),
    };
    let mut descriptors = descriptors.into_iter();
    let directory = descriptors.next().ok_or_else(|| protocol(Errno::BADF))?;
    let locks = descriptors.collect();
    let mut bytes = vec![0; usize::try_from(body).map_err(|_| protocol(Errno::PROTO))?];
    read_all(socket, &mut bytes)?;
    let stdin = match stdin {
        NO_STDIN => open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(Failed::of(Step::Files))?,
        length => spool(socket, directory.as_fd(), length)?,
    };
    Ok(Opening { directory, locks, body: bytes, stdin })
}

fn first_message(socket: &OwnedFd, descriptors: &mut Vec<OwnedFd>) -> Result<Message, NoOpening> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut assembly = Assembly::new();
    loop {
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut room = [IoSliceMut::new(assembly.room())];
        let length = match recvmsg(socket, &mut room, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(message) if message.bytes > 0 => message.bytes,
            Err(Errno::INTR) => continue,
            Ok(_) | Err(_) => return Err(NoOpening::Gone),
        };
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                descriptors.extend(fds);
            }
        }
        if let Some(message) = assembly.add(length) {
            return message.ok_or_else(|| Failed::at(Step::Protocol, Errno::PROTO).into());
        }
    }
}

fn read_all(socket: &OwnedFd, mut bytes: &mut [u8]) -> Result<(), NoOpening> {
    while !bytes.is_empty() {
        match read(socket, &mut *bytes) {
            Ok(0) => return Err(NoOpening::Gone),
            Ok(length) => bytes = &mut bytes[length..],
            Err(Errno::INTR) => {}
            Err(_) => return Err(NoOpening::Gone),
        }
    }
    Ok(())
}

/// A file without a name that has the next `length` bytes, open for reading. A task that never reads
/// it keeps nobody waiting.
fn spool(
    socket: &OwnedFd,
    directory: BorrowedFd<'_>,
    mut length: u64,
) -> Result<OwnedFd, NoOpening> {
    const NAME: &str = "stdin.tmp";
    let failed = Failed::of(Step::Files);
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let file = match openat(directory, ".", flags | OFlags::TMPFILE, mode) {
        Ok(file) => file,
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) => {
            let file = openat(directory, NAME, flags | OFlags::CREATE | OFlags::EXCL, mode)
                .map_err(&failed)?;
            unlinkat(directory, NAME, AtFlags::empty()).map_err(&failed)?;
            file
        }
        Err(errno) => return Err(failed(errno).into()),
    };
    let mut buffer = [0; 16 * 1024];
    while length > 0 {
        let want = usize::try_from(length).unwrap_or(usize::MAX).min(buffer.len());
        read_all(socket, &mut buffer[..want])?;
        let mut rest = &buffer[..want];
        while !rest.is_empty() {
            let written = write(&file, rest).map_err(&failed)?;
            rest = &rest[written..];
        }
        length -= want as u64;
    }
    let path = super::own_descriptor_path(file.as_fd(), "");
    let reading = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(open(path.as_str(), reading, Mode::empty()).map_err(failed)?)
}

/// Takes the lock of the run, for as long as the value lives.
///
/// Whoever gives up a run takes the lock first and removes it; so a guardian that was slow to start
/// finds no lock, or one that has no name any more, and starts nothing.
pub(super) fn claim(directory: BorrowedFd<'_>) -> Result<OwnedFd, Failed> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let lock = openat(directory, LOCK, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NOENT => Failed::at(Step::Sealed, errno),
        _ => Failed::at(Step::Lock, errno),
    })?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(Failed::of(Step::Lock))?;
    if fstat(&lock).map_err(Failed::of(Step::Lock))?.st_nlink == 0 {
        return Err(Failed::at(Step::Sealed, Errno::NOENT));
    }
    match statat(directory, RECORD, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(lock),
        Ok(_) => Err(Failed::at(Step::Sealed, Errno::EXIST)),
        Err(errno) => Err(Failed::at(Step::Sealed, errno)),
    }
}

/// The socket on which later daemons find this guardian.
pub(super) fn listener(directory: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    // What an earlier guardian left, which must be dead: the lock is ours.
    let _ = unlinkat(directory, SOCKET, AtFlags::empty());
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Not by the path of the directory, which may be longer than an address.
    let path = super::own_descriptor_path(directory, SOCKET);
    bind(&listener, &SocketAddrUnix::new(path.as_str())?)?;
    listen(&listener, 16)?;
    Ok(listener)
}
