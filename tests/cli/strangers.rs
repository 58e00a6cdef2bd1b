//! Stores that are not ours to touch.

use std::fs;
use std::path::Path;

use diesel::connection::{Connection, SimpleConnection};

use crate::places::{Engine, engines};
use crate::program::Bench;

const VERBS: [&[&str]; 7] = [
    &["submit", "agent"],
    &["list"],
    &["workers"],
    &["runs"],
    &["show", "x"],
    &["history", "x"],
    &["cancel", "x"],
];

/// Every file of a directory, with its contents. SQLite cannot look at a database without an index of its log, nor
/// without the log, which must be empty.
fn files(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            (path.display().to_string(), fs::read(path).unwrap())
        })
        .filter(|(name, contents)| !(name.ends_with("-wal") && contents.is_empty()))
        .filter(|(name, _)| !name.ends_with("-shm"))
        .collect();
    files.sort();
    files
}

#[track_caller]
fn all_refuse(bench: &Bench, words: &str) {
    let before = files(bench.place.dir.path());
    for verb in VERBS {
        let line = bench.run(verb).refused(1, words);
        assert!(line.contains("left untouched"), "{line}");
        assert!(files(bench.place.dir.path()) == before, "{verb:?} changed a file");
    }
}

#[test]
fn a_newer_store_is_left_untouched() {
    for engine in engines() {
        let bench = Bench::new(engine);
        bench.submit(&["agent"]);
        bench.place.raw().run("UPDATE schema_meta SET value = '99' WHERE key = 'version'");
        all_refuse(&bench, "upgrade leasehold");
        let rows = "SELECT CAST(count(*) AS TEXT) AS value FROM schedule_runs";
        assert_eq!(bench.place.raw().texts(rows), [Some("1".to_owned())]);
    }
}

#[test]
fn a_foreign_store_is_left_untouched() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let foreign =
            "CREATE TABLE schedule_runs (id TEXT); INSERT INTO schedule_runs VALUES ('theirs')";
        match engine {
            Engine::Sqlite => {
                diesel::SqliteConnection::establish(bench.file()).unwrap().batch_execute(foreign)
            }
            Engine::Postgres => bench.place.raw().try_run(foreign),
        }
        .unwrap();
        all_refuse(&bench, "is not a store of this queue");
        let rows = bench.place.raw().texts("SELECT id AS value FROM schedule_runs");
        assert_eq!(rows, [Some("theirs".to_owned())]);
        assert_eq!(bench.columns_of("schema_meta"), [""; 0]);
    }
}

#[test]
fn a_file_that_is_no_database_is_left_untouched() {
    for contents in [&b"not a database, but long enough to have a header of one hundred bytes, as any database file would have"[..], b"x"] {
        let bench = Bench::new(Engine::Sqlite);
        fs::write(bench.file(), contents).unwrap();
        all_refuse(&bench, "is not a database");
    }
}

#[test]
fn a_directory_is_no_store() {
    let bench = Bench::new(Engine::Sqlite);
    fs::create_dir(bench.file()).unwrap();
    for verb in VERBS {
        bench.run(verb).refused(1, "it is a directory");
    }
}
