//! What is found where a store should be: each kind of stranger gets its own refusal and stays as it was.

use leasehold::db::{Mode, StoreError};

use crate::kit::{files, open, open_url, path, tables};
use crate::places::{Engine, Place};

/// A store of ours that was closed.
fn closed_store() -> Place {
    let place = Place::new(Engine::Sqlite);
    place.queue().submit_task(&crate::kit::task()).unwrap();
    place
}

fn file_with(bytes: &[u8]) -> Place {
    let place = Place::new(Engine::Sqlite);
    std::fs::write(path(&place), bytes).unwrap();
    place
}

/// The refusal, the same for reading and writing; nothing in the directory changes.
fn refusal(place: &Place) -> StoreError {
    let before = files(place);
    let refusals = [Mode::Read, Mode::Write].map(|mode| {
        let error = open(place, mode).expect_err("the store should be refused");
        let now = files(place);
        let names = |files: &std::collections::BTreeMap<String, Vec<u8>>| -> Vec<String> {
            files.keys().cloned().collect()
        };
        assert_eq!(names(&now), names(&before), "files were left behind after {mode:?}: {error}");
        assert!(now == before, "bytes changed: {error}");
        assert_speaks(&error);
        error
    });
    let [read, write] = refusals;
    assert_eq!(read.to_string(), write.to_string());
    write
}

/// One line that names the store and says what to do.
fn assert_speaks(error: &StoreError) {
    let text = error.to_string();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains("sqlite:") || text.contains("postgres"), "{text}");
    let advice = [
        "name another",
        "upgrade",
        "restore a copy",
        "check that",
        "free some",
        "make the",
        "try again",
        "turn it on",
        "submit makes it",
    ];
    assert!(advice.iter().any(|words| text.contains(words)), "says nothing to do: {text}");
}

#[test]
fn a_store_of_a_later_schema_is_too_new() {
    let place = closed_store();
    place.raw().run("UPDATE schema_meta SET value = '5' WHERE key = 'version'");
    assert!(matches!(refusal(&place), StoreError::TooNew { why, .. } if why.contains('5')));
}

#[test]
fn a_store_with_an_unknown_migration_is_too_new() {
    let place = closed_store();
    place.raw().run("INSERT INTO __diesel_schema_migrations (version) VALUES ('20990101000000')");
    assert!(matches!(refusal(&place), StoreError::TooNew { why, .. } if why.contains("20990101")));
}

#[test]
fn a_store_of_another_lineage_is_foreign() {
    let place = closed_store();
    place.raw().run("UPDATE schema_meta SET value = 'somebody' WHERE key = 'lineage'");
    assert!(matches!(refusal(&place), StoreError::Foreign { why, .. } if why.contains("somebody")));
}

#[test]
fn a_store_without_a_column_is_foreign_and_the_column_is_named() {
    let place = closed_store();
    place.raw().run("ALTER TABLE workers DROP COLUMN leased_run_id");
    let error = refusal(&place);
    assert!(matches!(error, StoreError::Foreign { why, .. } if why.contains("leased_run_id")));
}

#[test]
fn another_programs_database_is_foreign_in_either_journal_mode() {
    for mode in ["DELETE", "WAL"] {
        let place = Place::new(Engine::Sqlite);
        place.raw().run(&format!("PRAGMA journal_mode = {mode}; CREATE TABLE users (id INTEGER)"));
        assert!(matches!(refusal(&place), StoreError::Foreign { .. }));
    }
}

#[test]
fn a_directory_is_no_database() {
    let place = Place::new(Engine::Sqlite);
    std::fs::create_dir(path(&place)).unwrap();
    let error = refusal(&place);
    assert!(matches!(error, StoreError::NotADatabase { found, .. } if found.contains("directory")));
}

#[test]
fn text_and_random_bytes_are_no_database() {
    let random = (0..20_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8);
    let with_magic: Vec<u8> = b"SQLite format 3\0".iter().copied().chain(random.clone()).collect();
    let long_text = "dear diary, ".repeat(1_000);
    for bytes in [b"x".as_slice(), long_text.as_bytes(), &random.collect::<Vec<u8>>(), &with_magic]
    {
        let error = refusal(&file_with(bytes));
        assert!(matches!(error, StoreError::NotADatabase { .. }), "{error}");
    }
}

#[test]
fn a_truncated_database_is_damaged() {
    let place = closed_store();
    let whole = std::fs::read(path(&place)).unwrap();
    for keep in [whole.len() / 2, whole.len() - 4096, whole.len() - 5000, 4096] {
        let error = refusal(&file_with(&whole[..keep]));
        assert!(matches!(error, StoreError::Corrupt { .. }), "{keep} bytes: {error}");
    }
    // Less than its own header says is a page.
    let error = refusal(&file_with(&whole[..600]));
    assert!(matches!(error, StoreError::Corrupt { .. } | StoreError::NotADatabase { .. }));
}

#[test]
fn an_empty_file_becomes_a_store() {
    let place = file_with(b"");
    let error = open(&place, Mode::Read).expect_err("there is nothing to read");
    assert!(matches!(error, StoreError::Missing { .. }), "{error}");
    assert_speaks(&error);
    assert_eq!(files(&place), [("queue.db".to_owned(), vec![])].into());
    place.queue().submit_task(&crate::kit::task()).unwrap();
    assert!(tables(&mut place.raw()).contains(&"leasehold_meta".to_owned()));
}

#[test]
fn a_missing_store_is_made_for_writing_only() {
    let place = Place::new(Engine::Sqlite);
    assert!(matches!(open(&place, Mode::Read), Err(StoreError::Missing { .. })));
    assert!(files(&place).is_empty());
    drop(open(&place, Mode::Write).unwrap());
    assert_eq!(files(&place).keys().collect::<Vec<_>>(), ["queue.db"]);
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(path(&place)).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_missing_directory_is_named_and_not_made() {
    let place = Place::new(Engine::Sqlite);
    let url = format!("sqlite:{}", place.dir.path().join("no/such/queue.db").display());
    let error = open_url(&url, Mode::Write).expect_err("the directory is missing");
    assert!(matches!(error, StoreError::Place { .. }), "{error}");
    assert_speaks(&error);
    assert!(error.to_string().contains("no/such/queue.db"));
    assert!(!place.dir.path().join("no").exists());
}

/// What is left when the maker of a store is killed in its first transaction.
#[test]
fn a_journal_of_a_killed_maker_is_undone_by_the_next_writer() {
    let half_made = Place::new(Engine::Sqlite);
    let mut maker = half_made.raw();
    maker.run(
        "PRAGMA cache_size = 1; CREATE TABLE a (x TEXT); BEGIN; INSERT INTO a VALUES ('kept')",
    );
    maker.run("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) INSERT INTO a SELECT hex(randomblob(500)) FROM n");
    let place = Place::new(Engine::Sqlite);
    let journal = |place: &Place| path(place).with_extension("db-journal");
    std::fs::copy(path(&half_made), path(&place)).unwrap();
    std::fs::copy(journal(&half_made), journal(&place)).unwrap();
    let before = files(&place);
    let error = open(&place, Mode::Read).expect_err("a reader cannot undo it");
    assert!(matches!(error, StoreError::Place { .. }), "{error}");
    assert_speaks(&error);
    assert!(files(&place) == before);
    // It is somebody else's, which shows once it is whole again.
    let error = open(&place, Mode::Write).expect_err("it is another program's");
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
}
