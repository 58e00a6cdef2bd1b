//! A connection to a daemon.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::wire::{Assembly, Message, Token};

/// One daemon, at the other end of a stream.
pub(super) struct Link {
    socket: OwnedFd,
    assembly: Assembly,
}

/// What a link has to say.
pub(super) enum Heard {
    /// A whole message.
    Message(Message),
    /// Nothing more now.
    Nothing,
    /// The other end is gone, or does not speak our language: the link is of no more use.
    Closed,
}

impl Link {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, assembly: Assembly::new() }
    }

    pub(super) fn hear(&mut self) -> Heard {
        loop {
            match recv(&self.socket, self.assembly.room(), RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Heard::Closed,
                Ok((length, _)) => match self.assembly.add(length) {
                    Some(Some(message)) => return Heard::Message(message),
                    Some(None) => return Heard::Closed,
                    None => {}
                },
                Err(Errno::AGAIN) => return Heard::Nothing,
                Err(Errno::INTR) => {}
                Err(_) => return Heard::Closed,
            }
        }
    }

    /// Says it, or not: a daemon that does not listen reads the record of the end instead. Answers
    /// whether there was anybody to say it to.
    pub(super) fn say(&self, message: Message) -> bool {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            match send(&self.socket, &message.to_bytes(), flags) {
                Err(Errno::INTR) => {}
                sent => return sent.is_ok(),
            }
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Whether two tokens are the same, in a time that does not tell where they differ.
pub(super) fn same(one: &Token, other: &Token) -> bool {
    one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}
