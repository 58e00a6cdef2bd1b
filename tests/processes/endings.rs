//! Exit codes and signals as the kernel gave them, and when a run is over.

use std::time::{Duration, Instant};

use leasehold::process::End;
use leasehold::process::direct::{Running, run_to_end};

use super::support::*;

#[test]
fn exit_codes_are_kept() {
    for code in [0, 1, 2, 126, 127, 128, 137, 254, 255] {
        let ending = run(&sh(&format!("exit {code}")));
        assert_eq!(ending.end, End::Exited(code));
        assert_eq!(<(i32, String)>::from(ending.clone()), (code, String::new()));
        assert!(!ending.stopped);
    }
}

#[test]
fn signals_are_kept_apart_from_codes() {
    for signal in [1, 2, 6, 9, 10, 11, 13, 15, 34, 64] {
        let ending = run(&hearing_sh(&format!("ulimit -c 0; kill -{signal} $$")));
        assert_eq!(ending.end, End::Signalled { signal, core_dumped: false });
        assert_eq!((ending.exit_code(), ending.signal()), (-signal, Some(signal)));
        assert!(!ending.stopped);
    }
}

#[test]
fn a_core_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = hearing_sh("ulimit -c unlimited 2>/dev/null && kill -QUIT $$");
    command.cwd = Some(directory.path().into());
    let ending = run(&command);
    assert_eq!(ending.signal(), Some(3));
    // Whether a core is written is for the machine to say; where it lands in the directory, it must
    // have been told.
    let cores = std::fs::read_dir(directory.path()).unwrap().count();
    assert!(cores == 0 || ending.core_dumped(), "{ending:?}");
}

#[test]
fn a_grandchild_that_holds_the_pipe_does_not_hold_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pid");
    let begin = Instant::now();
    let ending = run(&sh(&format!("sleep 99 & echo $! > {}; echo said; exit 3", file.display())));
    let took = begin.elapsed();
    assert_eq!((ending.exit_code(), ending.detail().as_str()), (3, "[stdout]\nsaid\n"));
    assert!(took >= Duration::from_millis(1900) && took < DEADLINE, "{took:?}");
    // The group is killed at the end of the run.
    local(async { gone(number_in(&file).await).await });
}

#[test]
fn a_grandchild_without_the_pipe_is_killed_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pid");
    // Whoever waited for it would do so for two seconds, each time.
    let quick = (0..20).any(|_| {
        let begin = Instant::now();
        let ending = run(&sh(&format!("sleep 99 >/dev/null 2>&1 & echo $! > {}", file.display())));
        let took = begin.elapsed();
        assert_eq!(ending.end, End::Exited(0));
        local(async { gone(number_in(&file).await).await });
        took < Duration::from_millis(1900)
    });
    assert!(quick, "it always took longer");
}

/// It has two seconds for that, which can be too little on a busy machine; but not each time.
#[test]
fn what_a_grandchild_says_just_after_the_leader_is_heard() {
    let heard = (0..10).any(|_| {
        let detail = run(&sh("(sleep 0.3; echo late >&2) & exit 1")).detail();
        assert!(detail.is_empty() || detail == "late\n", "{detail}");
        !detail.is_empty()
    });
    assert!(heard);
}

#[test]
fn a_flooding_grandchild_outside_the_group_does_not_hold_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pid");
    let begin = Instant::now();
    let ending = run(&sh(&format!(
        "setsid sh -c 'echo $$ > {0}; exec yes' & until [ -s {0} ]; do sleep 0.01; done",
        file.display()
    )));
    let took = begin.elapsed();
    assert_eq!(ending.end, End::Exited(0));
    assert!(took < DEADLINE, "{took:?}");
    // Out of the group is out of reach for a direct child, but its pipe is closed: it dies of
    // SIGPIPE.
    local(async { gone(number_in(&file).await).await });
}

#[test]
fn a_leader_that_closes_its_streams_runs_on() {
    let begin = Instant::now();
    let ending = run(&sh("echo before; exec >&- 2>&-; sleep 0.7; exit 9"));
    assert_eq!((ending.exit_code(), ending.detail().as_str()), (9, "[stdout]\nbefore\n"));
    assert!(begin.elapsed() >= Duration::from_millis(700), "{:?}", begin.elapsed());
}

#[test]
fn dropping_the_wait_loses_nothing() {
    local(async {
        let directory = tempfile::tempdir().unwrap();
        let go = directory.path().join("go");
        let script = "echo out; until [ -e $GO ]; do sleep 0.01; done; echo err >&2; exit 4";
        let mut command = sh(script);
        command.env = vec![("GO".into(), go.clone().into())];
        let mut running = Running::spawn(&command).unwrap();
        for _ in 0..20 {
            let wait = tokio::time::timeout(Duration::from_millis(5), running.wait());
            assert!(wait.await.is_err(), "it has not been let go");
        }
        std::fs::write(&go, "").unwrap();
        let ending = loop {
            let wait = tokio::time::timeout(Duration::from_millis(5), running.wait());
            if let Ok(ending) = wait.await {
                break ending;
            }
        };
        assert_eq!((ending.exit_code(), ending.detail().as_str()), (4, "err\n\n[stdout]\nout\n"));
        assert_eq!(running.wait().await, ending, "a later call gives the same answer");
    });
}

#[test]
fn a_run_works_in_every_kind_of_place() {
    assert_eq!(run(&sh("exit 5")).exit_code(), 5);
    local(async { assert_eq!(run_to_end(&sh("exit 6")).unwrap().exit_code(), 6) });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let blocking = runtime.block_on(async {
        tokio::task::spawn_blocking(|| run_to_end(&sh("exit 7")).unwrap().exit_code())
            .await
            .unwrap()
    });
    assert_eq!(blocking, 7);
    let error = Running::spawn(&sh("exit 8")).unwrap_err();
    assert_eq!(error.code(), "no_runtime");
}

#[test]
fn a_status_that_was_lost_is_not_made_up() {
    // Started with SIGCHLD ignored, a process has its children reaped by the kernel.
    let wrap = |exe: &std::path::Path| {
        let mut process = std::process::Command::new("env");
        process.arg("--ignore-signal=CHLD").arg(exe);
        process
    };
    alone_by("endings::a_status_that_was_lost_is_not_made_up", wrap, || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
        assert_ne!(u64::from_str_radix(ignored, 16).unwrap() & 1 << 16, 0, "SIGCHLD is ignored");
        let ending = run(&sh("echo said; exit 3"));
        assert_eq!((ending.end, ending.exit_code()), (End::Lost, 1));
        assert!(
            ending.detail().contains("was lost") && ending.detail().ends_with("said\n"),
            "{}",
            ending.detail()
        );
        local(async {
            let mut running = Running::spawn(&sh("exec sleep 99")).unwrap();
            assert!(running.stopper().terminate(Duration::from_secs(9)));
            assert_eq!(running.wait().await.end, End::Lost);
        });
    });
}
