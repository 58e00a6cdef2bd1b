//! What tasks have written, as `leasehold logs` prints it.

use std::fs::File;
use std::process::Output;

use leasehold::db::ops::StoreId;
use leasehold::process::slot::Slot;

use crate::bench::{Bench, on_engines, sh, until};

fn logs(bench: &Bench, words: &[&str]) -> Output {
    bench.program(["logs"].iter().chain(words)).output().unwrap()
}

#[track_caller]
fn printed(bench: &Bench, words: &[&str]) -> Vec<u8> {
    let output = logs(bench, words);
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

#[track_caller]
fn refused(bench: &Bench, words: &[&str], why: &str) {
    let output = logs(bench, words);
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.contains(why) && output.stdout.is_empty(), "{words}");
}

#[test]
fn outputs_are_printed_as_they_were_written_while_a_task_runs_and_afterwards() {
    on_engines(|bench| {
        let _worker = bench.worker(&[]).ready();
        let id = bench.submit(&sh(
            r"printf 'a\377\033[2J\0b'; echo wrong >&2; until [ -e go ]; do sleep 0.05; done; echo end",
        ));
        let begun = b"a\xff\x1b[2J\0b";
        until(|| {
            let output = logs(bench, &[&id]);
            if output.stdout == begun { Ok(()) } else { Err(format!("{output:?}")) }
        });
        // A follower that is there before the end sees all of it, and ends.
        let seen = bench.file("seen");
        let mut follower = bench.program(["logs", &id, "--follow"]);
        let mut follower = follower.stdout(File::create(&seen).unwrap()).spawn().unwrap();
        until(|| match std::fs::read(&seen).unwrap() {
            text if text == begun => Ok(()),
            text => Err(format!("{text:?}")),
        });
        std::fs::write(bench.file("go"), "").unwrap();
        assert!(follower.wait().unwrap().success());
        let all = [&begun[..], b"end\n"].concat();
        assert_eq!(std::fs::read(&seen).unwrap(), all);
        bench.until_status(&id, "completed");
        assert_eq!(printed(bench, &[&id]), all);
        assert_eq!(printed(bench, &[&id, "--follow", "--attempt", "1"]), all);
        assert_eq!(printed(bench, &[&id, "--stderr"]), b"wrong\n");
        refused(bench, &[&id, "--attempt", "2"], "nothing is kept here of attempt 2");
        refused(bench, &["nobody"], "nobody");
    });
}

/// Each attempt has its own, whoever took it over; what was not started or not guarded has none.
#[test]
fn each_attempt_has_outputs_of_its_own() {
    on_engines(|bench| {
        let id = bench.submit(&sh("echo attempt $LEASEHOLD_EPOCH; [ -e go ] || exec sleep 600"));
        refused(bench, &[&id], "not started yet");
        let mut first = bench.worker(&["--drain", "0"]).ready();
        until(|| match printed_if_any(bench, &id) {
            text if text == b"attempt 1\n" => Ok(()),
            text => Err(format!("{text:?}")),
        });
        first.signal(rustix::process::Signal::TERM);
        first.leaves_with(0);
        std::fs::write(bench.file("go"), "").unwrap();
        let direct = bench.submit(&sh("echo direct"));
        bench.work(&["--until-empty"]);
        assert_eq!(printed(bench, &[&id]), b"attempt 2\n");
        assert_eq!(printed(bench, &[&id, "--attempt", "1"]), b"attempt 1\n");
        assert_eq!(printed(bench, &[&direct]), b"direct\n");
        let direct = bench.submit(&sh("echo direct"));
        bench.work(&["--until-empty", "--supervision", "direct"]);
        refused(bench, &[&direct], "nothing is kept here");
    });
}

fn printed_if_any(bench: &Bench, id: &str) -> Vec<u8> {
    logs(bench, &[id]).stdout
}

/// What ended is kept for its outputs; a worker that starts removes what is too old or too much.
#[test]
fn what_is_kept_of_ended_runs_is_removed_in_time() {
    on_engines(|bench| {
        let kept = || {
            let state = bench.file(".local/state/leasehold");
            let all = walk(&state).into_iter();
            all.filter(|path| path.ends_with("run.json")).count()
        };
        bench.submit_all(&vec![sh("echo kept"); 3]);
        bench.work(&["--until-empty"]);
        assert_eq!(kept(), 3);
        bench.work(&["--until-empty", "--keep-for", "1h"]);
        assert_eq!(kept(), 3);
        let _worker = bench.worker(&["--keep-mib", "0"]).ready();
        until(|| if kept() == 0 { Ok(()) } else { Err(format!("{} are kept", kept())) });
    });
}

#[test]
fn what_is_kept_in_a_slot_that_nobody_takes_again_is_removed_too() {
    on_engines(|bench| {
        let state = bench.file(".local/state/leasehold");
        let kept = || walk(&state).into_iter().filter(|path| path.ends_with("run.json")).count();
        let store_id = bench.queue().read(&StoreId).unwrap();
        let first = Slot::take(&state, &store_id).unwrap();
        bench.submit_all(&vec![sh("echo kept"); 3]);
        bench.work(&["--until-empty"]);
        drop(first);
        assert_eq!(kept(), 3);
        let _worker = bench.worker(&["--keep-mib", "0"]).ready();
        until(|| if kept() == 0 { Ok(()) } else { Err(format!("{} are kept", kept())) });
    });
}

fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(walk(&entry.path())),
            _ => found.push(entry.path()),
        }
    }
    found
}
