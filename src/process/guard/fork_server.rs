//! A guardian without a run, which makes others: one that is forked costs a third of one that is executed, since nothing
//! has to be loaded and linked again.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::{Errno, write};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::setsid;

use super::program::{leave_standard_input, run};
use super::sys::{self, Side};
use super::wire::FORKS;

/// Makes a guardian for each conversation that comes over the standard input, until that is closed.
pub(super) fn serve() -> ! {
    sys::close_all_others();
    sys::hold_back_signals();
    // Nobody here waits for the guardians; the daemon hears of their ends by their conversations.
    sys::leave_children_to_the_kernel();
    // What is sent to the group of the daemon is not meant for us.
    let _ = setsid();
    let Ok(socket) = leave_standard_input() else { sys::exit(1) };
    if write(&socket, &[FORKS]) != Ok(1) {
        sys::exit(0);
    }
    while let Some(conversation) = next(&socket) {
        // One that cannot be made says so by the end of its conversation.
        if let Ok(Side::Child) = sys::fork() {
            if sys::become_standard(conversation.as_raw_fd(), 0).is_err() {
                sys::exit(1);
            }
            run();
        }
    }
    sys::exit(0)
}

fn next(socket: &OwnedFd) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    loop {
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut word = [0];
        let mut room = [IoSliceMut::new(&mut word)];
        match recvmsg(socket, &mut room, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(message) if message.bytes > 0 => {}
            Err(Errno::INTR) => continue,
            Ok(_) | Err(_) => return None,
        }
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(mut descriptors) = message
                && let Some(conversation) = descriptors.next()
            {
                return Some(conversation);
            }
        }
        // Where this process may have no more descriptors, the kernel has kept it: its other end hears that.
    }
}
