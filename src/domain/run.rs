//! A run on its way from the queue to its executor.

use serde_json::{Map, Value};

use super::json_text;

/// A run in one epoch: what a claim gives away, and what an executor holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunEpoch {
    /// The run.
    pub run_id: String,
    /// How often it had been claimed then, that time included.
    pub epoch: i32,
}

/// A queued run as a page of the queue shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct QueuedRun {
    /// The run's id.
    pub id: String,
    /// The kind that decides how it is launched.
    pub action_kind: String,
    /// The arguments, as stored JSON text.
    pub action_args: String,
    /// The epoch so far: how often the run was claimed.
    pub lease_attempts: i32,
    /// The required capabilities, as stored JSON text.
    pub required_capabilities: Option<String>,
    /// The execution target; absent or empty means any.
    pub execution_target: Option<String>,
    /// The key under which only one run may be running.
    pub concurrency_key: Option<String>,
    /// When it was queued, seconds since the epoch.
    pub queued_at: Option<f64>,
}

impl QueuedRun {
    /// The run as its executor sees it, in the epoch of its claim; nothing when some other program stored arguments
    /// that are no JSON object.
    pub fn claimed(self, epoch: i32) -> Option<ClaimedRun> {
        let action_args = match self.action_args.as_str() {
            "" => Map::new(),
            text => match json_text::parse(text).ok()? {
                Value::Object(args) => args,
                _ => return None,
            },
        };
        Some(ClaimedRun {
            id: self.id,
            action_kind: self.action_kind,
            action_args,
            lease_attempts: epoch,
            required_capabilities: self.required_capabilities,
            execution_target: self.execution_target,
            concurrency_key: self.concurrency_key,
            queued_at: self.queued_at,
        })
    }
}

/// A run that was claimed, as its executor sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimedRun {
    /// The run's id.
    pub id: String,
    /// Its kind, which decides how it is launched.
    pub action_kind: String,
    /// Its arguments.
    pub action_args: Map<String, Value>,
    /// The epoch of this claim: how often the run has been claimed, this time included.
    pub lease_attempts: i32,
    /// The required capabilities, as stored JSON text.
    pub required_capabilities: Option<String>,
    /// The execution target.
    pub execution_target: Option<String>,
    /// The concurrency key.
    pub concurrency_key: Option<String>,
    /// When it was queued, in seconds since the epoch.
    pub queued_at: Option<f64>,
}

impl ClaimedRun {
    /// A run whose arguments nobody can read, so that it can still be ended.
    pub fn without_args(run: &QueuedRun, epoch: i32) -> ClaimedRun {
        ClaimedRun {
            id: run.id.clone(),
            action_kind: run.action_kind.clone(),
            action_args: Map::new(),
            lease_attempts: epoch,
            required_capabilities: run.required_capabilities.clone(),
            execution_target: run.execution_target.clone(),
            concurrency_key: run.concurrency_key.clone(),
            queued_at: run.queued_at,
        }
    }

    /// Which run this is, in which epoch.
    pub fn run_epoch(&self) -> RunEpoch {
        RunEpoch { run_id: self.id.clone(), epoch: self.lease_attempts }
    }
}
