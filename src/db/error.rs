//! What can go wrong with a store, and what to do about it.

use std::sync::Arc;

use diesel::result::{DatabaseErrorKind, Error as DieselError};
use thiserror::Error;

/// A store that cannot be opened, read or written. Each message says what to do; the cause is in `source()`.
#[derive(Debug, Clone, Error)]
pub enum StoreError {
    /// The address has neither form.
    #[error(
        "the store address {given:?} {problem}: use sqlite:PATH or postgres://USER@HOST/DATABASE"
    )]
    Url {
        /// The address, without its password.
        given: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// There is no store yet, and a reader makes none.
    #[error(
        "there is no store at {store}: the first submit makes it, or name another with --store"
    )]
    Missing {
        /// The address.
        store: String,
    },
    /// The place cannot be used.
    #[error("cannot {doing} {store}: {source}; check that the directory exists and is yours")]
    Place {
        /// What was being done.
        doing: &'static str,
        /// The address.
        store: String,
        /// The system's own words.
        source: Arc<std::io::Error>,
    },
    /// The file is no SQLite database.
    #[error(
        "{store} is not a database ({found}); it was left untouched: name another file with --store"
    )]
    NotADatabase {
        /// The address.
        store: String,
        /// What it is.
        found: String,
    },
    /// The database belongs to another program.
    #[error(
        "{store} is not a store of this queue: {why}; it was left untouched: name another with --store"
    )]
    Foreign {
        /// The address.
        store: String,
        /// How that shows.
        why: String,
    },
    /// The store was written by a later version.
    #[error("{store} is newer than this program: {why}; it was left untouched: upgrade leasehold")]
    TooNew {
        /// The address.
        store: String,
        /// How that shows.
        why: String,
    },
    /// The store may be read but not written.
    #[error(
        "{store} is read-only: make the file and its directory writable, or use a reading command"
    )]
    ReadOnly {
        /// The address.
        store: String,
    },
    /// There is no room left.
    #[error("{store} is full, nothing was written: free some disk space and try again")]
    Full {
        /// The address.
        store: String,
    },
    /// Another program holds the write lock.
    #[error(
        "{store} is busy: another program has held its lock for too long, nothing was written; try again"
    )]
    Busy {
        /// The address.
        store: String,
    },
    /// The database is damaged.
    #[error("{store} is damaged ({detail}): stop everything that uses it and restore a copy")]
    Corrupt {
        /// The address.
        store: String,
        /// The engine's own words.
        detail: String,
    },
    /// The server does not answer.
    #[error("cannot reach {store}: {detail}; check that the server runs and the address is right")]
    Unreachable {
        /// The address.
        store: String,
        /// The engine's own words, on one line.
        detail: String,
    },
    /// The connection was lost while a change was being committed.
    #[error(
        "the connection to {store} was lost during a commit: the change may or may not be stored; read it again"
    )]
    OutcomeUnknown {
        /// The address.
        store: String,
    },
    /// The store does not keep its promises.
    #[error("{store} would lose acknowledged work: {why}")]
    NotDurable {
        /// The address.
        store: String,
        /// What is set wrong, and how to set it.
        why: String,
    },
    /// The operation itself panicked: a fault of this program.
    #[error(
        "{store}: a fault of this program while it was to {doing}; nothing was written, please report it"
    )]
    Panicked {
        /// The address.
        store: String,
        /// What was being done.
        doing: &'static str,
    },
    /// Anything else the database says.
    #[error("{store}: the database refused to {doing}: {detail}")]
    Sql {
        /// The address.
        store: String,
        /// What was being done.
        doing: &'static str,
        /// The engine's own words, on one line.
        detail: String,
        /// The engine's error.
        source: Arc<DieselError>,
    },
}

impl StoreError {
    /// Whether the same call may succeed a little later.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            StoreError::Busy { .. }
                | StoreError::Full { .. }
                | StoreError::Unreachable { .. }
                | StoreError::OutcomeUnknown { .. }
        )
    }

    /// Whether any other operation would meet it too; if not, it may be that of one operation alone.
    pub fn is_of_the_store(&self) -> bool {
        !matches!(self, StoreError::Sql { .. } | StoreError::Panicked { .. })
    }

    /// A stable name of the fault, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            StoreError::Url { .. } => "store_url",
            StoreError::Missing { .. } => "store_missing",
            StoreError::Place { .. } => "store_place",
            StoreError::NotADatabase { .. } => "store_not_a_database",
            StoreError::Foreign { .. } => "store_foreign",
            StoreError::TooNew { .. } => "store_too_new",
            StoreError::ReadOnly { .. } => "store_read_only",
            StoreError::Full { .. } => "store_full",
            StoreError::Busy { .. } => "store_busy",
            StoreError::Corrupt { .. } => "store_corrupt",
            StoreError::Unreachable { .. } => "store_unreachable",
            StoreError::OutcomeUnknown { .. } => "store_outcome_unknown",
            StoreError::NotDurable { .. } => "store_not_durable",
            StoreError::Panicked { .. } => "store_panicked",
            StoreError::Sql { .. } => "store_sql",
        }
    }

    /// The same for a reader, who needs no right to write to the store; SQLite may need one beside it.
    pub(super) fn while_reading(self) -> StoreError {
        match self {
            StoreError::ReadOnly { store } => {
                let why = "a killed writer left something that only the next writer may undo, as any \
                           submit or worker does, or the directory of the store cannot be written";
                StoreError::Place {
                    doing: "read",
                    store,
                    source: Arc::new(std::io::Error::other(why)),
                }
            }
            other => other,
        }
    }

    /// Gives a database error its place and its name. SQLite's result codes do not come through Diesel, so its own
    /// sentences are what tells them apart.
    pub(super) fn from_diesel(store: &str, doing: &'static str, source: DieselError) -> StoreError {
        let store = store.to_owned();
        let detail = one_line(&source.to_string());
        let says = |words: &str| detail.contains(words);
        if is_busy(&source) {
            StoreError::Busy { store }
        } else if says("database or disk is full") || says("No space left on device") {
            StoreError::Full { store }
        } else if says("readonly database") || says("read-only transaction") {
            StoreError::ReadOnly { store }
        } else if says("file is not a database") {
            StoreError::NotADatabase { store, found: detail }
        } else if says("disk image is malformed") {
            StoreError::Corrupt { store, detail }
        } else if is_connection_lost(&source) {
            StoreError::Unreachable { store, detail }
        } else {
            StoreError::Sql { store, doing, detail, source: Arc::new(source) }
        }
    }
}

/// Whether running the same transaction again is the answer: PostgreSQL chose it as the victim of a deadlock or of a
/// serialization conflict, and has undone it.
pub(super) fn is_transaction_victim(error: &DieselError) -> bool {
    match error {
        DieselError::DatabaseError(DatabaseErrorKind::SerializationFailure, _) => true,
        DieselError::DatabaseError(_, info) => info.message().contains("deadlock detected"),
        _ => false,
    }
}

/// Whether the connection itself is gone.
pub(super) fn is_connection_lost(error: &DieselError) -> bool {
    match error {
        DieselError::BrokenTransactionManager => true,
        DieselError::DatabaseError(DatabaseErrorKind::ClosedConnection, _) => true,
        DieselError::DatabaseError(_, info) => {
            let message = info.message();
            [
                "server closed the connection",
                "terminating connection",
                "no connection to the server",
                "could not receive data",
                "could not send data",
            ]
            .iter()
            .any(|words| message.contains(words))
        }
        _ => false,
    }
}

/// Whether another program holds the lock that was waited for.
pub(super) fn is_busy(error: &DieselError) -> bool {
    let message = error.to_string();
    ["database is locked", "database table is locked", "canceling statement due to lock timeout"]
        .iter()
        .any(|words| message.contains(words))
}

/// An engine's message, which may have several lines, as one.
pub(super) fn one_line(message: &str) -> String {
    message
        .split(['\n', '\r', '\t'])
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}
