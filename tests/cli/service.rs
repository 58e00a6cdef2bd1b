//! The unit in `contrib`: systemd takes it, and the program takes its command line.

use std::collections::HashMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::Command;

use crate::places::Engine;
use crate::program::{Bench, run};

const PROGRAM: &str = "/usr/local/bin/leasehold";

fn unit() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib/leasehold-worker.service");
    fs::read_to_string(file).unwrap()
}

/// What it sets; a setting that stands there twice has the last value.
fn settings(unit: &str) -> HashMap<&str, &str> {
    let lines = unit.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once('=')).collect()
}

fn seconds(length: &str) -> u64 {
    length.strip_suffix('s').unwrap().parse().unwrap()
}

#[test]
fn a_stop_reaches_the_worker_alone_and_gives_it_the_time_it_needs() {
    let unit = unit();
    let settings = settings(&unit);
    assert_eq!(settings["KillMode"], "process");
    assert_eq!(settings["Restart"], "always");
    assert_eq!(settings["StateDirectory"], "leasehold");
    assert_eq!(settings["StateDirectoryMode"], "0700");
    assert_eq!(settings["RestartForceExitStatus"], "70");
    let words: Vec<&str> = settings["ExecStart"].split(' ').collect();
    let drain = words.iter().skip_while(|word| **word != "--drain").nth(1).unwrap();
    assert!(seconds(settings["TimeoutStopSec"]) > seconds(drain) + 5 + 10);
    for word in ["PrivateTmp", "PrivatePIDs", "ProcSubset"] {
        assert!(!settings.contains_key(word), "{word}");
    }
}

#[test]
fn the_program_takes_the_command_line_of_the_unit() {
    let unit = unit();
    let mut words = settings(&unit)["ExecStart"].split(' ');
    assert_eq!(words.next(), Some(PROGRAM));
    // What stands for more options stands for none.
    let words: Vec<&str> = words.filter(|word| !word.starts_with('$')).collect();
    let bench = Bench::new(Engine::Sqlite);
    for more in [&["--once"][..], &["--once", "--on-stop", "detach"]] {
        let answer = run(&mut bench.command(words.iter().chain(more)));
        assert_eq!(answer.code, Some(0), "{}", answer.err);
    }
    bench.run(&[&words[..], &["--no-such-option"]].concat()).wrong_usage("--no-such-option");
}

#[test]
fn systemd_takes_the_unit() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("leasehold-worker.service");
    // It looks whether the program is there.
    fs::write(&file, unit().replace(PROGRAM, env!("CARGO_BIN_EXE_leasehold"))).unwrap();
    let verified = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output();
    let output = match verified {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // Written past the test harness, which would keep it to itself.
            let _ =
                writeln!(std::io::stderr(), "SKIPPED the unit file: there is no systemd-analyze");
            return;
        }
        output => output.unwrap(),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    // Of other units of this machine it may say something too.
    assert!(!said.contains("leasehold"), "{said}");
}
