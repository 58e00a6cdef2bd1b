//! `leasehold runs`.

use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

use futures_util::stream::{self, StreamExt};
use leasehold::Queue;
use leasehold::clock::{Clock, SystemClock};
use leasehold::db::ops::{FindRun, StoreId};
use leasehold::process::guardian::{ConnectError, Glimpse, Guardian, RunDir, TreeUse};
use leasehold::process::slot::Slot;
use leasehold::process::{BootTime, LockTable};
use serde::Serialize;

use super::failure::Failure;
use super::state::StateOption;
use super::store::StoreOption;
use super::{out, text};

/// How many guardians are asked at once; each takes a few descriptors.
const AT_ONCE: usize = 64;

const ABOUT_STATES: &str = "\
STATE is what is seen of the guardian:
  running      it guards its task
  ending       the end of the task has begun
  ended        it has left, and a worker has still to store how the task ended
  starting     it has not started the task yet
  not started  there is none, and the task was not started: the next worker gives it back
  killed       there is none, and the task died with it: the next worker cleans up
  in worker    it needs none: the task is a part of its worker, a host program
  silent       it lives and does not answer
  unknown      it does not speak with this program, or cannot be looked at

Examples:
  leasehold runs
  leasehold runs --json";

/// List what runs on this host, the oldest first
///
/// Guardians are asked, and nothing is changed by that. WORKER is the process that has the run in hand now, `dead` when
/// there is none: the next worker on this host takes the run over. FENCE is the time left until the guardian ends the
/// task unless its lease is renewed. PROCESSES and MEMORY are those of the task and of all that it has started; memory
/// that several processes share is counted for each. Not seen here: tasks of other stores and other hosts, in other
/// containers, and tasks of a worker with --supervision direct, which have no guardian.
#[derive(Debug, clap::Args)]
#[command(after_help = ABOUT_STATES)]
pub(super) struct Runs {
    /// Print a JSON array of runs
    ///
    /// Times are in seconds, memory is in bytes; what is not known is null.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state: StateOption,
}

/// What is known of one run.
#[derive(Debug, Serialize)]
struct Row {
    run_id: String,
    epoch: i64,
    kind: Option<String>,
    status: Option<String>,
    owner: Option<String>,
    worker_lives: Option<bool>,
    worker_pid: Option<u32>,
    state: &'static str,
    guardian_pid: Option<u32>,
    task_pid: Option<u32>,
    fence_left: Option<f64>,
    memory_bytes: Option<u64>,
    processes: Option<usize>,
    age: f64,
    directory: String,
}

impl Runs {
    pub(super) fn run(&self, store: &StoreOption) -> Result<(), Failure> {
        let mut queue = store.read()?;
        let seen = look_at_all(&mut queue, &self.state)?;
        let mut rows = Vec::new();
        for run in seen {
            rows.push(run.row(&mut queue)?);
        }
        rows.sort_by(|a, b| b.age.total_cmp(&a.age).then_with(|| a.run_id.cmp(&b.run_id)));
        if self.json {
            return out::print(&text::json_array(&rows)?);
        }
        let headings = [
            "ID",
            "EPOCH",
            "KIND",
            "STATUS",
            "OWNER",
            "WORKER",
            "STATE",
            "GUARDIAN",
            "TASK",
            "FENCE",
            "MEMORY",
            "PROCESSES",
            "AGE",
        ];
        out::print(&text::table(headings, rows.into_iter().map(Row::cells)))
    }
}

fn look_at_all(queue: &mut Queue, state: &StateOption) -> Result<Vec<Seen>, Failure> {
    // A store of the original has no runs under guardians.
    if !queue.is_complete() {
        return Ok(Vec::new());
    }
    let directory = state.directory()?;
    let dirs = run_dirs(&directory, &queue.read(&StoreId)?).map_err(|error| {
        let directory = directory.display();
        Failure::Refused(format!(
            "cannot look for runs in {directory}: {error}; ask as the user of the worker, or name another --state-dir"
        ))
    })?;
    let waiting = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let looks = stream::iter(dirs).map(async |(dir, worker): (RunDir, Worker)| {
        let answer = Guardian::look(&dir).await;
        (dir, worker, answer)
    });
    let looked: Vec<_> = waiting.block_on(looks.buffered(AT_ONCE).collect());
    // Read after the looks: who has the lock and did not answer lives all the same.
    let is_silence = |answer: &Answer| matches!(answer, Err(ConnectError::NoAnswer(_)));
    let any_silent = looked.iter().any(|(_, _, answer)| is_silence(answer));
    let locks = if any_silent { LockTable::read().ok() } else { None };
    let seen = looked.into_iter().filter_map(|(dir, worker, answer)| {
        let place = Place::of(&dir, worker, locks.as_ref());
        Seen::of(dir, worker, answer, place)
    });
    Ok(seen.collect())
}

/// The number of the worker of a slot, if one lives, where that can be seen.
type Worker = Option<Option<u32>>;
type Answer = Result<Glimpse, ConnectError>;

/// Every run with the worker of its slot.
fn run_dirs(state_dir: &Path, store_id: &str) -> io::Result<Vec<(RunDir, Worker)>> {
    let slots = Slot::paths(state_dir, store_id)?;
    let locks = if slots.is_empty() { None } else { LockTable::read().ok() };
    let mut dirs = Vec::new();
    for slot in slots {
        let worker = locks.as_ref().and_then(|locks| Slot::worker_pid(&slot, locks).ok());
        dirs.extend(RunDir::list(&slot)?.runs.into_iter().map(|dir| (dir, worker)));
    }
    Ok(dirs)
}

/// One run as its directory and its guardian show it.
struct Seen {
    dir: RunDir,
    worker: Worker,
    made_at: f64,
    state: &'static str,
    glimpse: Option<Glimpse>,
    guardian_pid: Option<u32>,
}

impl Seen {
    /// Nothing when the run has left its directory meanwhile.
    fn of(dir: RunDir, worker: Worker, answer: Answer, place: Place) -> Option<Seen> {
        let since = dir.made_at().ok()?.duration_since(UNIX_EPOCH);
        let made_at = since.map_or(0.0, |since| since.as_secs_f64());
        let state = state(&answer, place);
        let glimpse = answer.ok();
        let guardian_pid =
            glimpse.map(|glimpse| glimpse.guardian_pid).or_else(|| place.guardian.flatten());
        Some(Seen { dir, worker, made_at, state, glimpse, guardian_pid })
    }

    fn row(self, queue: &mut Queue) -> Result<Row, Failure> {
        let run = queue.read(&FindRun { run_id: self.dir.run_id().to_owned() })?;
        let (kind, status, owner) = match run {
            Some(run) => (Some(run.action_kind), Some(run.status), run.leased_by),
            None => (None, None, None),
        };
        let usage = self.guardian_pid.map(TreeUse::below);
        Ok(Row {
            run_id: self.dir.run_id().to_owned(),
            epoch: self.dir.epoch(),
            kind,
            status,
            owner,
            worker_lives: self.worker.map(|pid| pid.is_some()),
            worker_pid: self.worker.flatten(),
            state: self.state,
            guardian_pid: self.guardian_pid,
            task_pid: self.glimpse.map(|glimpse| glimpse.task_pid),
            fence_left: self.glimpse.map(|glimpse| seconds_until(glimpse.fence, BootTime::now())),
            memory_bytes: usage.map(|usage| usage.resident_bytes),
            processes: usage.map(|usage| usage.processes),
            age: (SystemClock.now() - self.made_at).max(0.0),
            directory: self.dir.path().display().to_string(),
        })
    }
}

/// What decides about a guardian that does not answer.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Whether the task may have been started.
    begun: bool,
    /// Whether there is a record of the end.
    ended: bool,
    /// Whether it runs inside its worker.
    in_process: bool,
    /// Who holds the lock of the run, where that can be seen.
    guardian: Option<Option<u32>>,
    worker_lives: bool,
}

impl Place {
    fn of(dir: &RunDir, worker: Worker, locks: Option<&LockTable>) -> Place {
        Place {
            begun: dir.has_begun().unwrap_or(true),
            ended: matches!(dir.exit_record(), Ok(Some(_))),
            in_process: dir.is_in_process(),
            guardian: locks.and_then(|locks| dir.guardian_pid(locks).ok()),
            worker_lives: worker.is_none_or(|pid| pid.is_some()),
        }
    }
}

fn state(answer: &Answer, place: Place) -> &'static str {
    match (answer, place.guardian) {
        _ if place.in_process && place.worker_lives => "in worker",
        _ if place.in_process => "killed",
        (Ok(glimpse), _) if glimpse.is_ending => "ending",
        (Ok(_), _) => "running",
        (Err(ConnectError::Ended(_)), _) => "ended",
        (Err(ConnectError::NoAnswer(_)), _) if place.ended => "ended",
        (Err(ConnectError::NoAnswer(_)), Some(Some(_))) if !place.begun => "starting",
        (Err(ConnectError::NoAnswer(_)), Some(Some(_))) => "silent",
        (Err(ConnectError::NoAnswer(_)), Some(None)) if place.begun => "killed",
        // Its worker may be about to start it.
        (Err(ConnectError::NoAnswer(_)), Some(None)) if place.worker_lives => "starting",
        (Err(ConnectError::NoAnswer(_)), Some(None)) => "not started",
        (Err(_), _) => "unknown",
    }
}

/// Negative when it has passed.
fn seconds_until(moment: BootTime, now: BootTime) -> f64 {
    let ahead = moment.saturating_since(now).as_secs_f64();
    ahead - now.saturating_since(moment).as_secs_f64()
}

impl Row {
    fn cells(self) -> [String; 13] {
        let or_none = |value: Option<String>| text::or_none(value.as_deref()).to_owned();
        let number = |number: Option<u32>| or_none(number.map(|number| number.to_string()));
        [
            self.run_id,
            self.epoch.to_string(),
            or_none(self.kind),
            or_none(self.status),
            or_none(self.owner),
            match self.worker_lives {
                Some(false) => "dead".to_owned(),
                _ => number(self.worker_pid),
            },
            self.state.to_owned(),
            number(self.guardian_pid),
            number(self.task_pid),
            or_none(self.fence_left.map(|seconds| format!("{seconds:.0} s"))),
            or_none(self.memory_bytes.map(mebibytes)),
            or_none(self.processes.map(|count| count.to_string())),
            format!("{:.0} s", self.age),
        ]
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silence() -> Answer {
        Err(ConnectError::NoAnswer(io::ErrorKind::ConnectionRefused.into()))
    }

    fn place(begun: bool, guardian_lives: bool, worker_lives: bool) -> Place {
        let guardian = Some(guardian_lives.then_some(7));
        Place { begun, ended: false, in_process: false, guardian, worker_lives }
    }

    #[test]
    fn a_guardian_that_answers_says_itself_how_it_is() {
        let glimpse = |is_ending| {
            Ok(Glimpse { guardian_pid: 1, task_pid: 2, fence: BootTime::from_nanos(0), is_ending })
        };
        assert_eq!(state(&glimpse(false), place(true, true, false)), "running");
        assert_eq!(state(&glimpse(true), place(true, true, false)), "ending");
    }

    #[test]
    fn of_a_silent_one_the_lock_tells() {
        assert_eq!(state(&silence(), place(true, true, true)), "silent");
        assert_eq!(state(&silence(), place(false, true, true)), "starting");
        assert_eq!(state(&silence(), place(true, false, true)), "killed");
        assert_eq!(state(&silence(), place(false, false, true)), "starting");
        assert_eq!(state(&silence(), place(false, false, false)), "not started");
        let left = Place { ended: true, ..place(true, false, true) };
        assert_eq!(state(&silence(), left), "ended");
        let inside = |worker_lives| Place { in_process: true, ..place(false, false, worker_lives) };
        assert_eq!(state(&silence(), inside(true)), "in worker");
        assert_eq!(state(&silence(), inside(false)), "killed");
        let unseen = Place { guardian: None, ..place(true, true, true) };
        assert_eq!(state(&silence(), unseen), "unknown");
        assert_eq!(state(&Err(ConnectError::Refused), place(true, true, true)), "unknown");
    }

    #[test]
    fn a_fence_that_has_passed_is_negative() {
        let at = |seconds: u64| BootTime::from_nanos(seconds * 1_000_000_000);
        assert_eq!(seconds_until(at(12), at(10)), 2.0);
        assert_eq!(seconds_until(at(10), at(12)), -2.0);
    }
}
