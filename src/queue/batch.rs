//! Submitting many tasks, and handing over what a host needs to submit by itself.

use std::sync::Arc;

use super::Queue;
use crate::db::ops::{StoreId, Submit, SubmitTasks};
use crate::db::{Home, StoreError};
use crate::domain::submission::Submission;
use crate::error::Error;
use crate::submit::{self, Batch, MOST_SHARED, Submitter};

impl Queue {
    /// Submits tasks, each for itself: as [`Queue::submit_task_with`] one after the other, but up to a thousand share a
    /// transaction, and a task that is refused keeps no other from being stored. Answers for each, in their order, its id
    /// or why it has none.
    ///
    /// A store that cannot be written is the answer of all tasks that are not stored by then.
    ///
    /// ```
    /// use leasehold::domain::task::TaskApplication;
    /// use leasehold::{Config, Queue};
    ///
    /// let dir = tempfile::tempdir().unwrap();
    /// let url = format!("sqlite:{}", dir.path().join("queue.db").display());
    /// let mut queue = Queue::open(&url, Config::default()).unwrap();
    /// let tasks = ["agent", "poem", "flow"].map(|kind| TaskApplication::new(kind, "host").into());
    /// let answers = queue.submit_tasks(&tasks);
    /// assert_eq!(answers[1].as_ref().unwrap_err().code(), "action_kind");
    /// assert_eq!(queue.run(answers[2].as_ref().unwrap()).unwrap().action_kind, "flow");
    /// ```
    pub fn submit_tasks(&mut self, tasks: &[Submission]) -> Vec<Result<String, Error>> {
        let (mut answers, mut fault) = (Vec::with_capacity(tasks.len()), None);
        for shared in tasks.chunks(MOST_SHARED) {
            let checked = Batch::check(shared, &self.intake());
            answers.extend(self.store_each(checked, &mut fault));
        }
        answers
    }

    /// After `fault` nothing more is tried.
    fn store_each(
        &mut self,
        (batch, submits): (Batch, Vec<Submit>),
        fault: &mut Option<StoreError>,
    ) -> Vec<Result<String, Error>> {
        let operation = SubmitTasks { submits, atomic: false };
        let submits = &operation.submits;
        let error = match fault {
            Some(error) => error,
            None if submits.is_empty() => return batch.stored(submits, Vec::new()),
            None => match self.store.write(&operation) {
                Ok(submitted) => return batch.stored(submits, submitted),
                Err(error) if error.is_of_the_store() => fault.insert(error),
                // It may be that of one task, so each is tried alone.
                Err(_) => {
                    return batch.answers(submits, |submit| {
                        Error::or_id(self.store.write(submit)?, submit)
                    });
                }
            },
        };
        batch.answers(submits, |_| Err(error.clone().into()))
    }

    /// Submits tasks together or not at all, in one transaction; 10000 at the most. Answers their ids, in their order.
    ///
    /// # Errors
    /// [`Error::Batch`] with each task that is refused, by a rule or because its idempotency key stands for another task,
    /// [`Error::Argument`] for too many tasks, [`Error::Store`] when the store cannot be written. Nothing is stored then,
    /// but for what [`StoreError::OutcomeUnknown`] says.
    pub fn submit_tasks_atomic(&mut self, tasks: &[Submission]) -> Result<Vec<String>, Error> {
        let submits = submit::all(tasks, &self.intake())?;
        if submits.is_empty() {
            return Ok(Vec::new());
        }
        let operation = SubmitTasks { submits, atomic: true };
        let submitted = self.store.write(&operation)?;
        submit::ids(&operation.submits, submitted)
    }

    /// What submits inside of transactions of a host program, on connections of its own to this store.
    ///
    /// # Errors
    /// [`Error::Store`] when the store cannot be read.
    pub fn submitter(&mut self) -> Result<Submitter, Error> {
        let home = Home { store_id: self.read(&StoreId)?, shown: self.store.url().to_string() };
        let outside = (Arc::clone(&self.clock), Arc::clone(&self.ids));
        Ok(Submitter::new(self.config.submit_rules(), home, outside.0, outside.1))
    }
}
