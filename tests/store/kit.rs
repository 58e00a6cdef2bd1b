//! What these tests share: tasks, calls, connections that are watched, and the state of a whole store as text.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::{Connection, InstrumentationEvent, SimpleConnection};
use diesel::{PgConnection, SqliteConnection};
use leasehold::clock::SystemClock;
use leasehold::db::{AnyConn, Mode, Operation, Query, Store, StoreError, StoreUrl};
use leasehold::domain::reason::{Reason, ReasonCode};
use leasehold::domain::settings::RunSettings;
use leasehold::domain::status::Status;
use leasehold::domain::task::{SubmitRules, TaskApplication, TaskSpec};
use leasehold::domain::transition::{Guard, Patch, Principal, Transition};
use leasehold::ids::RandomIds;
use leasehold::{Config, Queue, db::ops};

use crate::places::{Engine, Place, Raw, patiently};

pub fn rules() -> SubmitRules {
    Config { key_host: Some("here".into()), ..Config::default() }.submit_rules()
}

/// A plain task.
pub fn task() -> TaskApplication {
    TaskApplication::new("agent", "host")
}

/// A submit of a plain task under `id`.
pub fn submit(id: &str) -> ops::Submit {
    submit_requiring(id, &[])
}

pub fn submit_requiring(id: &str, capabilities: &[&str]) -> ops::Submit {
    let mut app = task();
    app.required_capabilities = capabilities.iter().map(|token| token.to_string()).collect();
    let spec = TaskSpec::check(&app, &rules()).unwrap();
    let settings = RunSettings::default();
    let fact_id = format!("waits-{id}");
    ops::Submit { spec, settings, stdin: None, id: id.into(), at: 1_000.0, fact_id }
}

/// A claim of `run_id` whose fact has an id of its own.
pub fn claim(run_id: &str, key: Option<&str>, worker: &str, fact: &str) -> ops::Claim {
    ops::Claim {
        run_id: run_id.into(),
        concurrency_key: key.map(str::to_owned),
        worker_id: worker.into(),
        lease_expires_at: 2_000.0.into(),
        at: 1_001.0,
        fact_id: fact.into(),
    }
}

pub fn change(run_id: &str, from: Option<Status>, to: Status, fact: &str) -> ops::ChangeStatus {
    ops::ChangeStatus {
        transition: Transition {
            id: run_id.into(),
            from: from.map(|status| status.as_str().into()),
            to,
            reason: Reason::new(ReasonCode::CANCELLED_ORCHESTRATOR, "because a test says so"),
            principal: Principal::operator("test"),
            guard: Guard::default(),
            patch: Patch::default(),
            idempotency_key: None,
        },
        exit: None,
        key: None,
        asks_event: false,
        at: 1_002.0,
        fact_id: fact.into(),
    }
}

/// Something a connection did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A statement began; its text without the values.
    Ran(String),
    /// A statement was prepared, to be kept.
    Prepared(String),
}

/// A connection that notes what it runs.
pub struct Watched {
    pub conn: AnyConn,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Watched {
    pub fn new(place: &Place) -> Watched {
        let mut conn = match place.engine {
            Engine::Sqlite => {
                let path = place.url.strip_prefix("sqlite:").unwrap();
                AnyConn::Sqlite(SqliteConnection::establish(path).unwrap())
            }
            Engine::Postgres => AnyConn::Postgres(PgConnection::establish(&place.url).unwrap()),
        };
        let events = Arc::new(Mutex::new(Vec::new()));
        let notes = events.clone();
        conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
            let noted = match event {
                InstrumentationEvent::StartQuery { query, .. } => {
                    let text = query.to_string();
                    let end = text.rfind(" -- binds").unwrap_or(text.len());
                    if ["BEGIN", "COMMIT"].contains(&&text[..end]) {
                        return;
                    }
                    Event::Ran(text[..end].to_owned())
                }
                InstrumentationEvent::CacheQuery { sql, .. } => Event::Prepared(sql.to_owned()),
                _ => return,
            };
            notes.lock().unwrap().push(noted);
        });
        Watched { conn, events }
    }

    pub fn write<O: Operation>(&mut self, operation: &O) -> O::Output {
        operation.run(&mut self.conn).unwrap()
    }

    /// In a transaction, for what asks about its own.
    pub fn write_whole<O: Operation>(&mut self, operation: &O) -> O::Output {
        self.conn.batch_execute("BEGIN").unwrap();
        let output = self.write(operation);
        self.conn.batch_execute("COMMIT").unwrap();
        output
    }

    pub fn read<Q: Query>(&mut self, query: &Q) -> Q::Output {
        query.run(&mut self.conn).unwrap()
    }

    /// Forgets what ran by now, not what was prepared.
    pub fn forget_ran(&mut self) {
        self.events.lock().unwrap().retain(|event| matches!(event, Event::Prepared(_)));
    }

    /// What happened since the last call.
    pub fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock().unwrap())
    }
}

/// Every row of every table as one text each, for comparing two states of a store.
pub fn snapshot(raw: &mut Raw) -> Vec<String> {
    let mut rows = Vec::new();
    for table in tables(raw) {
        let sql = match raw {
            Raw::Sqlite(_) => {
                let columns = raw.texts(&format!(
                    "SELECT 'quote(\"' || name || '\")' AS value FROM pragma_table_info('{table}')"
                ));
                let columns: Vec<String> = columns.into_iter().flatten().collect();
                format!(
                    "SELECT {} AS value FROM \"{table}\" ORDER BY 1",
                    columns.join(" || '|' || ")
                )
            }
            Raw::Postgres(_) => format!("SELECT t::text AS value FROM \"{table}\" AS t ORDER BY 1"),
        };
        rows.extend(raw.texts(&sql).into_iter().flatten().map(|row| format!("{table}: {row}")));
    }
    rows
}

/// The names of all tables, sorted.
pub fn tables(raw: &mut Raw) -> Vec<String> {
    let sql = match raw {
        Raw::Sqlite(_) => {
            "SELECT name AS value FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY 1"
        }
        Raw::Postgres(_) => {
            "SELECT table_name::text AS value FROM information_schema.tables WHERE table_schema = current_schema() ORDER BY 1"
        }
    };
    raw.texts(sql).into_iter().flatten().collect()
}

/// The one value of a statement that answers one row.
pub fn one(raw: &mut Raw, sql: &str) -> String {
    raw.texts(sql).remove(0).unwrap_or_default()
}

/// Opens the store at `place` as a program does.
pub fn open(place: &Place, mode: Mode) -> Result<Queue, StoreError> {
    open_url(&place.url, mode)
}

pub fn open_url(url: &str, mode: Mode) -> Result<Queue, StoreError> {
    let url = StoreUrl::parse(url)?;
    let (clock, ids) = (Arc::new(SystemClock), Arc::new(RandomIds));
    Queue::open_with(&url, mode, Config::default(), clock, ids)
}

/// The bare store, which runs any operation.
pub fn store(place: &Place) -> Store {
    Store::open(&place.store_url(), Mode::Write, &SystemClock, &RandomIds).unwrap()
}

/// Writes beside others. SQLite's lock is no queue: among many one may wait for it in vain.
pub fn write<O: Operation>(store: &mut Store, operation: &O) -> O::Output {
    patiently(|| store.write(operation)).unwrap()
}

/// The path of a store on SQLite.
pub fn path(place: &Place) -> PathBuf {
    PathBuf::from(place.url.strip_prefix("sqlite:").unwrap())
}

/// Every file in the place's directory with its bytes.
pub fn files(place: &Place) -> BTreeMap<String, Vec<u8>> {
    std::fs::read_dir(place.dir.path())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().is_file())
        .map(|entry| {
            (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
        })
        .collect()
}

/// The facts of a run are one path from `queued` to the run's status, and none follows a terminal one.
pub fn assert_one_path(raw: &mut Raw, run_id: &str) {
    let mut edges: Vec<(String, String)> = raw
        .texts(&format!(
            "SELECT previous_status || ' ' || status AS value FROM status_transitions WHERE entity_id = '{run_id}'"
        ))
        .into_iter()
        .flatten()
        .map(|edge| edge.split_once(' ').map(|(a, b)| (a.into(), b.into())).unwrap())
        .collect();
    let status =
        one(raw, &format!("SELECT status AS value FROM schedule_runs WHERE id = '{run_id}'"));
    // Neither times nor ids order the facts. They are one path if every status is left as often as it is entered, but
    // for the two ends: the graph is small and its cycles all pass `queued`, so nothing hangs loose.
    edges.push((status.clone(), "(end)".into()));
    edges.push(("(begin)".into(), "queued".into()));
    for word in Status::ALL.map(Status::as_str) {
        let left = edges.iter().filter(|(from, _)| from == word).count();
        let entered = edges.iter().filter(|(_, to)| to == word).count();
        assert_eq!(left, entered, "{run_id}, {word}: {edges:?}");
    }
}

/// Runs `body` on `count` threads that begin at once, each with its number.
pub fn at_once<T: Send>(count: usize, body: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let barrier = Barrier::new(count);
    let body = &|number| {
        barrier.wait();
        body(number)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || body(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Asks `done` until it says yes, for a minute at the most.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// How many rows `what` (a FROM clause, perhaps with a WHERE) has.
pub fn count(raw: &mut Raw, what: &str) -> usize {
    one(raw, &format!("SELECT CAST(count(*) AS TEXT) AS value FROM {what}")).parse().unwrap()
}
