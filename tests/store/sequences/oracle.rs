//! What a store must say, kept in memory: the rules once more, in other words, without SQL.

use std::collections::BTreeMap;

use leasehold::db::Run;
use leasehold::domain::pause::Scope;
use leasehold::domain::status::Status;

/// The bound of leases that run out.
pub const MOST_EXPIRIES: i32 = 3;
/// The pause before the next try, at its longest.
pub const BACKOFF: f64 = 8.0;

/// A run.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    pub status: Status,
    pub owner: Option<String>,
    pub lease: Option<f64>,
    pub epoch: i32,
    pub key: Option<String>,
    pub queued_at: f64,
    pub ended_at: Option<f64>,
    pub exit_code: Option<i32>,
    pub wake_at: Option<f64>,
    pub expires_at: Option<f64>,
    pub failures: u32,
    pub max_failures: u32,
    pub expiries: i32,
    pub cancel_requested: bool,
    /// The code of each fact, in order.
    pub facts: Vec<&'static str>,
    /// The epochs whose end was told.
    pub attempts: Vec<i32>,
}

/// A whole store.
#[derive(Debug, Clone, Default)]
pub struct Oracle {
    pub now: f64,
    pub tasks: BTreeMap<String, Task>,
    /// Idempotency keys: the payload, and whose it is.
    pub keys: BTreeMap<String, (u8, String)>,
    /// What is paused, since when.
    pub pauses: BTreeMap<Scope, f64>,
}

impl Task {
    pub fn go(&mut self, to: Status, code: &'static str, now: f64) {
        assert!(self.status.may_become(to), "the oracle took {} -> {to}", self.status);
        self.status = to;
        self.facts.push(code);
        if to.is_terminal() {
            self.ended_at = Some(now);
        }
    }

    fn release(&mut self) {
        (self.owner, self.lease) = (None, None);
    }

    /// Back to the queue, unless somebody wants it to stop.
    fn back(&mut self, code: &'static str, now: f64) {
        if self.cancel_requested {
            return self.go(Status::Cancelled, "run.cancelled.operator", now);
        }
        self.go(Status::Queued, code, now);
        self.release();
    }

    pub fn lose(&mut self, code: &'static str, now: f64) {
        self.expiries += 1;
        match self.expiries >= MOST_EXPIRIES && !self.cancel_requested {
            true => self.go(Status::Failed, "run.failed.lease_attempts_exhausted", now),
            false => self.back(code, now),
        }
    }

    fn fail(&mut self, exit_code: i32, pause: f64, now: f64) {
        if self.max_failures > 0 && !self.cancel_requested {
            self.failures += 1;
            if self.failures < self.max_failures {
                self.go(Status::RetryWait, "run.retry_wait.backoff", now);
                self.release();
                self.wake_at = Some(now + pause);
                return;
            }
        }
        self.go(Status::Failed, "run.failed.exit_nonzero", now);
        self.exit_code = Some(exit_code);
    }

    /// How an attempt ends, by whoever has the lease in this epoch.
    pub fn depart(&mut self, way: Leaving, fraction: f64, now: f64) {
        match way {
            Leaving::Ended(0) => {
                self.go(Status::Completed, "run.completed.ok", now);
                self.exit_code = Some(0);
            }
            Leaving::Ended(code) => {
                // The first pause is the base; it doubles.
                let pause = BACKOFF / 4.0 * f64::from(1 << self.failures.min(2));
                self.fail(code, pause * fraction, now);
            }
            Leaving::Cancelled => self.go(Status::Cancelled, "run.cancelled.operator", now),
            Leaving::TimedOut => self.go(Status::TimedOut, "run.timed_out.deadline", now),
            Leaving::Back => self.back("run.queued.shutdown", now),
            Leaving::GuardianLost => self.lose("run.queued.guardian_lost", now),
        }
    }
}

/// The ways of a run out of an attempt.
#[derive(Debug, Clone, Copy)]
pub enum Leaving {
    Ended(i32),
    Cancelled,
    TimedOut,
    Back,
    GuardianLost,
}

impl Oracle {
    pub fn is_busy(&self, key: Option<&String>) -> bool {
        let running = |task: &Task| task.status == Status::Running && task.key.as_ref() == key;
        key.is_some() && self.tasks.values().any(running)
    }

    /// Whether queued runs are held; all are agents for the host.
    pub fn is_held(&self) -> bool {
        self.pauses.keys().any(|scope| ["", "agent", "host"].contains(&scope.value()))
    }

    /// What a worker without capabilities would be shown, in the order of the queue.
    pub fn queue(&self) -> Vec<String> {
        if self.is_held() {
            return Vec::new();
        }
        let mut queued: Vec<_> =
            self.tasks.iter().filter(|(_, task)| task.status == Status::Queued).collect();
        queued.sort_by(|a, b| a.1.queued_at.total_cmp(&b.1.queued_at).then(a.0.cmp(b.0)));
        queued.into_iter().map(|(id, _)| id.clone()).collect()
    }

    pub fn expired(&self) -> Vec<String> {
        let expired = |task: &Task| {
            task.status == Status::Running && task.lease.is_some_and(|lease| lease < self.now)
        };
        self.tasks.iter().filter(|(_, task)| expired(task)).map(|(id, _)| id.clone()).collect()
    }

    /// Does what time does, and says to which runs.
    pub fn wake(&mut self) -> BTreeMap<String, Status> {
        let now = self.now;
        let mut changed = BTreeMap::new();
        for (id, task) in &mut self.tasks {
            let before = task.facts.len();
            if task.wake_at.take_if(|at| *at <= now).is_some() {
                match task.status {
                    Status::RetryWait => task.go(Status::Queued, "run.queued.retry_due", now),
                    Status::WaitingDependency => task.go(Status::Queued, "run.queued.due", now),
                    _ => {}
                }
            }
            if task.expires_at.take_if(|at| *at <= now).is_some() && task.status == Status::Queued {
                task.go(Status::Skipped, "run.skipped.expired", now);
            }
            if task.facts.len() > before {
                changed.insert(id.clone(), task.status);
            }
        }
        changed
    }
}

/// The row of the store is the oracle's.
pub fn agrees(task: &Task, row: &Run) -> Result<(), String> {
    let said = (
        row.status.as_str(),
        row.leased_by.clone(),
        row.lease_expires_at,
        row.lease_attempts,
        row.concurrency_key.clone(),
        row.queued_at,
        row.ended_at,
        row.exit_code,
        row.status_reason_code.as_deref(),
    );
    let expected = (
        task.status.as_str(),
        task.owner.clone(),
        task.lease,
        task.epoch,
        task.key.clone(),
        Some(task.queued_at),
        task.ended_at,
        task.exit_code,
        task.facts.last().copied(),
    );
    match said == expected {
        true => Ok(()),
        false => Err(format!("{}: {said:?} is stored, {expected:?} was expected", row.id)),
    }
}
