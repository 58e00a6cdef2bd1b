//! Submitting through a handle: one task, many, and what a host needs to submit by itself.

use std::sync::Arc;

use super::handle::{Handle, RESTART_WAIT, TRIES};
use crate::actors::CallError;
use crate::actors::root::{Read, Sleep};
use crate::actors::scheduler::Wake;
use crate::db::ops::{IsStored, StoreId, Submit, SubmitTasks, Submitted};
use crate::db::{Evidence, Home, Operation, StoreError};
use crate::domain::settings::RunSettings;
use crate::domain::submission::Submission;
use crate::domain::task::TaskApplication;
use crate::error::Error;
use crate::submit::{self, Batch, Intake, Submitter};

/// So many tasks share a transaction: what leases depend on waits for it.
const SHARED: usize = 250;

impl Handle {
    /// Checks a task and inserts it; it is claimed at once if there is room. Answers its id once it is stored.
    ///
    /// # Errors
    /// [`Error::Submit`] for a task that breaks a rule. [`Error::Runtime`] with [`CallError::Overloaded`] when too
    /// many writes are waiting: nothing was written.
    pub async fn submit(&self, app: &TaskApplication) -> Result<String, Error> {
        self.submit_with(app, RunSettings::default(), None).await
    }

    /// As [`Handle::submit`], with settings for the run, and what it reads from its standard input.
    ///
    /// # Errors
    /// As [`Handle::submit`], and [`Error::Settings`] for settings that no worker could follow.
    pub async fn submit_with(
        &self,
        app: &TaskApplication,
        settings: RunSettings,
        stdin: Option<Vec<u8>>,
    ) -> Result<String, Error> {
        let submit = self.intake().accept(app, settings, stdin)?;
        self.store_one(&submit).await
    }

    /// Submits tasks, each for itself: as [`Handle::submit_with`] one after the other, but up to 250 share a transaction,
    /// and a task that is refused keeps no other from being stored. Answers for each, in their order, its id or why it
    /// has none.
    ///
    /// A store that cannot be written is the answer of all tasks that are not stored by then.
    pub async fn submit_tasks(&self, tasks: &[Submission]) -> Vec<Result<String, Error>> {
        let intake = self.intake();
        let (mut answers, mut fault) = (Vec::with_capacity(tasks.len()), None);
        for shared in tasks.chunks(SHARED) {
            let checked = Batch::check(shared, &intake);
            answers.extend(self.store_each(checked, &mut fault).await);
        }
        answers
    }

    /// After `fault` nothing more is tried.
    async fn store_each(
        &self,
        (batch, submits): (Batch, Vec<Submit>),
        fault: &mut Option<CallError>,
    ) -> Vec<Result<String, Error>> {
        let error = match fault {
            Some(error) => error,
            None => match self.store(&submits, false).await {
                Ok(submitted) => return batch.stored(&submits, submitted),
                Err(CallError::Store(error)) if !error.is_of_the_store() => {
                    // It may be that of one task, so each is tried alone.
                    let mut answers = Vec::with_capacity(submits.len());
                    for submit in &submits {
                        answers.push(self.store_one(submit).await);
                    }
                    let mut answers = answers.into_iter();
                    // There is one for each.
                    return batch.answers(&submits, |_| {
                        answers.next().unwrap_or(Err(CallError::Gone.into()))
                    });
                }
                Err(error) => fault.insert(error),
            },
        };
        batch.answers(&submits, |_| Err(error.clone().into()))
    }

    /// Submits tasks together or not at all, in one transaction; 10000 at the most. Answers their ids, in their order.
    /// This worker writes nothing else meanwhile, leases included: with a lease of a few seconds and a slow store, keep
    /// it to fewer.
    ///
    /// # Errors
    /// [`Error::Batch`] with each task that is refused, by a rule or because its idempotency key stands for another task,
    /// [`Error::Argument`] for too many tasks, [`Error::Runtime`] when the store cannot be written or too many writes are
    /// waiting. Nothing is stored then, but for what [`StoreError::OutcomeUnknown`] says.
    pub async fn submit_tasks_atomic(&self, tasks: &[Submission]) -> Result<Vec<String>, Error> {
        let submits = submit::all(tasks, &self.intake())?;
        let submitted = self.store(&submits, true).await?;
        submit::ids(&submits, submitted)
    }

    /// What submits inside of transactions of a host program, on connections of its own to this store.
    ///
    /// # Errors
    /// [`Error::Runtime`] when the store cannot be read.
    pub async fn submitter(&self) -> Result<Submitter, Error> {
        let parts = &self.parts;
        let (store_id, shown) = (self.read(StoreId).await?, parts.config.store.to_string());
        let outside = (Arc::clone(&parts.clock), Arc::clone(&parts.ids));
        let rules = parts.config.queue.submit_rules();
        Ok(Submitter::new(rules, Home { store_id, shown }, outside.0, outside.1))
    }

    pub(super) fn intake(&self) -> Intake<'_> {
        let parts = &self.parts;
        let rules = parts.config.queue.submit_rules();
        Intake { rules, clock: &*parts.clock, ids: &*parts.ids }
    }

    async fn store_one(&self, submit: &Submit) -> Result<String, Error> {
        let submitted = self.insert(submit.clone(), &[&submit.id]).await?;
        Error::or_id(submitted.unwrap_or(Submitted::New), submit)
    }

    /// Stores tasks in one transaction, and tells what came of each.
    async fn store(&self, submits: &[Submit], atomic: bool) -> Result<Vec<Submitted>, CallError> {
        let mut submitted = vec![Submitted::New; submits.len()];
        let mut left: Vec<usize> = (0..submits.len()).collect();
        while !left.is_empty() {
            let these: Vec<Submit> = left.iter().map(|place| submits[*place].clone()).collect();
            let ids: Vec<&str> = left.iter().map(|place| submits[*place].id.as_str()).collect();
            match self.insert(SubmitTasks { submits: these, atomic }, &ids).await? {
                Some(outputs) => {
                    for (place, output) in left.drain(..).zip(outputs) {
                        submitted[place] = output;
                    }
                }
                // All of the transaction is there: who was not inserted has a key that was taken, as another try says.
                None => {
                    let mut again = Vec::new();
                    for place in left {
                        if !self.is_any_stored(&[&submits[place].id]).await? {
                            again.push(place);
                        }
                    }
                    left = again;
                }
            }
        }
        Ok(submitted)
    }

    /// Does an operation that inserts runs with some of these ids, in one transaction. Nothing for an answer means that it
    /// was lost, and that at least one of the runs is there.
    pub(super) async fn insert<O>(
        &self,
        operation: O,
        ids: &[&str],
    ) -> Result<Option<O::Output>, CallError>
    where
        O: Operation + Clone + Send + 'static,
        O::Output: Send,
    {
        for tried in 0..TRIES {
            let links = self.links().await?;
            match links.db.try_write(operation.clone()).await {
                Ok(done) => {
                    let _ = links.scheduler.try_send(Wake);
                    return Ok(Some(done));
                }
                // Lost on the way: the ids are ours, so the store can tell whether it arrived.
                Err(CallError::Gone | CallError::Store(StoreError::OutcomeUnknown { .. })) => {
                    if self.is_any_stored(ids).await? {
                        return Ok(None);
                    }
                    self.root.send(Sleep(RESTART_WAIT)).await?;
                }
                // The lost one has arrived after all, and is in the way of this one.
                Err(_) if tried > 0 && self.is_any_stored(ids).await? => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Err(CallError::Gone)
    }

    async fn is_any_stored(&self, ids: &[&str]) -> Result<bool, CallError> {
        for id in ids {
            if self.root.send(Read(IsStored::of(&Evidence::Run(id)))).await?? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
