//! Throw-away stores on both engines, and raw SQL beside them.

#![allow(dead_code, reason = "each test program uses its own part of this")]

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use diesel::connection::{Connection, SimpleConnection};
use diesel::{PgConnection, SqliteConnection};
use leasehold::clock::{Clock, ManualClock};
use leasehold::db::{Mode, StoreUrl};
use leasehold::ids::{CountedIds, IdSource};
use leasehold::{Config, Error, Queue};
use tempfile::TempDir;

/// The time that manual clocks read at first.
pub const NOW: f64 = 1_700_000_000.25;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    Sqlite,
    Postgres,
}

impl Engine {
    pub fn name(self) -> &'static str {
        match self {
            Engine::Sqlite => "sqlite",
            Engine::Postgres => "postgres",
        }
    }
}

/// The engines to test on. PostgreSQL needs `TEST_DATABASE_URL`; without it the skip is loud.
pub fn engines() -> Vec<Engine> {
    match std::env::var("TEST_DATABASE_URL") {
        Ok(_) => vec![Engine::Sqlite, Engine::Postgres],
        Err(_) => {
            // Written past the test harness, which would keep it to itself.
            let _ =
                writeln!(std::io::stderr(), "SKIPPED on postgres: TEST_DATABASE_URL is not set");
            vec![Engine::Sqlite]
        }
    }
}

/// A place for one store: a directory, or a schema of its own on the server. Gone when dropped.
pub struct Place {
    pub engine: Engine,
    pub url: String,
    pub dir: TempDir,
    schema: Option<String>,
}

/// Opens a store. The stores of one server are made one after the other, whosever they are, so it may be long until it is
/// this one's turn.
pub fn patiently(mut open: impl FnMut() -> Result<Queue, Error>) -> Queue {
    let busy = |opened: &Result<Queue, Error>| {
        opened.as_ref().is_err_and(|error| error.code() == "store_busy")
    };
    // Each try waits for five seconds.
    (0..12).map(|_| open()).find(|opened| !busy(opened)).expect("the server is free").unwrap()
}

static PLACES: AtomicU32 = AtomicU32::new(0);

impl Place {
    pub fn new(engine: Engine) -> Place {
        let dir = TempDir::new().unwrap();
        match engine {
            Engine::Sqlite => {
                let url = format!("sqlite:{}", dir.path().join("queue.db").display());
                Place { engine, url, dir, schema: None }
            }
            Engine::Postgres => {
                let number = PLACES.fetch_add(1, Ordering::Relaxed);
                let schema = format!("t{}_{number}", std::process::id());
                let server = server();
                let mut conn = PgConnection::establish(&server).unwrap();
                conn.batch_execute(&format!(
                    "DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}"
                ))
                .unwrap();
                let joint = if server.contains('?') { '&' } else { '?' };
                let url = format!("{server}{joint}options=-csearch_path%3D{schema}");
                Place { engine, url, dir, schema: Some(schema) }
            }
        }
    }

    pub fn store_url(&self) -> StoreUrl {
        StoreUrl::parse(&self.url).unwrap()
    }

    /// A queue with the machine's clock and random ids.
    pub fn queue(&self) -> Queue {
        patiently(|| Queue::open(&self.url, Config::default()))
    }

    /// A queue whose clock and ids a test decides.
    pub fn manual_queue(&self, config: Config) -> (Queue, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(NOW));
        (self.queue_with(config, clock.clone(), Arc::new(CountedIds::default())), clock)
    }

    pub fn queue_with(
        &self,
        config: Config,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
    ) -> Queue {
        let url = self.store_url();
        patiently(|| {
            let (clock, ids) = (clock.clone(), ids.clone());
            Ok(Queue::open_with(&url, Mode::Write, config.clone(), clock, ids)?)
        })
    }

    /// The address of this store on a server whose clock is so many seconds ahead: functions that stand before its own
    /// in the search path of a connection turn it.
    pub fn with_a_clock_ahead_by(&self, seconds: f64) -> String {
        for clock in ["clock_timestamp", "statement_timestamp"] {
            self.raw().run(&format!(
                "CREATE OR REPLACE FUNCTION {clock}() RETURNS timestamptz LANGUAGE sql STABLE
                 AS $$ SELECT pg_catalog.{clock}() + {seconds} * interval '1 second' $$"
            ));
        }
        assert!(self.url.contains("search_path%3D"), "{}", self.url);
        format!("{}%2Cpg_catalog", self.url)
    }

    /// Has the database itself refuse each task whose arguments say so.
    pub fn poison(&self) {
        self.raw().run(match self.engine {
            Engine::Sqlite => {
                "CREATE TRIGGER poison BEFORE INSERT ON schedule_runs WHEN NEW.action_args LIKE '%poison%'
                 BEGIN SELECT RAISE(ABORT, 'poison'); END"
            }
            Engine::Postgres => {
                "CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                   IF NEW.action_args::text LIKE '%poison%' THEN RAISE EXCEPTION 'poison'; END IF;
                   RETURN NEW; END $$;
                 CREATE TRIGGER poison BEFORE INSERT ON schedule_runs FOR EACH ROW EXECUTE FUNCTION poison()"
            }
        });
    }

    /// A connection for raw SQL.
    pub fn raw(&self) -> Raw {
        match self.engine {
            Engine::Sqlite => {
                let path = self.url.strip_prefix("sqlite:").unwrap();
                let mut conn = SqliteConnection::establish(path).unwrap();
                conn.batch_execute("PRAGMA busy_timeout = 5000; PRAGMA foreign_keys = ON").unwrap();
                Raw::Sqlite(conn)
            }
            Engine::Postgres => Raw::Postgres(PgConnection::establish(&self.url).unwrap()),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(schema) = &self.schema
            && let Ok(mut conn) = PgConnection::establish(&server())
        {
            let _ = conn.batch_execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE"));
        }
    }
}

fn server() -> String {
    std::env::var("TEST_DATABASE_URL").expect("TEST_DATABASE_URL was set a moment ago")
}

/// Raw SQL on either engine.
pub enum Raw {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

impl Raw {
    pub fn run(&mut self, sql: &str) {
        self.try_run(sql).unwrap_or_else(|error| panic!("{error}: {sql}"));
    }

    pub fn try_run(&mut self, sql: &str) -> diesel::QueryResult<()> {
        match self {
            Raw::Sqlite(conn) => conn.batch_execute(sql),
            Raw::Postgres(conn) => conn.batch_execute(sql),
        }
    }

    /// The first column of every row, which the statement must call `value` and cast to text.
    pub fn texts(&mut self, sql: &str) -> Vec<Option<String>> {
        use diesel::RunQueryDsl;
        #[derive(diesel::QueryableByName)]
        struct Row {
            #[diesel(sql_type = diesel::sql_types::Nullable<diesel::sql_types::Text>)]
            value: Option<String>,
        }
        let rows: Vec<Row> = match self {
            Raw::Sqlite(conn) => diesel::sql_query(sql).load(conn),
            Raw::Postgres(conn) => diesel::sql_query(sql).load(conn),
        }
        .unwrap_or_else(|error| panic!("{error}: {sql}"));
        rows.into_iter().map(|row| row.value).collect()
    }
}
