//! Reading changes nothing and waits for nobody.

use leasehold::db::ops::{BusyKeys, ListRuns};
use leasehold::db::{Mode, StoreError};

use crate::kit::{files, open, path, snapshot, task};
use crate::original;
use crate::places::{Engine, Place, engines};

const ALL: ListRuns = ListRuns { statuses: vec![], limit: 100 };

#[test]
fn reading_leaves_the_files_bytes_alone_whatever_stands_in_the_log() {
    let place = Place::new(Engine::Sqlite);
    let mut writer = place.queue();
    writer.submit_task(&task()).unwrap();
    // What a killed writer leaves: a file and a log that holds the last commits.
    let crashed = Place::new(Engine::Sqlite);
    let log = |place: &Place| path(place).with_extension("db-wal");
    std::fs::copy(path(&place), path(&crashed)).unwrap();
    std::fs::copy(log(&place), log(&crashed)).unwrap();
    for place in [&place, &crashed] {
        let before = std::fs::read(path(place)).unwrap();
        let mut reader = open(place, Mode::Read).unwrap();
        assert_eq!(reader.read(&ALL).unwrap().len(), 1);
        reader.read(&BusyKeys).unwrap();
        drop(reader);
        assert!(std::fs::read(path(place)).unwrap() == before);
    }
}

#[test]
fn reading_a_store_of_the_original_adopts_nothing() {
    let place = Place::new(Engine::Sqlite);
    original::copy_to(&place);
    let before = files(&place);
    let mut reader = open(&place, Mode::Read).unwrap();
    assert_eq!(reader.read(&ALL).unwrap().len(), 13);
    drop(reader);
    assert!(files(&place)["queue.db"] == before["queue.db"]);
}

#[test]
fn reading_goes_on_while_a_stranger_holds_the_write_lock() {
    for engine in engines() {
        let place = Place::new(engine);
        place.queue().submit_task(&task()).unwrap();
        let mut stranger = place.raw();
        stranger.run(match engine {
            Engine::Sqlite => "BEGIN IMMEDIATE; UPDATE schedule_runs SET updated_at = 1",
            Engine::Postgres => "BEGIN; LOCK TABLE schedule_runs IN EXCLUSIVE MODE",
        });
        let mut reader = open(&place, Mode::Read).unwrap();
        assert_eq!(reader.read(&ALL).unwrap()[0].updated_at, None);
        stranger.run("ROLLBACK");
    }
}

#[test]
fn a_store_opened_for_reading_refuses_every_write() {
    for engine in engines() {
        let place = Place::new(engine);
        drop(place.queue());
        let before = snapshot(&mut place.raw());
        let mut reader = open(&place, Mode::Read).unwrap();
        let error = reader.submit_task(&task()).expect_err("it was opened for reading");
        let leasehold::Error::Store(error) = error else { panic!("{error}") };
        assert!(matches!(error, StoreError::ReadOnly { .. }), "{error}");
        assert_eq!(snapshot(&mut place.raw()), before);
        assert!(reader.read(&ALL).unwrap().is_empty());
    }
}
