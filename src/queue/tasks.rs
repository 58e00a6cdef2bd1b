//! Submitting, looking up, cancelling and changing tasks (ADR-0071 D1 to D3).

use super::Queue;
use crate::db::Run;
use crate::db::ops::{
    Cancel, Cancelled, ChangeDispatch, ChangeStatus, Exit, FindRun, Resent, RetryNotice,
};
use crate::domain::dispatch::DispatchStatus;
use crate::domain::payload::IdempotencyKey;
use crate::domain::reason::{Reason, ReasonCode};
use crate::domain::settings::RunSettings;
use crate::domain::status::Status;
use crate::domain::task::TaskApplication;
use crate::domain::transition::{
    DispatchTransition, Entity, Guard, Outcome, Patch, Principal, Transition, TransitionRefusal,
    TransitionRequest,
};
use crate::error::Error;
use crate::submit::Intake;

impl Queue {
    /// Checks a task and inserts it as one queued run. Answers its id once it is stored. If its idempotency key stands
    /// for the same task already, nothing is inserted and that one's id is the answer.
    ///
    /// # Errors
    /// [`Error::Submit`] for the first rule of ADR-0071 D1 that does not hold, and [`Error::KeyTaken`] when the key
    /// stands for another task: no row was inserted then.
    pub fn submit_task(&mut self, app: &TaskApplication) -> Result<String, Error> {
        self.submit_task_with(app, RunSettings::default(), None)
    }

    /// As [`Queue::submit_task`], with settings for the run, and what it reads from its standard input.
    ///
    /// # Errors
    /// As [`Queue::submit_task`], and [`Error::Settings`] for settings that no worker could follow.
    pub fn submit_task_with(
        &mut self,
        app: &TaskApplication,
        settings: RunSettings,
        stdin: Option<Vec<u8>>,
    ) -> Result<String, Error> {
        let submit = self.intake().accept(app, settings, stdin)?;
        Error::or_id(self.store.write(&submit)?, &submit)
    }

    pub(super) fn intake(&self) -> Intake<'_> {
        Intake { rules: self.config.submit_rules(), clock: &*self.clock, ids: &*self.ids }
    }

    /// Withdraws a task that no worker has claimed yet. `false` means it was too late, or it had ended before.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such run.
    pub fn cancel_task(&mut self, run_id: &str, principal: &Principal) -> Result<bool, Error> {
        let summary = "task application cancelled before lease";
        let transition = Transition {
            id: run_id.to_owned(),
            from: Some(Status::Queued.as_str().into()),
            to: Status::Cancelled,
            reason: Reason::new(ReasonCode::CANCELLED_ORCHESTRATOR, summary),
            principal: principal.clone(),
            guard: Guard::default(),
            patch: Patch::default(),
            idempotency_key: None,
        };
        Ok(self.change(transition, None)?.is_applied())
    }

    /// Cancels a run: at once while it waits, and by a recorded request while it runs. Its worker then stops the
    /// process tree; an end that the task reaches before stands.
    ///
    /// # Errors
    /// [`Error::Transition`] for an id that no store could hold, [`Error::Store`] when the store fails.
    pub fn cancel(&mut self, run_id: &str, by: &Principal) -> Result<Cancelled, Error> {
        let cancel = Cancel::new(run_id, by.clone(), self.clock.now(), self.ids.fact_id())?;
        Ok(self.store.write(&cancel)?)
    }

    /// Changes the status of a run, once, with one fact (ADR-0071 D3).
    ///
    /// Under [`Config::daemon`](crate::Config::daemon) the request's key counts: the same request under the same key is
    /// answered with the first result, and nothing is written, whatever has become of the run since. What is refused, or
    /// is a conflict, leaves the key free. A key belongs to its run, and is forgotten with it.
    ///
    /// # Errors
    /// [`Error::Transition`] for a request that breaks a rule, [`Error::NotFound`] for a missing run,
    /// [`Error::TransitionKeyTaken`] when the key stands for another change of the run. A status or a guard that does
    /// not match is no error but [`Outcome::Conflict`].
    pub fn transition(
        &mut self,
        request: &TransitionRequest,
        guard: Guard,
        patch: Patch,
    ) -> Result<Outcome, Error> {
        let transition = request.check(guard, patch)?;
        self.change(transition, None)
    }

    /// Applies a change that was checked before, such as one that came through the JSON door.
    ///
    /// # Errors
    /// As [`Queue::transition`].
    pub fn change(&mut self, transition: Transition, exit: Option<Exit>) -> Result<Outcome, Error> {
        refuse_nul(&transition)?;
        let is_keyed = self.config.idempotency;
        let key = self.key_of(&transition)?;
        let change = ChangeStatus {
            transition,
            exit,
            key,
            asks_event: is_keyed,
            at: self.clock.now(),
            fact_id: self.ids.fact_id(),
        };
        let of = (Entity::ScheduleRun, change.transition.id.clone());
        Error::or_outcome(self.store.write(&change)?, of, change.key.as_ref())
    }

    /// Changes the status of a notice in the outbox, of whatever kind, once, with one fact (ADR-0071 D3). The request's key
    /// counts as in [`Queue::transition`], and belongs to its notice.
    ///
    /// # Errors
    /// As [`Queue::transition`].
    pub fn change_dispatch(
        &mut self,
        transition: DispatchTransition,
    ) -> Result<Outcome<DispatchStatus>, Error> {
        refuse_nul(&transition)?;
        let key = self.key_of(&transition)?;
        let (at, fact_id) = (self.clock.now(), self.ids.fact_id());
        let change = ChangeDispatch { transition, key, at, fact_id };
        let of = (Entity::Dispatch, change.transition.id.clone());
        Error::or_outcome(self.store.write(&change)?, of, change.key.as_ref())
    }

    /// The key of a request, where keys count.
    fn key_of<S, G, P>(
        &self,
        transition: &Transition<S, G, P>,
    ) -> Result<Option<IdempotencyKey>, TransitionRefusal> {
        if self.config.idempotency { transition.key() } else { Ok(None) }
    }

    /// Sends the notice of a task again that was given up.
    ///
    /// # Errors
    /// [`Error::Transition`] for an id that no store could hold, [`Error::Store`] when the store fails.
    pub fn retry_notice(&mut self, id: &str, by: &Principal) -> Result<Resent, Error> {
        if id.contains('\0') || by.id.contains('\0') {
            return Err(TransitionRefusal::Nul.into());
        }
        let (at, fact_id) = (self.clock.now(), self.ids.fact_id());
        let retry = RetryNotice { id: id.to_owned(), by: by.clone(), at, fact_id };
        Ok(self.store.write(&retry)?)
    }

    /// The run with this id.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is none.
    pub fn run(&mut self, run_id: &str) -> Result<Run, Error> {
        let missing = || Error::NotFound { entity: "task", id: run_id.to_owned() };
        // No store can hold such an id, and PostgreSQL would not even be asked.
        if run_id.contains('\0') {
            return Err(missing());
        }
        self.read(&FindRun { run_id: run_id.to_owned() })?.ok_or_else(missing)
    }
}

fn refuse_nul<S, G, P>(transition: &Transition<S, G, P>) -> Result<(), TransitionRefusal> {
    let ids = [&transition.id, &transition.principal.id];
    if ids.into_iter().any(|id| id.contains('\0')) { Err(TransitionRefusal::Nul) } else { Ok(()) }
}
