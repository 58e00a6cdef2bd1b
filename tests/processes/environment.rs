//! What a task sees: variables, descriptors, its group, its file.

use std::process::Command;

use leasehold::process::direct::Running;
use leasehold::process::{SpawnFault, TempFile};

use super::support::*;

#[test]
fn our_secrets_stay_here_and_the_identity_goes_along() {
    let wrap = |exe: &std::path::Path| {
        let mut process = Command::new(exe);
        process
            .env("LEASEHOLD_STORE", "s")
            .env("LEASEHOLD_HTTP_TOKEN", "s")
            .env("LEASEHOLD_X_SECRET_Y", "s");
        process
            .env("PGPASSWORD", "s")
            .env("PGHOST", "s")
            .env("Lionagi_State_DB_url", "s")
            .env("AGENT_KEY", "kept");
        process.env("LEASEHOLD_EPOCH", "99");
        process
    };
    alone_by("environment::our_secrets_stay_here_and_the_identity_goes_along", wrap, || {
        assert_eq!(std::env::var("PGHOST").unwrap(), "s");
        let mut command = sh("env | grep -E '^(LEASEHOLD|LIONAGI|PG|AGENT_KEY|EXTRA|PATH)|=s$'");
        command.env = vec![("EXTRA".into(), "more".into())];
        let detail = run(&command).detail();
        let lines: Vec<&str> = detail.lines().collect();
        for line in [
            "LEASEHOLD_RUN_ID=run-1",
            "LEASEHOLD_EPOCH=7",
            "LIONAGI_INVOCATION_ID=0123456789ab",
            "AGENT_KEY=kept",
            "EXTRA=more",
        ] {
            assert!(lines.contains(&line), "{line} in {lines:#?}");
        }
        assert!(lines.iter().all(|line| !line.ends_with("=s")), "{lines:#?}");
        assert!(lines.iter().any(|line| line.starts_with("PATH=")), "{lines:#?}");
    });
}

#[test]
fn standard_input_is_null() {
    assert_eq!(
        run(&sh("readlink /proc/self/fd/0; cat; read x; exit $?")).detail(),
        "[stdout]\n/dev/null\n"
    );
}

#[test]
fn the_task_has_no_descriptors_but_three() {
    // What this process was given without close-on-exec is inherited: the limit that is documented.
    let passed_on = |fd: &str| {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:\t"));
        flags.is_some_and(|flags| u32::from_str_radix(flags, 8).unwrap() & 0o2_000_000 == 0)
    };
    let _open = std::fs::File::open("/dev/null").unwrap();
    local(async {
        let mut others = Vec::new();
        for _ in 0..5 {
            others.push(Running::spawn(&sh("exec sleep 99")).unwrap());
        }
        let mut running =
            Running::spawn(&sh("for fd in /proc/$$/fd/*; do [ -e $fd ] && echo ${fd##*/}; done"))
                .unwrap();
        let ending = running.wait().await;
        let seen = std::str::from_utf8(ending.stdout.bytes()).unwrap();
        let opened_here: Vec<&str> = seen.lines().filter(|fd| !passed_on(fd)).collect();
        assert_eq!(opened_here, Vec::<&str>::new(), "{seen}");
        assert!(seen.starts_with("0\n1\n"), "{seen}");
    });
}

#[test]
fn the_task_leads_a_group_of_its_own() {
    local(async {
        let mut running = Running::spawn(&sh("exec sleep 99")).unwrap();
        let (_, parent, group) = stat(pid(&running)).unwrap();
        assert_eq!(group, pid(&running));
        assert_eq!(parent, i32::try_from(std::process::id()).unwrap());
        running.stopper().kill();
        running.wait().await;
    });
}

#[test]
fn the_task_begins_with_no_signal_blocked_and_sigpipe_as_usual() {
    let detail = run(&sh("grep -E '^Sig(Blk|Ign)' /proc/self/status")).detail();
    assert!(detail.contains("SigBlk:\t0000000000000000"), "{detail}");
    let ignored = detail.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
    assert_eq!(u64::from_str_radix(ignored, 16).unwrap() & 1 << 12, 0, "SIGPIPE is not ignored");
}

#[test]
fn arguments_are_data() {
    let mut command = command(["printf", "%s\\n", "$HOME `id`; exit", "--", "", "-n"]);
    command.argv.push(std::os::unix::ffi::OsStringExt::from_vec(vec![0xff, b'\n']));
    assert_eq!(run(&command).stdout.bytes(), b"$HOME `id`; exit\n--\n\n-n\n\xff\n\n");
}

#[test]
fn the_working_directory_is_the_one_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    let mut command = command(["pwd"]);
    command.cwd = Some(path.clone());
    assert_eq!(run(&command).detail(), format!("[stdout]\n{}\n", path.display()));
}

#[test]
fn programs_are_looked_up_as_the_task_would() {
    let directory = tempfile::tempdir().unwrap();
    let bin = directory.path().join("bin");
    let decoy = directory.path().join("decoy");
    std::fs::create_dir_all(decoy.join("tool")).unwrap();
    std::fs::create_dir(&bin).unwrap();
    write_script(&bin, "tool", "#!/bin/sh\necho \"$0\"\n", 0o755);
    write_script(directory.path(), "here", "#!/bin/sh\necho here\n", 0o755);

    let mut by_path = command(["tool"]);
    by_path.env = vec![(
        "PATH".into(),
        format!("/nowhere:{}:{}:/bin", decoy.display(), bin.display()).into(),
    )];
    assert_eq!(run(&by_path).detail(), format!("[stdout]\n{}\n", bin.join("tool").display()));

    by_path.env = vec![("PATH".into(), "bin".into())];
    by_path.cwd = Some(directory.path().into());
    assert_eq!(run(&by_path).detail(), "[stdout]\nbin/tool\n");

    let mut relative = command(["./here"]);
    relative.cwd = Some(directory.path().into());
    assert_eq!(run(&relative).detail(), "[stdout]\nhere\n");
    relative.argv = vec!["here".into()];
    relative.env = vec![("PATH".into(), "/bin:".into())];
    assert_eq!(run(&relative).detail(), "[stdout]\nhere\n");
}

#[test]
fn the_temporary_file_is_private_and_gone_after_every_end() {
    let directory = tempfile::tempdir().unwrap();
    let wrap = |exe: &std::path::Path| {
        let mut process = Command::new(exe);
        process.env("TMPDIR", directory.path());
        process
    };
    alone_by("environment::the_temporary_file_is_private_and_gone_after_every_end", wrap, || {
        let names = || {
            std::fs::read_dir(std::env::temp_dir()).unwrap().map(|entry| entry.unwrap().file_name())
        };
        let left =
            || names().filter(|name| name.to_string_lossy().starts_with("leasehold-")).count();
        let contents = b"prompt: \"a \0 b\"\n".to_vec();
        let mut command =
            command(["sh", "-c", "stat -c %a:%n \"$1\"; cat \"$1\"; exit 1", "sh", "{TMP}"]);
        command.temp_file = Some(TempFile { argv_index: 4, contents: contents.clone() });
        let ending = run(&command);
        let (first, rest) = ending
            .stdout
            .bytes()
            .split_at(ending.stdout.bytes().iter().position(|b| *b == b'\n').unwrap());
        let first = std::str::from_utf8(first).unwrap();
        assert_eq!(&rest[1..], contents);
        let name =
            first.strip_prefix(&format!("600:{}/leasehold-", std::env::temp_dir().display()));
        assert!(name.is_some_and(|name| name.ends_with(".yaml")), "{first}");
        assert_eq!(left(), 0);

        command.argv[0] = "/nowhere/program".into();
        assert_eq!(
            leasehold::process::direct::run_to_end(&command).unwrap_err().code(),
            "program_missing"
        );
        assert_eq!(left(), 0, "after a start that failed");

        command.argv = vec!["sleep".into(), "99".into(), "{TMP}".into()];
        command.temp_file = Some(TempFile { argv_index: 3, contents: contents.clone() });
        let error = leasehold::process::direct::run_to_end(&command).unwrap_err();
        assert_eq!(*error.fault(), SpawnFault::NoPlaceholder { index: 3, len: 3 });

        command.argv = vec!["sh".into(), "-c".into(), "exec sleep 99".into(), "{TMP}".into()];
        local(async {
            for stop in ["kill", "terminate", "drop"] {
                let mut running = Running::spawn(&command).unwrap();
                assert_eq!(left(), 1);
                match stop {
                    "kill" => assert!(running.stopper().kill()),
                    "terminate" => assert!(running.stopper().terminate(DEADLINE)),
                    _ => {
                        drop(running);
                        eventually("the file is gone", || (left() == 0).then_some(())).await;
                        continue;
                    }
                }
                running.wait().await;
                assert_eq!(left(), 0, "after {stop}");
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _running = runtime.block_on(async { Running::spawn(&command).unwrap() });
        assert_eq!(left(), 1);
        drop(runtime);
        assert_eq!(left(), 0, "after the runtime was dropped");
    });
}
