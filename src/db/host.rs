//! Operations inside a transaction of somebody else: of a host program that keeps its own data in the same database.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use diesel::connection::{Connection, SimpleConnection, TransactionManager};
use diesel::result::{Error as DieselError, QueryResult};
use thiserror::Error;

use super::engine::{AnyConn, Operation, Query, lock_keys};
use super::error::StoreError;
use super::ops::StoreId;

/// A Diesel connection of a host program: a `SqliteConnection`, or a `PgConnection`.
pub trait HostConnection: sealed::Lend {}

impl HostConnection for diesel::SqliteConnection {}
#[cfg(feature = "postgres")]
impl HostConnection for diesel::PgConnection {}

/// Why nothing can be written on a connection of a host. The transaction, if there is one, is as it was.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HostRefusal {
    /// What is written would be committed at once, or not at all.
    #[error(
        "no transaction is open on this connection: begin one through Diesel, on SQLite with immediate_transaction, and submit inside of it"
    )]
    NoTransaction,
    /// The connection leads to another database, or sees another schema of it.
    #[error(
        "this connection does not lead to the store {store}: connect to the same file, or the same database with the same search_path"
    )]
    OtherStore {
        /// The store's address, without its password.
        store: String,
    },
}

/// Which store a host's connection must lead to.
#[derive(Debug, Clone)]
pub(crate) struct Home {
    pub store_id: String,
    /// Its address, as it may be shown.
    pub shown: String,
}

/// What went wrong on a connection of a host.
#[derive(Debug)]
pub(crate) enum HostFault {
    Refused(HostRefusal),
    Store(StoreError),
}

/// Runs `operation` in the transaction that is open on `conn`, as a whole: where it fails, what it has written is undone
/// and the rest of the transaction is not.
///
/// # Errors
/// Nothing of the operation is in the transaction then.
pub(crate) fn write_in<O: Operation>(
    conn: &mut impl HostConnection,
    home: &Home,
    operation: &O,
) -> Result<O::Output, HostFault> {
    let fault =
        |error| HostFault::Store(StoreError::from_diesel(&home.shown, operation.name(), error));
    conn.lend(|conn| {
        if !is_in_transaction(conn).map_err(fault)? {
            return Err(HostFault::Refused(HostRefusal::NoTransaction));
        }
        begin_savepoint(conn).map_err(fault)?;
        let done = at_home(conn, home).and_then(|is_home| match is_home {
            true => {
                lock_keys(conn, operation.exclusive_key().as_slice())?;
                operation.run(conn).map(Some)
            }
            false => Ok(None),
        });
        match done {
            Ok(output) => {
                release(conn).map_err(fault)?;
                let store = || home.shown.clone();
                output.ok_or_else(|| HostFault::Refused(HostRefusal::OtherStore { store: store() }))
            }
            Err(error) => {
                // An engine that has undone all of the transaction has no savepoint left; the host hears of that too.
                let _ = undo(conn);
                Err(fault(error))
            }
        }
    })
}

/// Whether the connection leads to the store that is meant. The look is a statement of its own, so that a missing table
/// does not cost the host its transaction.
fn at_home(conn: &mut AnyConn, home: &Home) -> QueryResult<bool> {
    match StoreId.run(conn) {
        Ok(id) => Ok(id == home.store_id),
        Err(DieselError::NotFound) => Ok(false),
        Err(DieselError::DatabaseError(_, info)) if info.message().contains("leasehold_meta") => {
            // Where a statement has failed, PostgreSQL refuses all others up to a savepoint.
            undo(conn)?;
            begin_savepoint(conn)?;
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Whether Diesel knows of a transaction, and the engine too: SQLite ends one by itself, when the disk is full for
/// example, and what came after that would be committed at once.
fn is_in_transaction(conn: &mut AnyConn) -> QueryResult<bool> {
    let status = <AnyConn as Connection>::TransactionManager::transaction_manager_status_mut(conn);
    if status.transaction_depth()?.is_none() {
        return Ok(false);
    }
    match conn {
        #[cfg(feature = "postgres")]
        AnyConn::Postgres(_) => Ok(true),
        AnyConn::Sqlite(c) => match c.batch_execute("BEGIN") {
            Err(_) => Ok(true),
            Ok(()) => c.batch_execute("ROLLBACK").map(|()| false),
        },
    }
}

// Inside of a transaction each of these is about a savepoint.
fn begin_savepoint(conn: &mut AnyConn) -> QueryResult<()> {
    <AnyConn as Connection>::TransactionManager::begin_transaction(conn)
}

fn release(conn: &mut AnyConn) -> QueryResult<()> {
    <AnyConn as Connection>::TransactionManager::commit_transaction(conn)
}

fn undo(conn: &mut AnyConn) -> QueryResult<()> {
    <AnyConn as Connection>::TransactionManager::rollback_transaction(conn)
}

mod sealed {
    use super::AnyConn;

    /// A connection that can be one of either engine for a while.
    pub trait Lend {
        fn lend<T>(&mut self, body: impl FnOnce(&mut AnyConn) -> T) -> T;
    }
}

/// The connection is moved into an [`AnyConn`] and back. A panic of `body` goes on once it is back.
macro_rules! lend {
    ($connection:ty, $variant:ident) => {
        impl sealed::Lend for $connection {
            fn lend<T>(&mut self, body: impl FnOnce(&mut AnyConn) -> T) -> T {
                let done = replace_with::replace_with_or_abort_and_return(self, |own| {
                    let mut lent = AnyConn::$variant(own);
                    let done = catch_unwind(AssertUnwindSafe(|| body(&mut lent)));
                    match lent {
                        AnyConn::$variant(own) => (done, own),
                        #[cfg(feature = "postgres")]
                        _ => unreachable!("a connection stays on its engine"),
                    }
                });
                done.unwrap_or_else(|panic| resume_unwind(panic))
            }
        }
    };
}

lend!(diesel::SqliteConnection, Sqlite);
#[cfg(feature = "postgres")]
lend!(diesel::PgConnection, Postgres);
