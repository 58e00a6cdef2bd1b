//! A task as a direct child of this process, in a process group of its own.
//!
//! Its limits are those of a process group: a descendant that leaves the group (`setsid`, a shell
//! with job control) lives on, and so does the whole task when this process is killed with SIGKILL.
//! Signals that this process ignores, other than SIGPIPE, are ignored by the task too, and
//! descriptors that others have opened without close-on-exec are inherited.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::exit_watch::ExitWatch;
use super::group::has_living_members;
use super::leader::{Leader, reap_stragglers};
use super::output::Output;
use super::spawn::spawn;
use super::temp_file::OwnedFile;
use super::{End, Ending, SpawnError, SpawnFault, TaskCommand};

/// How long the pipes may stay open after the leader has exited.
const PIPES_PATIENCE: Duration = Duration::from_secs(2);
/// How long killed members of the group may take to be gone.
const GONE_PATIENCE: Duration = Duration::from_secs(1);
/// What the last bytes in the pipes of killed processes need to be read.
const LAST_BYTES: Duration = Duration::from_millis(20);
/// How soon, and at last how seldom, to look whether members are left: there is no descriptor for a
/// group.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(200));

/// A task that was started. It is watched, and its output is read, whether or not anybody waits.
///
/// Dropping it kills the task. Without the runtime that it was started in it cannot go on either:
/// when that is dropped the task is killed and reaped, too.
#[derive(Debug)]
pub struct Running {
    stopper: Stopper,
    ending: watch::Receiver<Option<Ending>>,
}

/// Stops a task, from any thread, while others wait for it. All clones stop the same task, and one
/// that outlives the task does nothing.
#[derive(Clone)]
pub struct Stopper {
    leader: Arc<Leader>,
}

impl Running {
    /// Starts the task. Must be called inside a tokio runtime, of either flavour, with IO and time
    /// enabled.
    ///
    /// Blocks until the program is being executed: well under a millisecond, but up to 42 ms longer
    /// when it is open for writing.
    ///
    /// # Errors
    /// Nothing was started, and nothing is left behind.
    ///
    /// # Panics
    /// When IO or time is not enabled in the runtime.
    pub fn spawn(command: &TaskCommand) -> Result<Self, SpawnError> {
        Self::spawn_holding(command, Vec::new())
    }

    /// As [`Running::spawn`], and keeps these locks of the machine, which must be close-on-exec, until the task's group
    /// is gone: they are closed before anybody hears of the end.
    ///
    /// # Errors
    /// As [`Running::spawn`]; the locks are closed.
    ///
    /// # Panics
    /// As [`Running::spawn`].
    pub fn spawn_holding(command: &TaskCommand, locks: Vec<OwnedFd>) -> Result<Self, SpawnError> {
        let run_id = &command.identity.run_id;
        let runtime = Handle::try_current().map_err(|error| {
            SpawnError::new(run_id, SpawnFault::NoRuntime, Some(io::Error::other(error)))
        })?;
        reap_stragglers();
        // What the runtime may refuse, by a panic too, comes before there is a process.
        drop(tokio::time::sleep(Duration::ZERO));
        let (output, writers) = Output::open(command.keep_stdout)
            .map_err(|source| SpawnError::system(run_id, SpawnFault::Other, source))?;
        let spawned = spawn(command, writers.stdout, writers.stderr)?;

        let leader = Arc::new(Leader::new(spawned.pid));
        let (publish, ending) = watch::channel(None);
        let watch = ExitWatch::new(&leader);
        let (leader_too, temp_file) = (leader.clone(), spawned.temp_file);
        let keeper = Keeper { leader: leader_too, watch, output, temp_file, locks, publish };
        runtime.spawn(keeper.keep());
        Ok(Self { stopper: Stopper { leader }, ending })
    }

    /// The number of its process, which is that of its group. For people to read: signal by
    /// [`Stopper`] only.
    pub fn pid(&self) -> u32 {
        self.stopper.leader.pid().as_raw_nonzero().get().unsigned_abs()
    }

    /// A handle that stops the task.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Waits for the end of the task: its leader has exited, its group is killed, the temporary
    /// file is removed. That takes at most 3 s after the exit, 2 s of them for whoever still holds
    /// the pipes, or what is left of the grace when the task is being stopped. Dropping the future
    /// changes nothing, and a later call gives the same answer.
    pub async fn wait(&mut self) -> Ending {
        if let Ok(ending) = self.ending.wait_for(Option::is_some).await
            && let Some(ending) = &*ending
        {
            return ending.clone();
        }
        Ending {
            end: End::Lost,
            stopped: self.stopper.leader.was_stopped(),
            stdout: Default::default(),
            stderr: Default::default(),
            whole_stdout: None,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.kill();
    }
}

impl Stopper {
    /// Asks the task to end: TERM to its group, and CONT, since a stopped process would not see it.
    /// What has not ended after `grace` is killed. Asking again sends no second TERM; it can only
    /// bring the kill forward.
    ///
    /// Returns whether the task was still running. If not, its own end stands and this changes
    /// nothing.
    pub fn terminate(&self, grace: Duration) -> bool {
        self.leader.terminate(grace)
    }

    /// Kills the task's group at once. Returns whether the task was still running.
    pub fn kill(&self) -> bool {
        self.leader.kill()
    }
}

impl std::fmt::Debug for Stopper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stopper").field("pid", &self.leader.pid()).finish()
    }
}

/// Runs a task to its end, blocking, for callers without a runtime. Inside one it works as well, on
/// a thread of its own for as long as the task runs, but keeps the caller's thread waiting.
///
/// # Errors
/// Nothing was started, and nothing is left behind.
pub fn run_to_end(command: &TaskCommand) -> Result<Ending, SpawnError> {
    if Handle::try_current().is_err() {
        return run_in_new_runtime(command);
    }
    let failed = |source| SpawnError::system(&command.identity.run_id, SpawnFault::Other, source);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .spawn_scoped(scope, || run_in_new_runtime(command))
            .map_err(failed)?;
        thread.join().unwrap_or_else(|_| {
            Err(failed(io::Error::other("the thread that ran the task panicked")))
        })
    })
}

fn run_in_new_runtime(command: &TaskCommand) -> Result<Ending, SpawnError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|source| {
            SpawnError::system(&command.identity.run_id, SpawnFault::NoRuntime, source)
        })?;
    runtime.block_on(async { Ok(Running::spawn(command)?.wait().await) })
}

/// Watches one task to its end: the only one that reaps it.
struct Keeper {
    leader: Arc<Leader>,
    watch: ExitWatch,
    output: Output,
    temp_file: Option<OwnedFile>,
    locks: Vec<OwnedFd>,
    publish: watch::Sender<Option<Ending>>,
}

impl Keeper {
    async fn keep(mut self) {
        let end = self.leader_exit().await;
        let exited = Instant::now();
        if end != End::Unkillable {
            self.leave_time_for_the_rest(exited + PIPES_PATIENCE).await;
        }
        self.leader.kill_and_reap();
        let gone = self.group_gone().await;
        let last = (exited + PIPES_PATIENCE).max(Instant::now() + LAST_BYTES);
        let _ = timeout_at(last, self.output.drain()).await;
        if gone {
            self.locks.clear();
        }
        self.finish(end);
        // What cannot be killed may still be at work on what the locks protect.
        while !self.locks.is_empty() && self.has_members() {
            tokio::time::sleep(LOOK_AGAIN.1).await;
        }
    }

    async fn leader_exit(&mut self) -> End {
        loop {
            let deadline = self.leader.deadline();
            tokio::select! {
                biased;
                end = self.watch.exited(&self.leader) => return end,
                () = self.leader.changed.notified() => {}
                () = until(deadline) => if self.leader.press() {
                    return End::Unkillable;
                },
                () = self.output.drain(), if !self.output.is_ended() => {}
            }
        }
    }

    /// The leader is a zombie. What it has started may still have something to say: until the pipes
    /// are closed, but not longer than `patience`; or, when the task is being stopped, until the
    /// group is gone or its grace is over.
    async fn leave_time_for_the_rest(&mut self, patience: Instant) {
        let mut pause = LOOK_AGAIN.0;
        loop {
            let kill_at = self.leader.kill_at();
            let now = Instant::now();
            let done = match kill_at {
                Some(kill_at) => now >= kill_at || !has_living_members(self.leader.pid()),
                None => now >= patience || self.output.is_ended(),
            };
            if done || self.leader.was_killed() {
                return;
            }
            let look_again = kill_at.map_or(patience, |at| at.min(now + pause));
            pause = (pause * 2).min(LOOK_AGAIN.1);
            tokio::select! {
                biased;
                () = self.leader.changed.notified() => {}
                () = sleep_until(look_again) => {}
                () = self.output.drain(), if !self.output.is_ended() => {}
            }
        }
    }

    /// Killed processes need a moment to be gone, and who hears of the end may start the next owner
    /// of what they held. As a rule this is one system call. Answers whether none is left.
    async fn group_gone(&mut self) -> bool {
        let patience = Instant::now() + GONE_PATIENCE;
        let mut pause = LOOK_AGAIN.0;
        while self.has_members() {
            if Instant::now() >= patience {
                tracing::warn!(
                    group = self.leader.pid().as_raw_nonzero().get(),
                    "members of a killed process group are still there"
                );
                return false;
            }
            let look_again = Instant::now() + pause;
            pause = (pause * 2).min(LOOK_AGAIN.1);
            tokio::select! {
                () = sleep_until(look_again) => {}
                () = self.output.drain(), if !self.output.is_ended() => {}
            }
        }
        true
    }

    /// The number may be somebody else's by now: it is only asked about, never signalled.
    fn has_members(&self) -> bool {
        let pid = self.leader.pid();
        rustix::process::test_kill_process_group(pid).is_ok() && has_living_members(pid)
    }

    fn finish(&mut self, end: End) {
        // Before anybody hears of the end: after it, nothing of the run is left.
        self.temp_file = None;
        let (stdout, stderr, whole_stdout) = self.output.take();
        let stopped = self.leader.was_stopped();
        self.publish.send_replace(Some(Ending { end, stopped, stdout, stderr, whole_stdout }));
    }
}

/// Reached early only when the runtime is dropped, or panics: nobody could watch the task any more.
impl Drop for Keeper {
    fn drop(&mut self) {
        if self.publish.borrow().is_none() {
            let end = self.leader.kill_and_reap_blocking();
            self.finish(end);
        }
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
