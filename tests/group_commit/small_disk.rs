//! A disk that is full at the commit, as opposed to a database that may not grow: `TEST_SMALL_DISK` names a directory
//! on a file system of a few megabytes.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use leasehold::db::StoreError;

use crate::operation::Op;
use crate::places::{Engine, Place};
use crate::support::{Bench, all_done, open};

fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    for size in [65536, 4096, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
}

#[test]
fn nobody_is_told_done_of_what_found_no_room_at_the_commit() {
    let Ok(disk) = std::env::var("TEST_SMALL_DISK") else {
        let _ = writeln!(std::io::stderr(), "SKIPPED a full disk: TEST_SMALL_DISK is not set");
        return;
    };
    let dir = tempfile::tempdir_in(disk).unwrap();
    let filler = dir.path().join("filler");
    let mut place = Place::new(Engine::Sqlite);
    place.url = format!("sqlite:{}", dir.path().join("queue.db").display());
    let mut bench = Bench::at(place);
    for count in [5, 1] {
        fill(&filler);
        let ops: Vec<Op> = (0..count).map(|i| Op::write(format!("full-{count}-{i}"))).collect();
        // Some room may be left within the log; what is told is still what is stored.
        let mut rounds: Vec<_> = (0..20)
            .map(|round| {
                let renamed = |op: &Op| Op::write(format!("{}-{round}", op.key));
                bench.run(&ops.iter().map(renamed).collect::<Vec<_>>())
            })
            .collect();
        let last = rounds.pop().unwrap();
        assert!(
            last.iter().all(|answer| matches!(answer, Err(StoreError::Full { .. }))),
            "{last:?}"
        );
        std::fs::remove_file(&filler).unwrap();
        let again: Vec<Op> = ops.iter().map(|op| Op::write(format!("{}-again", op.key))).collect();
        assert!(all_done(&bench.run(&again)));
        bench.assert_works(&format!("after-{count}"));
    }
    drop(open(&bench.place.url));
}
