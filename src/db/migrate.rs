//! The steps that make a store, or bring one up to date.
//!
//! All of them run in one write transaction: a process killed half way leaves the store as it was, and two that start
//! at once do the work once.

use std::time::{Duration, Instant};

use diesel::migration::Migration;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;

use super::engine::{AnyConn, LONGEST_WAIT, MultiBackend, TxError, on, write_tx};
use super::error::is_busy;
use super::inspect::{Facts, LINEAGE, SCHEMA_VERSION, Verdict};
use super::ledger::{record, source};
use super::schema::{leasehold_meta, schema_meta};

/// The step that makes the contract's own tables, which a store of the original has.
const CONTRACT: &str = "20261130000001";

/// How long to wait for others who make a store or change its form: with many rows that takes its time, and on
/// PostgreSQL they are those of the whole database.
const TURN: Duration = Duration::from_secs(60);

/// What the new parts of a store are stamped with.
#[derive(Debug, Clone)]
pub(super) struct Stamp {
    /// The store's id, random, 32 hex digits.
    pub store_id: String,
    /// When, in seconds since the epoch.
    pub at: f64,
}

/// Runs `body` in a write transaction in which nobody else makes a store or changes its form.
///
/// Only for its turn it waits longer than for any other lock: with that in hand it holds up whoever works with the
/// store, also while it waits for them.
///
/// # Errors
/// Those of [`write_tx`].
pub(super) fn in_its_turn<T>(
    conn: &mut AnyConn,
    mut body: impl FnMut(&mut AnyConn) -> QueryResult<T>,
) -> Result<T, TxError<T>> {
    let began = Instant::now();
    loop {
        let mut has_come = false;
        let done = write_tx(conn, LONGEST_WAIT, |conn| {
            lock(conn)?;
            has_come = true;
            body(conn)
        });
        match done {
            Err(TxError::NotBegun(error) | TxError::Undone(error))
                if !has_come && is_busy(&error) && began.elapsed() < TURN => {}
            done => return done,
        }
    }
}

/// Brings the store up to date; the caller runs it [in its turn](in_its_turn). The verdict is taken anew here: another
/// process may have done the work while this one waited for the lock.
///
/// # Errors
/// The verdict when the store is not ours to change, inside `Ok`; else whatever the database says.
pub(super) fn bring_up_to_date(conn: &mut AnyConn, stamp: &Stamp) -> QueryResult<Verdict> {
    let facts = Facts::read(conn)?;
    let verdict = facts.verdict();
    let fresh = match verdict {
        Verdict::Fresh => true,
        Verdict::Behind => false,
        Verdict::Ready | Verdict::Foreign(_) | Verdict::TooNew(_) => return Ok(verdict),
    };
    let pending = conn.pending_migrations(source(conn)).map_err(failed)?;
    for step in pending {
        if !fresh && step.name().version().to_string() == CONTRACT {
            record(conn, CONTRACT)?;
        } else {
            MigrationHarness::<MultiBackend>::run_migration(conn, &*step).map_err(failed)?;
        }
    }
    stamp_new_parts(conn, stamp, fresh)?;
    Ok(Verdict::Ready)
}

/// On SQLite the transaction is the lock. On PostgreSQL it is the one that the original takes for the same purpose.
fn lock(conn: &mut AnyConn) -> QueryResult<()> {
    match conn {
        #[cfg(feature = "postgres")]
        AnyConn::Postgres(c) => diesel::sql_query(
            "SELECT pg_advisory_xact_lock(hashtextextended('lionagi.state.schema.migration', 0))",
        )
        .execute(c)
        .map(drop),
        AnyConn::Sqlite(_) => Ok(()),
    }
}

fn stamp_new_parts(conn: &mut AnyConn, stamp: &Stamp, fresh: bool) -> QueryResult<()> {
    let at = stamp.at.to_string();
    if fresh {
        let version = SCHEMA_VERSION.to_string();
        for (key, value) in
            [("version", version.as_str()), ("lineage", LINEAGE), ("created_at", &at)]
        {
            diesel::insert_into(schema_meta::table)
                .values((schema_meta::key.eq(key), schema_meta::value.eq(value)))
                .execute(conn)?;
        }
    }
    for (key, value) in [("store_id", stamp.store_id.as_str()), ("created_at", &at)] {
        let row = (leasehold_meta::key.eq(key), leasehold_meta::value.eq(value));
        on!(&mut *conn, c => diesel::insert_into(leasehold_meta::table).values(row).on_conflict_do_nothing().execute(c))?;
    }
    Ok(())
}

fn failed(error: Box<dyn std::error::Error + Send + Sync>) -> diesel::result::Error {
    match error.downcast::<diesel::result::Error>() {
        Ok(error) => *error,
        Err(other) => diesel::result::Error::QueryBuilderError(other),
    }
}
