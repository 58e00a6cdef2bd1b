//! What a task finds when it begins, and what its guardian takes.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use leasehold::process::End;
use leasehold::process::guardian::{EndedBy, Limits, LogStream, Stdin, StopReason};

use super::support::*;

#[test]
fn a_guardian_takes_less_than_a_megabyte() {
    local(async {
        // Several, since a daemon of the same program shares what they share: the program's text.
        let places: Vec<Place> = (0..6).map(|_| place()).collect();
        let script = "head -c 3000000 /dev/zero; touch $D/ready; exec sleep 300";
        let mut guardians = Vec::new();
        for place in &places {
            let mut spec = sh(place, script);
            // What it was told and what passed through leave no trace.
            spec.command.env.push(("LONG".into(), "x".repeat(100_000).into()));
            spec.stdin = Stdin::Bytes(vec![b'x'; 5_000_000]);
            guardians.push(start(place, &spec).await);
            written(&place.file("ready")).await;
        }
        let pid = guardian_pid(&guardians[0]);
        tokio::time::sleep(Duration::from_millis(300)).await;
        let private = memory_kib(pid, &PRIVATE);
        let program = program_kib(pid);
        println!(
            "private memory of a guardian: {private} KiB, {program} KiB of them its program's"
        );
        for field in ["Private_Dirty", "Private_Clean", "Rss", "Pss"] {
            println!("  {field}: {} KiB", memory_kib(pid, &[field]));
        }
        for mut guardian in guardians {
            guardian.stop(Duration::ZERO, StopReason::Stop).unwrap();
            guardian.exited().await;
        }
        // What its code asks for.
        assert!(private - program < 300, "{private} KiB, {program} KiB of them its program's");
        // Addresses in the program's data, written when it is loaded: without optimization there are
        // many more of them, and pages of a program that was just built may not be shared yet.
        let most = if cfg!(debug_assertions) { 3 * 1024 } else { 1024 };
        assert!(private < most, "{private} KiB");
    });
}

/// The private pages of a process that belong to the file of its program, in KiB.
fn program_kib(pid: i32) -> u64 {
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let (mut is_program, mut sum) = (false, 0);
    for line in maps.lines() {
        let (name, value) = line.split_once(' ').unwrap();
        if !name.ends_with(':') {
            is_program = line.ends_with(program.to_str().unwrap());
        } else if is_program && name.starts_with("Private_") {
            sum += value.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
        }
    }
    sum
}

#[test]
fn a_task_sees_three_descriptors_whatever_was_open() {
    alone("task_world::a_task_sees_three_descriptors_whatever_was_open", || {
        // One that is inherited by whatever this process starts.
        let leak = std::fs::File::open("/dev/null").unwrap();
        rustix::io::fcntl_setfd(&leak, rustix::io::FdFlags::empty()).unwrap();
        assert!(leak.as_raw_fd() > 2);
        local(async {
            let place = place();
            let mut spec =
                sh(&place, "for fd in /proc/$$/fd/*; do echo ${fd##*/} $(readlink $fd); done");
            let lock = std::fs::File::create(place.file("lock")).unwrap();
            spec.locks.push(lock.into());
            let mut guardian = start(&place, &spec).await;
            let record = record(guardian.exited().await);
            let seen = text(record.stdout.tail.bytes());
            // The shell reads its own list through one more.
            let numbers: Vec<&str> =
                seen.lines().filter_map(|line| line.split_once(' ')).map(|(fd, _)| fd).collect();
            assert!(numbers.starts_with(&["0", "1", "2"]) && numbers.len() <= 4, "{seen}");
            assert!(!seen.contains("lock") && !seen.contains("socket"), "{seen}");
            assert!(seen.starts_with("0 /dev/null\n1 pipe:"), "{seen}");
        });
    });
}

#[test]
fn a_guardian_holds_nothing_of_the_daemon() {
    alone("task_world::a_guardian_holds_nothing_of_the_daemon", || {
        let leak = std::fs::File::open("/proc/self/status").unwrap();
        rustix::io::fcntl_setfd(&leak, rustix::io::FdFlags::empty()).unwrap();
        local(async {
            let place = place();
            let mut guardian = start(&place, &sh(&place, "exec sleep 300")).await;
            let pid = guardian_pid(&guardian);
            let held: Vec<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
                .unwrap()
                .map(|fd| std::fs::read_link(fd.unwrap().path()).unwrap().display().to_string())
                .collect();
            assert!(!held.iter().any(|link| link.contains("status")), "{held:?}");
            let nulls = held.iter().filter(|link| *link == "/dev/null").count();
            assert_eq!(nulls, 3, "{held:?}");
            let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
            let strange = environ
                .split(|byte| *byte == 0)
                .find(|entry| !entry.is_empty() && !entry.starts_with(b"LD_"));
            assert_eq!(strange.map(text), None);
            let command_line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
            assert_eq!(command_line, b"leasehold\0__guard\0");
            assert_eq!(std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap().as_os_str(), "/");
            guardian.stop(Duration::ZERO, StopReason::Stop).unwrap();
            guardian.exited().await;
        });
    });
}

#[test]
fn signals_are_default_and_unblocked_under_nohup() {
    alone_by("task_world::signals_are_default_and_unblocked_under_nohup", by(&["nohup"]), || {
        local(async {
            let place = place();
            let record =
                run(&place, "grep ^Sig /proc/self/status; ps -o sid=,pgid= -p $$; echo $$").await;
            let seen = text(record.stdout.tail.bytes());
            for line in ["SigBlk:\t0000000000000000", "SigIgn:\t0000000000000000"] {
                assert!(seen.contains(line), "{seen}");
            }
            let mut last = seen.lines().rev();
            let pid = last.next().unwrap().trim();
            let ids: Vec<&str> = last.next().unwrap().split_ascii_whitespace().collect();
            assert_eq!(ids, [pid, pid], "its own session and group");
        });
    });
}

#[test]
fn the_environment_is_the_one_that_was_given() {
    local(async {
        let place = place();
        let mut spec = sh(&place, "env");
        spec.inherited = [
            ("PATH", "/bin:/usr/bin"),
            ("KEEP", "1"),
            ("LEASEHOLD_STORE", "secret"),
            ("LEASEHOLD_TOKEN", "secret"),
            ("PGPASSWORD", "secret"),
        ]
        .map(|(name, value)| (name.into(), value.into()))
        .into();
        spec.command.env.push(("ADDED".into(), "2".into()));
        let mut guardian = start(&place, &spec).await;
        let record = record(guardian.exited().await);
        let mut names: Vec<String> = text(record.stdout.tail.bytes())
            .lines()
            .filter_map(|line| Some(line.split_once('=')?.0.to_owned()))
            .filter(|name| !["PWD", "SHLVL", "_", "OLDPWD"].contains(&name.as_str()))
            .collect();
        names.sort();
        let expected = [
            "ADDED",
            "D",
            "KEEP",
            "LEASEHOLD_EPOCH",
            "LEASEHOLD_RUN_ID",
            "LEASEHOLD_RUN_MARK",
            "LIONAGI_INVOCATION_ID",
            "PATH",
        ];
        assert_eq!(names, expected);
        let token = std::fs::read_to_string(place.dir.path().join("token")).unwrap();
        assert!(!text(record.stdout.tail.bytes()).contains(&token));
    });
}

#[test]
fn the_directory_is_the_one_that_was_given_or_ours() {
    local(async {
        let place = place();
        let mut spec = sh(&place, "pwd");
        let record_of = async |spec| record(start(&place, spec).await.exited().await);
        spec.command.cwd = Some(place.slot.path().into());
        let seen = text(record_of(&spec).await.stdout.tail.bytes());
        assert_eq!(seen.trim_end(), place.slot.path().canonicalize().unwrap().to_str().unwrap());
        let other = super::support::place();
        let mut spec = sh(&other, "pwd");
        spec.command.cwd = None;
        let mut guardian = start(&other, &spec).await;
        let seen = text(record(guardian.exited().await).stdout.tail.bytes());
        assert_eq!(seen.trim_end(), std::env::current_dir().unwrap().to_str().unwrap());
    });
}

#[test]
fn a_file_of_the_run_is_there_and_goes_with_it() {
    local(async {
        let place = place();
        let mut command = command(["/bin/sh", "-c", "cat \"$1\"; echo \"$1\"", "sh", ""]);
        command.temp_file =
            Some(leasehold::process::TempFile { argv_index: 4, contents: b"flow\n".to_vec() });
        let mut guardian = start(&place, &spec(command)).await;
        let record = record(guardian.exited().await);
        let seen = text(record.stdout.tail.bytes());
        let path = seen.strip_prefix("flow\n").unwrap().trim_end();
        assert!(path.starts_with(place.dir.path().to_str().unwrap()), "{path}");
        assert!(!std::path::Path::new(path).exists());
    });
}

#[test]
fn stdin_is_what_was_given_then_the_end() {
    local(async {
        for size in [0, 1, 100_000, 5_000_000] {
            let place = place();
            let mut spec = sh(&place, "md5sum; head -c 1 | wc -c");
            let bytes: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            spec.stdin = Stdin::Bytes(bytes.clone());
            let mut guardian = start(&place, &spec).await;
            let seen = record(guardian.exited().await).stdout.tail;
            std::fs::write(place.file("expected"), &bytes).unwrap();
            let sum = std::process::Command::new("md5sum").arg(place.file("expected")).output();
            let sum = text(&sum.unwrap().stdout);
            let seen = text(seen.bytes());
            assert_eq!(seen[..32], sum[..32], "{size}");
            assert!(seen.ends_with("0\n"), "{seen}");
        }
    });
}

#[test]
fn a_task_that_never_reads_keeps_nobody_waiting() {
    local(async {
        for script in ["exit 3", "exec <&-; exit 3", "read x; exit 3"] {
            let place = place();
            let mut spec = sh(&place, script);
            spec.stdin = Stdin::Bytes(vec![b'x'; 5_000_000]);
            let begin = Instant::now();
            let mut guardian = start(&place, &spec).await;
            assert_eq!(record(guardian.exited().await).end, End::Exited(3));
            assert!(begin.elapsed() < DEADLINE);
            assert!(!place.dir.path().join("stdin.tmp").exists());
        }
    });
}

#[test]
fn without_stdin_and_terminal_a_question_has_no_answer() {
    local(async {
        let place = place();
        let record =
            run(&place, "read x || echo eof; (exec 3</dev/tty) 2>/dev/null || echo notty").await;
        assert_eq!(record.stdout.tail.bytes(), b"eof\nnotty\n");
    });
}

#[test]
fn limits_are_the_task_s_and_not_the_guardian_s() {
    local(async {
        let place = place();
        let mut spec = sh(&place, "ulimit -n; ulimit -v; ulimit -t; ulimit -Ht");
        spec.limits =
            Limits { open_files: Some(77), address_space: Some(1 << 30), cpu_seconds: Some(9) };
        let mut guardian = start(&place, &spec).await;
        let seen = text(record(guardian.exited().await).stdout.tail.bytes());
        assert_eq!(seen, "77\n1048576\n9\n14\n");
    });
}

#[test]
fn the_limit_of_processor_time_ends_a_task() {
    local(async {
        let place = place();
        let mut spec = sh(&place, "while :; do :; done");
        spec.limits.cpu_seconds = Some(1);
        let mut guardian = start(&place, &spec).await;
        let record = record(guardian.exited().await);
        assert!(matches!(record.end, End::Signalled { signal: 24, .. }), "{:?}", record.end);
        assert_eq!(record.ended_by, EndedBy::Task);
        assert!(record.user_seconds > 0.5, "{record:?}");
    });
}

#[test]
fn new_privileges_can_be_ruled_out() {
    local(async {
        for (ruled_out, expected) in [(false, "NoNewPrivs:\t0\n"), (true, "NoNewPrivs:\t1\n")] {
            let place = place();
            let mut spec = sh(&place, "grep NoNewPrivs /proc/self/status");
            spec.no_new_privileges = ruled_out;
            let mut guardian = start(&place, &spec).await;
            let seen = text(record(guardian.exited().await).stdout.tail.bytes());
            assert_eq!(seen, expected);
            assert_eq!(whole_log(&place.dir, LogStream::Stdout), expected.as_bytes());
        }
    });
}
