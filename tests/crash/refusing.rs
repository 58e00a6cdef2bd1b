//! Tasks that nobody could start: refused at the door, or ended with a reason that names the stage. Nothing of them stays.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use leasehold::domain::settings::RunSettings;
use serde_json::json;

use crate::aftermath::{guardians, on_engines, task_processes};
use crate::bench::{Bench, Worker, command, sh};
use crate::processes::write_program;

/// Every directory of a run there is, of one that runs or ran.
fn run_dirs(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.path().join("run.json").exists() {
            found.push(entry.path());
        } else if entry.path().is_dir() {
            found.extend(run_dirs(&entry.path()));
        }
    }
    found
}

#[track_caller]
fn assert_nothing_stays(bench: &Bench) {
    assert_eq!(run_dirs(&bench.file(".local")), Vec::<PathBuf>::new());
    assert!(task_processes(bench).is_empty() && guardians(bench).is_empty());
}

#[test]
fn what_can_be_seen_at_the_door_is_refused_there() {
    on_engines(|bench| {
        let _worker = bench.worker(&[]).ready();
        let written = |name: &str, argument: String| {
            let args = json!({ "action_command": "true", "action_command_args": [argument] });
            std::fs::write(bench.file(name), args.to_string()).unwrap();
            format!("@{name}")
        };
        let long = written("long.json", "x".repeat(131_072));
        let nul = written("nul.json", "a\0b".into());
        std::fs::write(bench.file("closed"), "").unwrap();
        let closed = bench.file("closed");
        std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
        let mut cases = vec![
            (vec!["--args", &long], "131072 bytes"),
            (vec!["--args", &nul], "NUL"),
            (vec!["--cwd", "not/absolute", "--", "true"], "give an absolute path"),
            (vec!["--stdin", "missing", "--", "true"], "cannot read --stdin \"missing\""),
            (vec!["--stdin", ".", "--", "true"], "Is a directory"),
            (vec!["--", "./true"], "use one of"),
        ];
        if std::fs::File::open(&closed).is_err() {
            cases.push((vec!["--stdin", "closed", "--", "true"], "Permission denied"));
        }
        for (words, why) in cases {
            let words = [&["submit", "command"][..], &words].concat();
            let output = bench.program(&words).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
            assert!(said.contains(why) && output.stdout.is_empty(), "{words:?}: {said}");
        }
        assert_eq!(bench.runs(), []);
        assert_nothing_stays(bench);
    });
}

/// A store may hold what this program's door would refuse, and what was right may be wrong by the time of the start.
#[test]
fn what_cannot_be_started_ends_with_the_stage_as_its_reason() {
    on_engines(|bench| {
        let bin = bench.file("bin");
        std::fs::create_dir(&bin).unwrap();
        std::fs::write(bin.join("cat"), "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(bin.join("cat"), std::fs::Permissions::from_mode(0o644)).unwrap();
        write_program(&bin.join("true"), "#!/no/such/interpreter\n", 0o755);
        std::os::unix::fs::symlink("/bin/sh", bin.join("sh")).unwrap();
        std::fs::write(bench.file("a-file"), "").unwrap();
        let within = |dir: &Path| {
            let cwd = Some(dir.to_str().unwrap().to_owned());
            RunSettings { cwd, ..RunSettings::default() }
        };
        let gone = bench.file("gone");
        let plain = RunSettings::default();
        let long = "x".repeat(131_072);
        let longest = vec!["x".repeat(131_071); 40];
        let longest: Vec<&str> = longest.iter().map(String::as_str).collect();
        let cases = [
            (
                command("sh", &["-c", "true", &long]),
                plain.clone(),
                "LaunchError: argument 3 has 131072 bytes",
            ),
            (
                command("sh", &["-c", "a\0b"]),
                plain.clone(),
                "LaunchError: argument 2 contains a NUL byte",
            ),
            (
                command("sh", &longest),
                plain.clone(),
                "arguments and variables are too long for the kernel",
            ),
            (sh("true"), within(&gone), "gone\" does not exist"),
            (sh("true"), within(&bench.file("a-file")), "a-file\" is not a directory"),
            (
                command("no-such-program", &[]),
                plain.clone(),
                "there is no program \"no-such-program\"",
            ),
            (command("cat", &[]), plain.clone(), "may not be executed"),
            (command("true", &[]), plain, "the interpreter that"),
        ];
        let ids: Vec<_> = cases
            .iter()
            .map(|(app, settings, _)| {
                bench.queue().submit_task_with(app, settings.clone(), None).unwrap()
            })
            .collect();
        let mut program = bench.program(["worker", "--until-empty"]);
        program.env("PATH", &bin);
        Worker::start(program, bench.log_file()).leaves_with(0);
        for (id, (.., stage)) in ids.iter().zip(&cases) {
            let run = bench.run(id);
            let detail = run.error_detail.clone().unwrap_or_default();
            println!("{stage}: {} {detail:.250}", run.status);
            assert_eq!((run.status.as_str(), run.exit_code), ("failed", Some(1)), "{run:?}");
            assert!(detail.contains(stage), "{stage}: {detail:.300}");
            assert_eq!(run.lease_attempts, 1);
        }
        assert_nothing_stays(bench);
    });
}
