//! `doctor`: each line says what is wrong and what to do.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use leasehold::db::ops::StoreId;
use leasehold::process::LockTable;
use leasehold::process::guardian::RunDir;
use leasehold::process::slot::Slot;
use serde_json::Value;

use crate::places::{Engine, engines};
use crate::program::{Answer, Bench, keys};

/// What it found and with which code it ended; both of its forms must say the same.
#[track_caller]
fn examined(bench: &Bench, words: &[&str]) -> (i32, Vec<Value>) {
    let answer = |more: &[&str]| -> Answer {
        let words = [words, &["doctor"], more].concat();
        bench.run(&words)
    };
    let (text, json) = (answer(&[]), answer(&["--json"]));
    assert_eq!((text.err.as_str(), json.err.as_str()), ("", ""));
    assert_eq!(text.code, json.code);
    let rows: Vec<Value> = serde_json::from_str(&json.out).unwrap();
    let lines: Vec<&str> = text.out.lines().collect();
    assert_eq!(lines.len(), rows.len(), "{}", text.out);
    for (line, row) in lines.iter().zip(&rows) {
        assert_eq!(keys(row), ["check", "state", "what", "todo"]);
        let start =
            format!("{:<9}{:<17}", row["state"].as_str().unwrap(), row["check"].as_str().unwrap());
        assert!(line.starts_with(&start), "{line}");
        assert_eq!(row["todo"].is_null(), row["state"] == "ok", "{row}");
        assert!(row["todo"].as_str().is_none_or(|todo| line.ends_with(todo)), "{line}");
    }
    let bad = rows.iter().any(|row| row["state"] == "problem");
    assert_eq!(json.code, Some(i32::from(bad)), "{}", text.out);
    (json.code.unwrap(), rows)
}

#[track_caller]
fn line<'a>(rows: &'a [Value], check: &str) -> &'a Value {
    rows.iter().find(|row| row["check"] == check).unwrap_or_else(|| panic!("{check}: {rows:?}"))
}

#[track_caller]
fn says(rows: &[Value], check: &str, state: &str, todo: &str) {
    let row = line(rows, check);
    assert_eq!(row["state"], state, "{row}");
    assert!(row["todo"].as_str().unwrap_or_default().contains(todo), "{row}");
}

fn chmod(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_fresh_setup_is_healthy() {
    for engine in engines() {
        let bench = Bench::new(engine);
        bench.submit(&["agent"]);
        // Transactions of other tests may hold the events of a server back for a while.
        let is_held_back = |rows: &[Value]| {
            engine == Engine::Postgres && line(rows, "events")["state"] == "warning"
        };
        let examine = || Some(examined(&bench, &[])).filter(|(_, rows)| !is_held_back(rows));
        let (code, rows) = (0..600).find_map(|_| examine()).expect("its events stay held back");
        assert_eq!(code, 0, "{rows:?}");
        let of_engine: &[&str] = match engine {
            Engine::Sqlite => &["store-file", "sqlite", "journal", "integrity"],
            Engine::Postgres => &["server", "durability", "writing", "clock-offset", "events"],
        };
        let everywhere =
            ["store", "state-directory", "state-disk", "slots", "unowned-tasks", "earlier-runs"];
        let kernel =
            ["pidfd", "children-files", "close-range", "subreaper", "signalfd", "boot-timer"];
        for check in of_engine.iter().chain(&everywhere).chain(&kernel) {
            says(&rows, check, "ok", "");
        }
        for check in ["state-disk", "cgroup", "clock", "service-manager", "init", "no-new-privs"] {
            line(&rows, check);
        }
        says(&rows, "li", "warning", "install lionagi");
        assert!(!bench.place.dir.path().join(".local").exists(), "it makes no directory");
    }
}

#[test]
fn a_missing_store_is_named_and_not_made() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let (code, rows) = examined(&bench, &[]);
        assert_eq!(code, 1);
        says(&rows, "store", "problem", "the first submit makes it");
        says(&rows, "state-directory", "ok", "");
        assert!(bench.is_untouched());
    }
}

#[test]
fn a_store_that_others_may_read_or_change_is_named() {
    let bench = Bench::new(Engine::Sqlite);
    bench.submit(&["agent"]);
    let close = format!("chmod 600 {}", bench.file());
    for (mode, code, state) in [(0o644, 0, "warning"), (0o646, 1, "problem")] {
        chmod(bench.file(), mode);
        let (ended, rows) = examined(&bench, &[]);
        assert_eq!(ended, code, "{rows:?}");
        says(&rows, "store-file", state, &close);
    }
}

#[test]
fn a_damaged_page_is_found_wherever_it_is_and_the_file_is_left_as_it_was() {
    let bench = Bench::new(Engine::Sqlite);
    for _ in 0..50 {
        bench.submit(&["agent", "--arg", &format!("action_prompt={}", "x".repeat(500))]);
    }
    let whole = fs::read(bench.file()).unwrap();
    let pages = whole.len() / 4096;
    assert!(pages > 10);
    // A page that is none any more, and one that has lost its rows.
    let damages: [fn(&mut [u8]); 2] = [|page| page[..100].fill(0xab), |page| page[3..5].fill(0)];
    let mut found = Vec::new();
    for damage in damages {
        for page in (2..pages).step_by(9) {
            let mut damaged = whole.clone();
            damage(&mut damaged[page * 4096..]);
            fs::write(bench.file(), &damaged).unwrap();
            let (code, rows) = examined(&bench, &[]);
            assert!(fs::read(bench.file()).unwrap() == damaged, "it changed the file");
            // What is not in use cannot be damaged.
            if code == 0 {
                continue;
            }
            if line(&rows, "store")["state"] == "ok" {
                found.push(line(&rows, "integrity")["what"].to_string());
            }
            for row in rows.iter().filter(|row| row["state"] == "problem") {
                assert!(["store", "integrity"].contains(&row["check"].as_str().unwrap()), "{row}");
                assert!(row["todo"].as_str().unwrap().contains("restore a copy"), "{row}");
            }
        }
    }
    // Beyond what opening the store meets: what SQLite cannot read, and what it finds wrong.
    for words in ["is malformed", "the file is damaged: *** in database main *** "] {
        assert!(found.iter().any(|what| what.contains(words)), "{words}: {found:?}");
    }
}

#[test]
fn a_server_that_is_not_there_is_named_without_its_password() {
    if !engines().contains(&Engine::Postgres) {
        return;
    }
    let bench = Bench::new(Engine::Sqlite);
    let (code, rows) = examined(&bench, &["--store", "postgres://me:hidden@127.0.0.1:1/queue"]);
    assert_eq!(code, 1);
    says(&rows, "store", "problem", "check that the server runs");
    assert!(
        line(&rows, "store")["what"].as_str().unwrap().contains("postgres://me@127.0.0.1:1/queue")
    );
    assert!(!format!("{rows:?}").contains("hidden"));
    let (code, rows) = examined(&bench, &["--store", "mysql://x"]);
    assert_eq!(code, 1);
    says(&rows, "store", "problem", "use sqlite:PATH or postgres://");
}

#[test]
fn a_server_that_loses_or_refuses_writes_is_named() {
    for engine in engines() {
        if engine != Engine::Postgres {
            continue;
        }
        let bench = Bench::new(engine);
        bench.submit(&["agent"]);
        for (setting, check, todo) in [
            ("synchronous_commit%3Doff", "durability", "turn synchronous_commit on"),
            ("default_transaction_read_only%3Don", "writing", "turn it off"),
        ] {
            let url = format!("{}%20-c{setting}", bench.place.url);
            let (code, rows) = examined(&bench, &["--store", &url]);
            assert_eq!(code, 1);
            says(&rows, check, "problem", todo);
        }
    }
}

#[test]
fn a_transaction_that_holds_the_events_back_is_named() {
    for engine in engines() {
        if engine != Engine::Postgres {
            continue;
        }
        let bench = Bench::new(engine);
        bench.submit(&["agent"]);
        let mut left_open = bench.place.raw();
        left_open.run("BEGIN; SELECT pg_current_xact_id()");
        bench.submit(&["agent"]);
        bench.place.raw().run("UPDATE leasehold_events SET created_at = created_at - 60");
        assert!(bench.json(&["events", "--json"]).as_array().unwrap().len() < 2);
        let (code, rows) = examined(&bench, &[]);
        assert_eq!(code, 0, "{rows:?}");
        says(&rows, "events", "warning", "end that transaction");
        let what = line(&rows, "events")["what"].as_str().unwrap();
        // Which one is the oldest of the whole server is for other tests to say as well.
        assert!(what.contains("process ") && what.contains("in database"), "{what}");
        left_open.run("ROLLBACK");
        let is_over = || line(&examined(&bench, &[]).1, "events")["state"] == "ok";
        assert!((0..600).any(|_| is_over()), "{:?}", examined(&bench, &[]).1);
    }
}

#[test]
fn a_state_directory_that_others_can_enter_or_nobody_can_use_is_named() {
    let bench = Bench::new(Engine::Sqlite);
    bench.submit(&["agent"]);
    let state = bench.place.dir.path().join("state");
    fs::create_dir(&state).unwrap();
    let examine = |code| {
        let mut command = bench.command(["doctor", "--json", "--state-dir", "state"]);
        let answer = crate::program::run(&mut command);
        assert_eq!(answer.code, Some(code), "{}", answer.out);
        serde_json::from_str::<Vec<Value>>(&answer.out).unwrap()
    };
    let close = format!("chmod 700 {}", state.display());
    chmod(&state, 0o700);
    says(&examine(0), "state-directory", "ok", "");
    chmod(&state, 0o755);
    says(&examine(0), "state-directory", "warning", &close);
    chmod(&state, 0o777);
    says(&examine(1), "state-directory", "problem", &close);
    fs::remove_dir(&state).unwrap();
    fs::write(&state, "").unwrap();
    says(&examine(1), "state-directory", "problem", "--state-dir");
}

#[test]
fn what_is_left_of_an_earlier_boot_is_named() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let id = bench.submit(&["agent"]);
        let state = bench.place.dir.path().join(".local/state/leasehold");
        let store_id = bench.place.queue().read(&StoreId).unwrap();
        let slot = Slot::take(&state, &store_id).unwrap();
        let left = RunDir::create(slot.path(), &id, 1, 4096).unwrap();
        let before = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        File::open(left.path().join("run.json")).unwrap().set_modified(before).unwrap();
        fs::create_dir(slot.path().join("runs/being-made.1.new")).unwrap();
        let path = slot.path().to_owned();
        drop(slot);
        // A program that another test starts has a copy of it until it is executed.
        while Slot::worker_pid(&path, &LockTable::read().unwrap()).unwrap().is_some() {
            std::thread::yield_now();
        }
        let (code, rows) = examined(&bench, &[]);
        assert_eq!(code, 0, "{rows:?}");
        says(&rows, "slots", "ok", "");
        says(&rows, "unowned-tasks", "ok", "");
        says(&rows, "earlier-runs", "warning", "start a worker");
        let what = line(&rows, "earlier-runs")["what"].as_str().unwrap();
        assert!(what.contains("are gone: 1, ") && what.ends_with(" started: 1"), "{what}");
        assert!(left.path().join("guard.lock").exists(), "it took a lock away");
        fs::remove_file(left.path().join("run.json")).unwrap();
        says(&examined(&bench, &[]).1, "slots", "warning", "look at them");
    }
}
