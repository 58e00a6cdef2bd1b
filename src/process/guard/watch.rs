//! The loop of a guardian: one `poll`, over everything that can happen to a run.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, read};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SocketFlags, accept_with};
use rustix::process::{Pid, getpid, getuid};
use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};

use super::ending::{End, Phase};
use super::link::{Heard, Link, same};
use super::output::Output;
use super::record::Draft;
use super::spec::Terms;
use super::tree::Tree;
use super::wire::{Cause, Message, Step, VERSION};
use super::{Failed, clock_now};

/// How many connections may wait to say who they are; a newer one takes the place of the oldest.
const WAITING: usize = 4;

/// How often to look at everything when the kernel cannot wait.
const WITHOUT_POLL: Duration = Duration::from_millis(10);

/// What a run keeps on disk, and for whom.
pub(super) struct Files {
    pub(super) directory: OwnedFd,
    pub(super) draft: Draft,
    pub(super) stdout: Output,
    pub(super) stderr: Output,
    pub(super) locks: Vec<OwnedFd>,
}

/// What a guardian waits for, besides the outputs and the daemons.
pub(super) struct Sources {
    /// From the task's process until it executes its program.
    pub(super) news: Option<OwnedFd>,
    pub(super) pidfd: OwnedFd,
    pub(super) timer: OwnedFd,
    pub(super) signals: OwnedFd,
    pub(super) listener: OwnedFd,
}

/// A run that is being watched.
pub(super) struct Watch {
    pub(super) terms: Terms,
    pub(super) task: Pid,
    pub(super) tree: Tree,
    pub(super) files: Files,
    pub(super) sources: Sources,
    /// The daemon that is obeyed.
    pub(super) link: Option<Link>,
    waiting: [Option<Link>; WAITING],
    pub(super) fence: u64,
    pub(super) timeout: Option<u64>,
    pub(super) phase: Phase,
    pub(super) end: End,
    /// For everything that passes through: nothing else is asked for while the task runs.
    pub(super) buffer: Box<[u8]>,
    armed: u64,
}

/// Which of the descriptors had something to say.
#[derive(Default)]
struct Ready {
    news: bool,
    timer: bool,
    signals: bool,
    listener: bool,
    link: bool,
    stdout: bool,
    stderr: bool,
}

impl Watch {
    pub(super) fn new(
        terms: Terms,
        task: Pid,
        tree: Tree,
        files: Files,
        sources: Sources,
        link: Link,
        buffer: Box<[u8]>,
    ) -> Self {
        let now = clock_now();
        Self {
            terms,
            task,
            tree,
            files,
            sources,
            link: Some(link),
            waiting: [const { None }; WAITING],
            fence: terms.fence,
            timeout: terms.timeout.map(|timeout| now.saturating_add(timeout)),
            phase: Phase::Running,
            end: End::new(),
            buffer,
            armed: 0,
        }
    }

    /// Watches the run to its end.
    ///
    /// The connection comes back so that it can be closed last of all: who sees its end may take the
    /// lock of the run.
    pub(super) fn run(mut self) -> Result<Option<Link>, Failed> {
        loop {
            self.arm();
            let ready = self.wait();
            if ready.news {
                self.hear_news()?;
            }
            if ready.stdout {
                self.files.stdout.drain(self.files.directory.as_fd(), &mut self.buffer);
            }
            if ready.stderr {
                self.files.stderr.drain(self.files.directory.as_fd(), &mut self.buffer);
            }
            if ready.timer {
                let _ = read(&self.sources.timer, &mut self.buffer[..8]);
                self.armed = 0;
            }
            if ready.signals {
                // Only that there were some matters.
                while read(&self.sources.signals, &mut *self.buffer).is_ok_and(|length| length > 0)
                {
                }
                self.tree.reap_orphans(self.phase.is_ending(), &mut self.buffer);
            }
            // Before any order: a task that has ended by itself has a result, and no order takes it
            // away.
            self.notice_end();
            if ready.link {
                self.hear_link();
            }
            self.hear_waiting();
            if ready.listener {
                self.accept();
            }
            if self.advance() {
                self.finish();
                return Ok(self.link);
            }
        }
    }

    /// Sets the timer to the next moment at which something is due.
    fn arm(&mut self) {
        let due = self.due().max(1);
        if due == self.armed {
            return;
        }
        let value = Timespec {
            tv_sec: i64::try_from(due / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(due % 1_000_000_000).unwrap_or(0),
        };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let setting = Itimerspec { it_interval: never, it_value: value };
        if timerfd_settime(&self.sources.timer, TimerfdTimerFlags::ABSTIME, &setting).is_ok() {
            self.armed = due;
        }
    }

    fn wait(&self) -> Ready {
        // A place whose descriptor is not there asks nothing of the timer, which has no state that
        // is reported unasked.
        let idle = PollFd::new(&self.sources.timer, PollFlags::empty());
        fn input<Fd: AsFd>(fd: &Fd) -> PollFd<'_> {
            PollFd::new(fd, PollFlags::IN)
        }
        fn or_idle<'a>(fd: Option<PollFd<'a>>, idle: &PollFd<'a>) -> PollFd<'a> {
            fd.unwrap_or_else(|| idle.clone())
        }
        let [one, two, three, four] = &self.waiting;
        let leader_runs = self.end.leader.is_none();
        let mut fds = [
            or_idle(self.sources.news.as_ref().map(input), &idle),
            input(&self.sources.timer),
            input(&self.sources.signals),
            input(&self.sources.listener),
            or_idle(self.link.as_ref().map(input), &idle),
            or_idle(self.files.stdout.pipe.as_ref().map(input), &idle),
            or_idle(self.files.stderr.pipe.as_ref().map(input), &idle),
            or_idle(leader_runs.then(|| input(&self.sources.pidfd)), &idle),
            or_idle(one.as_ref().map(input), &idle),
            or_idle(two.as_ref().map(input), &idle),
            or_idle(three.as_ref().map(input), &idle),
            or_idle(four.as_ref().map(input), &idle),
        ];
        let failed = poll(&mut fds, None).is_err_and(|errno| errno != Errno::INTR);
        if failed {
            // The kernel lacks memory for the call. Nothing below waits for anything, so everything
            // can be looked at in a while.
            std::thread::sleep(WITHOUT_POLL);
        }
        let [news, timer, signals, listener, link, stdout, stderr, ..] =
            fds.map(|fd| failed || !fd.revents().is_empty());
        Ready {
            news: news && self.sources.news.is_some(),
            timer,
            signals,
            listener,
            link: link && self.link.is_some(),
            stdout: stdout && self.files.stdout.pipe.is_some(),
            stderr: stderr && self.files.stderr.pipe.is_some(),
        }
    }

    /// The task's process has become its program, or has said why it could not.
    fn hear_news(&mut self) -> Result<(), Failed> {
        let Some(news) = &self.sources.news else { return Ok(()) };
        let mut words = [0; 16];
        match read(news, &mut words) {
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Ok(16) => {
                let [step, errno] = [0, 8].map(|at| {
                    let mut word = [0; 8];
                    word.copy_from_slice(&words[at..at + 8]);
                    u64::from_le_bytes(word)
                });
                self.tree.abandon();
                let step = Step::from_number(step).unwrap_or(Step::Exec);
                let errno = i32::try_from(errno).unwrap_or(0);
                return Err(Failed::at(step, Errno::from_raw_os_error(errno)));
            }
            Ok(_) | Err(_) => {}
        }
        self.sources.news = None;
        if let Some(link) = &self.link {
            link.say(Message::Started { guardian: number(getpid()), task: number(self.task) });
        }
        Ok(())
    }

    fn hear_link(&mut self) {
        while let Some(link) = &mut self.link {
            match link.hear() {
                Heard::Nothing => return,
                // The daemon has gone. What it has left goes on until the fence.
                Heard::Closed => self.link = None,
                // A fence that ends a run is not taken back.
                Heard::Message(Message::Extend { fence }) => {
                    if !self.phase.is_ending() {
                        self.fence = self.fence.max(fence);
                    }
                }
                Heard::Message(Message::Stop { grace, reason }) => {
                    let cause = match Cause::from_number(reason) {
                        Some(cause @ (Cause::Cancel | Cause::Timeout | Cause::Fence)) => cause,
                        _ => Cause::Stop,
                    };
                    self.stop(cause, grace);
                }
                Heard::Message(_) => {}
            }
        }
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Not all that there are: whoever connects without end keeps nobody else waiting.
        for _ in 0..WAITING {
            let Ok(socket) = accept_with(&self.sources.listener, flags) else { return };
            // The directory keeps others out; this does, too, when it was opened to them.
            if !socket_peercred(&socket).is_ok_and(|peer| peer.uid == getuid()) {
                continue;
            }
            self.waiting.rotate_right(1);
            if let Some(link) = self.waiting[0].replace(Link::new(socket)) {
                link.say(Message::Refused);
            }
        }
    }

    /// Hears who those are that have connected. Whoever shows the token takes the daemon's place.
    fn hear_waiting(&mut self) {
        // The oldest come first, so that the last who came is obeyed: of several who came while this process was kept
        // from running the others may have given up, or be dead.
        for slot in (0..WAITING).rev() {
            let Some(link) = &mut self.waiting[slot] else { continue };
            let hello = match link.hear() {
                Heard::Nothing => continue,
                Heard::Message(Message::Hello { token, look, .. })
                    if same(&token, &self.terms.token) =>
                {
                    Some(look)
                }
                Heard::Message(_) => {
                    link.say(Message::Refused);
                    None
                }
                Heard::Closed => None,
            };
            let link = self.waiting[slot].take();
            let (Some(look), Some(link)) = (hello, link) else { continue };
            link.say(Message::Welcome {
                version: VERSION,
                guardian: number(getpid()),
                task: number(self.task),
                fence: self.fence,
                ending: self.phase.is_ending(),
            });
            if look {
                continue;
            }
            if let Some(before) = self.link.replace(link) {
                before.say(Message::Displaced);
            }
            self.hear_link();
        }
    }
}

fn number(pid: Pid) -> u64 {
    u64::from(pid.as_raw_nonzero().get().unsigned_abs())
}
