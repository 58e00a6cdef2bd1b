//! Whether somebody keeps the wall clock of this machine right.

use std::io;
use std::mem::MaybeUninit;

/// Whether the kernel's clock is synchronised, as NTP services tell it.
///
/// # Errors
/// When the kernel does not say.
pub fn is_clock_synchronised() -> io::Result<bool> {
    let mut state = MaybeUninit::<libc::timex>::zeroed();
    #[expect(unsafe_code, reason = "there is no safe adjtimex")]
    // SAFETY: all zeroes are a valid structure, in which nothing is asked to be changed; the kernel fills it.
    let answer = unsafe { libc::adjtimex(state.as_mut_ptr()) };
    match answer {
        -1 => Err(io::Error::last_os_error()),
        libc::TIME_ERROR => Ok(false),
        _ => Ok(true),
    }
}
