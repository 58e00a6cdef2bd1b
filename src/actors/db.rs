//! The one writer. Everything that waits in its mailbox shares a transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message, Recipient};
use tokio::sync::oneshot;
use tracing::{Span, debug};

use super::scheduler::Wake;
use super::supervise::DeathWatch;
use super::{CallError, Parts};
use crate::db::ops::ChangeMark;
use crate::db::{Job, Operation, Pending, Store};

/// How long an operation may wait for a lock that another program holds.
const LOCK_PATIENCE: Duration = Duration::from_secs(15);

/// Which of the waiting operations go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Renewals and endings: what a lease depends on. It has no bound, since there are no more of them than runs.
    First,
    /// Everything else.
    Second,
}

/// Puts a job in line.
#[derive(Message)]
#[rtype(result = "()")]
struct Enqueue {
    job: Box<dyn Job>,
    lane: Lane,
}

/// Runs what waits. It is sent by the actor to itself and queues behind whatever is in the mailbox already: the batch
/// is exactly the work that was waiting.
#[derive(Message)]
#[rtype(result = "()")]
struct Flush;

/// Serializes every write.
pub(crate) struct DbActor {
    parts: Arc<Parts>,
    store: Store,
    first: Vec<Box<dyn Job>>,
    second: Vec<Box<dyn Job>>,
    flushing: bool,
    mark: Option<i64>,
    on_change: Recipient<Wake>,
    span: Span,
    _watch: DeathWatch,
}

impl DbActor {
    /// A writer that also looks for changes that others make, and tells `on_change` of them.
    pub fn new(
        parts: Arc<Parts>,
        store: Store,
        on_change: Recipient<Wake>,
        watch: DeathWatch,
    ) -> DbActor {
        DbActor {
            parts,
            store,
            first: Vec::new(),
            second: Vec::new(),
            flushing: false,
            mark: None,
            on_change,
            span: tracing::info_span!("runtime", actor = "db"),
            _watch: watch,
        }
    }

    fn look_for_changes(&mut self) {
        let _in = self.span.clone().entered();
        match self.store.read(&ChangeMark) {
            Ok(mark) => {
                // The first look counts as a change: nobody knows what came before it.
                if self.mark.replace(mark) != Some(mark) {
                    // A hint: when the scheduler's mailbox is full, a tick is on its way anyhow.
                    let _ = self.on_change.try_send(Wake);
                }
            }
            Err(error) => debug!(%error, "cannot look for changes"),
        }
    }
}

impl Actor for DbActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.run_interval(self.parts.config.poll, |actor, _| actor.look_for_changes());
    }
}

impl Handler<Enqueue> for DbActor {
    type Result = ();

    fn handle(&mut self, Enqueue { job, lane }: Enqueue, ctx: &mut Self::Context) {
        match lane {
            Lane::First => self.first.push(job),
            Lane::Second => self.second.push(job),
        }
        if !self.flushing {
            self.flushing = true;
            ctx.notify(Flush);
        }
    }
}

impl Handler<Flush> for DbActor {
    type Result = ();

    fn handle(&mut self, _: Flush, ctx: &mut Self::Context) {
        let _in = self.parts.enter("db", &self.span);
        let mut jobs = std::mem::take(&mut self.first);
        jobs.append(&mut self.second);
        // What a batch leaves over goes on in the second lane: an ending that comes meanwhile overtakes it.
        self.second = self.store.run_batch(jobs);
        self.flushing = !self.second.is_empty();
        if self.flushing {
            ctx.notify(Flush);
        }
    }
}

/// The way to the writer. Cloning is cheap.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    db: Addr<DbActor>,
    /// Jobs that are waiting or running.
    waiting: Arc<AtomicUsize>,
    most: usize,
}

impl Writer {
    pub fn new(db: Addr<DbActor>, most: usize) -> Writer {
        Writer { db, waiting: Arc::default(), most }
    }

    /// Has `operation` done and waits for its answer.
    pub async fn write<O>(&self, operation: O, lane: Lane) -> Result<O::Output, CallError>
    where
        O: Operation + Send + 'static,
        O::Output: Send,
    {
        let place = Place::take(&self.waiting);
        let (sender, answer) = oneshot::channel();
        let reply = move |result| {
            drop(place);
            let _ = sender.send(result);
        };
        let job = Box::new(Pending::new(operation, Instant::now() + LOCK_PATIENCE, reply));
        // Past the bound of the mailbox: those who may be refused were counted before.
        self.db.do_send(Enqueue { job, lane });
        answer.await.map_err(|_| CallError::Gone)?.map_err(CallError::from)
    }

    /// As [`Writer::write`], but too many waiting jobs are an answer: [`CallError::Overloaded`].
    pub async fn try_write<O>(&self, operation: O) -> Result<O::Output, CallError>
    where
        O: Operation + Send + 'static,
        O::Output: Send,
    {
        if self.waiting.load(Ordering::Relaxed) >= self.most {
            return Err(CallError::Overloaded);
        }
        self.write(operation, Lane::Second).await
    }
}

/// One of the waiting jobs; given back when it is answered, or lost with the writer.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(waiting: &Arc<AtomicUsize>) -> Place {
        waiting.fetch_add(1, Ordering::Relaxed);
        Place(Arc::clone(waiting))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
