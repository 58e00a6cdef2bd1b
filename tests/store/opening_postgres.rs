//! What is found on a PostgreSQL server where a store should be.

use leasehold::db::{Mode, StoreError};

use crate::kit::{open, open_url, snapshot, tables, task};
use crate::places::{Engine, Place, engines};

fn on_postgres(test: impl Fn(Place)) {
    for engine in engines().into_iter().filter(|engine| *engine == Engine::Postgres) {
        test(Place::new(engine));
    }
}

fn refused(url: &str) -> StoreError {
    let error = open_url(url, Mode::Write).expect_err("the store should be refused");
    assert_eq!(error.to_string().lines().count(), 1, "{error}");
    error
}

#[test]
fn a_server_that_is_not_there_is_unreachable_and_no_password_is_shown() {
    for url in [
        "postgres://app:hunter2@127.0.0.1:1/queue",
        "postgres://app:hunter2@no.such.host.invalid/queue?connect_timeout=2",
        "postgres://app@127.0.0.1:1/queue?password=hunter2",
    ] {
        let error = refused(url);
        assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
        assert!(error.is_retryable());
        let said = format!("{error} {error:?}");
        assert!(!said.contains("hunter2"), "{said}");
        assert!(said.contains("check that the server runs"), "{said}");
    }
}

#[test]
fn a_database_that_is_not_there_is_unreachable_and_named() {
    on_postgres(|place| {
        let server = place.url.split('?').next().unwrap();
        let (server, _) = server.rsplit_once('/').unwrap();
        let error = refused(&format!("{server}/no_such_database"));
        assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
        assert!(error.to_string().contains("no_such_database"), "{error}");
    });
}

#[test]
fn a_session_that_does_not_wait_for_the_disk_may_read_and_not_write() {
    on_postgres(|place| {
        let url = format!("{}%20-csynchronous_commit%3Doff", place.url);
        let error = refused(&url);
        assert!(matches!(error, StoreError::NotDurable { .. }), "{error}");
        assert!(error.to_string().contains("synchronous_commit"), "{error}");
        assert!(tables(&mut place.raw()).is_empty());
        place.queue().submit_task(&task()).unwrap();
        assert!(matches!(refused(&url), StoreError::NotDurable { .. }));
        open_url(&url, Mode::Read).unwrap();
    });
}

#[test]
fn other_tables_are_tolerated_and_untouched() {
    on_postgres(|place| {
        let mut raw = place.raw();
        raw.run(
            "CREATE TABLE users (id INT); INSERT INTO users VALUES (7); CREATE VIEW v AS SELECT 1",
        );
        place.queue().submit_task(&task()).unwrap();
        let rows = snapshot(&mut raw);
        assert!(rows.contains(&"users: (7)".to_owned()), "{rows:?}");
    });
}

#[test]
fn a_table_that_a_store_needs_to_make_is_foreign_and_named() {
    for table in [
        "schedule_runs",
        "status_transitions",
        "workers",
        "schedules",
        "invocations",
        "schema_meta",
        "leasehold_meta",
    ] {
        on_postgres(|place| {
            let mut raw = place.raw();
            raw.run(&format!("CREATE TABLE {table} (x INT); INSERT INTO {table} VALUES (1)"));
            let before = snapshot(&mut raw);
            let error = refused(&place.url);
            assert!(matches!(error, StoreError::Foreign { .. }), "{table}: {error}");
            assert_eq!(snapshot(&mut raw), before, "{table}");
        });
    }
}

#[test]
fn later_versions_and_other_lineages_are_refused() {
    on_postgres(|place| {
        drop(place.queue());
        let mut raw = place.raw();
        raw.run("UPDATE schema_meta SET value = '5' WHERE key = 'version'");
        assert!(matches!(refused(&place.url), StoreError::TooNew { .. }));
        raw.run("UPDATE schema_meta SET value = '4' WHERE key = 'version'");
        raw.run("UPDATE schema_meta SET value = 'x' WHERE key = 'lineage'");
        assert!(matches!(refused(&place.url), StoreError::Foreign { .. }));
        raw.run("UPDATE schema_meta SET value = 'lionagi' WHERE key = 'lineage'");
        raw.run("INSERT INTO __diesel_schema_migrations (version) VALUES ('20990101000000')");
        assert!(matches!(refused(&place.url), StoreError::TooNew { .. }));
        raw.run("DELETE FROM __diesel_schema_migrations WHERE version = '20990101000000'");
        raw.run("ALTER TABLE workers DROP COLUMN leased_run_id");
        let error = refused(&place.url);
        assert!(matches!(error, StoreError::Foreign { why, .. } if why.contains("leased_run_id")));
        assert!(open(&place, Mode::Read).is_err());
    });
}
