//! From a task that somebody submits to the rows that are stored: what [`Queue`](crate::Queue),
//! [`Handle`](crate::Handle) and [`Submitter`] have in common.

mod batch;
mod submitter;

pub(crate) use batch::{Batch, all, ids};
pub use submitter::Submitter;

use crate::clock::Clock;
use crate::db::ops::Submit;
use crate::domain::settings::RunSettings;
use crate::domain::task::{SubmitRules, TaskApplication, TaskSpec};
use crate::error::Error;
use crate::ids::IdSource;

/// The most tasks that are stored together or not at all: their transaction keeps all other writers waiting.
pub const MOST_ATOMIC: usize = 10_000;
/// The most tasks that share a transaction otherwise.
pub(crate) const MOST_SHARED: usize = 1000;

/// The one door through which tasks come in.
#[derive(Debug)]
pub(crate) struct Intake<'a> {
    pub rules: SubmitRules,
    pub clock: &'a dyn Clock,
    pub ids: &'a dyn IdSource,
}

impl Intake<'_> {
    /// Checks all that can be checked before the store is asked.
    pub fn check(&self, app: &TaskApplication, settings: &RunSettings) -> Result<TaskSpec, Error> {
        let spec = TaskSpec::check(app, &self.rules)?;
        settings.check()?;
        settings.permit(&self.rules.allow_commands)?;
        Ok(spec)
    }

    /// Checks a task and makes the operation of it that inserts it under an id of its own.
    pub fn accept(
        &self,
        app: &TaskApplication,
        settings: RunSettings,
        stdin: Option<Vec<u8>>,
    ) -> Result<Submit, Error> {
        let spec = self.check(app, &settings)?;
        let (id, fact_id) = (self.ids.task_id(), self.ids.fact_id());
        Ok(Submit { spec, settings, stdin, id, at: self.clock.now(), fact_id })
    }
}
