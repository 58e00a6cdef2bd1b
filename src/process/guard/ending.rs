//! The end of a run, from its cause to the last byte of its record.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{AtFlags, unlinkat};
use rustix::process::Signal;
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::layout::{SOCKET, TASK_FILE};
use super::record::Durability;
use super::tree::NAMED;
use super::watch::Watch;
use super::wire::{Cause, Message, Outcome, Summary};
use super::{clock_now, record, sys};

const MILLISECOND: u64 = 1_000_000;
/// How long what a task has left behind may go on writing, when the task itself has ended.
const LINGER: u64 = 1000 * MILLISECOND;
/// What it then has between TERM and KILL, if that is less than the grace.
const LEFTOVER_GRACE: u64 = 500 * MILLISECOND;
/// How long after the end of the task, or the beginning of its end, its pipes are read.
const PIPES: u64 = 2000 * MILLISECOND;
/// What the last bytes in a pipe take at most, however late it is.
const LAST_BYTES: u64 = 50 * MILLISECOND;
/// How long what was sent KILL may take to be gone.
const KILL_PATIENCE: u64 = 5000 * MILLISECOND;
/// How often to kill again, at first and at last. The death of a child is noticed at once; this is
/// for what the list of children did not show.
const AGAIN: (u64, u64) = (2 * MILLISECOND, 50 * MILLISECOND);
/// How many rounds of killing may follow each other at once.
const ROUNDS: usize = 64;

/// How far the end of a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not at all.
    Running,
    /// The task has ended by itself and has left something, which may finish what it writes.
    Lingering { term_at: u64 },
    /// TERM was sent.
    Terminating { kill_at: u64 },
    /// KILL was sent.
    Killing { since: u64, again_at: u64, pause: u64 },
    /// No process is left, or none that can be killed; there may be bytes in the pipes.
    Draining { until: u64 },
}

impl Phase {
    pub(super) fn is_ending(self) -> bool {
        self != Self::Running
    }
}

/// What is known of the end.
pub(super) struct End {
    cause: Option<Cause>,
    /// How the leader has left.
    pub(super) leader: Option<(Outcome, u64)>,
    began_at: u64,
    unkillable: ([i32; NAMED], usize),
    gone: bool,
    started_micros: u64,
}

impl End {
    pub(super) fn new() -> Self {
        Self {
            cause: None,
            leader: None,
            began_at: 0,
            unkillable: ([0; NAMED], 0),
            gone: false,
            started_micros: wall_micros(),
        }
    }
}

impl Watch {
    /// When something is due next.
    pub(super) fn due(&self) -> u64 {
        match self.phase {
            Phase::Running => self.timeout.map_or(self.fence, |at| at.min(self.fence)),
            Phase::Lingering { term_at } => term_at,
            Phase::Terminating { kill_at } => kill_at,
            Phase::Killing { again_at, .. } => again_at,
            Phase::Draining { until } => until,
        }
    }

    /// Looks whether the leader has left.
    pub(super) fn notice_end(&mut self) {
        if self.end.leader.is_none() {
            self.end.leader = self.tree.leader_end();
        }
        if self.end.leader.is_some() && self.phase == Phase::Running {
            let now = clock_now();
            self.begin(Cause::Task, now);
            self.phase = Phase::Lingering { term_at: (now + LINGER).min(self.fence.max(now)) };
        }
    }

    /// Ends the task, unless it has ended. Asked again, only an earlier end can be asked for.
    pub(super) fn stop(&mut self, cause: Cause, grace: u64) {
        self.notice_end();
        let now = clock_now();
        match &mut self.phase {
            Phase::Running => {
                self.begin(cause, now);
                self.terminate(now, grace);
            }
            Phase::Terminating { kill_at } if self.end.cause != Some(Cause::Task) => {
                *kill_at = now.saturating_add(grace).min(*kill_at);
            }
            _ => {}
        }
    }

    fn begin(&mut self, cause: Cause, now: u64) {
        self.end.cause = Some(cause);
        self.end.began_at = now;
    }

    fn terminate(&mut self, now: u64, grace: u64) {
        self.tree.signal(Signal::TERM);
        // A stopped process would not see the TERM until somebody lets it run again.
        self.tree.signal(Signal::CONT);
        // Whatever was asked for: by then nothing may be left.
        let last = self.fence.saturating_add(self.terms.lease_grace);
        self.phase = Phase::Terminating { kill_at: now.saturating_add(grace).min(last) };
    }

    /// Does what is due, and says whether the run is over.
    pub(super) fn advance(&mut self) -> bool {
        loop {
            let now = clock_now();
            let before = self.phase;
            match self.phase {
                Phase::Running => {
                    let own = self.terms.grace;
                    let (cause, grace) = if now >= self.fence {
                        (Cause::Fence, own.min(self.terms.lease_grace))
                    } else if self.timeout.is_some_and(|at| now >= at) {
                        (Cause::Timeout, own)
                    } else {
                        return false;
                    };
                    self.stop(cause, grace);
                }
                Phase::Lingering { term_at } => {
                    let quiet = self.outputs_ended();
                    if self.tree.reap_orphans(true, &mut self.buffer) == 0 {
                        self.begin_killing(now);
                    } else if quiet || now >= term_at {
                        self.terminate(now, LEFTOVER_GRACE.min(self.terms.grace));
                    }
                }
                Phase::Terminating { kill_at } => {
                    let gone = self.end.leader.is_some()
                        && self.tree.reap_orphans(true, &mut self.buffer) == 0;
                    if gone || now >= kill_at {
                        self.begin_killing(now);
                    }
                }
                Phase::Killing { since, pause, .. } => {
                    if self.kill_all() || now >= since + KILL_PATIENCE {
                        self.begin_draining(now);
                    } else {
                        let pause = (pause * 2).min(AGAIN.1);
                        self.phase = Phase::Killing { since, again_at: now + pause, pause };
                        return false;
                    }
                }
                Phase::Draining { until } => return self.outputs_ended() || now >= until,
            }
            if self.phase == before {
                return false;
            }
        }
    }

    fn outputs_ended(&self) -> bool {
        self.files.stdout.pipe.is_none() && self.files.stderr.pipe.is_none()
    }

    fn begin_killing(&mut self, now: u64) {
        self.phase = Phase::Killing { since: now, again_at: now, pause: AGAIN.0 };
    }

    /// Kills what there is, and says whether that was all.
    fn kill_all(&mut self) -> bool {
        for _ in 0..ROUNDS {
            let round = self.tree.kill(&mut self.buffer);
            if self.end.leader.is_none() {
                self.end.leader = self.tree.leader_end();
            }
            if round.seen == 0 && self.end.leader.is_some() {
                self.tree.reap_leader();
                if self.tree.is_gone() {
                    self.end.gone = true;
                    return true;
                }
            } else if round.reaped == 0 {
                // What was killed needs a moment; its end wakes us.
                return false;
            }
        }
        false
    }

    fn begin_draining(&mut self, now: u64) {
        if !self.end.gone {
            self.end.unkillable = self.tree.living(&mut self.buffer);
        }
        let from = if self.end.cause == Some(Cause::Task) { self.end.began_at } else { now };
        self.phase = Phase::Draining { until: (from + PIPES).max(now + LAST_BYTES) };
    }

    /// Writes the record, tells the daemon, and stays only as long as something cannot be killed.
    pub(super) fn finish(&mut self) {
        let Self { files, buffer, .. } = self;
        for output in [&mut files.stdout, &mut files.stderr] {
            output.pipe = None;
            output.log.join(buffer);
        }
        let _ = unlinkat(&files.directory, TASK_FILE, AtFlags::empty());
        if self.end.gone {
            // Whoever hears of the end may start the next owner of what they held.
            files.locks.clear();
        }
        let mut summary = self.summary();
        let (pids, count) = &self.end.unkillable;
        let record = record::End {
            summary,
            unkillable: &pids[..*count],
            stdout: &self.files.stdout,
            stderr: &self.files.stderr,
        };
        let directory = self.files.directory.as_fd();
        // A daemon that hears of the end has it in its store within milliseconds, and syncs the record
        // itself if it has not. Where nobody listens, the record is all there is.
        let durability = if self.link.is_some() { Durability::Kill } else { Durability::Power };
        let written = record
            .write(&mut self.buffer)
            .map_err(|_| rustix::io::Errno::OVERFLOW)
            .and_then(|record| self.files.draft.publish(directory, record, durability));
        match written {
            Ok(()) => {
                self.files.stdout.log.remove_segments(directory);
                self.files.stderr.log.remove_segments(directory);
            }
            Err(errno) => {
                summary.record_errno = u64::from(errno.raw_os_error().unsigned_abs());
            }
        }
        let _ = unlinkat(directory, SOCKET, AtFlags::empty());
        let heard = self.link.as_ref().is_some_and(|link| link.say(Message::Exited(summary)));
        if written.is_ok() && durability == Durability::Kill && !heard {
            let _ = self.files.draft.sync(directory);
        }
        while !self.end.gone {
            // It holds what it holds, and so do we: the machine locks, and the lock of the run.
            let second = Timespec { tv_sec: 1, tv_nsec: 0 };
            let mut fds = [PollFd::new(&self.sources.signals, PollFlags::empty())];
            let _ = poll(&mut fds, Some(&second));
            self.kill_all();
        }
    }

    fn summary(&self) -> Summary {
        let usage = sys::children_usage();
        let (outcome, value) = self.end.leader.unwrap_or((Outcome::Unkillable, 0));
        Summary {
            ended_by: self.end.cause.unwrap_or(Cause::Stop).number(),
            outcome: outcome.number(),
            value,
            user_micros: usage.user_micros,
            system_micros: usage.system_micros,
            max_rss_kib: usage.max_rss_kib,
            leftovers: self.tree.leftovers,
            unkillable: self.end.unkillable.1 as u64,
            stdout_bytes: self.files.stdout.log.total,
            stderr_bytes: self.files.stderr.log.total,
            started_micros: self.end.started_micros,
            ended_micros: wall_micros(),
            record_errno: 0,
        }
    }
}

/// The time of day, for people to read.
fn wall_micros() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000
        + u64::try_from(now.tv_nsec).unwrap_or(0) / 1000
}
