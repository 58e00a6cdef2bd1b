//! What a worker does apart from executing: its heartbeat, reaping, and the tick that puts all three in order
//! (ADR-0071 D4).

use super::{Execute, Queue};
use crate::config::{Config, InvalidArgument};
use crate::db::ops::{Counted, ExpiredPage, Heartbeat, Reap};
use crate::domain::claim_plan::DEFAULT_LIMIT;
use crate::domain::status::Status;
use crate::error::Error;

/// One call of a worker. The offer is that of the call; what the `workers` row says does not matter to it.
#[derive(Debug, Clone)]
pub struct WorkerCall {
    /// The worker, `host:<8 hex>` in the original.
    pub worker_id: String,
    /// The time that holds for the whole call, in seconds since the epoch; absent means the clock's.
    pub now: Option<f64>,
    /// How long each claim owns its run, in seconds.
    pub lease_ttl: f64,
    /// How old the worker's own heartbeat may be, in seconds.
    pub heartbeat_ttl: f64,
    /// At most so many claims are attempted.
    pub limit: usize,
    /// What the worker advertises.
    pub advertised_capabilities: Vec<String>,
    /// The targets it serves; none means `host`.
    pub execution_targets: Vec<String>,
}

impl WorkerCall {
    /// A call with the settings' lengths that advertises nothing.
    pub fn new(worker_id: impl Into<String>, config: &Config) -> WorkerCall {
        WorkerCall {
            worker_id: worker_id.into(),
            now: None,
            lease_ttl: config.lease_ttl,
            heartbeat_ttl: config.heartbeat_ttl,
            limit: DEFAULT_LIMIT,
            advertised_capabilities: Vec::new(),
            execution_targets: Vec::new(),
        }
    }

    /// The time of the call; not a number and the infinities would make leases that never expire.
    pub(super) fn checked(mut self, now: f64) -> Result<(WorkerCall, f64), Error> {
        let now = finite("now", self.now.unwrap_or(now))?;
        self.now = Some(now);
        finite("lease_ttl", self.lease_ttl)?;
        finite("lease_ttl", now + self.lease_ttl)?;
        if self.heartbeat_ttl.is_nan() {
            return Err(not_finite("heartbeat_ttl", self.heartbeat_ttl));
        }
        if let Some(text) = self.texts().find(|text| text.contains('\0')) {
            return Err(InvalidArgument {
                what: "a worker's name, capability or target",
                given: format!("{text:?}"),
                rule: "no store can keep the character U+0000",
            }
            .into());
        }
        Ok((self, now))
    }

    fn texts(&self) -> impl Iterator<Item = &String> {
        let lists = self.advertised_capabilities.iter().chain(&self.execution_targets);
        std::iter::once(&self.worker_id).chain(lists)
    }
}

/// What a reaping pass did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReapCounts {
    /// Runs that went back to the queue.
    pub requeued: usize,
    /// Runs that failed because the bound was reached.
    pub failed: usize,
}

/// What a tick did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TickCounts {
    /// Runs that went back to the queue.
    pub requeued: usize,
    /// Runs that failed because the bound was reached.
    pub failed: usize,
    /// Runs that were claimed, however they ended.
    pub claimed: usize,
}

impl Queue {
    /// Writes the worker's heartbeat.
    ///
    /// # Errors
    /// [`Error::Argument`] for a time that is not finite or a name no store can keep.
    pub fn register_heartbeat(&mut self, call: &WorkerCall) -> Result<(), Error> {
        let (call, at) = call.clone().checked(self.clock.now())?;
        self.store.write(&Heartbeat {
            worker_id: call.worker_id,
            capabilities: call.advertised_capabilities,
            targets: call.execution_targets,
            kinds: None,
            at,
        })?;
        Ok(())
    }

    /// Takes back every lease that expired before `now`. A lease that changes meanwhile is left alone and not
    /// counted.
    ///
    /// # Errors
    /// [`Error::Argument`] for a time that is not finite.
    pub fn reap_expired_leases(&mut self, now: Option<f64>) -> Result<ReapCounts, Error> {
        let now = finite("now", now.unwrap_or_else(|| self.clock.now()))?;
        let mut counts = ReapCounts::default();
        let mut next = Some(ExpiredPage { now: now.into(), after: None });
        while let Some(page) = next {
            let leases = self.store.read(&page)?;
            next = page.next(&leases);
            for seen in leases {
                let reap = Reap {
                    seen,
                    counted: Counted::Attempts,
                    max_attempts: self.config.max_lease_attempts,
                    at: self.clock.now(),
                    fact_id: self.ids.fact_id(),
                };
                match self.store.write(&reap)? {
                    Some(Status::Queued) => counts.requeued += 1,
                    Some(Status::Failed) => counts.failed += 1,
                    _ => {}
                }
            }
        }
        Ok(counts)
    }

    /// A whole tick: heartbeat, then reaping, then claiming and executing, all at one time. A run that the tick
    /// reaped can be claimed in it.
    ///
    /// # Errors
    /// As the three parts; what an earlier part did stays done.
    pub fn worker_tick(
        &mut self,
        call: &WorkerCall,
        execute: &mut dyn Execute,
    ) -> Result<TickCounts, Error> {
        let (call, now) = call.clone().checked(self.clock.now())?;
        self.register_heartbeat(&call)?;
        let ReapCounts { requeued, failed } = self.reap_expired_leases(Some(now))?;
        let claimed = self.claim_and_execute(&call, execute)?;
        Ok(TickCounts { requeued, failed, claimed })
    }
}

fn finite(what: &'static str, value: f64) -> Result<f64, Error> {
    if value.is_finite() { Ok(value) } else { Err(not_finite(what, value)) }
}

fn not_finite(what: &'static str, value: f64) -> Error {
    InvalidArgument { what, given: value.to_string(), rule: "give a finite number of seconds" }
        .into()
}
