//! The process of the task: from the fork to its program.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::io::{Errno, write};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, fchdir, getppid, getrlimit, set_parent_process_death_signal,
    setrlimit, setsid,
};
use rustix::thread::set_no_new_privs;

use super::cgroup::Cgroup;
use super::spec::{Decoder, Terms};
use super::sys::{self, Pointers, Side};
use super::wire::Step;

/// A program that is being installed is open for writing for a moment; these are the pauses before
/// the three more tries.
const BUSY_PAUSES: [Duration; 3] =
    [Duration::from_millis(2), Duration::from_millis(8), Duration::from_millis(32)];

/// How much more processor time than the limit a task has to react to SIGXCPU, in seconds.
const CPU_GRACE: u64 = 5;

/// What to execute, read from a spec.
pub(super) struct Plan<'a> {
    pub(super) terms: Terms,
    /// The working directory.
    pub(super) cwd: &'a CStr,
    program: &'a CStr,
    argv: Pointers<'a>,
    env: Pointers<'a>,
    /// The path of the cgroup that is to be made for the task; empty for none.
    pub(super) cgroup: &'a CStr,
}

/// The descriptors that the task gets.
pub(super) struct Standard {
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

impl<'a> Plan<'a> {
    pub(super) fn read(body: &'a [u8]) -> Option<Self> {
        let mut decoder = Decoder(body);
        Some(Self {
            terms: decoder.terms()?,
            cwd: decoder.string()?,
            program: decoder.string()?,
            argv: Pointers::new(&decoder.strings()?),
            env: Pointers::new(&decoder.strings()?),
            // A daemon that is older than this guardian says nothing of it.
            cgroup: decoder.string().unwrap_or_default(),
        })
    }

    /// Starts the process of the task. What comes back tells how that went: it ends without a word
    /// when the program is being executed, and else says the step and the errno.
    pub(super) fn start(
        &self,
        cwd: &OwnedFd,
        standard: Standard,
        cgroup: Option<&Cgroup>,
        guardian: Pid,
    ) -> io::Result<(Pid, OwnedFd)> {
        let (news, report) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        match sys::fork()? {
            Side::Parent(pid) => Ok((pid, news)),
            Side::Child => {
                // First of all: what it starts is in it, too.
                if let Some(cgroup) = cgroup {
                    cgroup.enter();
                }
                let (step, errno) = self.become_task(cwd, &standard, guardian);
                let mut words = [0; 16];
                words[..8].copy_from_slice(&step.number().to_le_bytes());
                words[8..]
                    .copy_from_slice(&u64::from(errno.raw_os_error().unsigned_abs()).to_le_bytes());
                let _ = write(&report, &words);
                sys::exit(127)
            }
        }
    }

    /// Returns only when the program could not be executed.
    fn become_task(&self, cwd: &OwnedFd, standard: &Standard, guardian: Pid) -> (Step, Errno) {
        let tell = |step| move |errno| (step, errno);
        let failed = (|| {
            setsid().map_err(tell(Step::Task))?;
            set_parent_process_death_signal(Some(Signal::KILL)).map_err(tell(Step::Task))?;
            // It may have died before it was asked for.
            if getppid() != Some(guardian) {
                sys::exit(127);
            }
            for (fd, number) in [(&standard.stdin, 0), (&standard.stdout, 1), (&standard.stderr, 2)]
            {
                sys::become_standard(fd.as_fd().as_raw_fd(), number)
                    .map_err(|error| (Step::Descriptors, errno_of(&error)))?;
            }
            fchdir(cwd).map_err(tell(Step::Cwd))?;
            self.limit().map_err(tell(Step::Limits))?;
            if self.terms.no_new_privileges {
                set_no_new_privs(true).map_err(tell(Step::Limits))?;
            }
            sys::hide_all_others();
            // Their actions are the default ones since the guardian began. One that was sent to this
            // process meanwhile has been kept, and acts now.
            sys::let_signals_through();
            let mut pauses = BUSY_PAUSES.iter();
            loop {
                let errno = sys::execute(self.program, &self.argv, &self.env);
                match pauses.next() {
                    Some(pause) if errno == Errno::TXTBSY => std::thread::sleep(*pause),
                    _ => return Err((Step::Exec, errno)),
                }
            }
        })();
        let Err(failed): Result<std::convert::Infallible, _> = failed;
        failed
    }

    fn limit(&self) -> Result<(), Errno> {
        let both = |value| Rlimit { current: Some(value), maximum: Some(value) };
        if let Some(open_files) = self.terms.open_files {
            setrlimit(Resource::Nofile, both(open_files))?;
        }
        if let Some(address_space) = self.terms.address_space {
            setrlimit(Resource::As, both(address_space))?;
        }
        if let Some(seconds) = self.terms.cpu_seconds {
            // First a signal that a task can act on, then the end.
            let hard = seconds.saturating_add(CPU_GRACE);
            let hard = getrlimit(Resource::Cpu).maximum.map_or(hard, |given| given.min(hard));
            setrlimit(
                Resource::Cpu,
                Rlimit { current: Some(seconds.min(hard)), maximum: Some(hard) },
            )?;
        }
        Ok(())
    }
}

fn errno_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
