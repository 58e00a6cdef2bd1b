//! Why a task stands where it stands, and where one would stand that is not submitted.

use std::collections::HashSet;

use serde_json::Value;

use super::Queue;
use crate::db::ops::{Ahead, Circumstances, FindKey, SeeCircumstances, Steps};
use crate::db::{JsonText, Run, Worker};
use crate::domain::claim_plan::required_tokens;
use crate::domain::payload;
use crate::domain::settings::RunSettings;
use crate::domain::status::Status;
use crate::domain::task::{TaskApplication, WORKFLOW};
use crate::domain::why::{Finding, Key, SeenWorker, Surroundings, View, explain};
use crate::domain::workflow::{self, BegunStep, Progress};
use crate::error::Error;

/// What a submit would do.
#[derive(Debug, Clone, PartialEq)]
pub enum WhatIf {
    /// It would insert a task, about which this decides.
    New(Vec<Finding>),
    /// It would insert nothing and answer this id: the key of the task stands for it.
    Again(String),
}

impl Queue {
    /// Everything that decides about a task, with its numbers, as far as the store knows. Nothing is changed.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such run.
    pub fn why(&mut self, run_id: &str) -> Result<Vec<Finding>, Error> {
        let run = self.run(run_id)?;
        Ok(self.why_each(&[run])?.pop().unwrap_or_default())
    }

    /// How far a workflow has come; nothing for another task, or one whose plan cannot be read.
    ///
    /// # Errors
    /// [`Error::Store`] when the store cannot be read.
    pub fn progress(&mut self, run: &Run) -> Result<Option<Progress>, Error> {
        if run.action_kind != WORKFLOW || !self.is_complete() {
            return Ok(None);
        }
        let rows = self.read(&Steps { run_id: run.id.clone() })?;
        Ok(progress(run, rows.iter().map(BegunStep::from).collect()))
    }

    /// The same for many runs as they were read, in their order, in as many statements as for one.
    ///
    /// # Errors
    /// [`Error::Store`] when the store cannot be read.
    pub fn why_each(&mut self, runs: &[Run]) -> Result<Vec<Vec<Finding>>, Error> {
        let open = |run: &&Run| !status(run).is_terminal();
        let queued = |run: &&Run| status(run) == Status::Queued;
        let place = |run: &Run| match &run.schedule_id {
            None => Some((run.queued_at?, run.id.clone())),
            Some(_) => None,
        };
        let circumstances = self.read(&SeeCircumstances {
            run_ids: runs.iter().filter(open).map(|run| run.id.clone()).collect(),
            keys: runs
                .iter()
                .filter(queued)
                .filter_map(|run| run.concurrency_key.clone())
                .collect(),
            workflows: runs
                .iter()
                .filter(open)
                .filter(|run| run.action_kind == WORKFLOW)
                .map(|run| run.id.clone())
                .collect(),
            places: runs.iter().filter(queued).filter_map(place).collect(),
            is_complete: self.is_complete(),
        })?;
        let around = self.surroundings(&circumstances);
        Ok(runs.iter().map(|run| explain(&view(run, &circumstances), &around)).collect())
    }

    /// What a submit of this task would do, and everything that would decide about the task. Nothing is stored.
    ///
    /// # Errors
    /// Those of [`Queue::submit_task_with`].
    pub fn what_if(
        &mut self,
        app: &TaskApplication,
        settings: &RunSettings,
        stdin: Option<&[u8]>,
    ) -> Result<WhatIf, Error> {
        let spec = self.intake().check(app, settings)?;
        if let Some(key) = &spec.idempotency_key
            && self.is_complete()
            && let Some((hash, run_id)) = self.read(&FindKey { key: key.as_str().into() })?
        {
            return match hash == payload::hash(&spec, settings, stdin) {
                true => Ok(WhatIf::Again(run_id)),
                false => Err(Error::KeyTaken { key: key.as_str().into(), existing: run_id }),
            };
        }
        let circumstances = self.read(&SeeCircumstances {
            keys: spec.concurrency_key.iter().cloned().collect(),
            is_complete: self.is_complete(),
            ..SeeCircumstances::default()
        })?;
        let around = self.surroundings(&circumstances);
        let mut view = View::of_task(&spec, settings);
        view.key = spec.concurrency_key.map(|key| held(key, &circumstances));
        let queued_at = settings.when.place(around.now);
        view.ahead = self.read(&Ahead { queued_at, run_id: None })?;
        Ok(WhatIf::New(explain(&view, &around)))
    }

    fn surroundings(&self, seen: &Circumstances) -> Surroundings {
        let running = |worker: &Worker| seen.running.get(&worker.worker_id).copied().unwrap_or(0);
        Surroundings {
            workers: seen
                .workers
                .iter()
                .map(|worker| {
                    let kinds = seen.kinds.get(&worker.worker_id);
                    seen_worker(worker, kinds, running(worker))
                })
                .collect(),
            pauses: seen.pauses.clone(),
            classes: self.config.classes.clone(),
            now: self.clock.now(),
            stale: self.config.heartbeat_ttl,
        }
    }
}

/// One that is unknown here is of a later version, and ended as far as can be told.
fn status(run: &Run) -> Status {
    Status::parse(&run.status).unwrap_or(Status::Skipped)
}

fn progress(run: &Run, begun: Vec<BegunStep>) -> Option<Progress> {
    let Value::Object(args) = run.action_args.value() else { return None };
    let plan = workflow::plan(&args).ok()?;
    Some(Progress { plan, begun })
}

fn view(run: &Run, seen: &Circumstances) -> View {
    let beside = seen.beside.get(&run.id).copied().unwrap_or_default();
    let needs = run.required_capabilities.as_ref().map(|text| text.0.as_str());
    let status = status(run);
    let is_open_workflow = run.action_kind == WORKFLOW && !status.is_terminal();
    let begun = || seen.steps.get(&run.id).cloned().unwrap_or_default();
    View {
        status,
        reason: run.status_reason_summary.clone(),
        exit_code: run.exit_code,
        kind: run.action_kind.clone(),
        is_scheduled: run.schedule_id.is_some(),
        needs: required_tokens(needs),
        target: run.execution_target.clone().unwrap_or_default(),
        key: run.concurrency_key.clone().map(|key| held(key, seen)),
        ahead: seen.ahead.get(&run.id).copied().unwrap_or(0),
        // What is queued waits for no moment any more, whoever has queued it.
        wake_at: beside.wake_at.filter(|_| status != Status::Queued),
        expires_at: beside.expires_at,
        is_cancel_requested: beside.is_cancel_requested,
        owner: run.leased_by.clone(),
        lease_expires_at: run.lease_expires_at,
        progress: is_open_workflow.then(begun).and_then(|begun| progress(run, begun)),
    }
}

fn held(key: String, seen: &Circumstances) -> Key {
    Key { held_by: seen.holders.get(&key).cloned(), key }
}

fn seen_worker(worker: &Worker, kinds: Option<&JsonText>, running: usize) -> SeenWorker {
    let tokens = |text: &str| -> HashSet<String> {
        required_tokens(Some(text)).unwrap_or_default().into_iter().collect()
    };
    SeenWorker {
        capabilities: tokens(&worker.advertised_capabilities.0),
        targets: tokens(&worker.execution_targets.0),
        kinds: kinds.map(|kinds| tokens(&kinds.0)),
        seen_at: worker.last_heartbeat_at,
        id: worker.worker_id.clone(),
        running,
    }
}
