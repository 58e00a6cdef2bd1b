//! The original itself, `lionagi` 0.36.0: its `li` as a task of our worker, and its worker beside ours.
//!
//! `LEASEHOLD_LIONAGI_VENV` names a virtual environment that has it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

#[path = "../support/bench.rs"]
mod bench;
#[path = "../support/mod.rs"]
mod places;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use leasehold::db::Run;
use leasehold::domain::task::TaskApplication;

use bench::{Bench, Worker, until};
use places::Engine;

/// The environment, or a loud skip.
fn original() -> Option<PathBuf> {
    let named = std::env::var_os("LEASEHOLD_LIONAGI_VENV").filter(|name| !name.is_empty());
    let venv = named.map(PathBuf::from);
    if venv.is_none() {
        // Written past the test harness, which would keep it to itself.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED beside the original: LEASEHOLD_LIONAGI_VENV names no virtual environment with lionagi 0.36.0"
        );
    }
    venv
}

fn agent() -> TaskApplication {
    let mut app = TaskApplication::new("agent", "host");
    app.args.insert("action_model".into(), "claude".into());
    app.args.insert("action_prompt".into(), "say a word".into());
    app
}

/// A search path that begins with these directories.
fn path_from(first: &[&Path]) -> OsString {
    let rest = std::env::var_os("PATH").unwrap();
    let directories = first.iter().map(|dir| dir.to_path_buf()).chain(std::env::split_paths(&rest));
    std::env::join_paths(directories).unwrap()
}

/// Has one agent task run by `li`, in a home of its own.
fn run_by_li(venv: &Path, settings: &[(&str, &str)]) -> Run {
    let bench = Bench::new(Engine::Sqlite);
    let home = bench.file("home");
    let made = Command::new("git").args(["init", "--quiet"]).arg(&home).status().unwrap();
    assert!(made.success());
    let id = bench.submit(&agent());
    let stub = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/li/bin");
    let mut program = bench.program(["worker", "--until-empty"]);
    program
        .env("PATH", path_from(&[&stub, &venv.join("bin")]))
        .env("HOME", &home)
        .current_dir(&home);
    program.envs(settings.iter().copied());
    Worker::start(program, bench.log_file()).leaves_with(0);
    bench.run(&id)
}

#[test]
fn li_runs_a_queued_agent_task_to_its_end() {
    let Some(venv) = original() else { return };
    let run = run_by_li(&venv, &[]);
    assert_eq!((run.status.as_str(), run.exit_code), ("completed", Some(0)), "{run:?}");
}

#[test]
fn an_agent_that_fails_makes_its_run_fail_with_its_words() {
    let Some(venv) = original() else { return };
    let run = run_by_li(&venv, &[("STUB_FAILS", "1")]);
    assert_eq!(run.status, "failed", "{run:?}");
    assert!(run.exit_code.is_some_and(|code| code != 0), "{run:?}");
    assert!(run.error_detail.unwrap().contains("the stub fails as it was told to"));
}

#[test]
fn the_original_s_worker_and_ours_drain_one_store_and_run_each_task_once() {
    const TASKS: usize = 300;
    let Some(venv) = original() else { return };
    let bench = Bench::new(Engine::Sqlite);
    let ids: BTreeSet<String> = bench.submit_all(&vec![agent(); TASKS]).into_iter().collect();
    let starts = bench.file("starts");

    // Ours finds a `li` that only notes what it was started for. Whoever is first waits until the other has begun.
    let bin = bench.file("bin");
    fs::create_dir(&bin).unwrap();
    let li = bin.join("li");
    let script = "#!/bin/sh
        echo $LEASEHOLD_RUN_ID ours >>starts
        until grep -q peer starts; do sleep 0.05; done\n";
    fs::write(&li, script).unwrap();
    fs::set_permissions(&li, fs::Permissions::from_mode(0o755)).unwrap();

    let mut peer = Command::new(venv.join("bin/python"))
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/li/peer.py"))
        .args([bench.place.url.strip_prefix("sqlite:").unwrap()])
        .arg(&starts)
        .arg("host:0badf00d")
        .env("HOME", bench.place.dir.path())
        .stdout(Stdio::piped())
        .stderr(fs::File::create(bench.file("peer.log")).unwrap())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(peer.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(first, "ready\n", "{}", fs::read_to_string(bench.file("peer.log")).unwrap());
    let mut program = bench.program(["worker", "--until-empty", "--concurrency", "2"]);
    program.env("PATH", path_from(&[&bin]));
    Worker::start(program, bench.log_file()).leaves_with(0);
    let status = until(|| peer.try_wait().unwrap().ok_or("the peer works".into()));
    assert!(status.success(), "{}", fs::read_to_string(bench.file("peer.log")).unwrap());

    let lines = bench.lines("starts");
    let started: BTreeSet<String> =
        lines.iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    let ours = lines.iter().filter(|line| line.ends_with(" ours")).count();
    println!("ours ran {ours} of {TASKS}, the original's {}", lines.len() - ours);
    assert_eq!((lines.len(), started), (TASKS, ids));
    assert!(ours > 0 && ours < TASKS, "one of them did it all");
    bench.until_all("completed");
    let attempts = "SELECT DISTINCT CAST(lease_attempts AS TEXT) AS value FROM schedule_runs";
    assert_eq!(bench.texts(attempts), ["1"]);
    assert_eq!(
        bench.changes().into_iter().collect::<Vec<_>>(),
        [
            ("queued>running run.started.ok".to_owned(), TASKS),
            ("running>completed run.completed.ok".to_owned(), TASKS)
        ]
    );
}
