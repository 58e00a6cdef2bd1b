//! How a task ends, and what is written of it.

use std::time::{Duration, Instant};

use leasehold::process::End;
use leasehold::process::guardian::{
    BootTime, ConnectError, EndedBy, Guardian, GuardianEnd, LogStream, StopReason,
};
use rustix::process::Signal;

use super::support::*;

#[test]
fn codes_signals_and_cores_are_as_the_kernel_gave_them() {
    local(async {
        for (script, end) in [
            ("exit 0", End::Exited(0)),
            ("exit 255", End::Exited(255)),
            ("exit 137", End::Exited(137)),
            ("kill -KILL $$", End::Signalled { signal: 9, core_dumped: false }),
            ("ulimit -c 0; kill -SEGV $$", End::Signalled { signal: 11, core_dumped: false }),
        ] {
            let place = place();
            let record = run(&place, script).await;
            assert_eq!((record.end, record.ended_by), (end, EndedBy::Task), "{script}");
            assert!(record.unkillable.is_empty());
            assert_eq!(place.dir.exit_record().unwrap(), Some(record.clone()), "what is on disk");
            assert!(record.started_at > 1.6e9 && record.ended_at >= record.started_at);
        }
    });
}

#[test]
fn a_core_that_was_written_is_noted() {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    if pattern.starts_with('|') || pattern.starts_with('/') {
        eprintln!("SKIPPED: cores go elsewhere here: {pattern}");
        return;
    }
    local(async {
        let place = place();
        let record = run(&place, "cd $D; ulimit -c unlimited; kill -SEGV $$").await;
        assert_eq!(record.end, End::Signalled { signal: 11, core_dumped: true });
    });
}

#[test]
fn output_and_resource_use_are_recorded() {
    local(async {
        let place = place();
        let script = r#"printf 'a"\\b\001\303\n'; echo err >&2
            i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; exit 3"#;
        let record = run(&place, script).await;
        assert_eq!(record.end, End::Exited(3));
        assert_eq!(record.stdout.tail.bytes(), b"a\"\\b\x01\xc3\n");
        assert_eq!(record.stderr.tail.bytes(), b"err\n");
        assert_eq!(whole_log(&place.dir, LogStream::Stdout), b"a\"\\b\x01\xc3\n");
        assert_eq!(std::fs::read(place.dir.path().join("err.log")).unwrap(), b"err\n");
        assert!(record.user_seconds > 0.01 && record.max_rss_kib > 100, "{record:?}");
        assert_eq!(record.ending().exit_code(), 3);
        let mut names: Vec<_> = std::fs::read_dir(place.dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let left = ["err.log", "exit.json", "guard.lock", "out.log", "run.json", "token"];
        assert_eq!(names, left, "nothing else is left");
    });
}

#[test]
fn the_same_answer_as_often_as_it_is_asked() {
    local(async {
        let place = place();
        let mut guardian = start(&place, &sh(&place, "exit 4")).await;
        let first = guardian.exited().await;
        assert_eq!(guardian.exited().await, first);
        assert!(matches!(Guardian::connect(&place.dir).await, Err(ConnectError::Ended(_))));
    });
}

#[test]
fn a_stop_says_why() {
    local(async {
        for (reason, by) in [
            (StopReason::Cancel, EndedBy::Cancel),
            (StopReason::Stop, EndedBy::Stop),
            (StopReason::Timeout, EndedBy::Timeout),
        ] {
            let place = place();
            let mut guardian = start(&place, &sh(&place, "exec sleep 300")).await;
            guardian.stop(Duration::from_secs(60), reason).unwrap();
            let record = record(guardian.exited().await);
            assert_eq!(record.ended_by, by);
            assert_eq!(record.end, End::Signalled { signal: 15, core_dumped: false });
        }
    });
}

#[test]
fn a_task_may_use_its_grace() {
    local(async {
        let place = place();
        let script = "trap 'echo bye; exit 5' TERM; touch $D/ready; while :; do sleep 0.01; done";
        let mut guardian = start(&place, &sh(&place, script)).await;
        written(&place.file("ready")).await;
        guardian.stop(Duration::from_secs(60), StopReason::Cancel).unwrap();
        let record = record(guardian.exited().await);
        assert_eq!((record.end, record.ended_by), (End::Exited(5), EndedBy::Cancel));
        assert_eq!(record.stdout.tail.bytes(), b"bye\n");
    });
}

#[test]
fn a_second_stop_only_brings_the_kill_forward() {
    local(async {
        let place = place();
        let script = "trap 'echo term; touch $D/heard' TERM; touch $D/ready
            while :; do sleep 0.01; done";
        let mut guardian = start(&place, &sh(&place, script)).await;
        written(&place.file("ready")).await;
        guardian.stop(Duration::from_secs(600), StopReason::Cancel).unwrap();
        written(&place.file("heard")).await;
        guardian.stop(Duration::from_secs(900), StopReason::Stop).unwrap();
        let begin = Instant::now();
        guardian.control().stop(Duration::from_millis(200), StopReason::Stop).unwrap();
        let record = record(guardian.exited().await);
        assert!(begin.elapsed() >= Duration::from_millis(200) && begin.elapsed() < DEADLINE);
        assert_eq!(record.ended_by, EndedBy::Cancel, "the first reason stands");
        assert_eq!(record.end.signal_number(), 9);
        assert_eq!(record.stdout.tail.bytes(), b"term\n", "one TERM only");
    });
}

trait SignalNumber {
    fn signal_number(&self) -> i32;
}

impl SignalNumber for End {
    fn signal_number(&self) -> i32 {
        match self {
            End::Signalled { signal, .. } => *signal,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_stop_that_finds_the_task_ended_changes_nothing() {
    local(async {
        // What the task has left behind keeps the run open for a moment.
        let place = place();
        let mut guardian = start(&place, &sh(&place, "sleep 300 & exit 6")).await;
        let task = task_pid(&guardian);
        eventually("the leader has left", || (!is_alive(task)).then_some(())).await;
        let _ = guardian.stop(Duration::ZERO, StopReason::Cancel);
        let record = record(guardian.exited().await);
        assert_eq!((record.end, record.ended_by), (End::Exited(6), EndedBy::Task));
    });
}

#[test]
fn at_the_fence_the_task_ends_and_extend_moves_it_forward_only() {
    local(in_time(async |reach| {
        let place = place();
        let mut spec = sh(&place, IGNORES_TERM);
        let begin = BootTime::now();
        spec.fence = begin.saturating_add(reach);
        let mut guardian = start_in_time(&place, &spec).await?;
        written_in_time(&place.file("ready"), &mut guardian).await?;
        guardian.extend(begin.saturating_add(2 * reach)).ok()?;
        guardian.extend(begin.saturating_add(reach / 4)).ok()?;
        if BootTime::now() >= spec.fence {
            return None;
        }
        let record = record(guardian.exited().await);
        let took = BootTime::now().saturating_since(begin);
        assert_eq!(record.ended_by, EndedBy::Fence);
        assert!(took >= 2 * reach + GRACE, "{took:?}");
        assert!(took < 2 * reach + DEADLINE, "{took:?}");
        Some(())
    }));
}

#[test]
fn a_fence_that_ends_the_task_is_not_taken_back_and_cuts_the_grace() {
    local(in_time(async |reach| {
        let place = place();
        let mut spec = sh(&place, IGNORES_TERM);
        spec.fence = BootTime::now().saturating_add(reach);
        let mut guardian = start_in_time(&place, &spec).await?;
        written_in_time(&place.file("ready"), &mut guardian).await?;
        // A stop with a grace beyond the fence is over by the fence and the lease's own grace.
        guardian.stop(FAR, StopReason::Stop).ok()?;
        if BootTime::now() >= spec.fence {
            return None;
        }
        guardian.extend(BootTime::now().saturating_add(FAR)).ok()?;
        let begin = Instant::now();
        let record = record(guardian.exited().await);
        assert!(begin.elapsed() < reach + DEADLINE, "{:?}", begin.elapsed());
        assert_eq!((record.ended_by, record.end.signal_number()), (EndedBy::Stop, 9));
        Some(())
    }));
}

/// A task may have asked for a long grace. After its lease another may have it.
#[test]
fn at_the_fence_the_task_has_its_grace_or_the_lease_s_whichever_is_shorter() {
    for graces in [(FAR, GRACE), (GRACE, FAR)] {
        local(in_time(async |reach| {
            let place = place();
            let mut spec = sh(&place, IGNORES_TERM);
            spec.fence = BootTime::now().saturating_add(reach);
            (spec.grace, spec.lease_grace) = graces;
            let mut guardian = start_in_time(&place, &spec).await?;
            written_in_time(&place.file("ready"), &mut guardian).await?;
            let record = record(guardian.exited().await);
            assert_eq!((record.ended_by, record.end.signal_number()), (EndedBy::Fence, 9));
            Some(())
        }));
    }
}

#[test]
fn a_stop_for_a_lost_lease_is_recorded_as_one() {
    local(async {
        let place = place();
        let mut guardian = start(&place, &sh(&place, "exec sleep 300")).await;
        guardian.stop(GRACE, StopReason::Fence).unwrap();
        assert_eq!(record(guardian.exited().await).ended_by, EndedBy::Fence);
    });
}

#[test]
fn a_timeout_is_not_a_fence() {
    local(async {
        let place = place();
        let mut spec = sh(&place, "exec sleep 300");
        spec.timeout = Some(Duration::from_millis(200));
        let begin = Instant::now();
        let mut guardian = start(&place, &spec).await;
        let record = record(guardian.exited().await);
        assert!(begin.elapsed() >= Duration::from_millis(200));
        assert_eq!(record.ended_by, EndedBy::Timeout);
    });
}

#[test]
fn a_grandchild_that_holds_the_output_does_not_hold_the_run() {
    local(async {
        for script in [
            // In the task's group, and out of it.
            "echo whole; sleep 300 & exit 2",
            "echo whole; setsid sleep 300 & sleep 0.1; exit 2",
            "echo whole; (trap '' TERM; exec sleep 300) & exit 2",
        ] {
            let took = with_a_grandchild(script).await;
            assert!(took < DEADLINE, "{script}: {took:?}");
        }
    });
}

/// Whoever waited for it would do so for a second, each time.
#[test]
fn a_grandchild_without_the_output_is_not_waited_for() {
    local(async {
        for _ in 0..20 {
            let script = "echo whole; setsid sleep 300 >/dev/null 2>&1 & sleep 0.1; exit 2";
            if with_a_grandchild(script).await < Duration::from_millis(1100) {
                return;
            }
        }
        panic!("it always took longer");
    });
}

/// How long such a run takes, which ends with code 2.
async fn with_a_grandchild(script: &str) -> Duration {
    let place = place();
    let begin = Instant::now();
    let record = run(&place, script).await;
    let took = begin.elapsed();
    assert_eq!((record.end, record.ended_by), (End::Exited(2), EndedBy::Task), "{script}");
    assert_eq!(record.leftovers_killed, 1, "{script}");
    assert_eq!(record.stdout.tail.bytes(), b"whole\n", "{script}");
    took
}

/// It has a second for that, which can be too little on a busy machine; but not each time.
#[test]
fn what_follows_the_leader_may_finish_what_it_writes() {
    local(async {
        for _ in 0..20 {
            let record = run(&place(), "(sleep 0.3; echo late) & exit 0").await;
            if record.leftovers_killed == 0 {
                assert_eq!(record.stdout.tail.bytes(), b"late\n");
                return;
            }
        }
        panic!("it was never let finish");
    });
}

#[test]
fn a_leader_without_outputs_runs_on() {
    local(async {
        let place = place();
        let begin = Instant::now();
        let record = run(&place, "exec >&- 2>&-; sleep 0.5; exit 8").await;
        assert_eq!(record.end, End::Exited(8));
        assert!(begin.elapsed() >= Duration::from_millis(500));
    });
}

#[test]
fn dropping_the_handle_leaves_the_task_running() {
    local(async {
        let place = place();
        let guardian = start(&place, &sh(&place, "sleep 0.3; echo done; exit 9")).await;
        drop(guardian);
        let record = eventually("the record", || place.dir.exit_record().unwrap()).await;
        assert_eq!((record.end, record.ended_by), (End::Exited(9), EndedBy::Task));
        assert_eq!(record.stdout.tail.bytes(), b"done\n");
    });
}

#[test]
fn a_guardian_that_is_stopped_loses_nothing() {
    local(async {
        let place = place();
        let script = "echo one; until [ -e $D/go ]; do sleep 0.01; done; echo two; exit 3";
        let mut guardian = start(&place, &sh(&place, script)).await;
        let pid = guardian_pid(&guardian);
        signal(pid, Signal::STOP);
        stopped(pid).await;
        std::fs::write(place.file("go"), "").unwrap();
        gone(&[task_pid(&guardian)]).await;
        for term in [Signal::TERM, Signal::INT] {
            signal(pid, term);
        }
        signal(pid, Signal::CONT);
        let end = guardian.exited().await;
        assert!(matches!(end, GuardianEnd::Ended(_)), "signals do not end a guardian: {end:?}");
        assert_eq!(record(end).stdout.tail.bytes(), b"one\ntwo\n");
    });
}
