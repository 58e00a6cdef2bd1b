//! What cannot be started, and why.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold::process::guardian::{BootTime, Guardian, GuardianProgram, StartError};
use leasehold::process::{SpawnError, Stage, TaskCommand, TempFile};

use super::support::*;

fn script(directory: &Path, name: &str, contents: &str, mode: u32) -> String {
    let path = directory.join(name);
    write_program(&path, contents, mode);
    path.to_str().unwrap().into()
}

async fn failure(place: &Place, command: TaskCommand) -> SpawnError {
    let spec = spec(command);
    loop {
        match try_start(place, &spec).await {
            Err(StartError::Task(error)) => return error,
            // The guardian before is slow to leave.
            Err(StartError::Locked) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn each_failure_has_its_stage_and_its_word() {
    const ENOENT: Option<i32> = Some(2);
    const E2BIG: Option<i32> = Some(7);
    const ENOEXEC: Option<i32> = Some(8);
    const EACCES: Option<i32> = Some(13);
    local(async {
        let place = place();
        let in_slot = place.slot.path();
        let in_cwd = |cwd: &Path| {
            let mut command = command(["true"]);
            command.cwd = Some(cwd.into());
            command
        };
        let with_file = |argv_index| {
            let mut command = command(["true", "file"]);
            command.temp_file = Some(TempFile { argv_index, contents: b"x".to_vec() });
            command
        };
        let text = script(in_slot, "text", "no program\n", 0o755);
        let closed = script(in_slot, "closed", "#!/bin/sh\n", 0o644);
        let lost = script(in_slot, "lost", "#!/nowhere/sh\n", 0o755);
        let slot = in_slot.to_str().unwrap();
        let long = "x".repeat(131_072);
        let cases = [
            (command(["/nowhere/program"]), Stage::Exec, "program_missing", ENOENT),
            (command(["no-such-program"]), Stage::Exec, "program_missing", ENOENT),
            (command([&closed]), Stage::Exec, "program_not_executable", EACCES),
            (command([slot]), Stage::Exec, "program_is_a_directory", EACCES),
            (command([&text]), Stage::Exec, "program_format", ENOEXEC),
            (command([&lost]), Stage::Exec, "interpreter_missing", ENOENT),
            (command(["true", &long]), Stage::Exec, "arg_too_long", E2BIG),
            (in_cwd(Path::new("/nowhere")), Stage::Cwd, "cwd_missing", ENOENT),
            (in_cwd(Path::new(&text)), Stage::Cwd, "cwd_not_a_directory", Some(20)),
            (command(["true", "a\0b"]), Stage::Command, "nul_byte", None),
            (command([""]), Stage::Command, "no_program", None),
            (with_file(2), Stage::Command, "no_placeholder", None),
        ];
        for (command, stage, code, errno) in cases {
            let error = failure(&place, command).await;
            assert_eq!(
                (error.stage(), error.code(), error.errno()),
                (stage, code, errno),
                "{error}"
            );
        }
        // The directory can still be used: nothing has run in it.
        assert_eq!(run(&place, "exit 3").await.ending().exit_code(), 3);
    });
}

#[test]
fn five_megabytes_of_arguments_are_too_much() {
    local(async {
        let place = place();
        let argv: Vec<String> =
            std::iter::once("true".into()).chain((0..50).map(|_| "x".repeat(100_000))).collect();
        let mut command = command(["true"]);
        command.argv = argv.into_iter().map(Into::into).collect();
        let error = failure(&place, command).await;
        assert_eq!((error.code(), error.errno()), ("arg_too_long", Some(7)));
        let mut all = super::support::command(["true"]);
        all.argv.push("x".repeat(131_071).into());
        let mut guardian = start(&place, &spec(all)).await;
        assert_eq!(record(guardian.exited().await).ending().exit_code(), 0);
    });
}

#[test]
fn a_program_that_is_being_installed_is_waited_for_a_moment() {
    const NAME: &str = "starting::a_program_that_is_being_installed_is_waited_for_a_moment";
    alone(NAME, || {
        local(async {
            let place = place();
            let program = place.file("program");
            std::fs::copy("/bin/true", &program).unwrap();
            let busy = ("program_busy", Some(26));
            for _ in 0..50 {
                let open = std::fs::OpenOptions::new().append(true).open(&program).unwrap();
                let is_over = Arc::new(AtomicBool::new(false));
                let closing = std::thread::spawn({
                    let is_over = Arc::clone(&is_over);
                    move || {
                        while !is_over.load(Ordering::Relaxed) && !a_task_pauses() {}
                        drop(open);
                    }
                });
                let spec = spec(command([program.to_str().unwrap()]));
                let started = try_start(&place, &spec).await;
                is_over.store(true, Ordering::Relaxed);
                closing.join().unwrap();
                match started {
                    Ok(mut guardian) => {
                        assert_eq!(record(guardian.exited().await).ending().exit_code(), 0);
                        return;
                    }
                    // The moment was over before it was closed.
                    Err(StartError::Task(error)) => {
                        assert_eq!((error.code(), error.errno()), busy);
                    }
                    Err(error) => assert!(matches!(error, StartError::Locked), "{error:?}"),
                }
            }
            panic!("it was never waited for");
        });
    });
}

/// Whether the process of a task of ours sleeps and has not become its program: it will try again.
fn a_task_pauses() -> bool {
    let children_of = |pid: i32| {
        let threads =
            std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let lists = threads
            .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
        let pids = |list: String| -> Vec<i32> {
            list.split_ascii_whitespace().map(|pid| pid.parse().unwrap()).collect()
        };
        lists.flat_map(pids).collect::<Vec<_>>()
    };
    let pauses = |pid: i32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words == b"leasehold\0__guard\0" && stat(pid).is_some_and(|(state, ..)| state == 'S')
    };
    let us = i32::try_from(std::process::id()).unwrap();
    children_of(us).into_iter().flat_map(children_of).any(pauses)
}

#[test]
fn a_limit_that_may_not_be_set_is_named() {
    local(async {
        let place = place();
        let mut high = spec(command(["true"]));
        // More than the kernel lets anybody have.
        high.limits.open_files = Some(1 << 40);
        let Err(StartError::Task(error)) = try_start(&place, &high).await else {
            panic!("nobody may have so many")
        };
        assert_eq!((error.stage(), error.code()), (Stage::Setup, "setup_failed"));
        assert_eq!(error.errno(), Some(1), "{error}");
        assert!(error.to_string().contains("setting its limits"), "{error}");
    });
}

#[test]
fn after_the_fence_nothing_is_started() {
    local(async {
        let place = place();
        let mut spec = sh(&place, "touch $D/started");
        spec.fence = BootTime::now();
        assert!(matches!(try_start(&place, &spec).await, Err(StartError::FencePassed)));
        // Not by the guardian either, which comes to its last check later than that.
        let mut refused = 0;
        for micros in [100, 200, 300, 500] {
            refused += loop {
                spec.fence = BootTime::now().saturating_add(Duration::from_micros(micros));
                match try_start(&place, &spec).await {
                    Err(StartError::FencePassed) => break 1,
                    // It said nothing for so long that it was given up, or was slow to leave.
                    Err(StartError::Died { .. } | StartError::Locked) => {}
                    other => panic!("{other:?}"),
                }
            };
        }
        assert_eq!(refused, 4);
        assert!(!place.file("started").exists());
    });
}

#[test]
fn a_guardian_program_that_is_none_is_noticed() {
    local(async {
        let place = place();
        let spec = sh(&place, "touch $D/started");
        let start = async |program: &str| {
            Guardian::start(&GuardianProgram::at(program), &place.dir, &spec).await
        };
        let error = start("/bin/true").await.unwrap_err();
        assert!(matches!(error, StartError::Died { .. }), "{error:?}");
        assert!(error.to_string().contains("leasehold::guardian_entry()"), "{error}");
        let error = start("/nowhere/leasehold").await.unwrap_err();
        assert!(matches!(error, StartError::Program { .. }), "{error:?}");
        assert!(!error.is_resource_exhausted());
        assert!(!place.file("started").exists());
        assert_eq!(GuardianProgram::this(), None, "this program never called guardian_entry");
    });
}

#[test]
fn one_that_never_answers_is_given_up_after_the_fence() {
    local(in_time(async |reach| {
        let place = place();
        let mut spec = sh(&place, "touch $D/started");
        let silent = script(place.slot.path(), "silent", "#!/bin/sh\nexec sleep 300\n", 0o755);
        let begin = Instant::now();
        spec.fence = BootTime::now().saturating_add(reach);
        let error = Guardian::start(&GuardianProgram::at(silent), &place.dir, &spec).await;
        if matches!(error, Err(StartError::FencePassed)) {
            return None;
        }
        assert!(matches!(error, Err(StartError::Died { .. })), "{error:?}");
        assert!(begin.elapsed() < reach + DEADLINE);
        Some(())
    }));
}

#[test]
fn a_guardian_without_a_daemon_ends_at_once() {
    for sent in [0, 1, 127] {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut guardian = std::process::Command::new(env!("CARGO_BIN_EXE_leasehold"))
            .arg("__guard")
            .stdin(std::os::fd::OwnedFd::from(theirs))
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut &ours, &vec![7; sent]).unwrap();
        assert_eq!(guardian.try_wait().unwrap(), None, "it waits for its spec");
        drop(ours);
        assert!(guardian.wait().unwrap().success());
    }
    // By hand, from a terminal or with nothing.
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .arg("__guard")
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert!(output.stdout.is_empty() && output.stderr.is_empty());
}

#[test]
fn another_version_is_refused() {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut guardian = std::process::Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .arg("__guard")
        .stdin(std::os::fd::OwnedFd::from(theirs))
        .spawn()
        .unwrap();
    let mut message = [0u8; 128];
    message[..8].copy_from_slice(b"LHguard\n");
    message[8] = 99;
    std::io::Write::write_all(&mut &ours, &message).unwrap();
    let mut answer = [0u8; 128];
    std::io::Read::read_exact(&mut &ours, &mut answer).unwrap();
    assert_eq!((answer[0], answer[8]), (105, 1), "failed, at the protocol");
    assert!(!guardian.wait().unwrap().success());
}

#[test]
fn what_the_machine_lacks_is_not_the_task_s_fault() {
    alone("starting::what_the_machine_lacks_is_not_the_task_s_fault", || {
        local(async {
            let place = place();
            let spec = spec(command(["true"]));
            let mut hoard = Vec::new();
            let limit = rustix::process::Rlimit { current: Some(64), maximum: Some(64) };
            rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
            while let Ok(file) = std::fs::File::open("/dev/null") {
                hoard.push(file);
            }
            let mut errors = 0;
            // With one descriptor more each time, something else is lacking.
            let mut guardian = loop {
                match try_start(&place, &spec).await {
                    Ok(guardian) => break guardian,
                    // The guardian before is slow to leave.
                    Err(StartError::Locked) => continue,
                    Err(error) => {
                        assert!(error.is_resource_exhausted(), "{error:?}");
                        errors += 1;
                    }
                }
                drop(hoard.pop());
            };
            println!("{errors} starts lacked a descriptor");
            assert!(errors > 1);
            drop(hoard);
            assert_eq!(record(guardian.exited().await).ending().exit_code(), 0);
        });
    });
}
