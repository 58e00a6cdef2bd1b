//! An operation that writes one row of its own, and misbehaves on demand.

use std::panic::panic_any;
use std::thread::sleep;
use std::time::Duration;

use diesel::QueryResult;
use diesel::connection::{Connection, SimpleConnection, TransactionManager};
use leasehold::db::{AnyConn, Evidence, Operation};

/// More than fits when the database may not grow.
const TOO_MUCH: &str =
    "INSERT INTO leasehold_meta (key, value) VALUES ('too much', hex(zeroblob(500000)))";

/// What happens after the row was written, or instead.
#[derive(Debug, Clone, PartialEq)]
pub enum Deed {
    Write,
    /// The operation's own refusal: nothing is written, and that is its output.
    Refuse,
    Panic,
    /// A panic while two savepoints are open.
    PanicInside,
    /// A savepoint is begun and never ended.
    LeaveOpen,
    /// Statements that the engine refuses.
    Fail,
    /// The same, but the operation hides it and claims success.
    HideFailure,
    /// The same, inside a savepoint whose undoing fails as well.
    HideFailureInside,
    Full,
    HideFull,
    HideFullInside,
    Sleep(u64),
    /// The writer's own connection is ended by the server.
    Disconnect,
    HideDisconnect,
    /// Any SQL.
    Run(String),
}

/// Writes a fact with the id `key`, counts it in the row `tally`, and does its deed.
#[derive(Debug, Clone)]
pub struct Op {
    pub key: String,
    pub deed: Deed,
    pub lock: Option<String>,
    pub subject: Option<String>,
    pub has_evidence: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    Done,
    Refused,
}

impl Op {
    pub fn new(key: impl Into<String>, deed: Deed) -> Op {
        Op { key: key.into(), deed, lock: None, subject: None, has_evidence: true }
    }

    pub fn write(key: impl Into<String>) -> Op {
        Op::new(key, Deed::Write)
    }

    fn write_row(&self, conn: &mut AnyConn) -> QueryResult<()> {
        conn.batch_execute(&format!(
            "INSERT INTO status_transitions
                 (id, entity_type, entity_id, status, reason_code, source, created_at)
             VALUES ('{}', 'test', 'test', 'x', 'x', 'x', 0)",
            self.key
        ))?;
        conn.batch_execute(
            "UPDATE leasehold_meta SET value = CAST(CAST(value AS INTEGER) + 1 AS TEXT)
             WHERE key = 'tally'",
        )
    }
}

impl Operation for Op {
    type Output = Said;

    fn name(&self) -> &'static str {
        "test"
    }

    fn subject(&self) -> Option<&str> {
        self.subject.as_deref()
    }

    fn exclusive_key(&self) -> Option<&str> {
        self.lock.as_deref()
    }

    fn evidence(&self, said: &Said) -> Option<Evidence<'_>> {
        (self.has_evidence && *said == Said::Done).then_some(Evidence::Fact(&self.key))
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Said> {
        if self.deed == Deed::Refuse {
            return Ok(Said::Refused);
        }
        self.write_row(conn)?;
        match &self.deed {
            Deed::Write | Deed::Refuse => {}
            Deed::Panic => panic_any("a test's panic"),
            Deed::PanicInside => {
                inside(conn, |conn| inside(conn, |_| panic_any("a test's panic")))?
            }
            Deed::LeaveOpen => {
                <AnyConn as Connection>::TransactionManager::begin_transaction(conn)?;
            }
            Deed::Fail => fail(conn)?,
            Deed::HideFailure => drop(fail(conn)),
            Deed::HideFailureInside => {
                let _ = inside(conn, |conn| inside(conn, fail));
            }
            Deed::Full => fill_up(conn)?,
            Deed::HideFull => drop(fill_up(conn)),
            Deed::HideFullInside => drop(inside(conn, fill_up)),
            Deed::Sleep(millis) => sleep(Duration::from_millis(*millis)),
            Deed::Disconnect => disconnect(conn)?,
            Deed::HideDisconnect => drop(disconnect(conn)),
            Deed::Run(sql) => conn.batch_execute(sql)?,
        }
        Ok(Said::Done)
    }
}

#[expect(clippy::disallowed_methods, reason = "what an operation should not do is tested here")]
fn inside(
    conn: &mut AnyConn,
    body: impl FnOnce(&mut AnyConn) -> QueryResult<()>,
) -> QueryResult<()> {
    conn.transaction(body)
}

fn fail(conn: &mut AnyConn) -> QueryResult<()> {
    conn.batch_execute("INSERT INTO leasehold_meta (key, value) VALUES ('no value', NULL)")
}

/// The limit belongs to the connection: it is gone with it.
fn fill_up(conn: &mut AnyConn) -> QueryResult<()> {
    conn.batch_execute("PRAGMA max_page_count = 1")?;
    let full = conn.batch_execute(TOO_MUCH);
    conn.batch_execute("PRAGMA max_page_count = 1000000")?;
    full
}

fn disconnect(conn: &mut AnyConn) -> QueryResult<()> {
    conn.batch_execute("SELECT pg_terminate_backend(pg_backend_pid())")
}
