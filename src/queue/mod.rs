//! The functions of ADR-0071, one call at a time: submit, cancel, change a status, and a worker's tick.
//!
//! They block, and a pass runs its tasks one after another without renewing any lease: this is the contract, exactly.
//! Use them from a program that brings its own loop, and from tests.

mod batch;
mod events;
mod pass;
pub(crate) mod pause;
mod prune;
mod redrive;
mod tasks;
mod why;
mod worker;

use std::sync::Arc;

pub use crate::db::ops::Paused;
pub use pass::Execute;
pub use prune::FactsFate;
pub(crate) use redrive::stored_task;
pub use why::WhatIf;
pub use worker::{ReapCounts, TickCounts, WorkerCall};

use crate::clock::{Clock, SystemClock};
use crate::config::Config;
use crate::db::{Mode, Query, Seam, Store, StoreError, StoreUrl};
use crate::error::Error;
use crate::ids::{IdSource, RandomIds};

/// A queue in an open store.
///
/// ```
/// use leasehold::domain::task::TaskApplication;
/// use leasehold::{Config, Queue};
///
/// let dir = tempfile::tempdir().unwrap();
/// let url = format!("sqlite:{}", dir.path().join("queue.db").display());
/// let mut queue = Queue::open(&url, Config::default()).unwrap();
/// let id = queue.submit_task(&TaskApplication::new("agent", "host")).unwrap();
/// assert_eq!(queue.run(&id).unwrap().status, "queued");
/// ```
#[derive(Debug)]
pub struct Queue {
    store: Store,
    config: Config,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
}

impl Queue {
    /// Opens the store at `url` for reading and writing, with the machine's clock and random ids.
    ///
    /// # Errors
    /// [`Error::Store`] when the address is wrong or the store cannot be used.
    pub fn open(url: &str, config: Config) -> Result<Queue, Error> {
        let url = StoreUrl::parse(url)?;
        Ok(Queue::open_with(&url, Mode::Write, config, Arc::new(SystemClock), Arc::new(RandomIds))?)
    }

    /// Opens a store with everything handed in.
    ///
    /// # Errors
    /// A [`StoreError`] that says what is wrong with the store.
    pub fn open_with(
        url: &StoreUrl,
        mode: Mode,
        config: Config,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
    ) -> Result<Queue, StoreError> {
        let store = Store::open(url, mode, &*clock, &*ids)?;
        Ok(Queue { store, config, clock, ids })
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Calls `seam` before each write from now on; for tests that need a race.
    pub fn set_seam(&mut self, seam: Seam) {
        self.store.set_seam(seam);
    }

    /// Whether this project's own tables are there. Only a reader of a store that the original made finds none.
    pub fn is_complete(&self) -> bool {
        self.store.is_complete()
    }

    /// Runs one of the [queries](crate::db::ops).
    ///
    /// # Errors
    /// [`Error::Store`] when the store cannot be read.
    pub fn read<Q: Query>(&mut self, query: &Q) -> Result<Q::Output, Error> {
        Ok(self.store.read(query)?)
    }
}
