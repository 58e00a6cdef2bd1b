//! Tasks under guardians: started, taken over, listened to.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, error, warn};

use super::checks::{checks_of, end_left_check};
use super::forks::Forks;
use super::launcher::{
    LaunchFailure, Launched, Launcher, Orders, Part, StopOrder, TaskEnd, TaskStart,
};
use crate::domain::ending::{EndedBy as DomainEnd, ExecuteError, Execution, Usage};
use crate::domain::fence::LeaseTimes;
use crate::domain::run::RunEpoch;
use crate::execute::{Launching, spawn_failure};
use crate::ids::IdSource;
use crate::process::guardian::{
    ConnectError, EndedBy, ExitRecord, Guardian, GuardianEnd, GuardianProgram, RunDir, RunSpec,
    StartError, Stdin, StopReason, kill_leftovers,
};
use crate::process::{BootTime, End};

/// Runs each task under a guardian of its own: a process that outlives this one, owns the task's process tree, and ends
/// it at the fence whatever happens here.
#[derive(Debug)]
pub(crate) struct GuardianLauncher {
    launching: Launching,
    ids: Arc<dyn IdSource>,
    program: GuardianProgram,
    forks: Forks,
    /// The daemon's own slot first; the others were left by dead ones.
    slots: Vec<PathBuf>,
    log_cap: u64,
    /// Below which each task has a cgroup, if that works here.
    cgroup: Option<PathBuf>,
    times: LeaseTimes,
}

impl GuardianLauncher {
    pub fn new(
        launching: Launching,
        ids: Arc<dyn IdSource>,
        program: GuardianProgram,
        slots: Vec<PathBuf>,
        log_cap: u64,
        cgroup: Option<PathBuf>,
        times: LeaseTimes,
    ) -> GuardianLauncher {
        let forks = Forks::new(program.clone());
        GuardianLauncher { launching, ids, program, forks, slots, log_cap, cgroup, times }
    }
}

impl Launcher for GuardianLauncher {
    fn launch(&self, mut start: TaskStart, mut orders: Orders) -> Launched {
        let command = start.command(self.ids.invocation_id(), &self.launching);
        let TaskStart { run, settings, grace, locks, part, .. } = start;
        let slot = self.slots.first().cloned().unwrap_or_default();
        let (program, log_cap) = (self.program.clone(), self.log_cap);
        let (forks, cgroup) = (self.forks.clone(), self.cgroup.clone());
        let lease_grace = Duration::from_secs_f64(self.times.grace);
        Box::pin(async move {
            if locks.len() > RunSpec::MOST_LOCKS {
                return Err(too_many(locks.len()));
            }
            let mut command = command?;
            let stdin = command.stdin.take();
            let mut spec = RunSpec::new(command, orders.fence.stands(), grace);
            spec.lease_grace = lease_grace;
            spec.timeout = settings.timeout.map(Duration::from_secs_f64);
            spec.cgroup = cgroup;
            spec.limits = settings.limits.unwrap_or_default().into();
            spec.stdin = stdin.map_or(Stdin::Null, Stdin::Bytes);
            spec.locks = locks;
            let slot = match part {
                Part::Task => slot,
                Part::Check => {
                    let slot = checks_of(&slot);
                    end_left_check(&slot, &run.run_epoch()).await;
                    slot
                }
            };
            let create = move || RunDir::create(&slot, &run.id, run.lease_attempts.into(), log_cap);
            let dir = tokio::task::spawn_blocking(create)
                .await
                .map_err(std::io::Error::other)
                .flatten()
                .map_err(|error| no_resources("cannot make the directory of the run", &error))?;
            let server = forks.server();
            let started = match &server {
                Some(server) => Guardian::start_forked(server, &dir, &spec).await,
                None => Guardian::start(&program, &dir, &spec).await,
            };
            match started {
                Ok(guardian) => {
                    // The guardian has the locks now, and frees them without us.
                    drop(spec);
                    let ended = attend(guardian, orders).await;
                    if part == Part::Check {
                        discard(dir);
                    }
                    ended
                }
                Err(StartError::FencePassed) => {
                    discard(dir);
                    Ok(TaskEnd::new(Execution::OK, DomainEnd::Fence))
                }
                // It may have been killed between the start of the task and the word of it.
                Err(error @ StartError::Died { .. }) => match clean_up(&dir, &mut orders).await {
                    Cleaned::NotBegun => {
                        discard(dir);
                        Err(refusal(&error))
                    }
                    cleaned => cleaned.into(),
                },
                Err(error) => {
                    discard(dir);
                    Err(refusal(&error))
                }
            }
        })
    }

    fn waits(&self, run: &RunEpoch) {
        for slot in self.slots.clone() {
            let run = run.clone();
            tokio::task::spawn_blocking(move || {
                if let Err(error) = RunDir::sync_record(&slot, &run.run_id, run.epoch.into()) {
                    warn!(run_id = %run.run_id, %error, "cannot bring the record of an end to the disk");
                }
            });
        }
    }

    fn left(&self, run: &RunEpoch) {
        self.slots.iter().any(|slot| keep(slot, run));
    }
}

/// What a start that failed means for the run.
fn refusal(error: &StartError) -> LaunchFailure {
    match error {
        StartError::Task(task) if !task.is_resource_exhausted() => spawn_failure(task).into(),
        other => no_resources("cannot start a guardian", other),
    }
}

fn too_many(locks: usize) -> LaunchFailure {
    let most = RunSpec::MOST_LOCKS;
    let message =
        format!("it needs {locks} locks of its machine, and a guardian holds {most} at the most");
    LaunchFailure::Failed(ExecuteError { kind: "TooManyLocks".into(), message })
}

fn no_resources(doing: &str, error: &dyn std::error::Error) -> LaunchFailure {
    let mut words = format!("{doing}: {error}");
    if let Some(cause) = error.source() {
        words += &format!(": {cause}");
    }
    LaunchFailure::NoResources(words)
}

/// Listens to a guardian until its run is over, and passes on what there is to pass on.
pub(crate) async fn attend(
    mut guardian: Guardian,
    mut orders: Orders,
) -> Result<TaskEnd, LaunchFailure> {
    let dir = guardian.dir().clone();
    loop {
        debug!(guardian = guardian.guardian_pid(), task = guardian.task_pid(), "attended");
        match listen(&mut guardian, &mut orders).await {
            GuardianEnd::Ended(record) => return Ok(task_end(&record)),
            GuardianEnd::Displaced => match regain(&dir, &orders).await {
                Ok(regained) => guardian = regained,
                Err(ConnectError::Ended(record)) => return Ok(task_end(&record)),
                Err(error) => {
                    warn!(%error, "the guardian does not obey any more");
                    return clean_up(&dir, &mut orders).await.into();
                }
            },
            GuardianEnd::Lost => {
                warn!("the guardian was killed: its task is dead, what is left of it is killed");
                return clean_up(&dir, &mut orders).await.into();
            }
        }
    }
}

async fn listen(guardian: &mut Guardian, orders: &mut Orders) -> GuardianEnd {
    let control = guardian.control();
    loop {
        tokio::select! {
            biased;
            end = guardian.exited() => break end,
            order = orders.stop.asked() => pass_on(control.stop(order.grace, reason(order))),
            moved = orders.fence.moved() => pass_on(control.extend(moved)),
        }
    }
}

/// Takes the place back that somebody else has taken by the token of the run. It is no worker: in a slot that is ours there
/// is no other. So the run is ours too, and to let go of it now would have it run a second time beside the first.
async fn regain(dir: &RunDir, orders: &Orders) -> Result<Guardian, ConnectError> {
    loop {
        tokio::time::sleep(TRY_AGAIN).await;
        match Guardian::connect(dir).await {
            Err(ConnectError::NoAnswer(error))
                if error.kind() == ErrorKind::TimedOut
                    && BootTime::now() < orders.fence.stands() => {}
            Ok(guardian) => {
                warn!("the guardian had obeyed somebody else; it is told again what it was told");
                pass_on(guardian.extend(orders.fence.stands()));
                if let Some(order) = orders.stop.given() {
                    pass_on(guardian.stop(order.grace, reason(order)));
                }
                return Ok(guardian);
            }
            refused => return refused,
        }
    }
}

/// What a guardian that was killed had left.
enum Cleaned {
    NotBegun,
    /// Its record: it had lived on after all.
    Ended(Box<ExitRecord>),
    Killed,
    Unkillable(Vec<i32>),
}

impl From<Cleaned> for Result<TaskEnd, LaunchFailure> {
    fn from(cleaned: Cleaned) -> Self {
        match cleaned {
            Cleaned::NotBegun | Cleaned::Killed => Err(LaunchFailure::GuardianLost),
            Cleaned::Ended(record) => Ok(task_end(&record)),
            Cleaned::Unkillable(pids) => Err(LaunchFailure::Unkillable(pids)),
        }
    }
}

/// How soon to try again to kill what a guardian has left.
const TRY_AGAIN: Duration = Duration::from_millis(250);

/// Until the fence as it stands now nobody else can have the run, so there is time to try again.
async fn clean_up(dir: &RunDir, orders: &mut Orders) -> Cleaned {
    let mut until = orders.fence.stands();
    loop {
        let left = kill_leftovers(dir).await;
        if let Ok(Some(record)) = dir.exit_record() {
            return Cleaned::Ended(Box::new(record));
        }
        let error = match left {
            Ok(left) if !left.unkillable.is_empty() => return Cleaned::Unkillable(left.unkillable),
            Ok(left) if left.begun => return Cleaned::Killed,
            Ok(_) => return Cleaned::NotBegun,
            Err(error) => error,
        };
        if BootTime::now() >= until {
            error!(%error, "cannot clear away what is left of a run: it may live on");
            return Cleaned::Killed;
        }
        warn!(%error, "cannot clear away yet what is left of a run");
        tokio::select! {
            () = tokio::time::sleep(TRY_AGAIN) => {}
            order = orders.stop.asked() => {
                until = until.min(BootTime::now().saturating_add(order.grace));
            }
        }
    }
}

fn pass_on(told: std::io::Result<()>) {
    // A guardian that is gone says so by the end of its connection.
    if let Err(error) = told {
        debug!(%error, "the guardian does not listen");
    }
}

fn reason(order: StopOrder) -> StopReason {
    match order.ended_by {
        DomainEnd::Cancel => StopReason::Cancel,
        DomainEnd::Timeout => StopReason::Timeout,
        DomainEnd::Fence => StopReason::Fence,
        DomainEnd::Task | DomainEnd::Stop => StopReason::Stop,
    }
}

/// The end that a record tells.
pub(crate) fn task_end(record: &ExitRecord) -> TaskEnd {
    let (exit_code, detail) = record.ending().into();
    let core_dumped = matches!(record.end, End::Signalled { core_dumped: true, .. });
    let usage = Usage {
        core_dumped: Some(core_dumped),
        user_seconds: Some(record.user_seconds),
        system_seconds: Some(record.system_seconds),
        max_rss_kib: i64::try_from(record.max_rss_kib).ok(),
        leftovers: i32::try_from(record.leftovers_killed).ok(),
    };
    TaskEnd {
        execution: Execution { exit_code, detail },
        ended_by: ended_by(record.ended_by),
        usage,
        unkillable: record.unkillable.clone(),
        started_at: Some(record.started_at),
        stdout: None,
    }
}

pub(crate) fn ended_by(ended_by: EndedBy) -> DomainEnd {
    match ended_by {
        EndedBy::Task => DomainEnd::Task,
        EndedBy::Cancel => DomainEnd::Cancel,
        EndedBy::Timeout => DomainEnd::Timeout,
        EndedBy::Fence => DomainEnd::Fence,
        EndedBy::Stop => DomainEnd::Stop,
    }
}

/// Puts the directory of a run whose end is stored where its logs are kept; says whether it was in this slot.
pub(crate) fn keep(slot: &Path, run: &RunEpoch) -> bool {
    RunDir::keep(slot, &run.run_id, run.epoch.into()).unwrap_or_else(|error| {
        warn!(%error, "cannot keep the logs of a run that has ended");
        false
    })
}

/// Nothing was started in it.
fn discard(dir: RunDir) {
    if let Err(error) = dir.remove() {
        debug!(%error, "cannot remove the directory of a run that was not started");
    }
}
