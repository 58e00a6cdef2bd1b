//! Submitting inside of a transaction of a host program.

use std::sync::Arc;

use super::Intake;
use crate::clock::Clock;
use crate::db::{Home, HostConnection, write_in};
use crate::domain::settings::RunSettings;
use crate::domain::task::{SubmitRules, TaskApplication};
use crate::error::Error;
use crate::ids::IdSource;

/// Submits tasks inside of transactions of a host program that keeps its own data in the same database: a task is there
/// if and only if the host's transaction is committed, together with the host's own rows.
///
/// It is made by [`Queue::submitter`](crate::Queue::submitter) or [`Handle::submitter`](crate::Handle::submitter), which
/// have opened the store, so that its tables are there. Cloning is cheap. The host brings a Diesel connection of its own,
/// for which this must hold:
///
/// * It leads to the same store: the same file, or the same database with the same `search_path`. Another one is refused.
///   On SQLite the store is made first and the host's tables after that, since a file of a stranger is left untouched.
/// * A transaction is open on it, begun through Diesel; without one a submit is refused. On SQLite begin it with
///   `immediate_transaction`: one that begins by reading fails at its first write if somebody else has written meanwhile.
/// * On SQLite it has `PRAGMA busy_timeout` of some seconds, since others write too, `PRAGMA foreign_keys = ON`, and
///   `PRAGMA synchronous = FULL`, or a power cut may undo what was committed, the task with it. Its journal mode stays
///   WAL. Keep the transaction short: no worker can claim, renew or end anything on SQLite while it is open.
///
/// Nobody is woken before the commit; then workers see the change as they see that of any other process. Until the end
/// of the transaction others who submit the same idempotency key on PostgreSQL wait, and after a rollback the key is free
/// again.
///
/// ```
/// use leasehold::db::diesel as orm;
/// use orm::connection::SimpleConnection;
/// use orm::{Connection, SqliteConnection};
/// use leasehold::domain::task::TaskApplication;
/// use leasehold::{Config, Queue};
///
/// let dir = tempfile::tempdir().unwrap();
/// let file = dir.path().join("app.db");
/// let mut queue = Queue::open(&format!("sqlite:{}", file.display()), Config::default()).unwrap();
/// let submitter = queue.submitter().unwrap();
///
/// let mut conn = SqliteConnection::establish(file.to_str().unwrap()).unwrap();
/// conn.batch_execute(
///     "PRAGMA busy_timeout = 5000; PRAGMA foreign_keys = ON; PRAGMA synchronous = FULL;
///      CREATE TABLE orders (id INTEGER PRIMARY KEY, task TEXT)",
/// )
/// .unwrap();
/// let id = conn
///     .immediate_transaction(|conn| {
///         let id = submitter.submit_task_in(conn, &TaskApplication::new("agent", "host"))?;
///         conn.batch_execute(&format!("INSERT INTO orders (task) VALUES ('{id}')"))?;
///         Ok::<_, Box<dyn std::error::Error>>(id)
///     })
///     .unwrap();
/// assert_eq!(queue.run(&id).unwrap().status, "queued");
/// ```
#[derive(Debug, Clone)]
pub struct Submitter {
    rules: SubmitRules,
    home: Home,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
}

impl Submitter {
    pub(crate) fn new(
        rules: SubmitRules,
        home: Home,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
    ) -> Submitter {
        Submitter { rules, home, clock, ids }
    }

    /// Checks a task and inserts it in the transaction that is open on `conn`. Answers its id, or that of the same task
    /// if its idempotency key stands for it already. The task is there once that transaction is committed.
    ///
    /// # Errors
    /// As [`Queue::submit_task`](crate::Queue::submit_task), and [`Error::Host`] for a connection on which no transaction
    /// is open, or which leads to another store. Nothing of the task is in the transaction then, which may go on and be
    /// committed without it, unless the connection itself is lost or the engine has undone all of it.
    pub fn submit_task_in<C: HostConnection>(
        &self,
        conn: &mut C,
        app: &TaskApplication,
    ) -> Result<String, Error> {
        self.submit_task_in_with(conn, app, RunSettings::default(), None)
    }

    /// As [`Submitter::submit_task_in`], with settings for the run, and what it reads from its standard input.
    ///
    /// # Errors
    /// As [`Submitter::submit_task_in`], and [`Error::Settings`] for settings that no worker could follow.
    pub fn submit_task_in_with<C: HostConnection>(
        &self,
        conn: &mut C,
        app: &TaskApplication,
        settings: RunSettings,
        stdin: Option<Vec<u8>>,
    ) -> Result<String, Error> {
        let intake = Intake { rules: self.rules.clone(), clock: &*self.clock, ids: &*self.ids };
        let submit = intake.accept(app, settings, stdin)?;
        let submitted = write_in(conn, &self.home, &submit)?;
        Error::or_id(submitted, &submit)
    }
}
