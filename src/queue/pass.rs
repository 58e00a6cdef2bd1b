//! One claim pass: read the queue, claim what this worker may serve, run it, write how it ended (ADR-0071 D4).

use super::{Queue, WorkerCall};
use crate::db::StoreError;
use crate::db::ops::{
    BusyKeys, Claim, ClaimOutcome, ClaimPage, Exit, LastHeartbeat, ListPauses, PageStart,
};
use crate::domain::claim_plan::{ClaimPass, ClaimPlan, Offer};
use crate::domain::ending::{Ending, ExecuteError, Execution};
use crate::domain::lease;
use crate::domain::run::{ClaimedRun, QueuedRun};
use crate::domain::status::Status;
use crate::domain::transition::{Guard, Patch, Principal, Transition};
use crate::error::Error;

/// Runs a claimed task to its end. Any closure of this shape is one.
pub trait Execute {
    /// Does it.
    ///
    /// # Errors
    /// An [`ExecuteError`] when the task could not be run at all; its run then fails.
    fn execute(&mut self, run: &ClaimedRun) -> Result<Execution, ExecuteError>;
}

impl<F: FnMut(&ClaimedRun) -> Result<Execution, ExecuteError>> Execute for F {
    fn execute(&mut self, run: &ClaimedRun) -> Result<Execution, ExecuteError> {
        self(run)
    }
}

impl Queue {
    /// Claims what this worker may serve, up to the call's limit, and runs each task to its end before the next
    /// claim. Answers how many were claimed, however they ended.
    ///
    /// One time holds for the whole pass, and no lease is renewed in it: that is the contract. Each end is guarded
    /// by the owner and the expiry of its claim, so the result of a run that was taken back meanwhile is dropped.
    ///
    /// What is [paused](Queue::pause) is not claimed, and does not count towards the limit.
    ///
    /// # Errors
    /// [`Error::Argument`] for times that are not finite, [`Error::Store`] when the store fails: a run claimed by
    /// then stays running until its lease expires.
    pub fn claim_and_execute(
        &mut self,
        call: &WorkerCall,
        execute: &mut dyn Execute,
    ) -> Result<usize, Error> {
        let (call, now) = call.clone().checked(self.clock.now())?;
        let seen = self.store.read(&LastHeartbeat { worker_id: call.worker_id.clone() })?;
        if lease::is_stale(seen, now, call.heartbeat_ttl) {
            return Ok(0);
        }
        let expires_at = lease::expires_at(now, call.lease_ttl);
        let mut pass = self.plan_pass(&call)?;
        let mut claimed = 0;
        while let Some(run) = pass.next_candidate() {
            let claim = Claim {
                run_id: run.id.clone(),
                concurrency_key: run.concurrency_key.clone(),
                worker_id: call.worker_id.clone(),
                lease_expires_at: expires_at.into(),
                at: self.clock.now(),
                fact_id: self.ids.fact_id(),
            };
            if let ClaimOutcome::Won { epoch } = self.store.write(&claim)? {
                pass.claimed(&run);
                claimed += 1;
                let id = run.id.clone();
                let ending = carry_out(run, epoch, execute);
                self.end(id, ending, &call.worker_id, expires_at)?;
            }
        }
        Ok(claimed)
    }

    fn plan_pass(&mut self, call: &WorkerCall) -> Result<ClaimPass, StoreError> {
        let offer = Offer::new(
            &call.advertised_capabilities,
            &call.execution_targets,
            self.config.classes.clone(),
        );
        let pauses = self.store.read(&ListPauses)?.into_iter().map(|pause| pause.scope).collect();
        let mut plan = ClaimPlan::new(&offer, call.limit, self.store.read(&BusyKeys)?);
        let mut page = ClaimPage { start: PageStart::head(), pauses };
        while plan.wants_more() {
            let runs = self.store.read(&page)?;
            let next = page.start.next(&runs);
            plan.take_page(runs);
            let Some(next) = next else { break };
            page.start = next;
        }
        Ok(plan.into_pass())
    }

    /// Writes how a run ended, guarded by owner and expiry. A conflict means that the run is no longer this
    /// worker's: nothing is written, and nothing is wrong.
    fn end(
        &mut self,
        run_id: String,
        ending: Ending,
        worker_id: &str,
        expires_at: f64,
    ) -> Result<(), Error> {
        let transition = Transition {
            id: run_id,
            from: Some(Status::Running.as_str().into()),
            to: ending.status,
            reason: ending.reason,
            principal: Principal::system("task_worker"),
            guard: Guard {
                leased_by: Some(worker_id.to_owned()),
                lease_expires_at: Some(expires_at),
                lease_attempts: None,
            },
            patch: Patch::default(),
            idempotency_key: None,
        };
        let exit = Exit { code: ending.exit_code, error_detail: ending.error_detail };
        let written = match self.change(transition.clone(), Some(exit)) {
            // The store will not have these words, and a run must not stay running because of what it printed.
            Err(Error::Store(StoreError::Sql { .. })) => self.change(
                plainly(transition),
                Some(Exit { code: ending.exit_code, error_detail: None }),
            ),
            other => other,
        };
        match written {
            // The row is gone: somebody removed it while the task ran.
            Ok(_) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn plainly(mut transition: Transition) -> Transition {
    transition.reason.summary = "the store refused this run's own words".into();
    transition
}

fn carry_out(run: QueuedRun, epoch: i32, execute: &mut dyn Execute) -> Ending {
    let execution = run
        .claimed(epoch)
        .map_or_else(|| Err(ExecuteError::unreadable_args()), |run| execute.execute(&run));
    Ending::from(execution.unwrap_or_else(Execution::from))
}
