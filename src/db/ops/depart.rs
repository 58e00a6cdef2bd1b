//! Every way of a run out of `running` that a worker of this project takes.

use diesel::prelude::*;

use super::change::{Change, Epoch, swap};
use super::fraction;
use super::run_state::{
    NextTry, count_expiry, expiries, locked_status, next_try, requested_cancel, wake_at,
};
use super::steps::{failed_step, forget_steps};
use crate::db::engine::{AnyConn, Evidence, Operation, on};
use crate::db::schema::{leasehold_attempts, schedule_runs};
use crate::domain::ending::{EndedBy, Ending, Usage};
use crate::domain::lease::{AfterExpiry, after_expiry};
use crate::domain::reason::{Reason, ReasonCode};
use crate::domain::run::RunEpoch;
use crate::domain::status::Status;
use crate::domain::transition::{Guard, Patch, Principal};
use crate::domain::workflow::Place;

/// The queue's own name on the facts of ends.
const WORKER: &str = "task_worker";

/// Moves a run of `owner` out of `running`, guarded by owner and epoch.
#[derive(Debug, Clone)]
pub struct Depart {
    /// The run.
    pub run: RunEpoch,
    /// Who has its lease.
    pub owner: String,
    /// Where it goes, and why.
    pub way: Way,
    /// How the attempt ended, if anything ran.
    pub attempt: Option<AttemptEnd>,
    /// When, in seconds since the epoch.
    pub at: f64,
    /// The id of the fact.
    pub fact_id: String,
}

/// Where a run goes from `running`.
#[derive(Debug, Clone, PartialEq)]
pub enum Way {
    /// It has ended by itself.
    Ended(Ending),
    /// It was stopped, since somebody had asked for it.
    Cancelled,
    /// It was stopped, since its time was over.
    TimedOut {
        /// How long it had, in seconds, if that is known.
        timeout: Option<f64>,
    },
    /// Through no fault of its own it goes back to the queue, or is cancelled if that was asked for meanwhile.
    Back(Reason),
    /// It may be what loses its workers: as [`Way::Back`], but that is counted, and so many times end the run.
    Lost {
        /// How it was lost.
        loss: Loss,
        /// How many times end it.
        max: i32,
    },
}

/// How a run was lost that nobody had ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Its lease ran out.
    Lease,
    /// Its guardian was killed.
    Guardian,
    /// It ran inside its worker, which has died.
    Worker,
}

impl Loss {
    fn requeued(self) -> Reason {
        match self {
            Self::Lease => Reason::new(
                ReasonCode::LEASE_EXPIRED,
                "lease expired before completion; recovered for re-claim",
            ),
            Self::Guardian => {
                Reason::new(ReasonCode::GUARDIAN_LOST, "the guardian of the run was killed")
            }
            Self::Worker => Reason::new(
                ReasonCode::LEASE_EXPIRED,
                "the run was inside its worker, which has died; recovered for re-claim",
            ),
        }
    }

    fn exhausted(self, times: i32, max: i32) -> Reason {
        let what = match self {
            Self::Lease => "lease expired",
            Self::Guardian => "guardian killed or lease expired",
            Self::Worker => "worker died or lease expired",
        };
        let summary = format!("{what} {times} time(s); bound ({max}) reached");
        Reason::new(ReasonCode::LEASE_ATTEMPTS_EXHAUSTED, summary)
    }
}

/// How an attempt ended, as the kernel gave it.
#[derive(Debug, Clone, PartialEq)]
pub struct AttemptEnd {
    /// Who ended it.
    pub ended_by: EndedBy,
    /// The exit code; `-N` for signal N.
    pub exit_code: i32,
    /// What it used.
    pub usage: Usage,
}

impl Operation for Depart {
    /// The status it has now; nothing when the run was no longer this owner's, in this epoch.
    type Output = Option<Status>;

    fn name(&self) -> &'static str {
        "end a run"
    }

    fn subject(&self) -> Option<&str> {
        Some(&self.run.run_id)
    }

    fn evidence(&self, output: &Self::Output) -> Option<Evidence<'_>> {
        output.is_some().then_some(Evidence::Fact(&self.fact_id))
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Self::Output> {
        let guard = Guard {
            leased_by: Some(self.owner.clone()),
            lease_expires_at: None,
            lease_attempts: Some(self.run.epoch),
        };
        let change = OutOfRunning {
            run_id: &self.run.run_id,
            guard: &guard,
            at: self.at,
            fact_id: &self.fact_id,
        };
        let status = match &self.way {
            Way::Ended(ending) if ending.reason.code == ReasonCode::EXIT_NONZERO => {
                let step = failed_step(conn, &self.run)?;
                let place = step.as_ref().map(|(step, name)| Place {
                    step: *step,
                    of: None,
                    name: name.as_deref(),
                });
                change.end_or_retry(conn, ending, place.as_ref())?
            }
            Way::Ended(ending) if ending.reason.code == ReasonCode::CONTRACT_UNMET => {
                let status = change.end_or_retry(conn, ending, None)?;
                if status == Some(Status::RetryWait) {
                    // All of its steps have ended well, and what they have left is not what was asked for.
                    forget_steps(conn, &self.run.run_id)?;
                }
                status
            }
            Way::Ended(ending) => change.end(conn, ending)?,
            Way::Cancelled => {
                let by = requested_cancel(conn, &self.run.run_id)?
                    .map_or_else(|| Principal::system(WORKER), |request| request.by);
                change.cancel(conn, &by)?
            }
            Way::TimedOut { timeout } => {
                let summary = match timeout {
                    Some(timeout) => format!("the run exceeded its {timeout} s"),
                    None => "the run exceeded its timeout".to_owned(),
                };
                let reason = Reason::new(ReasonCode::DEADLINE, summary);
                change.go(
                    conn,
                    Status::TimedOut,
                    &reason,
                    &Principal::system(WORKER),
                    &Patch::default(),
                )?
            }
            Way::Back(reason) => change.back(conn, reason, &Principal::system(WORKER))?,
            Way::Lost { loss, max } => {
                change.lose(conn, *loss, *max, &Principal::system(WORKER))?
            }
        };
        if let (Some(_), Some(attempt)) = (status, &self.attempt) {
            record_attempt(conn, &self.run, &self.owner, self.at, attempt)?;
        }
        Ok(status)
    }
}

/// A change from `running`, whichever way it goes.
pub(super) struct OutOfRunning<'a> {
    pub run_id: &'a str,
    pub guard: &'a Guard,
    pub at: f64,
    pub fact_id: &'a str,
}

impl OutOfRunning<'_> {
    /// Back to the queue, unless a cancel was asked for: nothing claims a run after that.
    pub fn back(
        &self,
        conn: &mut AnyConn,
        reason: &Reason,
        principal: &Principal,
    ) -> QueryResult<Option<Status>> {
        match requested_cancel(conn, self.run_id)? {
            Some(request) => self.cancel(conn, &request.by),
            None => self.go(conn, Status::Queued, reason, principal, &Patch::release()),
        }
    }

    /// As [`OutOfRunning::back`], for a run that has been lost so many times: at the bound it fails.
    pub fn back_within(
        &self,
        conn: &mut AnyConn,
        loss: Loss,
        times: i32,
        max: i32,
        principal: &Principal,
    ) -> QueryResult<Option<Status>> {
        let reason = match after_expiry(times, max) {
            AfterExpiry::Requeue => return self.back(conn, &loss.requeued(), principal),
            AfterExpiry::Fail => loss.exhausted(times, max),
        };
        match requested_cancel(conn, self.run_id)? {
            Some(request) => self.cancel(conn, &request.by),
            None => self.go(conn, Status::Failed, &reason, principal, &Patch::default()),
        }
    }

    /// As [`OutOfRunning::back_within`], counting what was stored as lost and this loss.
    pub fn lose(
        &self,
        conn: &mut AnyConn,
        loss: Loss,
        max: i32,
        principal: &Principal,
    ) -> QueryResult<Option<Status>> {
        let times = expiries(conn, self.run_id)? + 1;
        let status = self.back_within(conn, loss, times, max, principal)?;
        if status.is_some() {
            count_expiry(conn, self.run_id)?;
        }
        Ok(status)
    }

    fn cancel(&self, conn: &mut AnyConn, by: &Principal) -> QueryResult<Option<Status>> {
        let reason = Reason::new(ReasonCode::CANCELLED_OPERATOR, "stopped, as was asked for");
        self.go(conn, Status::Cancelled, &reason, by, &Patch::default())
    }

    /// A run that has failed by itself is tried again if its own policy says so and nobody wants it to stop.
    /// `place` is the step with which a workflow has failed.
    fn end_or_retry(
        &self,
        conn: &mut AnyConn,
        ending: &Ending,
        place: Option<&Place<'_>>,
    ) -> QueryResult<Option<Status>> {
        let named = place.map(|place| ending.clone().at(place));
        let ending = named.as_ref().unwrap_or(ending);
        // Its owner looks before it counts: a failure of somebody else's run is none of this one.
        if !self.holds(conn)? || requested_cancel(conn, self.run_id)?.is_some() {
            return self.end(conn, ending);
        }
        let next = next_try(conn, self.run_id, ending.exit_code, fraction(self.fact_id))?;
        let Some(NextTry { failures, most, pause }) = next else { return self.end(conn, ending) };
        let what = match (ending.reason.code, place) {
            (ReasonCode::CONTRACT_UNMET, _) => ending.reason.summary.clone(),
            (_, Some(place)) => format!("{place}, exit code {}", ending.exit_code),
            (_, None) => format!("exit code {}", ending.exit_code),
        };
        let summary = format!("failure {failures} of {most} ({what}): next try in {pause:.1} s");
        let reason = Reason::new(ReasonCode::BACKOFF, summary);
        let principal = Principal::system(WORKER);
        let status = self.go(conn, Status::RetryWait, &reason, &principal, &Patch::release())?;
        if status.is_some() {
            wake_at(conn, self.run_id, self.at + pause)?;
        }
        Ok(status)
    }

    /// Whether the guard lets a change through, until this transaction ends.
    fn holds(&self, conn: &mut AnyConn) -> QueryResult<bool> {
        use schedule_runs::dsl;
        if locked_status(conn, self.run_id)? != Some(Status::Running) {
            return Ok(false);
        }
        let row: Option<(Option<String>, i32)> = dsl::schedule_runs
            .find(self.run_id)
            .select((dsl::leased_by, dsl::lease_attempts))
            .first(conn)
            .optional()?;
        Ok(row.is_some_and(|(owner, epoch)| {
            owner == self.guard.leased_by && Some(epoch) == self.guard.lease_attempts
        }))
    }

    fn end(&self, conn: &mut AnyConn, ending: &Ending) -> QueryResult<Option<Status>> {
        let (principal, patch) = (Principal::system(WORKER), Patch::default());
        let change = Change {
            exit_code: Some(ending.exit_code),
            error_detail: ending.error_detail.as_deref(),
            ..self.change(ending.status, &ending.reason, &principal, &patch)
        };
        Ok(swap(conn, &change)?.map(|_| ending.status))
    }

    fn go(
        &self,
        conn: &mut AnyConn,
        to: Status,
        reason: &Reason,
        principal: &Principal,
        patch: &Patch,
    ) -> QueryResult<Option<Status>> {
        Ok(swap(conn, &self.change(to, reason, principal, patch))?.map(|_| to))
    }

    fn change<'c>(
        &'c self,
        to: Status,
        reason: &'c Reason,
        principal: &'c Principal,
        patch: &'c Patch,
    ) -> Change<'c> {
        Change {
            id: self.run_id,
            from: Status::Running,
            to,
            reason,
            principal,
            guard: self.guard,
            patch,
            epoch: Epoch::AsPatched,
            exit_code: None,
            error_detail: None,
            at: self.at,
            fact_id: self.fact_id,
        }
    }
}

#[derive(Insertable)]
#[diesel(table_name = leasehold_attempts, treat_none_as_default_value = false)]
struct NewAttempt<'a> {
    run_id: &'a str,
    epoch: i32,
    owner: &'a str,
    ended_at: f64,
    ended_by: &'a str,
    exit_code: Option<i32>,
    signal: Option<i32>,
    core_dumped: Option<i32>,
    user_seconds: Option<f64>,
    system_seconds: Option<f64>,
    max_rss_kib: Option<i64>,
    leftovers: Option<i32>,
}

fn record_attempt(
    conn: &mut AnyConn,
    run: &RunEpoch,
    owner: &str,
    at: f64,
    end: &AttemptEnd,
) -> QueryResult<()> {
    let usage = &end.usage;
    let attempt = NewAttempt {
        run_id: &run.run_id,
        epoch: run.epoch,
        owner,
        ended_at: at,
        ended_by: end.ended_by.as_str(),
        exit_code: (end.exit_code >= 0).then_some(end.exit_code),
        signal: (end.exit_code < 0).then_some(-end.exit_code),
        core_dumped: usage.core_dumped.map(i32::from),
        user_seconds: usage.user_seconds,
        system_seconds: usage.system_seconds,
        max_rss_kib: usage.max_rss_kib,
        leftovers: usage.leftovers,
    };
    // A run leaves `running` once in an epoch, so there is no row yet.
    on!(conn, c => diesel::insert_into(leasehold_attempts::table).values(&attempt).execute(c).map(drop))
}
