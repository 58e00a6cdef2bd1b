//! What a guardian asks of the kernel that has no safe form.
//!
//! All of it rests on one fact: a guardian has one thread, from its first line to its last.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::process::Pid;

const HIGHEST_SIGNAL: c_int = 64;
/// The length of the kernel's set of signals.
const SIGNAL_SET_BYTES: usize = HIGHEST_SIGNAL as usize / 8;

/// One side of a fork.
pub(super) enum Side {
    Parent(Pid),
    Child,
}

/// Copies this process.
pub(super) fn fork() -> io::Result<Side> {
    #[expect(unsafe_code, reason = "there is no safe fork")]
    // SAFETY: this process has one thread, so no lock is held by a thread that the copy lacks.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Side::Child),
        pid => Pid::from_raw(pid).map(Side::Parent).ok_or_else(|| Errno::SRCH.into()),
    }
}

/// The pointers that `execve` takes: to each string, then null.
pub(super) struct Pointers<'a> {
    all: Vec<*const c_char>,
    _strings: std::marker::PhantomData<&'a CStr>,
}

impl<'a> Pointers<'a> {
    pub(super) fn new(strings: &[&'a CStr]) -> Self {
        let null = std::iter::once(std::ptr::null());
        let all = strings.iter().map(|string| string.as_ptr()).chain(null).collect();
        Self { all, _strings: std::marker::PhantomData }
    }
}

/// Becomes another program; returns only when that could not be done.
pub(super) fn execute(program: &CStr, argv: &Pointers<'_>, env: &Pointers<'_>) -> Errno {
    #[expect(unsafe_code, reason = "there is no safe execve")]
    // SAFETY: `program` and every pointer but the last are NUL-terminated strings that are borrowed
    // for as long as the lists live, and both lists end with null.
    unsafe {
        libc::execve(program.as_ptr(), argv.all.as_ptr(), env.all.as_ptr());
    }
    last_errno()
}

/// Leaves without running anything else.
pub(super) fn exit(code: c_int) -> ! {
    #[expect(unsafe_code, reason = "a fork must not run what was registered for the exit")]
    // SAFETY: `_exit` takes any number and does not return.
    unsafe {
        libc::_exit(code)
    }
}

/// Gives every signal its default action and then holds all of them back, so that none is lost and
/// none but KILL and STOP has an effect.
pub(super) fn hold_back_signals() {
    // As the kernel has it: all zeroes are the default action, no flags and no mask.
    let default = [0u64; 8];
    for signal in 1..=HIGHEST_SIGNAL {
        #[expect(unsafe_code, reason = "there is no safe way to reset a signal")]
        // SAFETY: the default action is no function, so none is installed; the kernel reads less
        // than what is there, and does not write. By the call of the kernel, because the C library
        // keeps two signals to itself, which its `posix_spawn` leaves ignored. For KILL and STOP
        // this fails and changes nothing.
        unsafe {
            let none = std::ptr::null_mut::<u64>();
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), none, SIGNAL_SET_BYTES);
        }
    }
    set_mask(true);
}

/// Has the kernel reap every child of this process. It lasts until the signals are held back again.
pub(super) fn leave_children_to_the_kernel() {
    let mut ignore = [0u64; 8];
    ignore[0] = libc::SIG_IGN as u64;
    #[expect(unsafe_code, reason = "there is no safe way to ignore a signal")]
    // SAFETY: to be ignored is no function, so none is installed; the kernel reads less than what is
    // there, and does not write.
    unsafe {
        let none = std::ptr::null_mut::<u64>();
        libc::syscall(
            libc::SYS_rt_sigaction,
            libc::SIGCHLD,
            ignore.as_ptr(),
            none,
            SIGNAL_SET_BYTES,
        );
    }
}

/// Lets signals through again: those that came meanwhile, at once.
pub(super) fn let_signals_through() {
    set_mask(false);
}

fn set_mask(full: bool) {
    let mut set = MaybeUninit::uninit();
    #[expect(unsafe_code, reason = "there is no safe way to set the signal mask")]
    // SAFETY: either call initialises the whole set before it is read, and the old mask is not
    // asked for.
    unsafe {
        if full {
            libc::sigfillset(set.as_mut_ptr());
        } else {
            libc::sigemptyset(set.as_mut_ptr());
        }
        libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut());
    }
}

/// A descriptor that becomes readable when a child changes its state.
pub(super) fn child_signals() -> io::Result<OwnedFd> {
    signals(&[libc::SIGCHLD])
}

/// A descriptor that becomes readable when somebody asks this process to end.
pub(super) fn end_signals() -> io::Result<OwnedFd> {
    signals(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT])
}

fn signals(numbers: &[c_int]) -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::uninit();
    #[expect(unsafe_code, reason = "there is no safe signalfd")]
    // SAFETY: the set is initialised before it is read.
    let fd = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for number in numbers {
            libc::sigaddset(set.as_mut_ptr(), *number);
        }
        libc::signalfd(-1, set.as_ptr(), libc::SFD_NONBLOCK | libc::SFD_CLOEXEC)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(adopt(fd))
}

/// Closes every descriptor but standard input, output and error.
pub(super) fn close_all_others() {
    close_range(0);
}

/// Has the next program see no descriptor but standard input, output and error.
pub(super) fn hide_all_others() {
    close_range(libc::CLOSE_RANGE_CLOEXEC as c_int);
}

/// Whether the kernel can hide a range of descriptors.
pub(super) fn try_close_range() -> io::Result<()> {
    let none = libc::c_uint::MAX;
    #[expect(unsafe_code, reason = "there is no safe close_range")]
    // SAFETY: no descriptor has the highest number there is, so that none is touched.
    let done =
        unsafe { libc::syscall(libc::SYS_close_range, none, none, libc::CLOSE_RANGE_CLOEXEC) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn close_range(flags: c_int) {
    #[expect(unsafe_code, reason = "there is no safe way to close what one does not own")]
    // SAFETY: called before anything here owns a descriptor, or to mark them only, which takes
    // none away from its owner.
    let done = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, flags) };
    if done == 0 {
        return;
    }
    // Before Linux 5.9, or 5.11 for the flag.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = limit.unwrap_or(65_536).min(65_536);
    for fd in 3..i32::try_from(limit).unwrap_or(65_536) {
        #[expect(unsafe_code, reason = "as above")]
        // SAFETY: as above; a number that is not open does no harm.
        unsafe {
            if flags == 0 {
                libc::close(fd);
            } else {
                libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
            }
        }
    }
}

/// Makes `fd` the standard input, output or error.
pub(super) fn become_standard(fd: RawFd, standard: RawFd) -> io::Result<()> {
    #[expect(unsafe_code, reason = "no value owns the standard descriptors")]
    // SAFETY: numbers only; nothing here owns 0, 1 or 2.
    let done = unsafe {
        if fd == standard { libc::fcntl(fd, libc::F_SETFD, 0) } else { libc::dup2(fd, standard) }
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Takes the standard input away from its number, to one that nothing inherits.
pub(super) fn take_standard_input() -> io::Result<OwnedFd> {
    #[expect(unsafe_code, reason = "no value owns the standard descriptors")]
    // SAFETY: numbers only; the new one is owned by nobody else.
    let fd = unsafe { libc::fcntl(0, libc::F_DUPFD_CLOEXEC, 3) };
    if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(adopt(fd)) }
}

fn adopt(fd: RawFd) -> OwnedFd {
    #[expect(unsafe_code, reason = "the kernel gives numbers")]
    // SAFETY: the kernel has just made it for the caller, and nobody else knows of it.
    unsafe {
        OwnedFd::from_raw_fd(fd)
    }
}

/// Sets a variable of this process, for what of it reads the environment. `/proc` does not show it.
pub(super) fn set_variable(name: &OsStr, value: &OsStr) {
    #[expect(unsafe_code, reason = "another thread could be reading the environment")]
    // SAFETY: this process has one thread.
    unsafe {
        std::env::set_var(name, value);
    }
}

/// Returns to the kernel what was needed to start the task only.
pub(super) fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "the allocator of the C library has no safe form")]
    // SAFETY: takes a number, and touches only memory that is free.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// What all children that were reaped have used, theirs included.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    pub(super) user_micros: u64,
    pub(super) system_micros: u64,
    pub(super) max_rss_kib: u64,
}

pub(super) fn children_usage() -> Usage {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    #[expect(unsafe_code, reason = "there is no safe getrusage")]
    // SAFETY: the kernel fills the whole structure, and all zeroes are a valid one.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    let micros = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000
            + u64::try_from(time.tv_usec).unwrap_or(0)
    };
    Usage {
        user_micros: micros(usage.ru_utime),
        system_micros: micros(usage.ru_stime),
        max_rss_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0),
    }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}
