//! Tasks of a host's own kinds, inside this process: each on a thread of its own.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::launcher::{
    LaunchFailure, Launched, Launcher, Orders, TaskEnd, TaskStart, kept_stdout, unlimited,
};
use crate::domain::ending::{EndedBy, ExecuteError, Execution};
use crate::domain::run::RunEpoch;
use crate::execute::{AdapterTask, Adapters, AnyAdapter};
#[cfg(target_os = "linux")]
use crate::process::guardian::{DEFAULT_LOG_CAP, RunDir};

/// What a future that is dropped may take; after that it counts as one that blocks.
const LAST_MOMENT: Duration = Duration::from_millis(500);

/// Runs tasks of some kinds inside this process, and has all others run by another launcher.
#[derive(Debug)]
pub(crate) struct InProcessLauncher {
    adapters: Adapters,
    others: Arc<dyn Launcher>,
    /// Where it is written down that a task was begun, for the worker that comes after a crash.
    slot: Option<PathBuf>,
}

impl InProcessLauncher {
    pub fn new(
        adapters: Adapters,
        others: Arc<dyn Launcher>,
        slot: Option<PathBuf>,
    ) -> InProcessLauncher {
        InProcessLauncher { adapters, others, slot }
    }
}

impl Launcher for InProcessLauncher {
    fn launch(&self, start: TaskStart, orders: Orders) -> Launched {
        match self.adapters.in_process_of(&start.run.action_kind) {
            Some(adapter) => Box::pin(run(adapter, start, orders, self.slot.clone())),
            None => self.others.launch(start, orders),
        }
    }

    fn dies_with_us(&self, kind: &str) -> bool {
        self.adapters.in_process_of(kind).is_some()
    }

    fn waits(&self, run: &RunEpoch) {
        self.others.waits(run);
    }

    fn left(&self, run: &RunEpoch) {
        self.others.left(run);
    }
}

/// What became of a future.
enum Outcome {
    Ended(Result<Execution, ExecuteError>),
    Dropped,
    Panicked(String),
}

fn no_stdout() -> ExecuteError {
    let message = "its contract wants a document on standard output, and a task inside the worker has none: name a file";
    ExecuteError { kind: "NoStandardOutput".into(), message: message.into() }
}

async fn run(
    adapter: Arc<dyn AnyAdapter>,
    start: TaskStart,
    mut orders: Orders,
    slot: Option<PathBuf>,
) -> Result<TaskEnd, LaunchFailure> {
    unlimited(&start.settings, "a task inside the worker")?;
    if kept_stdout(&start.settings) > 0 {
        return Err(no_stdout().into());
    }
    let kind = start.run.action_kind.clone();
    if let Some(slot) = slot {
        note_begin(slot, start.run.run_epoch()).await?;
    }
    let cancelled = CancellationToken::new();
    // Whatever becomes of this future, the adapter hears of it.
    let _guard = cancelled.clone().drop_guard();
    let (drop_now, dropped) = oneshot::channel();
    let (tell, mut told) = oneshot::channel();
    let token = cancelled.clone();
    let work = move || {
        let TaskStart { run, settings, stdin, locks, .. } = start;
        let task = AdapterTask { run, settings, stdin };
        let outcome = catch_unwind(AssertUnwindSafe(|| carry_out(&*adapter, task, token, dropped)));
        // Nobody may have them before the code that they are for has ended.
        drop(locks);
        let _ = tell.send(outcome.unwrap_or_else(|panic| Outcome::Panicked(words_of(&*panic))));
    };
    let spawned = thread::Builder::new().name("leasehold-task".into()).spawn(work);
    spawned.map_err(|error| {
        LaunchFailure::NoResources(format!("cannot start a thread for the task: {error}"))
    })?;
    debug!("started inside the worker");

    let mut asked: Option<(EndedBy, Instant)> = None;
    let mut drop_now = Some(drop_now);
    let outcome = loop {
        let deadline = asked.map(|(_, deadline)| deadline);
        tokio::select! {
            biased;
            // The thread tells before it leaves.
            outcome = &mut told => break outcome.unwrap_or(Outcome::Dropped),
            order = orders.stop.asked() => {
                cancelled.cancel();
                let deadline = Instant::now() + order.grace;
                let first = asked.get_or_insert((order.ended_by, deadline));
                first.1 = first.1.min(deadline);
            }
            () = until(deadline) => match drop_now.take() {
                Some(drop_now) => {
                    let _ = drop_now.send(());
                    asked = asked.map(|(ended_by, _)| (ended_by, Instant::now() + LAST_MOMENT));
                }
                None => {
                    warn!("the code of this task blocks and goes on; its run has ended here");
                    break Outcome::Dropped;
                }
            },
        }
    };
    match (outcome, asked) {
        // An end that was asked for is no result.
        (_, Some((ended_by, _))) => Ok(TaskEnd::new(Execution::OK, ended_by)),
        (Outcome::Ended(result), None) => {
            Ok(TaskEnd::new(result.unwrap_or_else(Execution::from), EndedBy::Task))
        }
        (Outcome::Panicked(words), None) => Err(LaunchFailure::Exception(format!(
            "the adapter of the kind {kind:?} panicked: {words}"
        ))),
        (Outcome::Dropped, None) => Err(LaunchFailure::Exception(format!(
            "the adapter of the kind {kind:?} gave no answer"
        ))),
    }
}

/// On the thread of the task, until its future has ended or nobody wants it any more.
fn carry_out(
    adapter: &dyn AnyAdapter,
    task: AdapterTask,
    cancelled: CancellationToken,
    dropped: oneshot::Receiver<()>,
) -> Outcome {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let message = format!("no runtime can be made for the task: {error}");
            return Outcome::Ended(Err(ExecuteError { kind: "NoRuntime".into(), message }));
        }
    };
    runtime.block_on(async {
        tokio::select! {
            biased;
            result = adapter.run_any(task, cancelled) => Outcome::Ended(result),
            _ = dropped => Outcome::Dropped,
        }
    })
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no words".into())
}

/// Makes the run's directory, which says that the run was begun and that its process was this one.
#[cfg(target_os = "linux")]
async fn note_begin(slot: PathBuf, run: RunEpoch) -> Result<(), LaunchFailure> {
    let note = move || {
        let dir = RunDir::create(&slot, &run.run_id, run.epoch.into(), DEFAULT_LOG_CAP)?;
        dir.mark_in_process()
    };
    let noted = tokio::task::spawn_blocking(note).await;
    noted.map_err(std::io::Error::other).flatten().map_err(|error| {
        LaunchFailure::NoResources(format!("cannot make the directory of the run: {error}"))
    })
}

/// Without guardians there are no directories.
#[cfg(not(target_os = "linux"))]
async fn note_begin(_: PathBuf, _: RunEpoch) -> Result<(), LaunchFailure> {
    Ok(())
}
