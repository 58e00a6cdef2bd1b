//! A host that submits inside of its own transactions, beside its own rows.

use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::{Connection, SimpleConnection};
use diesel::result::Error as DieselError;
use diesel::{PgConnection, SqliteConnection};
use leasehold::db::{HostConnection, HostRefusal};
use leasehold::domain::allow::AllowList;
use leasehold::domain::settings::RunSettings;
use leasehold::domain::task::TaskApplication;
use leasehold::{Config, Error, Runtime, RuntimeConfig, Submitter};

use crate::places::{Engine, Place, Raw, engines};

fn config() -> Config {
    Config { allow_commands: AllowList::parse("true"), ..Config::daemon() }
}

fn task() -> TaskApplication {
    let mut app = TaskApplication::new("command", "host");
    app.args.insert("action_command".into(), "true".into());
    app
}

fn keyed(key: &str) -> TaskApplication {
    TaskApplication { idempotency_key: Some(key.into()), ..task() }
}

/// Calls a generic test with a host's connection to the store at a place.
macro_rules! with_host {
    ($place:expr, $conn:ident => $body:expr) => {
        match $place.raw() {
            Raw::Sqlite(mut $conn) => {
                $conn.batch_execute("CREATE TABLE IF NOT EXISTS orders (task TEXT)").unwrap();
                $body
            }
            Raw::Postgres(mut $conn) => {
                $conn.batch_execute("CREATE TABLE IF NOT EXISTS orders (task TEXT)").unwrap();
                $body
            }
        }
    };
}

/// A transaction as a host begins it.
trait Host: HostConnection + Connection {
    fn begin<T>(
        &mut self,
        body: impl FnOnce(&mut Self) -> Result<T, DieselError>,
    ) -> Result<T, DieselError>;
}

impl Host for SqliteConnection {
    fn begin<T>(
        &mut self,
        body: impl FnOnce(&mut Self) -> Result<T, DieselError>,
    ) -> Result<T, DieselError> {
        self.immediate_transaction(body)
    }
}

impl Host for PgConnection {
    fn begin<T>(
        &mut self,
        body: impl FnOnce(&mut Self) -> Result<T, DieselError>,
    ) -> Result<T, DieselError> {
        self.build_transaction().run(body)
    }
}

fn order(conn: &mut impl Connection, task: &str) {
    conn.batch_execute(&format!("INSERT INTO orders (task) VALUES ('{task}')")).unwrap();
}

fn count(place: &Place, what: &str) -> String {
    let sql = format!("SELECT CAST(count(*) AS TEXT) AS value FROM {what}");
    place.raw().texts(&sql).remove(0).unwrap()
}

#[test]
fn a_task_is_there_with_the_commit_and_is_run_and_not_before() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut config_of_worker = RuntimeConfig::new(place.store_url());
        config_of_worker.queue = config();
        config_of_worker.tick = Duration::from_secs(3600);
        config_of_worker.launch.li.path = std::env::var_os("PATH");
        let runtime = Runtime::start(config_of_worker).unwrap();
        let submitter = block_on(runtime.handle().submitter()).unwrap();
        let (place, submitter) = (&place, &submitter);
        let id = with_host!(place, conn => conn.begin(|conn| {
            let id = submitter.submit_task_in(conn, &task()).unwrap();
            order(conn, &id);
            assert_eq!(count(place, "schedule_runs"), "0", "nobody sees it yet");
            Ok(id)
        }))
        .unwrap();
        // The worker has no tick before an hour is over: it sees the commit.
        let mut queue = place.queue();
        let deadline = Instant::now() + Duration::from_secs(60);
        while queue.run(&id).unwrap().status != "completed" {
            assert!(Instant::now() < deadline, "{:?}", queue.run(&id).unwrap());
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(count(place, "orders"), "1");
        runtime.handle().shut_down(Duration::ZERO);
        assert_eq!(runtime.join().code(), 0);
    }
}

#[test]
fn after_a_rollback_nothing_is_there_and_the_key_is_free() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut queue = place.open(config());
        let submitter = queue.submitter().unwrap();
        let submitter = &submitter;
        with_host!(place, conn => {
            let settings = RunSettings { timeout: Some(5.0), ..RunSettings::default() };
            let undone = conn.begin(|conn| {
                let id = submitter
                    .submit_task_in_with(conn, &keyed("k"), settings, Some(b"input".to_vec()))
                    .unwrap();
                order(conn, &id);
                // The same again is the same within the transaction.
                submitter.submit_task_in(conn, &keyed("other")).unwrap();
                assert_eq!(
                    submitter.submit_task_in(conn, &keyed("other")).unwrap(),
                    submitter.submit_task_in(conn, &keyed("other")).unwrap()
                );
                Err::<(), _>(DieselError::RollbackTransaction)
            });
            assert_eq!(undone, Err(DieselError::RollbackTransaction));
            for table in ["schedule_runs", "leasehold_runs", "leasehold_keys", "orders"] {
                assert_eq!(count(&place, table), "0", "{engine:?} {table}");
            }
            // Another task under the key is nobody's repetition.
            let mut other = keyed("k");
            other.args.insert("n".into(), 1.into());
            let id = conn.begin(|conn| Ok(submitter.submit_task_in(conn, &other).unwrap())).unwrap();
            assert_eq!(queue.submit_task(&other).unwrap(), id);
        });
    }
}

#[test]
fn without_a_transaction_it_is_refused() {
    for engine in engines() {
        let place = Place::new(engine);
        let submitter = place.open(config()).submitter().unwrap();
        let refused = |answer: Result<String, Error>| {
            let error = answer.unwrap_err();
            assert!(matches!(error, Error::Host(HostRefusal::NoTransaction)), "{error}");
            assert_eq!(error.code(), "no_transaction");
        };
        with_host!(place, conn => {
            refused(submitter.submit_task_in(&mut conn, &task()));
            let _ = conn.begin(|_| Ok(()));
            refused(submitter.submit_task_in(&mut conn, &task()));
            // It is as good as before.
            conn.begin(|conn| Ok(submitter.submit_task_in(conn, &task()).unwrap())).unwrap();
        });
        assert_eq!(count(&place, "schedule_runs"), "1");
    }
}

/// SQLite has ended the transaction by itself, which Diesel does not know: a task would be stored at once.
#[test]
fn a_transaction_that_sqlite_has_undone_is_none() {
    let place = Place::new(Engine::Sqlite);
    let submitter = place.open(config()).submitter().unwrap();
    with_host!(place, conn => {
        let ended = conn.begin(|conn| {
            conn.batch_execute("ROLLBACK").unwrap();
            let error = submitter.submit_task_in(conn, &task()).unwrap_err();
            assert_eq!(error.code(), "no_transaction");
            Ok(())
        });
        assert!(ended.is_err());
    });
    assert_eq!(count(&place, "schedule_runs"), "0");
}

#[test]
fn a_connection_to_another_store_is_refused_and_goes_on() {
    for engine in engines() {
        let (place, other, empty) = (Place::new(engine), Place::new(engine), Place::new(engine));
        let submitter = place.open(config()).submitter().unwrap();
        drop(other.open(config()));
        for elsewhere in [&other, &empty] {
            with_host!(elsewhere, conn => conn.begin(|conn| {
                order(conn, "before");
                let error = submitter.submit_task_in(conn, &task()).unwrap_err();
                assert!(matches!(&error, Error::Host(HostRefusal::OtherStore { .. })), "{error}");
                assert!(error.to_string().contains("search_path"), "{error}");
                order(conn, "after");
                Ok(())
            }))
            .unwrap();
            assert_eq!(count(elsewhere, "orders"), "2");
        }
        assert_eq!(count(&other, "schedule_runs"), "0");
        assert_eq!(count(&place, "schedule_runs"), "0");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a host has transactions and savepoints of its own")]
fn what_is_refused_leaves_the_transaction_as_it_was() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut queue = place.open(config());
        let existing = queue.submit_task(&keyed("taken")).unwrap();
        place.poison();
        let submitter: Submitter = queue.submitter().unwrap();
        let spoilt = |key: &str| {
            let mut app = keyed(key);
            app.args.insert("poison".into(), 1.into());
            app
        };
        with_host!(place, conn => conn.begin(|conn| {
            order(conn, "1");
            let mut poem = task();
            poem.action_kind = "poem".into();
            let refused = [
                (poem, "action_kind"),
                (spoilt("taken"), "idempotency_conflict"),
                (spoilt("free"), "store_sql"),
            ];
            for (app, code) in refused {
                let error = submitter.submit_task_in(conn, &app).unwrap_err();
                assert_eq!(error.code(), code, "{error}");
            }
            // Inside of a savepoint of the host too, which goes without the rest.
            let inner = conn.transaction(|conn| {
                submitter.submit_task_in(conn, &keyed("inner")).unwrap();
                assert_eq!(submitter.submit_task_in(conn, &spoilt("free")).unwrap_err().code(), "store_sql");
                Err::<(), _>(DieselError::RollbackTransaction)
            });
            assert_eq!(inner, Err(DieselError::RollbackTransaction));
            assert_eq!(submitter.submit_task_in(conn, &keyed("taken")).unwrap(), existing);
            submitter.submit_task_in(conn, &task()).unwrap();
            order(conn, "2");
            Ok(())
        }))
        .unwrap();
        assert_eq!(count(&place, "orders"), "2", "{engine:?}");
        assert_eq!(count(&place, "schedule_runs"), "2");
        assert_eq!(count(&place, "leasehold_keys"), "1", "the failed one's key is free");
    }
}

#[tokio::main(flavor = "current_thread")]
async fn block_on<F: Future>(future: F) -> F::Output {
    future.await
}
