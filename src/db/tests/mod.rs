//! Tests of the store that need its inside; the others are in `tests/store`.

use diesel::connection::{Connection, SimpleConnection};
use diesel::result::Error as DieselError;
use diesel::{QueryResult, RunQueryDsl, SqliteConnection};

use super::engine::{AnyConn, LONGEST_WAIT, TxError, is_idle, write_tx};
use super::inspect::{Facts, Verdict};
use super::migrate::{Stamp, bring_up_to_date};

/// What no operation would write, written into the SQLite file at `path` beside whoever has it open.
pub(crate) fn write_sql(path: &str, sql: &str) {
    let mut conn = SqliteConnection::establish(path).unwrap();
    let words = format!("PRAGMA busy_timeout = 5000; BEGIN IMMEDIATE; {sql}; COMMIT");
    conn.batch_execute(&words).unwrap();
}

fn memory() -> AnyConn {
    AnyConn::Sqlite(SqliteConnection::establish(":memory:").unwrap())
}

fn stamp() -> Stamp {
    Stamp { store_id: "0".repeat(32), at: 1.5 }
}

#[test]
fn the_steps_end_in_one_commit_or_in_nothing() {
    let mut conn = memory();
    let interrupted: Result<(), TxError<()>> = write_tx(&mut conn, LONGEST_WAIT, |conn| {
        assert_eq!(bring_up_to_date(conn, &stamp())?, Verdict::Ready);
        assert_eq!(Facts::read(conn)?.verdict(), Verdict::Ready);
        Err(DieselError::RollbackTransaction)
    });
    assert!(matches!(interrupted, Err(TxError::Undone(DieselError::RollbackTransaction))));
    assert_eq!(Facts::read(&mut conn).unwrap().verdict(), Verdict::Fresh);
    write_tx(&mut conn, LONGEST_WAIT, |conn| bring_up_to_date(conn, &stamp())).unwrap();
    assert_eq!(Facts::read(&mut conn).unwrap().verdict(), Verdict::Ready);
    // Once more changes nothing.
    let changes = |conn: &mut AnyConn| -> QueryResult<usize> {
        diesel::sql_query("UPDATE leasehold_meta SET value = value WHERE value <> ''").execute(conn)
    };
    let lines = changes(&mut conn).unwrap();
    write_tx(&mut conn, LONGEST_WAIT, |conn| bring_up_to_date(conn, &stamp())).unwrap();
    assert_eq!(changes(&mut conn).unwrap(), lines);
}

#[test]
fn a_transaction_that_did_not_begin_did_nothing() {
    let mut conn = memory();
    conn.batch_execute("BEGIN").unwrap();
    let ran = std::cell::Cell::new(false);
    let result = write_tx(&mut conn, LONGEST_WAIT, |_| {
        ran.set(true);
        Ok(())
    });
    assert!(matches!(result, Err(TxError::NotBegun(_))), "{result:?}");
    assert!(!ran.get());
}

/// As SQLite does when the disk is full. Nothing may be taken for committed, then or later.
#[test]
fn a_transaction_that_was_undone_behind_our_back_is_no_success_and_leaves_a_fit_connection() {
    let mut conn = memory();
    conn.batch_execute("CREATE TABLE t (x)").unwrap();
    let gone = |conn: &mut AnyConn| conn.batch_execute("INSERT INTO t VALUES (1); ROLLBACK");
    let result = write_tx(&mut conn, LONGEST_WAIT, gone);
    assert!(matches!(result, Err(TxError::Undone(DieselError::NotInTransaction))));
    let gone_and_failed = |conn: &mut AnyConn| -> QueryResult<()> {
        gone(conn)?;
        Err(DieselError::NotFound)
    };
    let result = write_tx(&mut conn, LONGEST_WAIT, gone_and_failed);
    assert!(matches!(result, Err(TxError::Undone(DieselError::NotFound))));
    assert!(is_idle(&mut conn));
    write_tx(&mut conn, LONGEST_WAIT, |conn| conn.batch_execute("INSERT INTO t VALUES (2)"))
        .unwrap();
    assert!(is_idle(&mut conn));
    let rows = diesel::sql_query("UPDATE t SET x = x").execute(&mut conn).unwrap();
    assert_eq!(rows, 1);
}
