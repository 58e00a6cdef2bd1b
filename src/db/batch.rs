//! Group commit: writes that are waiting share one transaction, and one sync of the disk pays for all of them.
//!
//! Nobody is told "done" before it is stored, and nobody is told "failed" of what is. An operation that fails, panics
//! or finds its transaction gone therefore takes the whole batch with it: the connection is dropped, each job up to
//! that one is run again alone, and those behind it are left for the next batch. (Savepoints would not do: after a
//! full disk SQLite has rolled everything back, the next savepoint commits by itself, and its sender would be told
//! that it failed.)

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use diesel::result::QueryResult;

use super::engine::{
    AnyConn, Evidence, LONGEST_WAIT, Operation, TxError, begin, check_transaction, commit, is_idle,
    lock_keys,
};
use super::error::{StoreError, is_busy, is_connection_lost};
use super::store::Store;

/// A batch ends after so many jobs,
const MAX_JOBS: usize = 256;
/// or after this long, so that nobody behind it waits for ever.
const MAX_TIME: Duration = Duration::from_millis(50);

/// An operation with somebody who waits for its answer.
pub trait Job: Send {
    /// What it does, for messages.
    fn name(&self) -> &'static str;
    /// The row it is about.
    fn subject(&self) -> Option<&str>;
    /// The key that its transaction must hold alone.
    fn exclusive_key(&self) -> Option<&str>;
    /// What is in the store if and only if its last run was committed.
    fn evidence(&self) -> Option<Evidence<'_>>;
    /// Until when it may wait for a lock.
    fn deadline(&self) -> Instant;
    /// Does it, and keeps the output.
    ///
    /// # Errors
    /// Whatever the database says.
    fn run(&mut self, conn: &mut AnyConn) -> QueryResult<()>;
    /// Answers with the kept output, or with the error.
    fn answer(self: Box<Self>, result: Result<(), StoreError>);
}

/// A [`Job`] made of an operation and a function that takes its answer.
pub struct Pending<O: Operation, F> {
    operation: O,
    deadline: Instant,
    output: Option<O::Output>,
    reply: F,
}

impl<O, F> Pending<O, F>
where
    O: Operation + Send,
    O::Output: Send,
    F: FnOnce(Result<O::Output, StoreError>) + Send,
{
    /// A job that answers through `reply` and waits for locks until `deadline`.
    pub fn new(operation: O, deadline: Instant, reply: F) -> Self {
        Pending { operation, deadline, output: None, reply }
    }
}

impl<O, F> Job for Pending<O, F>
where
    O: Operation + Send,
    O::Output: Send,
    F: FnOnce(Result<O::Output, StoreError>) + Send,
{
    fn name(&self) -> &'static str {
        self.operation.name()
    }

    fn subject(&self) -> Option<&str> {
        self.operation.subject()
    }

    fn exclusive_key(&self) -> Option<&str> {
        self.operation.exclusive_key()
    }

    fn evidence(&self) -> Option<Evidence<'_>> {
        self.operation.evidence(self.output.as_ref()?)
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }

    fn run(&mut self, conn: &mut AnyConn) -> QueryResult<()> {
        self.output = None;
        self.output = Some(self.operation.run(conn)?);
        Ok(())
    }

    fn answer(self: Box<Self>, result: Result<(), StoreError>) {
        let Pending { output, reply, .. } = *self;
        match (result, output) {
            (Ok(()), Some(output)) => reply(Ok(output)),
            (Err(error), _) => reply(Err(error)),
            // A job that never ran is never answered with success.
            (Ok(()), None) => {}
        }
    }
}

type Jobs = Vec<Box<dyn Job>>;

/// Why a batch was given up.
enum Abandoned {
    /// Its transaction could not begin for a lock; nothing ran.
    Busy,
    /// Nothing of it is stored. So many jobs, the first ones, must be run alone.
    Undone(usize),
    /// The connection was lost while so many jobs were being committed.
    Unknown(usize),
}

impl Store {
    /// Runs as many of `jobs` as one batch takes, in their order, and answers each once its fate is known. Gives back
    /// those that are left for the next batch.
    pub fn run_batch(&mut self, mut jobs: Jobs) -> Jobs {
        let mut later = jobs.split_off(jobs.len().min(MAX_JOBS));
        jobs.iter().for_each(|job| self.call_seam(job.name(), job.subject()));
        if jobs.len() <= 1 {
            jobs.into_iter().for_each(|job| self.run_alone(job));
            return later;
        }
        if self.is_postgres() {
            // Two batches that touch the same runs then take their row locks in one order.
            jobs.sort_by(|a, b| a.subject().cmp(&b.subject()));
        }
        while !jobs.is_empty() {
            let mut rest;
            match self.try_batch(&mut jobs) {
                Ok(ran) => {
                    rest = jobs.split_off(ran);
                    jobs.into_iter().for_each(|job| job.answer(Ok(())));
                }
                Err(Abandoned::Busy) => {
                    jobs = self.answer_overdue(jobs);
                    continue;
                }
                Err(Abandoned::Undone(suspects)) => {
                    rest = jobs.split_off(suspects);
                    jobs.into_iter().for_each(|job| self.run_alone(job));
                }
                Err(Abandoned::Unknown(ran)) => {
                    rest = jobs.split_off(ran);
                    self.settle_unknown(jobs);
                }
            }
            rest.append(&mut later);
            return rest;
        }
        later
    }

    /// One transaction for the batch. Answers how many jobs it took.
    fn try_batch(&mut self, jobs: &mut Jobs) -> Result<usize, Abandoned> {
        let all = jobs.len();
        let mut conn = self.take_connection().map_err(|_| Abandoned::Undone(all))?;
        let patience = jobs.iter().map(|job| patience(&**job)).min().unwrap_or(LONGEST_WAIT);
        match begin(&mut conn, patience) {
            Ok(()) => {}
            Err(error) if is_busy(&error) => {
                self.put_back(conn);
                return Err(Abandoned::Busy);
            }
            // Most likely the connection is an old one: the first job opens another for all.
            Err(_) => return Err(Abandoned::Undone(1)),
        }
        let mut keys: Vec<&str> = jobs.iter().filter_map(|job| job.exclusive_key()).collect();
        keys.sort_unstable();
        keys.dedup();
        lock_keys(&mut conn, &keys).map_err(|_| Abandoned::Undone(all))?;
        // A wait for locks is over now and does not count.
        let began = Instant::now();
        let mut ran = 0;
        for job in jobs.iter_mut() {
            let done = catch_unwind(AssertUnwindSafe(|| job.run(&mut conn)));
            ran += 1;
            if !matches!(done, Ok(Ok(()))) || check_transaction(&mut conn).is_err() {
                return Err(Abandoned::Undone(ran));
            }
            if began.elapsed() > MAX_TIME {
                break;
            }
        }
        match commit(&mut conn) {
            Ok(()) if is_idle(&mut conn) => {
                self.put_back(conn);
                Ok(ran)
            }
            Err(error) if is_connection_lost(&error) => Err(Abandoned::Unknown(ran)),
            Ok(()) | Err(_) => Err(Abandoned::Undone(ran)),
        }
    }

    /// One transaction for one job, whose own error is then its answer.
    fn run_alone(&mut self, mut job: Box<dyn Job>) {
        loop {
            match catch_unwind(AssertUnwindSafe(|| self.try_alone(&mut *job))) {
                Ok(Ok(())) => return job.answer(Ok(())),
                Ok(Err(TxError::NotBegun(error) | TxError::Undone(error)))
                    if is_busy(&error) && Instant::now() < job.deadline() => {}
                Ok(Err(TxError::AtCommit(error, ()))) if is_connection_lost(&error) => {
                    return self.settle_unknown(vec![job]);
                }
                Ok(Err(
                    TxError::NotBegun(error)
                    | TxError::Undone(error)
                    | TxError::AtCommit(error, ()),
                )) => {
                    let error = self.fault(job.name(), error);
                    return job.answer(Err(error));
                }
                Ok(Err(TxError::NoConnection(error))) => return job.answer(Err(error)),
                Err(_) => {
                    let error = self.panicked(job.name());
                    return job.answer(Err(error));
                }
            }
        }
    }

    fn try_alone(&mut self, job: &mut dyn Job) -> Result<(), TxError<()>> {
        self.in_transaction(patience(job), |conn| {
            lock_keys(conn, job.exclusive_key().as_slice())?;
            job.run(conn)
        })
    }

    fn answer_overdue(&mut self, jobs: Jobs) -> Jobs {
        let now = Instant::now();
        let (waiting, overdue): (Jobs, Jobs) =
            jobs.into_iter().partition(|job| now < job.deadline());
        for job in overdue {
            job.answer(Err(self.busy()));
        }
        waiting
    }

    /// A batch is stored whole or not at all, so one job's evidence speaks for all of them.
    fn settle_unknown(&mut self, jobs: Jobs) {
        let evidence = jobs.iter().find_map(|job| job.evidence());
        let stored = evidence.is_some_and(|evidence| self.is_stored(&evidence));
        for job in jobs {
            let result = if stored { Ok(()) } else { Err(self.outcome_unknown()) };
            job.answer(result);
        }
    }
}

/// How long this job may still wait for a lock.
fn patience(job: &dyn Job) -> Duration {
    job.deadline().saturating_duration_since(Instant::now())
}
