//! Submitting ended tasks again.

use super::Queue;
use crate::db::Run;
use crate::db::ops::{EndedPage, FindSettings, Retry, StoredSettings, Submit};
use crate::domain::pruning::Pruning;
use crate::domain::redrive::{self, NewTry, StoredTask};
use crate::domain::settings::RunSettings;
use crate::domain::status::Status;
use crate::error::Error;

impl Queue {
    /// Submits a task again that has ended: the same kind, arguments, needs, target, origin, settings and input under a
    /// fresh id, with the old task as its parent. The old one never changes, and its idempotency key stays its own. All
    /// checks of a submit are made again. Answers the new id once it is stored.
    ///
    /// # Errors
    /// [`Error::Retry`] for a task that has not ended, belongs to a schedule or cannot be read, [`Error::NotFound`] when
    /// there is none; else as [`Queue::submit_task_with`]. Nothing was written then.
    ///
    /// ```
    /// use leasehold::domain::redrive::NewTry;
    /// use leasehold::domain::task::TaskApplication;
    /// use leasehold::domain::transition::Principal;
    /// use leasehold::{Config, Queue};
    ///
    /// let dir = tempfile::tempdir().unwrap();
    /// let url = format!("sqlite:{}", dir.path().join("queue.db").display());
    /// let mut queue = Queue::open(&url, Config::default()).unwrap();
    /// let id = queue.submit_task(&TaskApplication::new("agent", "host")).unwrap();
    /// let early = queue.retry(&id, &NewTry::default()).unwrap_err();
    /// assert_eq!(early.code(), "not_ended");
    /// queue.cancel(&id, &Principal::operator("me")).unwrap();
    /// let again = queue.retry(&id, &NewTry::default()).unwrap();
    /// assert_eq!(queue.run(&again).unwrap().chain_parent_id, Some(id));
    /// ```
    pub fn retry(&mut self, run_id: &str, new: &NewTry) -> Result<String, Error> {
        let submit = self.retry_of(run_id, new)?;
        let retry = Retry { ended_id: run_id.to_owned(), submit };
        Error::or_new_id(self.store.write(&retry)?, &retry)
    }

    /// Whether [`Queue::retry`] would submit the task now. Nothing is written.
    ///
    /// # Errors
    /// As there, but for a key that is taken.
    pub fn check_retry(&mut self, run_id: &str, new: &NewTry) -> Result<(), Error> {
        self.retry_of(run_id, new).map(drop)
    }

    fn retry_of(&mut self, run_id: &str, new: &NewTry) -> Result<Submit, Error> {
        let run = self.run(run_id)?;
        let beside = match self.is_complete() {
            true => self.read(&FindSettings { run_id: run.id.clone() })?,
            false => None,
        };
        let (task, stdin) = stored_task(run, beside);
        let (app, settings) = redrive::again(task, new)?;
        self.intake().accept(&app, settings, stdin)
    }

    /// The tasks that ended with one of these statuses within the last `within` seconds, of which no retry was
    /// submitted, the oldest first. No status means each of the five ends.
    ///
    /// # Errors
    /// [`Error::Prune`] for a status that is no end, [`Error::Store`] when the store cannot be read.
    pub fn not_retried(
        &mut self,
        statuses: &[Status],
        within: Option<f64>,
    ) -> Result<Vec<String>, Error> {
        let choice = Pruning { older_than: 0.0, statuses: statuses.to_vec(), keep_failed: false };
        let statuses = choice.chosen()?;
        let since = within.map_or(f64::NEG_INFINITY, |within| self.clock.now() - within);
        let mut page = Some(EndedPage {
            statuses,
            since,
            before: f64::INFINITY,
            childless: true,
            after: None,
        });
        let mut ids = Vec::new();
        while let Some(at) = page {
            let found = self.read(&at)?;
            page = at.next(&found);
            ids.extend(found.into_iter().map(|(_, id)| id));
        }
        Ok(ids)
    }
}

/// A task as a retry of it looks at it, and what it reads.
pub(crate) fn stored_task(
    run: Run,
    beside: Option<StoredSettings>,
) -> (StoredTask, Option<Vec<u8>>) {
    let (settings, stdin) = match beside {
        Some(beside) => (beside.settings, beside.stdin),
        None => (Ok(RunSettings::default()), None),
    };
    let task = StoredTask {
        id: run.id,
        status: run.status,
        is_scheduled: run.schedule_id.is_some(),
        action_kind: run.action_kind,
        action_args: run.action_args.0,
        execution_target: run.execution_target,
        required_capabilities: run.required_capabilities.map(|text| text.0),
        library_ref: run.library_ref,
        library_content_hash: run.library_content_hash,
        settings,
    };
    (task, stdin)
}
