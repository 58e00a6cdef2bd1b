//! Every way in which a task cannot be started says which one it was.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use leasehold::process::direct::run_to_end;
use leasehold::process::{SpawnError, SpawnFault, Stage, TaskCommand, TempFile};

use super::support::*;

fn fails(command: &TaskCommand, code: &str, stage: Stage, errno: Option<i32>) -> SpawnError {
    let error = run_to_end(command).expect_err(code);
    assert_eq!((error.code(), error.stage(), error.errno()), (code, stage, errno), "{error}");
    assert!(!error.is_resource_exhausted());
    let text = error.to_string();
    assert!(text.starts_with("starting run \"run-1\": ") && !text.contains('\n'), "{text}");
    println!("{text}");
    error
}

fn path(path: &Path) -> TaskCommand {
    command([path.to_str().unwrap()])
}

const ENOENT: Option<i32> = Some(2);
const E2BIG: Option<i32> = Some(7);
const ENOEXEC: Option<i32> = Some(8);
const EACCES: Option<i32> = Some(13);
const ENOTDIR: Option<i32> = Some(20);
const ETXTBSY: Option<i32> = Some(26);

#[test]
fn a_missing_program() {
    fails(&command(["leasehold-no-such-program"]), "program_missing", Stage::Exec, ENOENT);
    fails(&command(["/nowhere/program", "secret"]), "program_missing", Stage::Exec, ENOENT);
    fails(&command(["/dev/null/program"]), "program_missing", Stage::Exec, ENOTDIR);
    let error = fails(&command(["no\nsuch\u{1b}[31m"]), "program_missing", Stage::Exec, ENOENT);
    assert_eq!(*error.fault(), SpawnFault::ProgramMissing("no\nsuch\u{1b}[31m".into()));
}

#[test]
fn a_missing_program_is_not_a_missing_directory() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = command(["true"]);
    command.cwd = Some(directory.path().join("none"));
    fails(&command, "cwd_missing", Stage::Cwd, ENOENT);
    command.argv = vec!["/nowhere/program".into()];
    fails(&command, "cwd_missing", Stage::Cwd, ENOENT);
    command.cwd = Some("/dev/null".into());
    fails(&command, "cwd_not_a_directory", Stage::Cwd, ENOTDIR);
    command.cwd = Some("/dev/null/sub".into());
    fails(&command, "cwd_not_a_directory", Stage::Cwd, ENOTDIR);
    command.cwd = Some(directory.path().into());
    fails(&command, "program_missing", Stage::Exec, ENOENT);
}

#[test]
fn a_directory_in_the_place_of_the_program() {
    let directory = tempfile::tempdir().unwrap();
    fails(&path(directory.path()), "program_is_a_directory", Stage::Exec, EACCES);
    std::fs::create_dir(directory.path().join("tool")).unwrap();
    let mut command = command(["tool"]);
    command.env = vec![("PATH".into(), directory.path().into())];
    fails(&command, "program_is_a_directory", Stage::Exec, EACCES);
}

#[test]
fn a_file_that_may_not_be_executed() {
    let directory = tempfile::tempdir().unwrap();
    let file = write_script(directory.path(), "tool", "#!/bin/sh\n", 0o644);
    fails(&path(&file), "program_not_executable", Stage::Exec, EACCES);
    let mut command = command(["tool"]);
    command.env = vec![("PATH".into(), directory.path().into())];
    fails(&command, "program_not_executable", Stage::Exec, EACCES);
}

#[test]
fn a_text_file_without_a_shebang_is_not_run_by_a_shell() {
    let directory = tempfile::tempdir().unwrap();
    let ran = directory.path().join("ran");
    let file = write_script(directory.path(), "tool", &format!("touch {}\n", ran.display()), 0o755);
    fails(&path(&file), "program_format", Stage::Exec, ENOEXEC);
    assert!(!ran.exists());
}

#[test]
fn a_script_whose_interpreter_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let file = write_script(directory.path(), "tool", "#!/nowhere/interpreter\n", 0o755);
    fails(&path(&file), "interpreter_missing", Stage::Exec, ENOENT);
}

#[test]
fn arguments_that_are_too_long() {
    let long = |bytes| command(["true", "x".repeat(bytes).as_str()]);
    assert_eq!(run(&long(131_071)).exit_code(), 0);
    let error = fails(&long(131_072), "arg_too_long", Stage::Exec, E2BIG);
    assert!(
        matches!(error.fault(), SpawnFault::ArgumentTooLong { longest: 131_072, .. }),
        "{error:?}"
    );
    let mut many = command(["true"]);
    many.argv.extend(vec![OsString::from("y".repeat(100_000)); 50]);
    fails(&many, "arg_too_long", Stage::Exec, E2BIG);
}

#[test]
fn what_no_process_can_be_given() {
    fails(&command(["true", "a\0b"]), "nul_byte", Stage::Command, None);
    fails(&command(["tr\0ue"]), "nul_byte", Stage::Command, None);
    fails(&command([]), "no_program", Stage::Command, None);
    fails(&command([""]), "no_program", Stage::Command, None);
    let mut variable = command(["true"]);
    variable.env = vec![("A".into(), "b\0".into())];
    fails(&variable, "nul_byte", Stage::Command, None);
    variable.env = vec![("A=B".into(), "c".into())];
    fails(&variable, "variable_name", Stage::Command, None);
    variable.env = vec![("".into(), "c".into())];
    fails(&variable, "variable_name", Stage::Command, None);
    let mut cwd = command(["true"]);
    cwd.cwd = Some("/tmp\0".into());
    fails(&cwd, "nul_byte", Stage::Command, None);
}

#[test]
fn a_program_that_is_being_written_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("true");
    std::fs::copy("/bin/true", &program).unwrap();
    let writer = std::fs::OpenOptions::new().append(true).open(&program).unwrap();
    let begin = Instant::now();
    fails(&path(&program), "program_busy", Stage::Exec, ETXTBSY);
    assert!(begin.elapsed() >= Duration::from_millis(42), "three more tries");
    drop(writer);

    // Now and then it is closed too late for the last try.
    let started = (0..50).any(|_| {
        let writer = std::fs::OpenOptions::new().append(true).open(&program).unwrap();
        let closer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(4));
            drop(writer);
        });
        let ending = run_to_end(&path(&program));
        closer.join().unwrap();
        match ending {
            Ok(ending) => ending.exit_code() == 0,
            Err(error) => {
                assert_eq!(error.errno(), ETXTBSY, "{error}");
                false
            }
        }
    });
    assert!(started);
}

#[test]
fn no_more_descriptors_is_not_the_task_s_fault() {
    alone("spawn_errors::no_more_descriptors_is_not_the_task_s_fault", || {
        let directory = tempfile::tempdir().unwrap();
        let mut task = command(["sh", "-c", "exit 0", "{TMP}"]);
        task.temp_file = Some(TempFile { argv_index: 3, contents: vec![b'x'] });
        local(async {
            let mut open = Vec::new();
            let limit = rustix::process::Rlimit { current: Some(64), maximum: Some(64) };
            rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
            while let Ok(file) = std::fs::File::open("/dev/null") {
                open.push(file);
            }
            // One descriptor more each time: every place that needs one is the first to miss it.
            let mut refused = 0;
            loop {
                match leasehold::process::direct::Running::spawn(&task) {
                    Ok(mut running) => {
                        assert_eq!(
                            running.wait().await.exit_code(),
                            0,
                            "with the least that is needed"
                        );
                        break;
                    }
                    Err(error) => {
                        assert!(error.is_resource_exhausted(), "{error}");
                        assert_eq!(error.errno(), Some(24), "{error}");
                        refused += 1;
                    }
                }
                assert!(open.pop().is_some(), "it never started");
            }
            assert!(refused >= 5, "{refused}");
            drop(open);
        });
        assert!(children().is_empty(), "{:?}", children());
        drop(directory);
        let left = std::fs::read_dir(std::env::temp_dir()).unwrap().flatten();
        let left = left.filter(|entry| {
            entry.file_name().to_string_lossy().starts_with("leasehold-")
                && std::fs::read(entry.path()).is_ok_and(|contents| contents == b"x")
        });
        assert_eq!(left.count(), 0);
    });
}
