//! Submitting ended tasks again through a handle.

use super::handle::Handle;
use crate::db::ops::{FindSettings, Retry};
use crate::domain::redrive::{self, NewTry};
use crate::error::Error;
use crate::queue::stored_task;

impl Handle {
    /// Submits a task again that has ended: see [`Queue::retry`](crate::Queue::retry).
    ///
    /// # Errors
    /// As [`Handle::submit_with`], [`Error::Retry`] for a task that cannot be submitted again, and [`Error::NotFound`]
    /// when there is none.
    pub async fn retry(&self, run_id: &str, new: &NewTry) -> Result<String, Error> {
        let ended_id = run_id.to_owned();
        let missing = || Error::NotFound { entity: "task", id: ended_id.clone() };
        let run = self.find(run_id).await?.ok_or_else(missing)?;
        let beside = self.read(FindSettings { run_id: ended_id.clone() }).await?;
        let (task, stdin) = stored_task(run, beside);
        let (app, settings) = redrive::again(task, new)?;
        let submit = self.intake().accept(&app, settings, stdin)?;
        let id = submit.id.clone();
        let retry = Retry { ended_id: ended_id.clone(), submit };
        let retried = self.insert(retry.clone(), &[&id]).await?;
        retried.map_or(Ok(id), |retried| Error::or_new_id(retried, &retry))
    }
}
