//! A guardian from its first line to its last.

use std::fmt::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open, openat};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{PidfdFlags, chdir, getpid, pidfd_open, set_child_subreaper, setsid};
use rustix::time::{ClockId, TimerfdClockId, TimerfdFlags, clock_gettime, timerfd_create};

use super::cgroup::Cgroup;
use super::layout::{LogStream, RECORD_BYTES};
use super::link::Link;
use super::opening::{self, NoOpening, Opening};
use super::output::{Log, Output};
use super::record::Draft;
use super::sys;
use super::task::{Plan, Standard};
use super::tree::Tree;
use super::watch::{Files, Sources, Watch};
use super::wire::{Message, Step};

/// What could not be done, so that nothing runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed {
    step: Step,
    errno: Errno,
}

impl Failed {
    pub(super) fn at(step: Step, errno: Errno) -> Self {
        Self { step, errno }
    }

    pub(super) fn of(step: Step) -> impl Fn(Errno) -> Self {
        move |errno| Self { step, errno }
    }

    fn message(self) -> Message {
        let errno = u64::from(self.errno.raw_os_error().unsigned_abs());
        Message::Failed { step: self.step.number(), errno }
    }
}

/// Is a guardian.
pub(super) fn run() -> ! {
    sys::close_all_others();
    sys::hold_back_signals();
    let socket = match leave_standard_input() {
        Ok(socket) => socket,
        Err(_) => sys::exit(1),
    };
    let outcome = match opening::receive(&socket) {
        Ok(opening) => guard(opening, &socket),
        Err(NoOpening::Failed(failed)) => Err(failed),
        // The daemon has died before it could say what to do.
        Err(NoOpening::Gone) => sys::exit(0),
    };
    match outcome {
        Ok(()) => sys::exit(0),
        Err(failed) => {
            Link::new(socket).say(failed.message());
            sys::exit(1)
        }
    }
}

pub(super) fn leave_standard_input() -> Result<OwnedFd, Errno> {
    let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let socket = sys::take_standard_input().map_err(errno)?;
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    for number in 0..3 {
        sys::become_standard(null.as_raw_fd(), number).map_err(errno)?;
    }
    Ok(socket)
}

fn guard(opening: Opening, socket: &OwnedFd) -> Result<(), Failed> {
    let Opening { directory, locks, body, stdin } = opening;
    let session = Failed::of(Step::Session);
    setsid().map_err(&session)?;
    set_child_subreaper(Some(getpid())).map_err(&session)?;
    let lock = opening::claim(directory.as_fd())?;
    let plan = Plan::read(&body).ok_or(Failed::at(Step::Protocol, Errno::PROTO))?;
    let cwd = enter_nowhere(plan.cwd)?;

    let in_files = Failed::of(Step::Files);
    let draft = Draft::create(directory.as_fd()).map_err(&in_files)?;
    let log = |stream| Log::create(directory.as_fd(), stream, plan.terms.log_cap);
    let (out_log, err_log) =
        (log(LogStream::Stdout).map_err(&in_files)?, log(LogStream::Stderr).map_err(&in_files)?);
    let in_watch = Failed::of(Step::Watch);
    let (stdout, stdout_writer) = pipe().map_err(&in_watch)?;
    let (stderr, stderr_writer) = pipe().map_err(&in_watch)?;
    let listener = opening::listener(directory.as_fd()).map_err(&in_watch)?;
    let children = Tree::open_children().map_err(&in_watch)?;
    let timer =
        timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)
            .map_err(&in_watch)?;
    let signals = sys::child_signals().map_err(|error| {
        Failed::at(Step::Watch, Errno::from_io_error(&error).unwrap_or(Errno::IO))
    })?;
    let link = Link::new(rustix::io::fcntl_dupfd_cloexec(socket, 3).map_err(&in_watch)?);
    let buffer = vec![0; RECORD_BYTES].into_boxed_slice();
    let cgroup = Cgroup::create(plan.cgroup, directory.as_fd());

    // The last thing before there is a process: the daemon may have been stopped for hours.
    if clock_now() >= plan.terms.fence {
        return Err(Failed::at(Step::Fence, Errno::TIMEDOUT));
    }
    let standard = Standard { stdin, stdout: stdout_writer, stderr: stderr_writer };
    let (task, news) = plan.start(&cwd, standard, cgroup.as_ref(), getpid()).map_err(|error| {
        Failed::at(Step::Fork, Errno::from_io_error(&error).unwrap_or(Errno::IO))
    })?;
    let tree = Tree::new(task, children, cgroup);
    let pidfd = match pidfd_open(task, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(errno) => {
            tree.signal(rustix::process::Signal::KILL);
            return Err(Failed::at(Step::Watch, errno));
        }
    };
    let terms = plan.terms;
    drop(plan);
    drop((body, cwd));
    sys::give_memory_back();
    let files = Files {
        directory,
        draft,
        stdout: Output::new(stdout, out_log),
        stderr: Output::new(stderr, err_log),
        locks,
    };
    let sources = Sources { news: Some(news), pidfd, timer, signals, listener };
    let link = Watch::new(terms, task, tree, files, sources, link, buffer).run()?;
    drop(lock);
    drop(link);
    Ok(())
}

/// Opens the task's working directory, and leaves the daemon's: it may have to be unmounted.
fn enter_nowhere(cwd: &std::ffi::CStr) -> Result<OwnedFd, Failed> {
    let path = if cwd.is_empty() { c"." } else { cwd };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat(rustix::fs::CWD, path, flags, Mode::empty());
    let opened = opened.map_err(Failed::of(Step::Cwd))?;
    let _ = chdir("/");
    Ok(opened)
}

fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
    // Of our end only: the task's is its own, and blocks as pipes do.
    rustix::fs::fcntl_setfl(&ours, OFlags::NONBLOCK)?;
    Ok((ours, theirs))
}

/// The boot clock, which goes on while the machine sleeps, in nanoseconds.
pub(super) fn clock_now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// A path to something in a directory that is as short as can be.
pub(super) fn own_descriptor_path(directory: BorrowedFd<'_>, name: &str) -> String {
    let mut path = String::with_capacity(64);
    let _ = write!(path, "/proc/self/fd/{}", directory.as_raw_fd());
    if !name.is_empty() {
        path.push('/');
        path.push_str(name);
    }
    path
}
