//! What a store must say, kept in memory: the rules once more, in other words, without SQL.

use std::collections::BTreeMap;

use leasehold::db::Run;
use leasehold::db::ops::Submitted;
use leasehold::domain::dispatch::DispatchStatus;
use leasehold::domain::pause::Scope;
use leasehold::domain::status::Status;

/// The bound of leases that run out.
pub const MOST_EXPIRIES: i32 = 3;
/// The pause before the next try, at its longest.
pub const BACKOFF: f64 = 8.0;
/// How often it is tried to send a notice.
pub const MOST_SENDS: i32 = 2;
/// How many steps a workflow has.
pub const STEPS: usize = 3;

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
    /// Whose new try it is.
    pub parent: Option<String>,
    /// Its steps: the attempt in which each was begun last, and its exit code.
    pub steps: Vec<(i32, Option<i32>)>,
    /// For how long after its end somebody is to be told.
    pub tells_within: Option<f64>,
    pub notice: Option<Notice>,
    /// The code of each fact, in order.
    pub facts: Vec<&'static str>,
    /// The epochs whose end was told.
    pub attempts: Vec<i32>,
}

/// What tells somebody of an end.
#[derive(Debug, Clone, PartialEq)]
pub struct Notice {
    pub status: DispatchStatus,
    pub attempt: i32,
    pub expires_at: Option<f64>,
    /// How often it has changed.
    pub facts: usize,
}

impl Notice {
    pub fn go(&mut self, to: DispatchStatus) {
        self.status = to;
        self.facts += 1;
    }

    /// For one attempt, or to settle it. Whether whoever wants it has seen it as it is.
    pub fn take(&mut self, from: DispatchStatus, attempt: i32, now: f64) -> bool {
        if (from, attempt) != (self.status, self.attempt) {
            return false;
        }
        if self.expires_at.is_some_and(|at| at <= now) {
            self.go(DispatchStatus::Expired);
        } else if from == DispatchStatus::Delivering && attempt >= MOST_SENDS {
            self.go(DispatchStatus::DeadLetter);
        } else {
            self.go(DispatchStatus::Delivering);
            self.attempt += 1;
        }
        true
    }
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
    /// The codes that are left of the facts of each run that was removed.
    pub removed: BTreeMap<String, Vec<&'static str>>,
    /// Notices that are still to be sent, of runs that were removed.
    pub orphans: BTreeMap<String, Notice>,
}

impl Task {
    /// One that was submitted at this moment, without any wishes.
    pub fn queued_at(queued_at: f64) -> Task {
        Task {
            status: Status::Queued,
            owner: None,
            lease: None,
            epoch: 0,
            key: None,
            queued_at,
            ended_at: None,
            exit_code: None,
            wake_at: None,
            expires_at: None,
            failures: 0,
            max_failures: 0,
            expiries: 0,
            cancel_requested: false,
            parent: None,
            steps: Vec::new(),
            tells_within: None,
            notice: None,
            facts: Vec::new(),
            attempts: Vec::new(),
        }
    }

    pub fn go(&mut self, to: Status, code: &'static str, now: f64) {
        assert!(self.status.may_become(to), "the oracle took {} -> {to}", self.status);
        self.status = to;
        self.facts.push(code);
        if to.is_terminal() {
            self.ended_at = Some(now);
            self.notice = self.tells_within.map(|within| Notice {
                status: DispatchStatus::Pending,
                attempt: 0,
                expires_at: Some(now + within),
                facts: 0,
            });
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

    /// Whether it is tried again.
    fn fail(&mut self, code: &'static str, exit_code: i32, pause: f64, now: f64) -> bool {
        if self.max_failures > 0 && !self.cancel_requested {
            self.failures += 1;
            if self.failures < self.max_failures {
                self.go(Status::RetryWait, "run.retry_wait.backoff", now);
                self.release();
                self.wake_at = Some(now + pause);
                return true;
            }
        }
        self.go(Status::Failed, code, now);
        self.exit_code = Some(exit_code);
        false
    }

    /// How an attempt ends, by whoever has the lease in this epoch.
    pub fn depart(&mut self, way: Leaving, fraction: f64, now: f64) {
        // The first pause is the base; it doubles.
        let pause = BACKOFF / 4.0 * f64::from(1 << self.failures.min(2)) * fraction;
        match way {
            Leaving::Ended(0) => {
                self.go(Status::Completed, "run.completed.ok", now);
                self.exit_code = Some(0);
            }
            Leaving::Ended(code) => drop(self.fail("run.failed.exit_nonzero", code, pause, now)),
            Leaving::Unmet => {
                if self.fail("run.failed.contract_unmet", 0, pause, now) {
                    self.steps.clear();
                }
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
    Unmet,
    Cancelled,
    TimedOut,
    Back,
    GuardianLost,
}

impl Oracle {
    /// Under its key, with its payload, if it has one.
    pub fn submit(&mut self, id: &str, key: Option<(String, u8)>, task: Task) -> Submitted {
        if let Some((key, payload)) = key {
            match self.keys.get(&key) {
                Some((other, run)) if *other == payload => return Submitted::Again(run.clone()),
                Some((_, run)) => return Submitted::Taken(run.clone()),
                None => drop(self.keys.insert(key, (payload, id.to_owned()))),
            }
        }
        self.tasks.insert(id.to_owned(), task);
        Submitted::New
    }

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

    /// Of which runs there are notices.
    pub fn told(&self) -> Vec<String> {
        let told = self.tasks.iter().filter(|(_, task)| task.notice.is_some());
        told.map(|(id, _)| id).chain(self.orphans.keys()).cloned().collect()
    }

    pub fn notice(&mut self, run_id: &str) -> Option<&mut Notice> {
        match self.tasks.get_mut(run_id) {
            Some(task) => task.notice.as_mut(),
            None => self.orphans.get_mut(run_id),
        }
    }

    /// Removes a run that has ended, and says how many facts went with it.
    pub fn remove(&mut self, id: &str, with_facts: bool) -> Option<usize> {
        let task = self.tasks.get(id).filter(|task| task.status.is_terminal())?.clone();
        self.tasks.remove(id);
        for child in self.tasks.values_mut() {
            child.parent.take_if(|parent| parent == id);
        }
        let mut gone = task.facts.len();
        if let Some(notice) = task.notice {
            let is_to_be_sent =
                [DispatchStatus::Pending, DispatchStatus::Delivering].contains(&notice.status);
            match is_to_be_sent {
                true => drop(self.orphans.insert(id.to_owned(), notice)),
                false => gone += notice.facts,
            }
        }
        self.removed.insert(id.to_owned(), if with_facts { Vec::new() } else { task.facts });
        Some(if with_facts { gone } else { 0 })
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
        row.chain_parent_id.clone(),
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
        task.parent.clone(),
    );
    match said == expected {
        true => Ok(()),
        false => Err(format!("{}: {said:?} is stored, {expected:?} was expected", row.id)),
    }
}
