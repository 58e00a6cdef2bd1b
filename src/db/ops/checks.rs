//! What is to be known of a store and its engine to say whether it can be trusted. All of it only reads.

use diesel::prelude::*;
use diesel::sql_types::Text;

use crate::db::engine::{AnyConn, Query};
use crate::db::inspect::Facts;
use crate::db::ledger;

/// At most so many faults are named.
const MOST_FAULTS: u32 = 10;

/// How the store was made: its version, and the steps that are still to be taken.
#[derive(Debug, Clone, Copy)]
pub struct CheckSchema;

/// What [`CheckSchema`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaFacts {
    /// The version of the contract's tables.
    pub version: String,
    /// How many steps were taken.
    pub applied: usize,
    /// How many are still to be taken; the next write takes them.
    pub pending: usize,
}

impl Query for CheckSchema {
    type Output = SchemaFacts;

    fn name(&self) -> &'static str {
        "read the store's version"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<SchemaFacts> {
        let facts = Facts::read(conn)?;
        let version = facts.meta.and_then(|mut meta| meta.remove("version")).unwrap_or_default();
        let known = ledger::known();
        let applied = known.iter().filter(|step| facts.migrations.contains(step)).count();
        Ok(SchemaFacts { version, applied, pending: known.len() - applied })
    }
}

/// The engine's version, and the settings on which it depends whether what was answered is kept.
#[derive(Debug, Clone, Copy)]
pub struct CheckEngine;

/// What [`CheckEngine`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineFacts {
    /// A file.
    Sqlite {
        /// The version of the library.
        version: String,
        /// Whether it is one that loses no commits.
        is_sound: bool,
        /// `wal` once a writer has opened the store.
        journal_mode: String,
    },
    /// A server.
    Postgres {
        /// As `server_version_num`: 150004 is 15.4.
        version: u32,
        /// `off` loses what was acknowledged.
        synchronous_commit: String,
        /// `off` can lose everything.
        fsync: String,
        /// Whether it follows another server.
        in_recovery: bool,
        /// Whether transactions cannot write unless they ask for it.
        read_only: bool,
    },
}

impl Query for CheckEngine {
    type Output = EngineFacts;

    fn name(&self) -> &'static str {
        "read the engine's settings"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<EngineFacts> {
        match conn {
            #[cfg(feature = "postgres")]
            AnyConn::Postgres(c) => postgres::settings(c),
            AnyConn::Sqlite(c) => {
                let version: SqliteVersion =
                    diesel::sql_query("SELECT sqlite_version() AS version").get_result(c)?;
                let mode: JournalMode = diesel::sql_query("PRAGMA journal_mode").get_result(c)?;
                Ok(EngineFacts::Sqlite {
                    is_sound: is_sound_sqlite(&version.version),
                    version: version.version,
                    journal_mode: mode.journal_mode,
                })
            }
        }
    }
}

/// Looks for damage in the file, at most ten faults; it reads all of it. A server looks after its own files.
#[derive(Debug, Clone, Copy)]
pub struct CheckIntegrity;

impl Query for CheckIntegrity {
    type Output = Vec<String>;

    fn name(&self) -> &'static str {
        "look for damage"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Vec<String>> {
        match conn {
            #[cfg(feature = "postgres")]
            AnyConn::Postgres(_) => Ok(Vec::new()),
            AnyConn::Sqlite(c) => {
                let sql = format!("PRAGMA quick_check({MOST_FAULTS})");
                let rows: Vec<Fault> = diesel::sql_query(sql).load(c)?;
                let faults = rows.into_iter().map(|row| row.quick_check);
                Ok(faults.filter(|fault| fault != "ok").collect())
            }
        }
    }
}

/// Whether events are held back, which only a server's feed can be: by a transaction that is older than they are.
#[derive(Debug, Clone, Copy)]
pub struct CheckFeed;

/// Events that nobody can read yet.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldBack {
    /// When the oldest of them happened, in seconds since the epoch, by the clock of whoever wrote it.
    pub since: f64,
    /// The oldest transaction of the server, as far as this user may see it.
    pub by: String,
}

impl Query for CheckFeed {
    type Output = Option<HeldBack>;

    fn name(&self) -> &'static str {
        "look for events that are held back"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Option<HeldBack>> {
        match conn {
            #[cfg(feature = "postgres")]
            AnyConn::Postgres(c) => postgres::held_back(c),
            AnyConn::Sqlite(_) => Ok(None),
        }
    }
}

/// Whether a SQLite of this version loses no commits: before 3.51.3 it can when a checkpoint meets a writer.
pub(in crate::db) fn is_sound_sqlite(version: &str) -> bool {
    let numbers: Vec<u32> = version.split('.').filter_map(|part| part.parse().ok()).collect();
    numbers.as_slice() >= [3, 51, 3].as_slice()
}

#[derive(QueryableByName)]
pub(in crate::db) struct SqliteVersion {
    #[diesel(sql_type = Text)]
    pub version: String,
}

#[derive(QueryableByName)]
pub(in crate::db) struct JournalMode {
    #[diesel(sql_type = Text)]
    pub journal_mode: String,
}

#[derive(QueryableByName)]
struct Fault {
    #[diesel(sql_type = Text)]
    quick_check: String,
}

#[cfg(feature = "postgres")]
mod postgres {
    use diesel::prelude::*;
    use diesel::sql_types::{Bool, Double, Integer, Nullable, Text};

    use super::{EngineFacts, HeldBack};

    pub(super) fn settings(conn: &mut PgConnection) -> QueryResult<EngineFacts> {
        let row: Settings = diesel::sql_query(
            "SELECT current_setting('server_version_num')::integer AS version,
                    current_setting('synchronous_commit') AS synchronous_commit,
                    current_setting('fsync') AS fsync,
                    pg_is_in_recovery() AS in_recovery,
                    current_setting('default_transaction_read_only')::boolean AS read_only",
        )
        .get_result(conn)?;
        Ok(EngineFacts::Postgres {
            version: row.version.unsigned_abs(),
            synchronous_commit: row.synchronous_commit,
            fsync: row.fsync,
            in_recovery: row.in_recovery,
            read_only: row.read_only,
        })
    }

    pub(super) fn held_back(conn: &mut PgConnection) -> QueryResult<Option<HeldBack>> {
        // A user without privileges sees no transactions of others.
        let row: Held = diesel::sql_query(
            "SELECT (SELECT min(created_at) FROM leasehold_events
                     WHERE stamp >= pg_snapshot_xmin(pg_current_snapshot())::text::bigint + leasehold_event_offset())
                      AS since,
                    coalesce(
                      (SELECT format('process %s of user %s in database %s (%s), open since %s', pid, usename,
                                coalesce(datname, '-'), coalesce(state, '-'), date_trunc('second', xact_start))
                       FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()
                       ORDER BY age(backend_xid) DESC LIMIT 1),
                      (SELECT format('the prepared transaction %s in database %s', gid, database)
                       FROM pg_prepared_xacts ORDER BY age(transaction) DESC LIMIT 1),
                      'a session that this user may not look at') AS by",
        )
        .get_result(conn)?;
        Ok(row.since.map(|since| HeldBack { since, by: row.by }))
    }

    #[derive(QueryableByName)]
    struct Held {
        #[diesel(sql_type = Nullable<Double>)]
        since: Option<f64>,
        #[diesel(sql_type = Text)]
        by: String,
    }

    #[derive(QueryableByName)]
    struct Settings {
        #[diesel(sql_type = Integer)]
        version: i32,
        #[diesel(sql_type = Text)]
        synchronous_commit: String,
        #[diesel(sql_type = Text)]
        fsync: String,
        #[diesel(sql_type = Bool)]
        in_recovery: bool,
        #[diesel(sql_type = Bool)]
        read_only: bool,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        for (version, sound) in
            [("3.51.2", false), ("3.51.3", true), ("3.52.0", true), ("3.9.9", false), ("4.0", true)]
        {
            assert_eq!(is_sound_sqlite(version), sound, "{version}");
        }
    }
}
