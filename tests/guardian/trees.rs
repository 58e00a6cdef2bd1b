//! Everything that a task has started ends with it.

use std::time::{Duration, Instant};

use leasehold::process::End;
use leasehold::process::guardian::{BootTime, EndedBy, StopReason};
use rustix::process::Signal;

use super::support::*;

/// A task that does not want to end, with descendants that want to even less. Each writes its number
/// to a file.
const STUBBORN: &str = r#"
    trap '' TERM INT HUP
    # In the task's group.
    sleep 300 & echo $! > $D/group
    # A session of its own.
    setsid sh -c 'trap "" TERM; echo $$ > $D/session; exec sleep 300' &
    # Forked twice, so that its parent is gone.
    (setsid sh -c 'sh -c "trap \"\" TERM; echo \$\$ > $D/double; exec sleep 300" & exit 0' &)
    # Stopped.
    sh -c 'echo $$ > $D/stopped; kill -STOP $$; exec sleep 300' &
    # Stopped, out of the group.
    setsid sh -c 'echo $$ > $D/away; kill -STOP $$; exec sleep 300' &
    # With a child and a grandchild out of the group.
    setsid sh -c 'trap "" TERM; (sh -c "echo \$\$ > $D/deep; sleep 300; :"; :) & wait' &
    # A group of its own in the task's session.
    setsid sh -m -c 'trap "" TERM; sleep 300 & echo $! > $D/job; wait' &
    echo $$ > $D/leader
    wait
    wait
"#;

async fn stubborn(place: &Place) -> Vec<i32> {
    let mut pids = Vec::new();
    for name in ["group", "session", "double", "stopped", "away", "deep", "job", "leader"] {
        pids.push(number_in(&place.file(name)).await);
    }
    for pid in [pids[3], pids[4]] {
        stopped(pid).await;
    }
    pids
}

#[test]
fn a_stop_ends_all_of_them() {
    local(async {
        let place = place();
        let mut guardian = start(&place, &sh(&place, STUBBORN)).await;
        let pids = stubborn(&place).await;
        let begin = Instant::now();
        guardian.stop(Duration::from_millis(200), StopReason::Cancel).unwrap();
        let record = record(guardian.exited().await);
        let took = begin.elapsed();
        // At once when the end is told, not some time after it.
        assert_gone(&pids);
        assert!(took >= Duration::from_millis(200) && took < DEADLINE, "{took:?}");
        assert_eq!(record.ended_by, EndedBy::Cancel);
        assert_eq!(record.end, End::Signalled { signal: 9, core_dumped: false });
        assert!(record.leftovers_killed >= 7, "{record:?}");
    });
}

#[test]
fn the_fence_ends_all_of_them() {
    local(in_time(async |reach| {
        let place = place();
        let mut spec = sh(&place, STUBBORN);
        spec.fence = BootTime::now().saturating_add(reach);
        let mut guardian = start_in_time(&place, &spec).await?;
        let pids = tokio::select! {
            biased;
            pids = stubborn(&place) => pids,
            _ = guardian.exited() => return None,
        };
        let record = record(guardian.exited().await);
        assert_gone(&pids);
        assert!(BootTime::now() >= spec.fence.saturating_add(GRACE));
        assert_eq!(record.ended_by, EndedBy::Fence);
        Some(())
    }));
}

#[test]
fn the_task_s_own_end_ends_all_of_them() {
    local(async {
        let place = place();
        let end = "    until [ -e $D/go ]; do sleep 0.01; done; exit 4\n";
        let script = STUBBORN.replace("    wait\n    wait\n", end);
        let mut guardian = start(&place, &sh(&place, &script)).await;
        let pids = stubborn(&place).await;
        std::fs::write(place.file("go"), "").unwrap();
        let record = record(guardian.exited().await);
        assert_gone(&pids);
        assert_eq!((record.end, record.ended_by), (End::Exited(4), EndedBy::Task));
    });
}

#[test]
fn a_stopped_task_hears_its_term() {
    local(async {
        let place = place();
        let script = "trap 'echo heard; exit 3' TERM; echo $$ > $D/leader; kill -STOP $$
            while :; do sleep 0.01; done";
        let mut guardian = start(&place, &sh(&place, script)).await;
        let leader = number_in(&place.file("leader")).await;
        stopped(leader).await;
        guardian.stop(DEADLINE, StopReason::Cancel).unwrap();
        assert_eq!(record(guardian.exited().await).stdout.tail.bytes(), b"heard\n");
    });
}

#[test]
fn orphans_are_reaped_while_the_task_runs() {
    local(async {
        let place = place();
        let script = "i=0; while [ $i -lt 100 ]; do (true &); i=$((i+1)); done
            touch $D/forked; exec sleep 300";
        let mut guardian = start(&place, &sh(&place, script)).await;
        written(&place.file("forked")).await;
        let pid = guardian_pid(&guardian);
        eventually("one child is left", || {
            let list = format!("/proc/{pid}/task/{pid}/children");
            let children = std::fs::read_to_string(list).unwrap();
            (children.split_ascii_whitespace().count() == 1).then_some(())
        })
        .await;
        guardian.stop(Duration::ZERO, StopReason::Stop).unwrap();
        guardian.exited().await;
    });
}

#[test]
fn a_flood_of_forks_is_ended() {
    local(async {
        let place = place();
        std::fs::write(
            place.file("bomb"),
            "trap '' TERM\nif [ $1 -gt 0 ]; then setsid sh $0 $(($1-1)) & setsid sh $0 $(($1-1)) & fi\n\
             [ $1 -eq 0 ] && echo x >> $D/leaves\nsleep 300\nsleep 300\n",
        )
        .unwrap();
        let script = "setsid sh $D/bomb 7 & wait";
        let mut guardian = start(&place, &sh(&place, script)).await;
        eventually("it has spread", || {
            (std::fs::read(place.file("leaves")).ok()?.len() >= 2 * 20).then_some(())
        })
        .await;
        let begin = Instant::now();
        guardian.stop(Duration::ZERO, StopReason::Stop).unwrap();
        let record = record(guardian.exited().await);
        println!("{} killed in {:?}", record.leftovers_killed, begin.elapsed());
        assert!(record.unkillable.is_empty());
        let mark = format!("D={}", place.slot.path().display());
        assert_eq!(with_environment(&mark), [0; 0], "nothing of it is left");
    });
}

/// Processes with this entry in their environment.
fn with_environment(entry: &str) -> Vec<i32> {
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|process| process.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| {
        std::fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|all| all.split(|byte| *byte == 0).any(|one| one == entry.as_bytes()))
    })
    .collect()
}

#[test]
fn a_stop_right_after_the_start_never_meets_our_own_group() {
    alone("trees::a_stop_right_after_the_start_never_meets_our_own_group", || {
        // Another member of our group, which any stray signal would end.
        let mut canary = std::process::Command::new("sleep").arg("300").spawn().unwrap();
        local(async {
            for round in 0..200 {
                let place = place();
                let mut guardian = start(&place, &sh(&place, "sleep 300 & wait")).await;
                let task = task_pid(&guardian);
                if round % 3 == 1 {
                    std::thread::sleep(Duration::from_micros(5 * round));
                }
                let grace = Duration::from_millis(if round % 2 == 0 { 0 } else { 2000 });
                guardian.stop(grace, StopReason::Cancel).unwrap();
                let record = record(guardian.exited().await);
                assert_eq!(record.ended_by, EndedBy::Cancel, "round {round}");
                assert!(record.end.signal_is(&[9, 15]), "{:?}", record.end);
                assert_gone(&[task]);
            }
        });
        assert_eq!(canary.try_wait().unwrap(), None, "the group is untouched");
        canary.kill().unwrap();
        canary.wait().unwrap();
    });
}

trait SignalIs {
    fn signal_is(&self, any: &[i32]) -> bool;
}

impl SignalIs for End {
    fn signal_is(&self, any: &[i32]) -> bool {
        matches!(self, End::Signalled { signal, .. } if any.contains(signal))
    }
}

#[test]
fn a_process_that_cannot_be_killed_is_reported_and_its_lock_is_kept() {
    let Some(freezer) = Freezer::new() else {
        eprintln!("SKIPPED: no cgroup of version 1 to freeze a process in");
        return;
    };
    local(async {
        let place = place();
        let mut spec = sh(&place, "setsid sleep 300 & echo $! > $D/frozen; exec sleep 300");
        let lock = place.file("machine.lock");
        let file = std::fs::File::create(&lock).unwrap();
        file.lock().unwrap();
        spec.locks.push(file.into());
        let mut guardian = start(&place, &spec).await;
        drop(spec);
        let frozen = number_in(&place.file("frozen")).await;
        freezer.freeze(frozen);
        guardian.stop(Duration::ZERO, StopReason::Cancel).unwrap();
        let record = record(guardian.exited().await);
        assert_eq!((record.ended_by, record.unkillable), (EndedBy::Cancel, vec![frozen]));
        let file = std::fs::File::open(&lock).unwrap();
        assert!(file.try_lock().is_err(), "it holds what it holds");
        assert!(place.dir.try_lock_guard().unwrap().is_none());
        freezer.thaw();
        gone(&[frozen, guardian_pid(&guardian)]).await;
        file.try_lock().unwrap();
    });
}

/// A stand-in for a process that is stuck in the kernel: frozen, it does not act on SIGKILL.
struct Freezer(std::path::PathBuf);

impl Freezer {
    fn new() -> Option<Self> {
        let path = format!("/sys/fs/cgroup/freezer/leasehold-test-{}", std::process::id());
        std::fs::create_dir(&path).ok()?;
        Some(Self(path.into()))
    }

    fn freeze(&self, pid: i32) {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
        std::fs::write(self.0.join("freezer.state"), "FROZEN").unwrap();
    }

    fn thaw(&self) {
        std::fs::write(self.0.join("freezer.state"), "THAWED").unwrap();
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.thaw();
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn reused_numbers_never_lead_to_a_stranger() {
    const NAME: &str = "trees::reused_numbers_never_lead_to_a_stranger";
    let namespace = ["unshare", "--pid", "--fork", "--mount-proc"];
    if !is_alone(NAME) {
        let mut allowed = std::process::Command::new(namespace[0]);
        if !allowed.args(&namespace[1..]).arg("true").status().is_ok_and(|status| status.success())
        {
            eprintln!("SKIPPED: no namespace of process numbers can be made here");
            return;
        }
    }
    alone_by(NAME, by(&namespace), || {
        if std::fs::write("/proc/sys/kernel/pid_max", "400").is_err() {
            eprintln!("SKIPPED: the kernel keeps no limit of numbers per namespace");
            return;
        }
        local(async {
            let mut strangers = Vec::new();
            let (mut rounds, mut highest, mut reused) = (0, 0, 0);
            let begin = Instant::now();
            while rounds < 8 || reused <= 50 || (reused < 200 && begin.elapsed() < DEADLINE) {
                rounds += 1;
                let place = place();
                // Numbers are given and taken back all the time, in the tree and beside it.
                let script = "i=0; while [ $i -lt 4 ]; do
                        setsid sh -c 'while :; do (true &); (setsid sleep 0.01 &); done' & i=$((i+1))
                    done; trap '' TERM; while :; do (true &); done";
                let mut guardian = start(&place, &sh(&place, script)).await;
                for _ in 0..8 {
                    let stranger = std::process::Command::new("sleep").arg("300").spawn();
                    strangers.extend(stranger);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                for stranger in &strangers {
                    let pid = stranger.id();
                    reused += usize::from(pid < highest);
                    highest = highest.max(pid);
                }
                guardian.stop(Duration::from_millis(20), StopReason::Stop).unwrap();
                let record = record(guardian.exited().await);
                assert!(record.unkillable.is_empty(), "{record:?}");
                for stranger in &mut strangers {
                    assert_eq!(stranger.try_wait().unwrap(), None, "a stranger was signalled");
                }
                for mut stranger in strangers.drain(..strangers.len().min(4)) {
                    stranger.kill().unwrap();
                    stranger.wait().unwrap();
                }
            }
            println!("{rounds} rounds, {reused} strangers with a number that was used before");
            for mut stranger in strangers {
                stranger.kill().unwrap();
                stranger.wait().unwrap();
            }
        });
    });
}

#[test]
fn signals_to_the_guardian_s_own_group_do_not_reach_the_task() {
    local(async {
        let place = place();
        let script = "until [ -e $D/go ]; do sleep 0.01; done; exit 3";
        let mut guardian = start(&place, &sh(&place, script)).await;
        let group = rustix::process::Pid::from_raw(guardian_pid(&guardian)).unwrap();
        assert_eq!(rustix::process::getpgid(Some(group)).unwrap(), group, "a group of its own");
        rustix::process::kill_process_group(group, Signal::TERM).unwrap();
        std::fs::write(place.file("go"), "").unwrap();
        assert_eq!(record(guardian.exited().await).end, End::Exited(3));
    });
}
