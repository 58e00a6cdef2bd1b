//! The two engines behind one connection type, and where a write transaction begins and ends.

use std::num::NonZero;
use std::time::Duration;

use diesel::connection::{
    AnsiTransactionManager, Connection, SimpleConnection, TransactionManager,
};
#[cfg(feature = "postgres")]
use diesel::query_dsl::RunQueryDsl;
use diesel::result::{Error as DieselError, QueryResult};

use super::error::StoreError;

/// A connection to either engine. Statements in the shared dialect run on it directly; `on!` is for the rest.
#[derive(diesel::MultiConnection)]
pub enum AnyConn {
    /// PostgreSQL.
    #[cfg(feature = "postgres")]
    Postgres(diesel::PgConnection),
    /// SQLite; last, since it takes any string for a path.
    Sqlite(diesel::SqliteConnection),
}

/// Runs one body on whichever engine the connection has; it is compiled once for each, with the whole dialect.
macro_rules! on {
    ($conn:expr, $c:ident => $body:expr) => {
        match $conn {
            #[cfg(feature = "postgres")]
            $crate::db::AnyConn::Postgres($c) => $body,
            $crate::db::AnyConn::Sqlite($c) => $body,
        }
    };
}
pub(super) use on;

/// A write, as data.
///
/// It opens no transaction: the caller puts it in one, alone or beside others, and may run it again after a lost
/// transaction, so `run` must depend on nothing but `self` and the rows. What the operation itself refuses is part of
/// its output; it refuses before it writes. An error of the database ends it: it hands the error on.
pub trait Operation {
    /// What it answers.
    type Output;

    /// What it does, for messages: `submit a task`.
    fn name(&self) -> &'static str;

    /// The id of the row it is about, if it is about one.
    fn subject(&self) -> Option<&str> {
        None
    }

    /// The key that its transaction must hold alone, if it decides by one. It is held before `run` begins.
    fn exclusive_key(&self) -> Option<&str> {
        None
    }

    /// What is in the store if and only if the run that answered `output` was committed, for the case that the answer
    /// to a commit is lost. A run that wrote nothing leaves no evidence: what is there under its id is of another run.
    fn evidence(&self, output: &Self::Output) -> Option<Evidence<'_>> {
        let _ = output;
        None
    }

    /// Does it.
    ///
    /// # Errors
    /// Whatever the database says; the transaction is then undone.
    fn run(&self, conn: &mut AnyConn) -> QueryResult<Self::Output>;
}

/// A row that an operation writes under an id of its own making.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence<'a> {
    /// The fact with this id.
    Fact(&'a str),
    /// The run with this id.
    Run(&'a str),
}

/// A read, as data. It never takes the write lock.
pub trait Query {
    /// What it answers.
    type Output;

    /// What it does, for messages: `list the runs`.
    fn name(&self) -> &'static str;

    /// Does it.
    ///
    /// # Errors
    /// Whatever the database says.
    fn run(&self, conn: &mut AnyConn) -> QueryResult<Self::Output>;
}

/// The longest wait for a lock at a time; who has more patience tries again.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Where a write transaction failed.
#[derive(Debug)]
pub(super) enum TxError<T> {
    /// There is no connection.
    NoConnection(StoreError),
    /// Before the body: nothing was even tried.
    NotBegun(DieselError),
    /// In the body: nothing is stored.
    Undone(DieselError),
    /// At the commit, with what the body answered: unless the engine says why it refused, nobody knows.
    AtCommit(DieselError, T),
}

/// Reads the store as it was at one moment: each statement by itself would see a moment of its own.
pub(super) fn at_one_moment<T>(
    conn: &mut AnyConn,
    read: impl FnOnce(&mut AnyConn) -> QueryResult<T>,
) -> QueryResult<T> {
    let begin = match conn {
        #[cfg(feature = "postgres")]
        AnyConn::Postgres(_) => "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY",
        AnyConn::Sqlite(_) => "BEGIN DEFERRED",
    };
    conn.batch_execute(begin)?;
    let seen = read(conn);
    let ended = conn.batch_execute("ROLLBACK");
    let seen = seen?;
    ended.map(|()| seen)
}

/// Runs `body` in a write transaction, which waits for each lock as long as `patience`.
pub(super) fn write_tx<T>(
    conn: &mut AnyConn,
    patience: Duration,
    body: impl FnOnce(&mut AnyConn) -> QueryResult<T>,
) -> Result<T, TxError<T>> {
    begin(conn, patience).map_err(TxError::NotBegun)?;
    let done = body(conn).and_then(|value| check_transaction(conn).map(|()| value));
    match done {
        Ok(value) => match commit(conn) {
            Ok(()) => Ok(value),
            Err(error) => Err(TxError::AtCommit(error, value)),
        },
        Err(error) => {
            // An engine that has undone the transaction by itself refuses the rollback; the caller then finds the
            // connection unfit and drops it.
            let _ = <AnyConn as Connection>::TransactionManager::rollback_transaction(conn);
            Err(TxError::Undone(error))
        }
    }
}

/// Begins a write transaction: `BEGIN IMMEDIATE` on SQLite, where one that begins by reading fails at its first write
/// whatever the timeout, and READ COMMITTED on PostgreSQL, whatever the default of its database: a statement must see
/// what was committed while the one before it waited for a lock.
pub(super) fn begin(conn: &mut AnyConn, patience: Duration) -> QueryResult<()> {
    // To PostgreSQL zero means for ever.
    let wait = patience.min(LONGEST_WAIT).as_millis().max(1);
    match conn {
        #[cfg(feature = "postgres")]
        AnyConn::Postgres(c) => {
            let level = "ISOLATION LEVEL READ COMMITTED";
            let sql = format!("BEGIN {level}; SET LOCAL lock_timeout = {wait}");
            AnsiTransactionManager::begin_transaction_sql(c, &sql)
        }
        AnyConn::Sqlite(c) => {
            let sql = format!("PRAGMA busy_timeout = {wait}; BEGIN IMMEDIATE");
            AnsiTransactionManager::begin_transaction_sql(c, &sql)
        }
    }
}

/// Commits it. It has passed [`check_transaction`] before.
pub(super) fn commit(conn: &mut AnyConn) -> QueryResult<()> {
    match conn {
        // Where a statement has failed before, a COMMIT undoes everything and reports success; any other statement is
        // refused.
        #[cfg(feature = "postgres")]
        AnyConn::Postgres(c) => c.batch_execute("SELECT 1; COMMIT"),
        AnyConn::Sqlite(c) => AnsiTransactionManager::commit_transaction(c),
    }
}

/// Makes transactions that decide by one of `keys`, which are sorted, wait for each other until they end.
///
/// On SQLite a write transaction is alone anyway. On PostgreSQL two could each see no running run with a key, so they
/// queue up here first, in statements of their own: one that also looked would look at the snapshot from before the
/// wait.
pub(super) fn lock_keys(conn: &mut AnyConn, keys: &[&str]) -> QueryResult<()> {
    match conn {
        #[cfg(feature = "postgres")]
        AnyConn::Postgres(c) => keys.iter().try_for_each(|key| {
            diesel::select(postgres::pg_advisory_xact_lock(postgres::hashtextextended(*key, 0)))
                .execute(c)
                .map(drop)
        }),
        AnyConn::Sqlite(_) => {
            let _ = keys;
            Ok(())
        }
    }
}

/// Refuses unless the transaction that was begun is still there, and nothing but it. SQLite ends one by itself, when
/// the disk is full for example; statements after that would be committed one by one. Within a savepoint that was left
/// open Diesel's commit would release that, and report success.
pub(super) fn check_transaction(conn: &mut AnyConn) -> QueryResult<()> {
    let status = <AnyConn as Connection>::TransactionManager::transaction_manager_status_mut(conn);
    match status.transaction_depth()?.map(NonZero::get) {
        Some(1) => {}
        Some(_) => return Err(DieselError::AlreadyInTransaction),
        None => return Err(DieselError::NotInTransaction),
    }
    match conn {
        #[cfg(feature = "postgres")]
        AnyConn::Postgres(_) => Ok(()),
        // Refused if and only if a transaction is open; Diesel does not pass sqlite3_get_autocommit on.
        AnyConn::Sqlite(c) => match c.batch_execute("BEGIN") {
            Err(_) => Ok(()),
            Ok(()) => Err(DieselError::NotInTransaction),
        },
    }
}

/// Whether no transaction is open and none is broken, so that the connection may be used again.
pub(super) fn is_idle(conn: &mut AnyConn) -> bool {
    let status = <AnyConn as Connection>::TransactionManager::transaction_manager_status_mut(conn);
    matches!(status.transaction_depth(), Ok(None))
}

#[cfg(feature = "postgres")]
mod postgres {
    use diesel::sql_types::{BigInt, Text};

    diesel::define_sql_function! { fn hashtextextended(key: Text, seed: BigInt) -> BigInt; }
    // It answers with nothing, which Diesel has no type for; the answer is not read.
    diesel::define_sql_function! { fn pg_advisory_xact_lock(key: BigInt) -> Bool; }
}
