//! A host's way into a running worker.

use std::sync::Arc;
use std::time::Duration;

use actix::Addr;
use tokio::sync::broadcast;

use crate::actors::root::{Ended, Read, Resolve, Root, Shutdown, Sleep, WhenIdle};
use crate::actors::scheduler::Wake;
use crate::actors::worker::{Tick, Ticked};
use crate::actors::{CallError, Links, Parts};
use crate::db::ops::{
    Cancel, Cancelled, FindRun, ListPauses, Outstanding, Paused, Resume, StorePause, WritesUnderWay,
};
use crate::db::{Query, Run};
use crate::domain::pause::{Pause, Scope};
use crate::domain::transition::Principal;
use crate::error::Error;
use crate::queue::pause::{LOOK_EVERY, LOOKS};

/// How long tasks have between TERM and KILL when the worker is shut down.
const GRACE: Duration = Duration::from_secs(5);
/// How often a call goes round when the loops behind it are being restarted.
pub(super) const TRIES: u32 = 50;
/// How long it waits in between.
pub(super) const RESTART_WAIT: Duration = Duration::from_millis(100);

/// A handle to a running worker. Cloning is cheap, and it survives restarts of the actors behind it. Its calls are
/// plain futures: any executor can run them.
#[derive(Debug, Clone)]
pub struct Handle {
    pub(super) root: Addr<Root>,
    pub(super) parts: Arc<Parts>,
    endings: broadcast::Sender<Ended>,
}

impl Handle {
    pub(super) fn new(
        root: Addr<Root>,
        parts: Arc<Parts>,
        endings: broadcast::Sender<Ended>,
    ) -> Handle {
        Handle { root, parts, endings }
    }

    /// The name under which this worker owns its runs.
    pub fn worker_id(&self) -> &str {
        &self.parts.worker_id
    }

    /// Cancels a task: at once while it waits. A running one is asked to stop, here or on whatever host it runs; what it
    /// reaches before stands.
    ///
    /// # Errors
    /// [`Error::Transition`] for an id that no store could hold, [`Error::Runtime`] when the store cannot be written.
    pub async fn cancel(&self, run_id: &str, by: Principal) -> Result<Cancelled, Error> {
        let cancel = Cancel::new(run_id, by, self.parts.clock.now(), self.parts.ids.fact_id())?;
        let links = self.links().await?;
        let cancelled = links.db.try_write(cancel).await?;
        // The run may be one of ours.
        self.root.do_send(Wake);
        Ok(cancelled)
    }

    /// Pauses the whole queue, a kind or a target, for every worker on the store, as
    /// [`Queue::pause`](crate::Queue::pause) does. What runs goes on.
    ///
    /// # Errors
    /// [`Error::Pause`] for words that no store can hold, [`Error::Runtime`] when the store cannot be used.
    pub async fn pause(
        &self,
        scope: Scope,
        by: Principal,
        reason: Option<String>,
    ) -> Result<Paused, Error> {
        let pause = StorePause(Pause::new(scope, self.parts.clock.now(), by, reason)?);
        let paused = self.links().await?.db.try_write(pause).await?;
        let mut under_way = self.read(WritesUnderWay).await?;
        for _ in 0..LOOKS {
            if under_way.is_empty() {
                break;
            }
            self.root.send(Sleep(LOOK_EVERY)).await.map_err(CallError::from)?;
            let now = self.read(WritesUnderWay).await?;
            under_way.retain(|transaction| now.contains(transaction));
        }
        Ok(paused)
    }

    /// Lets what was paused go on. Answers the pause that was lifted, if there was one of just this scope.
    ///
    /// # Errors
    /// [`Error::Runtime`] when the store cannot be written.
    pub async fn resume(&self, scope: &Scope) -> Result<Option<Pause>, Error> {
        let resumed = self.links().await?.db.try_write(Resume { scope: scope.clone() }).await?;
        // What this worker writes it is not woken by.
        self.root.do_send(Wake);
        Ok(resumed)
    }

    /// What is paused: the whole queue first, then kinds and targets by name.
    ///
    /// # Errors
    /// [`Error::Runtime`] when the store cannot be read.
    pub async fn pauses(&self) -> Result<Vec<Pause>, Error> {
        self.read(ListPauses).await
    }

    /// The task with this id as it is stored now, if there is one.
    ///
    /// # Errors
    /// [`Error::Runtime`] when the store cannot be read.
    pub async fn find(&self, run_id: &str) -> Result<Option<Run>, Error> {
        // No store can hold such an id, and PostgreSQL would call the question an error.
        if run_id.contains('\0') {
            return Ok(None);
        }
        self.read(FindRun { run_id: run_id.to_owned() }).await
    }

    /// Runs one of the [queries](crate::db::ops), beside the writer.
    ///
    /// # Errors
    /// [`Error::Runtime`] when the store cannot be read.
    pub async fn read<Q>(&self, query: Q) -> Result<Q::Output, Error>
    where
        Q: Query + Send + 'static,
        Q::Output: Send,
    {
        Ok(self.root.send(Read(query)).await.map_err(CallError::from)??)
    }

    /// Listens to the endings that this worker writes, from now on. They are news, not the truth: who falls behind
    /// or comes late reads the store.
    pub fn endings(&self) -> broadcast::Receiver<Ended> {
        self.endings.subscribe()
    }

    /// Makes a tick over the whole queue, and answers when everything is claimed that can be.
    ///
    /// # Errors
    /// [`Error::Runtime`] when a part of the tick failed.
    pub async fn tick(&self) -> Result<Ticked, Error> {
        let links = self.links().await?;
        Ok(links.worker.send(Tick).await.map_err(CallError::from)??)
    }

    /// Waits until no task of this worker is running, and no notice is being sent.
    ///
    /// # Errors
    /// [`Error::Runtime`] when the worker has ended.
    pub async fn idle(&self) -> Result<(), Error> {
        Ok(self.root.send(WhenIdle).await.map_err(CallError::from)?)
    }

    /// Whether a task that this worker could serve is queued, waiting or running, whoever owns it. What waits and is
    /// paused does not count.
    ///
    /// # Errors
    /// [`Error::Runtime`] when the store cannot be read.
    pub async fn is_work_left(&self) -> Result<bool, Error> {
        self.read(Outstanding { offer: self.parts.offer.clone() }).await
    }

    /// Ends the worker: no more claims, `drain` for running tasks to end, then TERM, five seconds, KILL; what was
    /// stopped goes back to the queue. It does not wait: [`Runtime::join`](super::Runtime::join) does.
    pub fn shut_down(&self, drain: Duration) {
        self.root.do_send(Shutdown { drain, grace: GRACE, detach: false });
    }

    /// Ends the worker at once: running tasks are killed and go back to the queue.
    pub fn shut_down_now(&self) {
        self.root.do_send(Shutdown { drain: Duration::ZERO, grace: Duration::ZERO, detach: false });
    }

    /// Ends the worker, and leaves running tasks to their guardians: the next worker on this host takes them over if it
    /// is there before their leases run out. For upgrades. Where tasks are direct children this is
    /// [`Handle::shut_down`] without a drain.
    pub fn detach(&self) {
        self.root.do_send(Shutdown { drain: Duration::ZERO, grace: GRACE, detach: true });
    }

    /// Waits until the worker has ended, for whatever reason.
    pub async fn ended(&self) {
        while self.root.send(Sleep(Duration::from_secs(3600))).await.is_ok() {}
    }

    /// Waits as long as it takes at most to notice what another process has written.
    pub(super) async fn wait_for_changes(&self) -> Result<(), CallError> {
        self.root.send(Sleep(self.parts.config.poll)).await.map_err(CallError::from)
    }

    /// The addresses of this moment; waits for a restart that is under way.
    pub(super) async fn links(&self) -> Result<Links, CallError> {
        for _ in 0..TRIES {
            if let Some(links) = self.root.send(Resolve).await? {
                return Ok(links);
            }
            self.root.send(Sleep(RESTART_WAIT)).await?;
        }
        Err(CallError::Gone)
    }
}
