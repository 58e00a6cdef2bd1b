//! An open store: one connection, opened with care and given up when it is no longer fit.

mod open;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use diesel::result::QueryResult;

pub use open::Mode;

use super::engine::{
    AnyConn, Evidence, LONGEST_WAIT, Operation, Query, TxError, is_idle, lock_keys, write_tx,
};
use super::error::{StoreError, is_connection_lost, is_transaction_victim};
use super::ops::IsStored;
use super::url::StoreUrl;
use crate::clock::Clock;
use crate::ids::IdSource;

/// How often a transaction that PostgreSQL sacrificed is run again.
const VICTIM_TRIES: u32 = 8;

/// Called before each write with the operation's name and the id of its row: where tests make a write race, wait or
/// panic.
pub type Seam = Arc<dyn Fn(&'static str, Option<&str>) + Send + Sync>;

/// An open store.
pub struct Store {
    url: StoreUrl,
    shown: String,
    mode: Mode,
    complete: bool,
    /// Absent after an operation panicked or a transaction was lost; the next use opens another.
    conn: Option<AnyConn>,
    seam: Option<Seam>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("url", &self.url)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the store at `url`. In [`Mode::Write`] it is made if nothing is there, and brought up to date.
    ///
    /// # Errors
    /// A [`StoreError`] that says whose store it is, or what is missing; a store that is newer, foreign or no
    /// database is left untouched.
    pub fn open(
        url: &StoreUrl,
        mode: Mode,
        clock: &dyn Clock,
        ids: &dyn IdSource,
    ) -> Result<Store, StoreError> {
        let shown = url.to_string();
        let (conn, complete) = open::open(url, &shown, mode, clock, ids)?;
        Ok(Store { url: url.clone(), shown, mode, complete, conn: Some(conn), seam: None })
    }

    /// A store that whoever started this process has open for writing: it is not looked at again, and connects at its
    /// first use.
    #[must_use]
    pub(crate) fn known(url: StoreUrl) -> Store {
        let shown = url.to_string();
        Store { url, shown, mode: Mode::Write, complete: true, conn: None, seam: None }
    }

    /// The same store for somebody else; it connects at its first use.
    #[must_use]
    pub fn another(&self) -> Store {
        Store {
            url: self.url.clone(),
            shown: self.shown.clone(),
            mode: self.mode,
            complete: self.complete,
            conn: None,
            seam: self.seam.clone(),
        }
    }

    /// Where it is.
    pub fn url(&self) -> &StoreUrl {
        &self.url
    }

    /// Whether this project's own tables are there. Only a reader of a store that the original made finds none.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Calls `seam` before each write from now on.
    pub fn set_seam(&mut self, seam: Seam) {
        self.seam = Some(seam);
    }

    /// Runs `operation` in a write transaction of its own and answers once it is stored.
    ///
    /// # Errors
    /// Nothing is stored then, but for [`StoreError::OutcomeUnknown`], which says that nobody knows.
    pub fn write<O: Operation>(&mut self, operation: &O) -> Result<O::Output, StoreError> {
        self.refuse_if_reading()?;
        self.call_seam(operation.name(), operation.subject());
        let done = self.in_transaction(LONGEST_WAIT, |conn| {
            lock_keys(conn, operation.exclusive_key().as_slice())?;
            operation.run(conn)
        });
        done.or_else(|error| match error {
            TxError::NoConnection(error) => Err(error),
            TxError::AtCommit(error, output) if is_connection_lost(&error) => {
                match operation.evidence(&output) {
                    Some(evidence) if self.is_stored(&evidence) => Ok(output),
                    _ => Err(self.outcome_unknown()),
                }
            }
            TxError::NotBegun(error) | TxError::Undone(error) | TxError::AtCommit(error, _) => {
                Err(self.fault(operation.name(), error))
            }
        })
    }

    /// Runs `query`, which takes no write lock. A connection that was lost is opened again, once.
    ///
    /// # Errors
    /// What the database says, with its place and name.
    pub fn read<Q: Query>(&mut self, query: &Q) -> Result<Q::Output, StoreError> {
        let result = match self.read_once(query)? {
            Err(error) if is_connection_lost(&error) => self.read_once(query)?,
            result => result,
        };
        result.map_err(|error| self.fault(query.name(), error).while_reading())
    }

    fn read_once<Q: Query>(&mut self, query: &Q) -> Result<QueryResult<Q::Output>, StoreError> {
        let mut conn = self.take_connection()?;
        let result = query.run(&mut conn);
        if !matches!(&result, Err(error) if is_connection_lost(error)) {
            self.conn = Some(conn);
        }
        Ok(result)
    }

    /// Whether this is known to be stored.
    pub(super) fn is_stored(&mut self, evidence: &Evidence<'_>) -> bool {
        self.read(&IsStored::of(evidence)).unwrap_or(false)
    }

    /// Runs `body` in a write transaction; again when PostgreSQL sacrificed it to another one, and once again on a new
    /// connection when the old one turns out to be lost before the commit.
    pub(super) fn in_transaction<T>(
        &mut self,
        patience: Duration,
        mut body: impl FnMut(&mut AnyConn) -> QueryResult<T>,
    ) -> Result<T, TxError<T>> {
        let (mut tries, mut reconnected) = (1, false);
        loop {
            // Taken out, so that a panic drops the connection with its open transaction.
            let mut conn = self.take_connection().map_err(TxError::NoConnection)?;
            let result = write_tx(&mut conn, patience, &mut body);
            if is_idle(&mut conn) {
                self.put_back(conn);
            }
            match result {
                Err(TxError::NotBegun(error) | TxError::Undone(error))
                    if is_connection_lost(&error) && !reconnected =>
                {
                    (self.conn, reconnected) = (None, true);
                }
                Err(TxError::Undone(error) | TxError::AtCommit(error, _))
                    if is_transaction_victim(&error) && tries < VICTIM_TRIES =>
                {
                    tries += 1;
                }
                result => return result,
            }
        }
    }

    fn refuse_if_reading(&self) -> Result<(), StoreError> {
        match self.mode {
            Mode::Read => Err(StoreError::ReadOnly { store: self.shown.clone() }),
            Mode::Write => Ok(()),
        }
    }

    pub(super) fn take_connection(&mut self) -> Result<AnyConn, StoreError> {
        match self.conn.take() {
            Some(conn) => Ok(conn),
            None => open::connect(&self.url, &self.shown, self.mode),
        }
    }

    pub(super) fn put_back(&mut self, conn: AnyConn) {
        self.conn = Some(conn);
    }

    pub(super) fn call_seam(&self, name: &'static str, subject: Option<&str>) {
        if let Some(seam) = &self.seam {
            seam(name, subject);
        }
    }

    pub(super) fn is_postgres(&self) -> bool {
        matches!(self.url, StoreUrl::Postgres(_))
    }

    pub(super) fn fault(&self, doing: &'static str, error: diesel::result::Error) -> StoreError {
        StoreError::from_diesel(&self.shown, doing, error)
    }

    pub(super) fn busy(&self) -> StoreError {
        StoreError::Busy { store: self.shown.clone() }
    }

    pub(super) fn outcome_unknown(&self) -> StoreError {
        StoreError::OutcomeUnknown { store: self.shown.clone() }
    }

    pub(super) fn panicked(&self, doing: &'static str) -> StoreError {
        StoreError::Panicked { store: self.shown.clone(), doing }
    }
}
