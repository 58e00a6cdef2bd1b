//! Submits that are killed.

use std::process::Stdio;
use std::time::Duration;

use crate::places::{Engine, engines};
use crate::program::Bench;

#[test]
fn every_id_that_was_printed_is_stored_however_the_submits_die() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let mut printed = Vec::new();
        // Longer and longer lives, so that the first die while they make the store, and the last may get done.
        for round in 0..50 {
            let mut submit = bench.command(["submit", "agent"]);
            let mut child = submit.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_micros(round * round * 15));
            child.kill().unwrap();
            let out = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
            printed.extend(out.strip_suffix('\n').map(str::to_owned));
        }
        printed.push(bench.submit(&["agent"]));
        let rows = bench.json(&["list", "--json"]);
        for id in &printed {
            let stored = rows.as_array().unwrap().iter().any(|row| row["id"] == **id);
            assert!(stored, "{id} of {printed:?} is not in {rows}");
        }
        if engine == Engine::Sqlite {
            let check = "SELECT integrity_check AS value FROM pragma_integrity_check";
            assert_eq!(bench.place.raw().texts(check), [Some("ok".to_owned())]);
        }
        println!("{}: {} of 51 ids were printed", engine.name(), printed.len());
    }
}

#[test]
fn a_store_whose_making_was_killed_is_made_by_the_next_submit() {
    for engine in engines() {
        for round in 0..40 {
            let bench = Bench::new(engine);
            let mut child =
                bench.command(["submit", "agent"]).stdout(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_micros(1000 + round * 200));
            child.kill().unwrap();
            child.wait().unwrap();
            // A reader finds a store or none, never a wreck; or it says whose the next step is.
            let read = bench.run(&["list"]);
            let undo = "a killed writer left something that only the next writer may undo";
            match read.code {
                Some(0) => {}
                _ if read.err.contains(undo) => drop(read.refused(1, undo)),
                _ => drop(read.refused(1, "there is no store")),
            }
            let id = bench.submit(&["agent"]);
            bench.run(&["show", &id]).done();
        }
    }
}
