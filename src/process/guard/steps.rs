//! The processes of a workflow: its steps, one after another, under the process that is the task.
//!
//! That process, the *runner*, is this same program, executed again. It has one thread and no runtime, and every orphan
//! below it becomes its child, so that nothing which a step has left is there when the next one begins. A step is a
//! session of its own, as a task is, and dies with its runner.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags, open, openat};
use rustix::io::{Errno, fcntl_dupfd_cloexec, read};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, getpid, kill_process, pidfd_open,
    set_child_subreaper, setrlimit,
};
use rustix::time::Timespec;

use super::spec::{Encoder, Terms};
use super::sys;
use super::task::{Plan, Standard};
use super::tree::Tree;
use super::wire::{Outcome, Step};
use crate::process::guardian::Limits;
use crate::process::spawn::Prepared;
use crate::process::spawn_error::SpawnFault;
use crate::process::stdin::input;
use crate::process::temp_file::OwnedFile;
use crate::process::{End, SpawnError, TaskCommand};

/// How long what a step has left may take to end after TERM.
const LEFTOVER_GRACE: Duration = Duration::from_secs(1);
/// How long what was sent KILL may take to be gone.
const KILL_PATIENCE: Duration = Duration::from_secs(5);
/// How soon to look again for what the list of children did not show.
const AGAIN: Duration = Duration::from_millis(10);
/// Room for a list of children.
const BUFFER: usize = 4096;

/// The runner's own side.
pub(crate) struct Stage {
    /// Readable once somebody has asked the runner to end.
    told: OwnedFd,
    /// Readable when a child has changed.
    changed: OwnedFd,
    stopped: bool,
    buffer: Box<[u8]>,
}

/// How a step has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepEnd {
    /// By itself, and nothing of it is left.
    Own(End),
    /// Since the runner was told to end. That is no result.
    Stopped(End),
    /// By itself, but something that it has left cannot be killed.
    Unkillable,
}

impl Stage {
    /// Makes a runner of this process, and reads all that it was given. Its standard input is empty from then on: no step
    /// can read it, not by way of `/proc` either.
    ///
    /// # Errors
    /// The kernel lacks something.
    pub(crate) fn enter() -> io::Result<(Stage, Vec<u8>)> {
        sys::hold_back_signals();
        set_child_subreaper(Some(getpid()))?;
        let mut given = Vec::new();
        File::from(sys::take_standard_input()?).read_to_end(&mut given)?;
        let null = null()?;
        sys::become_standard(null.as_raw_fd(), 0)?;
        let stage = Stage {
            told: sys::end_signals()?,
            changed: sys::child_signals()?,
            stopped: false,
            buffer: vec![0; BUFFER].into_boxed_slice(),
        };
        Ok((stage, given))
    }

    /// Sets variables of the runner that no step sees: the steps are given what they see one by one.
    pub(crate) fn know(&self, variables: &[(OsString, OsString)]) {
        for (name, value) in variables {
            sys::set_variable(name, value);
        }
    }

    /// Whether somebody has asked the runner to end.
    pub(crate) fn is_told(&mut self) -> bool {
        self.wait(None, Duration::ZERO);
        self.stopped
    }

    /// Waits for so long, or until somebody asks the runner to end.
    pub(crate) fn pause(&mut self, length: Duration) {
        let until = Instant::now() + length;
        while !self.stopped && Instant::now() < until {
            self.wait(None, until.saturating_duration_since(Instant::now()));
        }
    }

    /// Runs a step to its end. Its outputs are the runner's, and its environment is what the command says and nothing
    /// else.
    ///
    /// # Errors
    /// Nothing was started.
    pub(crate) fn run(
        &mut self,
        command: &TaskCommand,
        limits: Limits,
    ) -> Result<StepEnd, SpawnError> {
        let mut file = None;
        let prepared = Prepared::new(command, [], |temp| {
            Ok(file.insert(OwnedFile::create(&temp.contents)?).path().into())
        })?;
        let (mut tree, leader) = start(command, &prepared, limits)?;
        let watched = pidfd_open(leader, PidfdFlags::empty()).ok();
        let mut told = false;
        let outcome = loop {
            // What has ended by itself has a result, and no signal takes it away.
            if let Some(outcome) = tree.leader_end() {
                break outcome;
            }
            if self.stopped && !told {
                told = true;
                tree.signal(Signal::TERM);
                // A stopped process would not see the TERM.
                tree.signal(Signal::CONT);
            }
            let patience = watched.as_ref().map_or(AGAIN, |_| Duration::from_secs(3600));
            self.wait(watched.as_ref(), patience);
            tree.reap_orphans(false, &mut self.buffer);
        };
        let end = end(outcome);
        if told {
            return Ok(StepEnd::Stopped(end));
        }
        Ok(if self.sweep(&mut tree) { StepEnd::Own(end) } else { StepEnd::Unkillable })
    }

    /// Ends all that is left of a step whose leader has ended, and says whether it is gone.
    fn sweep(&mut self, tree: &mut Tree) -> bool {
        let mut until = Instant::now() + LEFTOVER_GRACE;
        if tree.reap_orphans(true, &mut self.buffer) > 0 {
            tree.signal(Signal::TERM);
            tree.signal(Signal::CONT);
            while tree.reap_orphans(true, &mut self.buffer) > 0 && Instant::now() < until {
                self.wait(None, AGAIN);
            }
        }
        until = Instant::now() + KILL_PATIENCE;
        loop {
            let round = tree.kill(&mut self.buffer);
            if round.seen == 0 {
                tree.reap_leader();
                if tree.is_gone() {
                    return true;
                }
            }
            if Instant::now() >= until {
                return false;
            }
            if round.reaped == 0 {
                self.wait(None, AGAIN);
            }
        }
    }

    /// Waits until a child changes, the process does, or somebody asks the runner to end; so long at the most.
    fn wait(&mut self, process: Option<&OwnedFd>, patience: Duration) {
        let patience = Timespec::try_from(patience).ok();
        let idle = PollFd::new(&self.changed, PollFlags::IN);
        let mut fds = [
            PollFd::new(&self.told, PollFlags::IN),
            idle.clone(),
            process.map_or(idle, |process| PollFd::new(process, PollFlags::IN)),
        ];
        if poll(&mut fds, patience.as_ref()).is_err_and(|errno| errno != Errno::INTR) {
            std::thread::sleep(AGAIN);
        }
        let [told, changed, _] = fds.map(|fd| !fd.revents().is_empty());
        if changed {
            while read(&self.changed, &mut *self.buffer).is_ok_and(|length| length > 0) {}
        }
        // It stays readable: that is how it is told for good.
        self.stopped |= told;
    }

    /// Leaves as the step has ended, so that who waits for the runner sees the step's end.
    pub(crate) fn leave_as(self, end: End) -> ! {
        match end {
            End::Exited(code) => sys::exit(code),
            End::Signalled { signal, .. } => {
                // The step has left its core, if any.
                let none = Rlimit { current: Some(0), maximum: Some(0) };
                let _ = setrlimit(Resource::Core, none);
                sys::let_signals_through();
                if let Some(signal) = Signal::from_named_raw(signal) {
                    let _ = kill_process(getpid(), signal);
                }
                sys::exit(128 + (signal & 127))
            }
            End::Unkillable | End::Lost => sys::exit(1),
        }
    }
}

fn null() -> io::Result<OwnedFd> {
    Ok(open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Starts the process of a step; once this has returned its program is being executed.
fn start(
    command: &TaskCommand,
    prepared: &Prepared,
    limits: Limits,
) -> Result<(Tree, Pid), SpawnError> {
    let run_id = command.identity.run_id.as_str();
    let setup = |step| {
        move |error: io::Error| SpawnError::system(run_id, SpawnFault::Setup { step }, error)
    };
    let outputs = setup("giving it its input and outputs");
    let duplicate = |fd: BorrowedFd<'_>| fcntl_dupfd_cloexec(fd, 3).map_err(io::Error::from);
    let stdin = match &command.stdin {
        Some(bytes) => input(bytes).map(OwnedFd::from),
        None => null(),
    };
    let standard = Standard {
        stdin: stdin.map_err(&outputs)?,
        stdout: duplicate(rustix::stdio::stdout()).map_err(&outputs)?,
        stderr: duplicate(rustix::stdio::stderr()).map_err(&outputs)?,
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let here = openat(CWD, ".", flags, Mode::empty())
        .map_err(|errno| setup("opening its directory")(errno.into()))?;
    let children = Tree::open_children().map_err(|errno| setup("watching it")(errno.into()))?;

    let body = encode(prepared, limits);
    let plan = Plan::read(&body)
        .ok_or_else(|| setup("reading what is to be started")(io::ErrorKind::InvalidData.into()))?;
    let (leader, news) =
        plan.start(&here, standard, None, getpid()).map_err(setup("creating it"))?;
    let mut tree = Tree::new(leader, children, None);
    match hear(&news) {
        None => Ok((tree, leader)),
        Some((step, errno)) => {
            tree.abandon();
            let error = prepared.start_error(command, step, errno);
            Err(error.unwrap_or_else(|| setup("starting it")(errno.into())))
        }
    }
}

/// As a guardian is told it, but for what only a guardian does.
fn encode(prepared: &Prepared, limits: Limits) -> Vec<u8> {
    let mut encoder = Encoder::new(&Terms {
        token: [0; 32],
        fence: u64::MAX,
        grace: 0,
        lease_grace: 0,
        timeout: None,
        open_files: limits.open_files,
        address_space: limits.address_space,
        cpu_seconds: limits.cpu_seconds,
        no_new_privileges: false,
        log_cap: 0,
    });
    encoder.command(None, prepared);
    encoder.finish()
}

/// Waits until the process has become its program, or says why it could not.
fn hear(news: &OwnedFd) -> Option<(Step, Errno)> {
    let mut words = [0; 16];
    loop {
        match read(news, &mut words) {
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::new(news, PollFlags::IN)], None);
            }
            Err(Errno::INTR) => {}
            Ok(16) => {
                let word = |at: usize| {
                    let mut word = [0; 8];
                    word.copy_from_slice(&words[at..at + 8]);
                    u64::from_le_bytes(word)
                };
                let errno = i32::try_from(word(8)).unwrap_or(0);
                let step = Step::from_number(word(0)).unwrap_or(Step::Exec);
                return Some((step, Errno::from_raw_os_error(errno)));
            }
            Ok(_) | Err(_) => return None,
        }
    }
}

fn end((outcome, value): (Outcome, u64)) -> End {
    let value = i32::try_from(value).unwrap_or(i32::MAX);
    match outcome {
        Outcome::Exited => End::Exited(value),
        Outcome::Signalled => End::Signalled { signal: value, core_dumped: false },
        Outcome::Dumped => End::Signalled { signal: value, core_dumped: true },
        Outcome::Unkillable => End::Unkillable,
        Outcome::Lost => End::Lost,
    }
}
