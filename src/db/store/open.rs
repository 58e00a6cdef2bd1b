//! Opening a store: look first, write later.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::{Connection, SimpleConnection};
use diesel::prelude::*;
#[cfg(feature = "postgres")]
use diesel::sql_types::Text;

use crate::clock::Clock;
use crate::db::engine::{AnyConn, TxError};
use crate::db::error::{StoreError, one_line};
use crate::db::inspect::{Facts, Verdict};
use crate::db::migrate::{Stamp, bring_up_to_date, in_its_turn};
use crate::db::ops::{JournalMode, SqliteVersion, is_sound_sqlite};
#[cfg(feature = "postgres")]
use crate::db::restored::{go_on_behind, is_restored};
#[cfg(feature = "postgres")]
use crate::db::url::with_patience;
use crate::db::url::{StoreUrl, sqlite_uri};
use crate::ids::IdSource;

/// What a store is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Reading only: nothing is made, nothing is changed, not even an older schema.
    Read,
    /// Reading and writing.
    Write,
}

/// SQLite waits this long for another writer, in milliseconds.
const BUSY_TIMEOUT_MS: u32 = 5000;

/// Opens, judges and, for writing, brings up to date. Answers the connection, and whether this project's own tables are
/// there: a reader leaves a store of the original as it is.
pub(super) fn open(
    url: &StoreUrl,
    shown: &str,
    mode: Mode,
    clock: &dyn Clock,
    ids: &dyn IdSource,
) -> Result<(AnyConn, bool), StoreError> {
    let fault = |error| StoreError::from_diesel(shown, "open the store", error);
    let verdict = match look(url, shown, mode)? {
        Some(facts) => facts.verdict(),
        None => Verdict::Fresh,
    };
    match (mode, verdict) {
        (_, Verdict::Foreign(why)) => return Err(StoreError::Foreign { store: shown.into(), why }),
        (_, Verdict::TooNew(why)) => return Err(StoreError::TooNew { store: shown.into(), why }),
        (Mode::Read, Verdict::Fresh) => return Err(StoreError::Missing { store: shown.into() }),
        (Mode::Write, Verdict::Ready) => {
            let conn = connect(url, shown, mode)?;
            #[cfg(feature = "postgres")]
            let conn = in_order(conn).map_err(fault)?;
            return Ok((conn, true));
        }
        (Mode::Read, Verdict::Ready) => return Ok((connect(url, shown, mode)?, true)),
        (Mode::Read, Verdict::Behind) => return Ok((connect(url, shown, mode)?, false)),
        (Mode::Write, Verdict::Fresh | Verdict::Behind) => {}
    }
    if let StoreUrl::Sqlite(path) = url {
        make_file(path, shown)?;
    }
    let mut conn = connect(url, shown, mode)?;
    let stamp = Stamp { store_id: ids.task_id().replace('-', ""), at: clock.now() };
    let done = in_its_turn(&mut conn, |conn| bring_up_to_date(conn, &stamp));
    match done.map_err(|error| match error {
        TxError::NoConnection(error) => error,
        TxError::NotBegun(error) | TxError::Undone(error) | TxError::AtCommit(error, _) => {
            fault(error)
        }
    })? {
        Verdict::Foreign(why) => Err(StoreError::Foreign { store: shown.into(), why }),
        Verdict::TooNew(why) => Err(StoreError::TooNew { store: shown.into(), why }),
        _ => Ok((conn, true)),
    }
}

/// Sees to it that new events come after those that are there.
#[cfg(feature = "postgres")]
fn in_order(mut conn: AnyConn) -> QueryResult<AnyConn> {
    if !is_restored(&mut conn)? {
        return Ok(conn);
    }
    let done = in_its_turn(&mut conn, go_on_behind);
    done.map(|()| conn).map_err(|error| match error {
        TxError::NoConnection(_) => diesel::result::Error::NotFound,
        TxError::NotBegun(error) | TxError::Undone(error) | TxError::AtCommit(error, ()) => error,
    })
}

/// What is there, without writing; nothing when there is no file yet.
fn look(url: &StoreUrl, shown: &str, mode: Mode) -> Result<Option<Facts>, StoreError> {
    let fault = |error| StoreError::from_diesel(shown, "look at the store", error);
    match url {
        StoreUrl::Sqlite(path) => {
            if !is_database_file(path, shown)? {
                return Ok(None);
            }
            if let Some(seen) = look_at_rest(path, shown) {
                return seen.map(Some);
            }
            let look = |as_what| {
                connect_sqlite(path, shown, as_what)
                    .and_then(|mut conn| Facts::read(&mut conn).map(Some).map_err(fault))
            };
            match look("ro") {
                // Whoever made it was killed, and its journal stands there: to undo that is a write.
                Err(StoreError::ReadOnly { .. }) if mode == Mode::Write => look("rw"),
                seen => seen.map_err(StoreError::while_reading),
            }
        }
        StoreUrl::Postgres(_) => {
            let mut conn = connect(url, shown, Mode::Read)?;
            Facts::read(&mut conn).map(Some).map_err(fault)
        }
    }
}

/// Looks at a file that nobody has open, and makes nothing beside it: a plain look would leave SQLite's log and index
/// there, even beside a stranger's file. Nothing when somebody has it open, or opened it meanwhile.
fn look_at_rest(path: &Path, shown: &str) -> Option<Result<Facts, StoreError>> {
    let before = at_rest(path)?;
    let seen = connect_sqlite(path, shown, AS_IT_IS).and_then(|mut conn| {
        let fault = |error| StoreError::from_diesel(shown, "look at the store", error);
        Facts::read(&mut conn).map_err(fault)
    });
    (at_rest(path)? == before).then_some(seen)
}

/// The open mode for a file that does not change: without locks and without a log.
const AS_IT_IS: &str = "ro&immutable=1";

/// Which file it is, in which state, if no journal stands beside it: all of the database is then in the file.
fn at_rest(path: &Path) -> Option<[i64; 5]> {
    let journal = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        Path::new(&name).exists()
    };
    if journal("-wal") || journal("-journal") {
        return None;
    }
    let file = fs::metadata(path).ok()?;
    let ids = [file.dev(), file.ino(), file.len()].map(u64::cast_signed);
    Some([ids[0], ids[1], ids[2], file.mtime(), file.mtime_nsec()])
}

/// Connects without a look, as for a second connection to a store that was opened before.
pub(super) fn connect(url: &StoreUrl, shown: &str, mode: Mode) -> Result<AnyConn, StoreError> {
    match url {
        StoreUrl::Sqlite(path) if mode == Mode::Read => {
            // SQLite would make its index beside the file, which a read-only file system does not let it.
            let fixed = on_read_only_file_system(path) && at_rest(path).is_some();
            connect_sqlite(path, shown, if fixed { AS_IT_IS } else { "ro" })
        }
        StoreUrl::Sqlite(path) => {
            writable(path, shown)?;
            let mut conn = connect_sqlite(path, shown, "rw")?;
            prepare_to_write(&mut conn, shown)?;
            Ok(conn)
        }
        #[cfg(feature = "postgres")]
        StoreUrl::Postgres(url) => connect_postgres(url, shown, mode),
        #[cfg(not(feature = "postgres"))]
        StoreUrl::Postgres(_) => Err(StoreError::Url {
            given: shown.into(),
            problem: "needs PostgreSQL, which this build leaves out",
        }),
    }
}

fn connect_sqlite(path: &Path, shown: &str, mode: &str) -> Result<AnyConn, StoreError> {
    let fault = |error| StoreError::from_diesel(shown, "open the database", error);
    let mut conn =
        diesel::SqliteConnection::establish(&sqlite_uri(path, mode)).map_err(|error| {
            let source = io::Error::other(one_line(&error.to_string()));
            StoreError::Place { doing: "open", store: shown.into(), source: Arc::new(source) }
        })?;
    // The timeout comes first: the statements after it may meet a lock.
    conn.batch_execute(&format!("PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")).map_err(fault)?;
    conn.batch_execute("PRAGMA foreign_keys = ON").map_err(fault)?;
    Ok(AnyConn::Sqlite(conn))
}

fn prepare_to_write(conn: &mut AnyConn, shown: &str) -> Result<(), StoreError> {
    let fault = |error| StoreError::from_diesel(shown, "prepare the database for writing", error);
    let linked: SqliteVersion =
        diesel::sql_query("SELECT sqlite_version() AS version").get_result(conn).map_err(fault)?;
    if !is_sound_sqlite(&linked.version) {
        let why = format!(
            "SQLite {} has a fault that loses commits; link 3.51.3 or later",
            linked.version
        );
        return Err(StoreError::NotDurable { store: shown.into(), why });
    }
    let mode = write_ahead(conn, shown)?;
    if mode.journal_mode != "wal" {
        let why =
            format!("its journal mode stays {:?}; use a local file system", mode.journal_mode);
        return Err(StoreError::NotDurable { store: shown.into(), why });
    }
    conn.batch_execute("PRAGMA synchronous = FULL").map_err(fault)
}

/// SQLite waits for no lock when it changes the journal mode, as two who make one store at once find out.
fn write_ahead(conn: &mut AnyConn, shown: &str) -> Result<JournalMode, StoreError> {
    let deadline = Instant::now() + Duration::from_millis(BUSY_TIMEOUT_MS.into());
    loop {
        let tried = diesel::sql_query("PRAGMA journal_mode = WAL").get_result(conn);
        match tried.map_err(|error| StoreError::from_diesel(shown, "write ahead", error)) {
            Err(StoreError::Busy { .. }) if Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(5));
            }
            result => return result,
        }
    }
}

#[cfg(feature = "postgres")]
fn connect_postgres(url: &str, shown: &str, mode: Mode) -> Result<AnyConn, StoreError> {
    let unreachable =
        |detail: String| StoreError::Unreachable { store: shown.into(), detail: one_line(&detail) };
    let conn = diesel::PgConnection::establish(&with_patience(url))
        .map_err(|error| unreachable(without_address(&error.to_string())))?;
    let mut conn = AnyConn::Postgres(conn);
    // A hint, not relied on: a pooler may hand the session to somebody else.
    conn.batch_execute(&format!("SET lock_timeout = {BUSY_TIMEOUT_MS}"))
        .map_err(|error| unreachable(error.to_string()))?;
    if mode == Mode::Read {
        return Ok(conn);
    }
    let setting: Setting =
        diesel::sql_query("SELECT current_setting('synchronous_commit') AS value")
            .get_result(&mut conn)
            .map_err(|error| unreachable(error.to_string()))?;
    if setting.value == "off" {
        let why = "synchronous_commit is off; turn it on for this database or user".into();
        return Err(StoreError::NotDurable { store: shown.into(), why });
    }
    Ok(conn)
}

/// libpq quotes the part of an address that it cannot read, and an unescaped character in a password makes that its
/// password. Once it has got as far as a server, the address was read well.
#[cfg(feature = "postgres")]
fn without_address(message: &str) -> String {
    match (message.find('"'), message.rfind('"')) {
        (Some(first), Some(last)) if !message.starts_with("connection to server") => {
            format!(
                "{}…{} (in an address, write special characters as %XX)",
                &message[..first],
                &message[last + 1..]
            )
        }
        _ => message.to_owned(),
    }
}

#[cfg(feature = "postgres")]
#[derive(QueryableByName)]
struct Setting {
    #[diesel(sql_type = Text)]
    value: String,
}

/// Whether a database is there; an empty file is none yet.
///
/// The file is looked at by name only. To open it here would, at the close, take away every lock that another
/// connection of this process holds on it: POSIX locks belong to the process. SQLite judges the contents.
fn is_database_file(path: &Path, shown: &str) -> Result<bool, StoreError> {
    let refused =
        |found: &str| StoreError::NotADatabase { store: shown.into(), found: found.into() };
    match fs::metadata(path) {
        Ok(kind) if kind.is_dir() => Err(refused("it is a directory")),
        Ok(kind) if !kind.is_file() => Err(refused("it is no regular file")),
        // SQLite takes this for an empty file and would write over it.
        Ok(kind) if kind.len() == 1 => Err(refused("it is a file of one byte")),
        Ok(kind) => Ok(kind.len() > 0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => {
            Err(StoreError::Place { doing: "look at", store: shown.into(), source: error.into() })
        }
    }
}

/// Makes the file, readable by its owner only, and makes its name durable: SQLite itself syncs the file, not the
/// directory that a new name stands in.
fn make_file(path: &Path, shown: &str) -> Result<(), StoreError> {
    let place =
        |doing, error| StoreError::Place { doing, store: shown.into(), source: Arc::new(error) };
    let made = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match made {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Err(error) if is_read_only(&error) => {
            return Err(StoreError::ReadOnly { store: shown.into() });
        }
        Err(error) => return Err(place("make", error)),
    }
    let directory =
        path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let synced = fs::File::open(directory).and_then(|dir| dir.sync_all());
    synced.map_err(|error| place("make", error))
}

/// Refuses a file that cannot be written before SQLite would fall back to reading it.
fn writable(path: &Path, shown: &str) -> Result<(), StoreError> {
    match rustix::fs::access(path, rustix::fs::Access::WRITE_OK).map_err(io::Error::from) {
        Ok(()) => Ok(()),
        Err(error) if is_read_only(&error) => Err(StoreError::ReadOnly { store: shown.into() }),
        Err(error) => {
            Err(StoreError::Place { doing: "open", store: shown.into(), source: error.into() })
        }
    }
}

fn on_read_only_file_system(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK) == Err(rustix::io::Errno::ROFS)
}

fn is_read_only(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}
