//! What is looked at: a run, and what surrounds all runs of a store.

use std::collections::HashSet;

use crate::domain::capability::CapabilityClasses;
use crate::domain::kinds::{self, Kinds};
use crate::domain::pause::Pause;
use crate::domain::settings::RunSettings;
use crate::domain::status::Status;
use crate::domain::task::TaskSpec;
use crate::domain::workflow::Progress;

/// Everything that decides about a run, as it was read. Times are seconds since the epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// Its status.
    pub status: Status,
    /// Why it has that.
    pub reason: Option<String>,
    /// With which code it has ended, if an executor ended it.
    pub exit_code: Option<i32>,
    /// Its kind.
    pub kind: String,
    /// Whether a schedule has made it: then it is not the queue's to start.
    pub is_scheduled: bool,
    /// The tokens that it needs; absent when nobody can read them.
    pub needs: Option<Vec<String>>,
    /// Where it is to be executed; empty for anywhere.
    pub target: String,
    /// Who has its concurrency key, if it has one.
    pub key: Option<Key>,
    /// How many runs are before it in the queue.
    pub ahead: usize,
    /// When it goes back to the queue; or to the queue at all, if it is not submitted yet.
    pub wake_at: Option<f64>,
    /// When it is skipped.
    pub expires_at: Option<f64>,
    /// Whether somebody wants it stopped.
    pub is_cancel_requested: bool,
    /// Who has its lease.
    pub owner: Option<String>,
    /// When that runs out.
    pub lease_expires_at: Option<f64>,
    /// How far it has come, if it is a workflow that has not ended.
    pub progress: Option<Progress>,
}

/// What decides about all runs of a store alike. Times are seconds since the epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct Surroundings {
    /// The workers that have sent a heartbeat.
    pub workers: Vec<SeenWorker>,
    /// What is paused.
    pub pauses: Vec<Pause>,
    /// What each capability token means.
    pub classes: CapabilityClasses,
    /// Now.
    pub now: f64,
    /// For how long a worker may send no heartbeat until it is taken for dead, in seconds.
    pub stale: f64,
}

/// A concurrency key.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// The key.
    pub key: String,
    /// The run that runs under it, its owner, and since when.
    pub held_by: Option<(String, Option<String>, Option<f64>)>,
}

/// A worker, as its heartbeat tells.
#[derive(Debug, Clone, PartialEq)]
pub struct SeenWorker {
    /// Its name.
    pub id: String,
    /// What it advertises.
    pub capabilities: HashSet<String>,
    /// The targets that it serves.
    pub targets: HashSet<String>,
    /// The kinds that it has adapters for; absent when it does not say so, as workers of the original do not.
    pub kinds: Option<HashSet<String>>,
    /// When it was last seen.
    pub seen_at: f64,
    /// How many runs it is running.
    pub running: usize,
}

impl SeenWorker {
    /// Whether it can run tasks of this kind.
    pub(super) fn has_adapter(&self, kind: &str) -> bool {
        match &self.kinds {
            Some(kinds) => kinds.contains(kind),
            None => Kinds::of(kinds::launched()).have(kind),
        }
    }
}

impl View {
    /// A task that is not submitted yet, as the only one there is.
    pub fn of_task(spec: &TaskSpec, settings: &RunSettings) -> View {
        View {
            status: Status::Queued,
            reason: None,
            exit_code: None,
            kind: spec.action_kind.clone(),
            is_scheduled: false,
            needs: Some(spec.required_capabilities.clone()),
            target: spec.execution_target.clone(),
            key: spec.concurrency_key.clone().map(|key| Key { key, held_by: None }),
            ahead: 0,
            wake_at: settings.when.not_before,
            expires_at: settings.when.expires,
            is_cancel_requested: false,
            owner: None,
            lease_expires_at: None,
            progress: None,
        }
    }
}
