//! How an executor runs a task: as a child process, or by whatever a host or a test puts in its place.

use std::fmt;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::domain::ending::{EndedBy, ExecuteError, Execution, Usage};
use crate::domain::run::{ClaimedRun, RunEpoch};
use crate::domain::schema::LONGEST_JSON;
use crate::domain::settings::RunSettings;
use crate::domain::task::WORKFLOW;
use crate::execute::{Launching, command_for, spawn_failure};
use crate::ids::IdSource;
use crate::process::direct::Running;
use crate::process::{BootTime, TaskCommand};

/// Runs tasks. One launcher serves all executors of a runtime.
pub trait Launcher: fmt::Debug + Send + Sync + 'static {
    /// Starts the task and answers when it has ended. Dropping the future leaves the task to itself: a child is killed
    /// then, a guardian ends it at the last fence it was told, which moves with each renewal.
    fn launch(&self, start: TaskStart, orders: Orders) -> Launched;

    /// Whether tasks of this kind die with this process: they cannot be left to anybody.
    fn dies_with_us(&self, kind: &str) -> bool {
        let _ = kind;
        false
    }

    /// Told when the end of the run could not be stored at once: until it is, nobody else knows of it.
    fn waits(&self, run: &RunEpoch) {
        let _ = run;
    }

    /// Told when the run has left `running` in this epoch and that is stored.
    fn left(&self, run: &RunEpoch) {
        let _ = run;
    }
}

/// A task that is to be started.
#[derive(Debug)]
pub struct TaskStart {
    /// Its run.
    pub run: ClaimedRun,
    /// What it starts with.
    pub settings: RunSettings,
    /// What it reads from its standard input; absent means nothing.
    pub stdin: Option<Vec<u8>>,
    /// How long it has between TERM and KILL when nobody says otherwise.
    pub grace: Duration,
    /// The locks of this machine that were taken for it, close-on-exec. They are to be held until its last process is
    /// gone, and not by the task; closing them frees them.
    pub locks: Vec<OwnedFd>,
    /// What it is: the task of the run, or the check of its contract, which runs after that is gone.
    pub part: Part,
}

/// What a process of a run is started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The task.
    Task,
    /// The check of what the task has left.
    Check,
}

impl TaskStart {
    /// What to start: all but the time and the limits. It has the standard input, and for a workflow the limits too, which
    /// are those of its steps.
    ///
    /// # Errors
    /// As [`command_for`], and for a workflow where none can be run.
    pub(crate) fn command(
        &mut self,
        invocation_id: String,
        launching: &Launching,
    ) -> Result<TaskCommand, ExecuteError> {
        let mut command = if self.run.action_kind == WORKFLOW {
            let workflows = launching.workflows.as_ref().ok_or_else(no_workflows)?;
            let (limits, stdin) = (self.settings.limits.take(), self.stdin.take());
            let settings = &launching.settings;
            workflows.command_for(&self.run, invocation_id, settings, limits, stdin)?
        } else {
            let mut command = command_for(&self.run, invocation_id, &launching.settings)?;
            match (command.stdin.is_some(), self.stdin.take()) {
                (true, Some(_)) => return Err(two_inputs(&self.run.action_kind)),
                (true, None) => {}
                (false, given) => command.stdin = given,
            }
            command
        };
        command.cwd = self.settings.cwd.as_ref().map(Into::into);
        let own = self.settings.env.iter().map(|(name, value)| (name.into(), value.into()));
        command.env.extend(own);
        Ok(command)
    }
}

fn two_inputs(kind: &str) -> ExecuteError {
    let message = format!("a task of kind {kind:?} reads its arguments: submit it without --stdin");
    ExecuteError { kind: "TwoInputs".into(), message }
}

/// Such a run is not claimed; a row may say anything.
fn no_workflows() -> ExecuteError {
    let message =
        "this worker runs no workflows: its main does not begin with leasehold::guardian_entry()";
    ExecuteError { kind: "NoAdapter".into(), message: message.into() }
}

/// Between the fork and the program nothing of ours runs in a direct child, so nothing can set its limits; nor can they
/// be set for a part of this process. A task that was to be kept within them does not run without.
pub(super) fn unlimited(settings: &RunSettings, what: &str) -> Result<(), ExecuteError> {
    if settings.contract.as_ref().is_some_and(|contract| contract.no_leftovers) {
        let message = format!(
            "the task may leave no process behind, and nobody counts those of {what}: run it by a worker with guardians"
        );
        return Err(ExecuteError { kind: "LeftoversNeedGuardian".into(), message });
    }
    if settings.limits.is_none() {
        return Ok(());
    }
    let message = format!(
        "the task has limits, which {what} cannot be given: run it by a worker with guardians"
    );
    Err(ExecuteError { kind: "LimitsNeedGuardian".into(), message })
}

/// How much of a direct child's standard output is kept: all that its contract looks at.
pub(super) fn kept_stdout(settings: &RunSettings) -> usize {
    let json = settings.contract.as_ref().and_then(|contract| contract.json.as_ref());
    if json.is_some_and(|json| json.path.is_none()) { LONGEST_JSON } else { 0 }
}

/// A task that is running.
pub type Launched = Pin<Box<dyn Future<Output = Result<TaskEnd, LaunchFailure>>>>;

/// How a task ended.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskEnd {
    /// Its exit code and its words.
    pub execution: Execution,
    /// Who ended it. A task that had ended by itself when it was to be stopped has a result of its own.
    pub ended_by: EndedBy,
    /// What it used.
    pub usage: Usage,
    /// Its processes that cannot be killed. The run must not be started again.
    pub unkillable: Vec<i32>,
    /// When it was started, in seconds since the epoch, if that is known.
    pub started_at: Option<f64>,
    /// All of its standard output, if that is known, is no longer than what a contract looks at, and stands nowhere else.
    pub stdout: Option<Vec<u8>>,
}

impl TaskEnd {
    /// An end of which nothing more is known.
    pub fn new(execution: Execution, ended_by: EndedBy) -> TaskEnd {
        TaskEnd {
            execution,
            ended_by,
            usage: Usage::default(),
            unkillable: Vec::new(),
            started_at: None,
            stdout: None,
        }
    }

    /// Whether it has ended by itself with exit code 0.
    pub fn is_success(&self) -> bool {
        self.ended_by == EndedBy::Task
            && self.execution.exit_code == 0
            && self.unkillable.is_empty()
    }
}

/// Why a task was not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaunchFailure {
    /// It cannot be run: its run fails with these words.
    Failed(ExecuteError),
    /// This machine has no descriptors, processes or memory left for it. That is not the task's fault: its run goes
    /// back to the queue.
    NoResources(String),
    /// Its guardian was killed, and with it the task: its run goes back to the queue.
    GuardianLost,
    /// Processes of it cannot be killed: its run fails, and must not be started again.
    Unkillable(Vec<i32>),
    /// The code that runs it inside this process has a fault, such as a panic: its run fails with these words.
    Exception(String),
}

impl From<ExecuteError> for LaunchFailure {
    fn from(error: ExecuteError) -> LaunchFailure {
        LaunchFailure::Failed(error)
    }
}

/// Why a task is to stop, and how long it may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopOrder {
    /// Who will have ended it then.
    pub ended_by: EndedBy,
    /// The time between TERM and KILL.
    pub grace: Duration,
}

/// Asks a running task to stop; it stays asked.
#[derive(Debug, Clone)]
pub struct Stop(watch::Receiver<Option<StopOrder>>);

/// What a running task is told meanwhile.
#[derive(Debug, Clone)]
pub struct Orders {
    /// When it is to stop.
    pub stop: Stop,
    /// Until when it may run at all.
    pub fence: Fence,
}

/// The moment at which the kill of a task begins, unless it is moved on.
#[derive(Debug, Clone)]
pub struct Fence(watch::Receiver<BootTime>);

impl Fence {
    /// Where it stands.
    pub fn stands(&self) -> BootTime {
        *self.0.borrow()
    }

    /// Waits until it is moved, and says where to.
    pub async fn moved(&mut self) -> BootTime {
        if self.0.changed().await.is_err() {
            // The executor is gone, and with it whatever waits here.
            std::future::pending::<()>().await;
        }
        *self.0.borrow_and_update()
    }
}

/// The other end of [`Orders`].
#[derive(Debug)]
pub(crate) struct Commands {
    pub stopper: Stopper,
    fence: watch::Sender<BootTime>,
}

impl Commands {
    /// Moves the fence.
    pub fn move_fence(&self, fence: BootTime) {
        self.fence.send_replace(fence);
    }

    /// The same orders for somebody else, who hears what was ordered before, too.
    pub fn orders(&self) -> Orders {
        let mut stop = self.stopper.0.subscribe();
        stop.mark_changed();
        Orders { stop: Stop(stop), fence: Fence(self.fence.subscribe()) }
    }
}

/// The other end of a [`Stop`].
#[derive(Debug)]
pub(crate) struct Stopper(watch::Sender<Option<StopOrder>>);

/// Orders of which none has been given yet but the first fence.
pub(crate) fn orders(fence: BootTime) -> (Commands, Orders) {
    let (stop_sender, stop) = watch::channel(None);
    let (fence_sender, fence) = watch::channel(fence);
    let commands = Commands { stopper: Stopper(stop_sender), fence: fence_sender };
    (commands, Orders { stop: Stop(stop), fence: Fence(fence) })
}

impl Stopper {
    /// Asks the task to stop. Only an earlier end can be asked for afterwards: the first reason stands.
    pub fn stop(&self, order: StopOrder) {
        self.0.send_if_modified(|asked| {
            let ended_by = asked.map_or(order.ended_by, |before| before.ended_by);
            let sooner = asked.is_none_or(|before| order.grace < before.grace);
            if sooner {
                *asked = Some(StopOrder { ended_by, ..order });
            }
            sooner
        });
    }
}

impl Stop {
    /// The order that was given, if one was.
    pub fn given(&self) -> Option<StopOrder> {
        *self.0.borrow()
    }

    /// Waits until the task is asked to stop. Asked again, it waits for the next, shorter time.
    pub async fn asked(&mut self) -> StopOrder {
        loop {
            // An executor that is gone drops this future with everything else; until then there is nothing to do.
            if self.0.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            if let Some(order) = *self.0.borrow_and_update() {
                return order;
            }
        }
    }
}

/// Runs each task as a direct child of this process, in a process group of its own.
///
/// When this process dies by SIGKILL, its tasks run on: their leases expire and others start them again.
#[derive(Debug)]
pub(crate) struct ChildLauncher {
    launching: Launching,
    ids: Arc<dyn IdSource>,
}

impl ChildLauncher {
    pub fn new(launching: Launching, ids: Arc<dyn IdSource>) -> ChildLauncher {
        ChildLauncher { launching, ids }
    }
}

impl Launcher for ChildLauncher {
    fn launch(&self, mut start: TaskStart, orders: Orders) -> Launched {
        let mut stop = orders.stop;
        let id = self.ids.invocation_id();
        let started = unlimited(&start.settings, "a direct child")
            .and_then(|()| start.command(id, &self.launching))
            .map_err(LaunchFailure::from)
            .and_then(|mut command| {
                command.keep_stdout = kept_stdout(&start.settings);
                Running::spawn_holding(&command, start.locks).map_err(|error| {
                    match error.is_resource_exhausted() {
                        true => LaunchFailure::NoResources(error.to_string()),
                        false => spawn_failure(&error).into(),
                    }
                })
            });
        Box::pin(async move {
            let mut running = started?;
            tracing::debug!(pid = running.pid(), "started");
            let stopper = running.stopper();
            let mut asked = EndedBy::Stop;
            let ending = loop {
                tokio::select! {
                    biased;
                    ending = running.wait() => break ending,
                    order = stop.asked() => {
                        asked = order.ended_by;
                        stopper.terminate(order.grace);
                    }
                }
            };
            let ended_by = if ending.stopped { asked } else { EndedBy::Task };
            let usage = Usage { core_dumped: Some(ending.core_dumped()), ..Usage::default() };
            let stdout = ending.whole_stdout.clone();
            let (exit_code, detail) = ending.into();
            let execution = Execution { exit_code, detail };
            Ok(TaskEnd { usage, stdout, ..TaskEnd::new(execution, ended_by) })
        })
    }
}
