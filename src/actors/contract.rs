//! Judges what a task has left behind, while its lease is still renewed and before its end is written.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix::Addr;
use serde_json::Map;
use tracing::{info, warn};

#[cfg(target_os = "linux")]
use super::Guards;
use super::launcher::{LaunchFailure, Orders, Part, StopOrder, TaskEnd, TaskStart, orders};
use super::root::Root;
use super::stored::{UNREADABLE, read_until_answered};
use super::{Parts, executor};
use crate::db::ops::{FindRun, FindSettings, Steps};
use crate::domain::claim_plan::required_tokens;
use crate::domain::contract::{Check, Contract, ExpectedFile, Unmet};
use crate::domain::ending::EndedBy;
use crate::domain::run::{ClaimedRun, RunEpoch};
use crate::domain::schema::LONGEST_JSON;
use crate::domain::settings::RunSettings;
use crate::domain::task::COMMAND;
use crate::execute::artifact;

/// How long it may take to look at files and to read a document.
const LOOK_PATIENCE: Duration = Duration::from_secs(30);
/// How soon to try again what this machine had nothing left for, or a lock that somebody else has.
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// A check whose guardian is killed is made again so many times.
const MOST_LOSSES: u32 = 3;

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Verdict {
    /// Everything holds.
    Met,
    /// Something does not.
    Unmet(Unmet),
    /// It was stopped before that was known, for this reason.
    Stopped(EndedBy),
    /// Processes of the check cannot be killed.
    Unkillable(Vec<i32>),
}

impl From<Result<(), Unmet>> for Verdict {
    fn from(judged: Result<(), Unmet>) -> Verdict {
        judged.map_or_else(Verdict::Unmet, |()| Verdict::Met)
    }
}

/// A task that has ended with exit code 0.
pub(super) struct Case {
    pub parts: Arc<Parts>,
    pub root: Addr<Root>,
    pub run: RunEpoch,
    /// What it was started with; absent where somebody else has started it.
    pub settings: Option<RunSettings>,
    pub end: TaskEnd,
    /// When it was started at the latest, in seconds since the epoch, if its end does not say.
    pub launched_at: f64,
    pub orders: Orders,
}

impl Case {
    /// Judges it.
    pub async fn judge(mut self) -> Verdict {
        let settings = match self.settings.take() {
            Some(settings) => settings,
            None => match self.stored().await {
                Ok(settings) => settings,
                Err(unmet) => return Verdict::Unmet(unmet),
            },
        };
        let Some(contract) = &settings.contract else { return Verdict::Met };
        if let Err(unmet) = contract.judge_leftovers(&self.end.usage) {
            return Verdict::Unmet(unmet);
        }
        if contract.looks_at_files()
            && let Err(unmet) = self.look(contract.clone(), settings.cwd.clone()).await
        {
            return Verdict::Unmet(unmet);
        }
        match &contract.check {
            Some(check) => self.check(check, &settings).await,
            None => Verdict::Met,
        }
    }

    async fn stored(&self) -> Result<RunSettings, Unmet> {
        let question = FindSettings { run_id: self.run.run_id.clone() };
        match read_until_answered(&self.root, question).await {
            None => Ok(RunSettings::default()),
            // Whether it demands anything is not known here, and success must not be claimed for that.
            Some(stored) => stored.settings.map_err(|_| Unmet::new(UNREADABLE)),
        }
    }

    /// Looks at its files, on a thread on which a file system may keep it waiting.
    async fn look(&self, contract: Contract, cwd: Option<String>) -> Result<(), Unmet> {
        let started_at = self.began_at().await;
        let stdout = self.stdout();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let look = tokio::task::spawn_blocking(move || {
            look_at(&contract, cwd, stdout, started_at, &stopped)
        });
        let looked = tokio::time::timeout(LOOK_PATIENCE, look).await;
        stop.store(true, Ordering::Relaxed);
        match looked {
            Ok(Ok(judged)) => judged,
            Ok(Err(_)) => Err(Unmet::new("it could not be judged: an internal error")),
            Err(_) => {
                let seconds = LOOK_PATIENCE.as_secs();
                Err(Unmet::new(format!("its files could not be looked at within {seconds} s")))
            }
        }
    }

    /// When the task was started; a workflow that goes on where it stood has made things before this attempt.
    async fn began_at(&self) -> f64 {
        let steps = Steps { run_id: self.run.run_id.clone() };
        let steps = read_until_answered(&self.root, steps).await;
        let started_at = self.end.started_at.unwrap_or(self.launched_at);
        steps.iter().map(|step| step.begun_at).fold(started_at, f64::min)
    }

    fn stdout(&self) -> Stdout {
        #[cfg(target_os = "linux")]
        if let Some(guards) = &self.parts.guards {
            return Stdout::Logged { guards: Arc::clone(guards), run: self.run.clone() };
        }
        Stdout::Kept(self.end.stdout.clone())
    }

    /// Runs the check, until somebody wants it to stop.
    async fn check(mut self, check: &Check, settings: &RunSettings) -> Verdict {
        let mut losses = 0;
        loop {
            if let Some(order) = self.orders.stop.given() {
                return Verdict::Stopped(order.ended_by);
            }
            let verdict = match self.locks().await {
                Ok(locks) => {
                    info!(program = check.program(), "checking what the task has left");
                    self.check_once(check, settings, locks).await
                }
                Err(token) => Err(format!("somebody else has the lock {token:?}")),
            };
            match verdict {
                Ok(Err(LaunchFailure::GuardianLost)) if losses + 1 < MOST_LOSSES => losses += 1,
                Ok(Err(LaunchFailure::NoResources(what))) => {
                    warn!(what, "the check could not be started yet");
                }
                Ok(ended) => return judge_check(check, ended),
                Err(what) => warn!(what, "the check waits"),
            }
            tokio::select! {
                () = tokio::time::sleep(TRY_AGAIN) => {}
                order = self.orders.stop.asked() => return Verdict::Stopped(order.ended_by),
            }
        }
    }

    /// The locks of this machine that the run needs: those of the task went with its last process.
    async fn locks(&self) -> Result<Vec<std::os::fd::OwnedFd>, String> {
        let Some(dir) = &self.parts.locks else { return Ok(Vec::new()) };
        let question = FindRun { run_id: self.run.run_id.clone() };
        let row = read_until_answered(&self.root, question).await;
        let needs = row.and_then(|row| row.required_capabilities);
        let needs = required_tokens(needs.as_ref().map(|text| text.0.as_str())).unwrap_or_default();
        dir.take(&self.parts.config.queue.classes.serialization_tokens(&needs))
    }

    async fn check_once(
        &mut self,
        check: &Check,
        settings: &RunSettings,
        locks: Vec<std::os::fd::OwnedFd>,
    ) -> Result<Result<TaskEnd, LaunchFailure>, String> {
        let (commands, own) = orders(self.orders.fence.stands());
        let grace = settings.grace.map_or(executor::GRACE, Duration::from_secs_f64);
        let start = TaskStart {
            run: claimed(&self.run, check),
            settings: RunSettings {
                // Its guardian keeps it too, should this worker die.
                timeout: Some(check.timeout),
                contract: None,
                retry: None,
                ..settings.clone()
            },
            stdin: None,
            grace,
            locks,
            part: Part::Check,
        };
        let mut launched = self.parts.launcher.launch(start, own);
        let mut deadline = pin!(tokio::time::sleep(Duration::from_secs_f64(check.timeout)));
        let mut late = false;
        Ok(loop {
            tokio::select! {
                biased;
                ended = &mut launched => break ended,
                order = self.orders.stop.asked() => commands.stopper.stop(order),
                moved = self.orders.fence.moved() => commands.move_fence(moved),
                () = &mut deadline, if !late => {
                    late = true;
                    commands.stopper.stop(StopOrder { ended_by: EndedBy::Timeout, grace });
                }
            }
        })
    }
}

fn judge_check(check: &Check, ended: Result<TaskEnd, LaunchFailure>) -> Verdict {
    let program = check.program();
    let unmet = |why: String, detail: String| Verdict::Unmet(Unmet { why, detail });
    let end = match ended {
        Ok(end) => end,
        Err(LaunchFailure::Unkillable(pids)) => return Verdict::Unkillable(pids),
        Err(LaunchFailure::GuardianLost) => {
            let why =
                format!("the check {program:?} was killed with its guardian {MOST_LOSSES} times");
            return unmet(why, String::new());
        }
        Err(LaunchFailure::NoResources(what) | LaunchFailure::Exception(what)) => {
            return unmet(format!("the check {program:?} cannot be run: {what}"), String::new());
        }
        Err(LaunchFailure::Failed(error)) => {
            return unmet(
                format!("the check {program:?} cannot be run: {}", error.message),
                String::new(),
            );
        }
    };
    if !end.unkillable.is_empty() {
        return Verdict::Unkillable(end.unkillable);
    }
    match (end.ended_by, end.execution.exit_code) {
        (EndedBy::Task, 0) => Verdict::Met,
        (EndedBy::Task, code) => {
            let how = match code {
                ..0 => format!("by signal {}", -code),
                _ => format!("with exit code {code}"),
            };
            unmet(format!("the check {program:?} ended {how}"), end.execution.detail)
        }
        (EndedBy::Timeout, _) => unmet(
            format!(
                "the check {program:?} took longer than its {} s and was stopped",
                check.timeout
            ),
            end.execution.detail,
        ),
        (stopped, _) => Verdict::Stopped(stopped),
    }
}

/// The check as a run of kind `command`, with the identity of the run that it checks.
fn claimed(run: &RunEpoch, check: &Check) -> ClaimedRun {
    let mut action_args = Map::new();
    if let [program, words @ ..] = check.argv.as_slice() {
        action_args.insert("action_command".into(), program.clone().into());
        action_args.insert("action_command_args".into(), words.into());
    }
    ClaimedRun {
        id: run.run_id.clone(),
        action_kind: COMMAND.into(),
        action_args,
        lease_attempts: run.epoch,
        required_capabilities: None,
        execution_target: None,
        concurrency_key: None,
        queued_at: None,
    }
}

/// Where the standard output of a task can be read.
enum Stdout {
    Kept(Option<Vec<u8>>),
    #[cfg(target_os = "linux")]
    Logged {
        guards: Arc<Guards>,
        run: RunEpoch,
    },
}

fn look_at(
    contract: &Contract,
    cwd: Option<String>,
    stdout: Stdout,
    started_at: f64,
    stop: &AtomicBool,
) -> Result<(), Unmet> {
    let cwd = PathBuf::from(cwd.unwrap_or_default());
    for file in &contract.files {
        contract.judge_file(file, &artifact::look(&cwd.join(&file.path)), started_at)?;
    }
    let Some(json) = &contract.json else { return Ok(()) };
    let bytes = match &json.path {
        None => stdout.read(),
        Some(path) => {
            let expected = ExpectedFile { path: path.clone(), not_empty: false };
            let place = cwd.join(path);
            contract.judge_file(&expected, &artifact::look(&place), started_at)?;
            artifact::read(&place, LONGEST_JSON).map_err(|error| error.to_string())
        }
    };
    let bytes =
        bytes.map_err(|why| Unmet::new(format!("{} cannot be read: {why}", json.subject())))?;
    json.judge(&bytes, stop)
}

impl Stdout {
    fn read(self) -> Result<Vec<u8>, String> {
        let too_long = format!("it has more than {LONGEST_JSON} bytes");
        match self {
            Stdout::Kept(kept) => kept.ok_or(too_long),
            #[cfg(target_os = "linux")]
            Stdout::Logged { guards, run } => read_log(&guards, &run, too_long),
        }
    }
}

#[cfg(target_os = "linux")]
fn read_log(guards: &Guards, run: &RunEpoch, too_long: String) -> Result<Vec<u8>, String> {
    use crate::process::guardian::{LogPiece, LogStream};
    let dir = guards.dir_of(run).ok_or("the directory of the run is gone")?;
    let mut log = dir.log(LogStream::Stdout);
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    while bytes.len() <= LONGEST_JSON {
        match log.read(&mut buffer).map_err(|error| error.to_string())? {
            LogPiece::Bytes(length) => bytes.extend_from_slice(&buffer[..length]),
            LogPiece::Cut(_) => return Err("not all of it was kept".into()),
            LogPiece::Nothing | LogPiece::End => return Ok(bytes),
        }
    }
    Err(too_long)
}
