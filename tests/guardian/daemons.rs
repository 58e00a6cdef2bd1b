//! A daemon dies, is stopped, comes back, or there are two of them.
//!
//! The daemon is this test program, started once more to run one test only.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::task::Poll;
use std::time::{Duration, Instant};

use leasehold::process::End;
use leasehold::process::guardian::{
    BootTime, ConnectError, DEFAULT_LOG_CAP, EndedBy, Guardian, GuardianEnd, RunDir, StartError,
    StopReason,
};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use rustix::process::Signal;

use super::support::*;

const DAEMON: &str = "daemons::a_daemon_of_a_test";

/// Starts a run in the slot that is named, renews its fence, and does nothing else.
#[test]
fn a_daemon_of_a_test() {
    if !is_alone(DAEMON) {
        return;
    }
    let variable = |name: &str| std::env::var(name).unwrap();
    let slot = std::path::PathBuf::from(variable("SLOT"));
    let reach = Duration::from_millis(variable("REACH").parse().unwrap());
    local(async {
        let dir = RunDir::create(&slot, "run-1", 7, DEFAULT_LOG_CAP).unwrap();
        let mut command = command(["/bin/sh", "-c", &variable("SCRIPT")]);
        command.env.push(("D".into(), slot.clone().into()));
        let mut spec = spec(command);
        spec.fence = BootTime::now().saturating_add(reach);
        let guardian = match Guardian::start(&program(), &dir, &spec).await {
            Err(StartError::FencePassed | StartError::Died { .. }) => return,
            started => started.unwrap(),
        };
        let pids = format!("{} {}", guardian.guardian_pid(), guardian.task_pid());
        std::fs::write(slot.join("pids.new"), pids).unwrap();
        std::fs::rename(slot.join("pids.new"), slot.join("pids")).unwrap();
        loop {
            tokio::time::sleep(reach / 4).await;
            let _ = guardian.extend(BootTime::now().saturating_add(reach));
        }
    });
}

struct Daemon {
    process: Child,
    guardian: i32,
    task: i32,
}

impl Daemon {
    /// Nothing when its task could not be started before the fence.
    async fn start(slot: &Path, reach: Duration, script: &str) -> Option<(Self, RunDir)> {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(arguments(DAEMON))
            .env("TEST_ALONE", DAEMON)
            .env("SLOT", slot)
            .env("REACH", reach.as_millis().to_string())
            .env("SCRIPT", script)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pids = eventually("the daemon has started its task", || {
            let has_left = process.try_wait().unwrap().is_some();
            let pids = std::fs::read_to_string(slot.join("pids")).ok();
            (has_left || pids.is_some()).then_some(pids)
        })
        .await?;
        let (guardian, task) = pids.split_once(' ').unwrap();
        let daemon =
            Self { process, guardian: guardian.parse().unwrap(), task: task.parse().unwrap() };
        let dir = RunDir::find(slot, "run-1", 7).unwrap().unwrap();
        Some((daemon, dir))
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.process.id()).unwrap()
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Counts, and can be asked to end.
const COUNTING: &str = "i=0; while [ ! -e $D/finish ]; do echo $i; i=$((i+1)); sleep 0.005; done
    echo $i > $D/last; exit 42";

fn counted_without_a_gap(output: &[u8], last: i32) {
    let numbers: Vec<i32> = text(output).lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(numbers, (0..last).collect::<Vec<_>>());
}

#[test]
fn a_killed_daemon_leaves_its_task_to_the_next() {
    local(async {
        let slot = tempfile::tempdir().unwrap();
        let (mut daemon, dir) = Daemon::start(slot.path(), FAR, COUNTING).await.unwrap();
        daemon.kill();
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(is_alive(daemon.task) && is_alive(daemon.guardian), "the task goes on");

        let listed = RunDir::list(slot.path()).unwrap();
        assert_eq!((listed.runs, listed.unreadable), (vec![dir.clone()], vec![]));
        let mut guardian = connect(&dir).await.unwrap();
        assert_eq!(guardian_pid(&guardian), daemon.guardian);
        assert_eq!(task_pid(&guardian), daemon.task);

        std::fs::write(slot.path().join("finish"), "").unwrap();
        let record = record(left(&mut guardian).await);
        assert_eq!((record.end, record.ended_by), (End::Exited(42), EndedBy::Task));
        let last = number_in(&slot.path().join("last")).await;
        counted_without_a_gap(&std::fs::read(dir.path().join("out.log")).unwrap(), last);
        assert!(matches!(Guardian::connect(&dir).await, Err(ConnectError::Ended(_))));
        dir.remove().unwrap();
        assert!(RunDir::list(slot.path()).unwrap().runs.is_empty());
    });
}

#[test]
fn the_next_daemon_moves_the_fence_that_a_killed_one_has_left() {
    local(in_time(async |reach| {
        let slot = tempfile::tempdir().unwrap();
        let (mut daemon, dir) = Daemon::start(slot.path(), reach, COUNTING).await?;
        daemon.kill();
        let mut guardian = connect(&dir).await.ok()?;
        let fence = guardian.fence_at_connect();
        guardian.extend(BootTime::now().saturating_add(FAR)).ok()?;
        if BootTime::now() >= fence {
            return None;
        }
        tokio::time::sleep(fence.saturating_since(BootTime::now())).await;
        let glimpse = look(&dir).await.unwrap();
        assert!(!glimpse.is_ending && glimpse.fence > fence, "{glimpse:?} after {fence:?}");
        std::fs::write(slot.path().join("finish"), "").unwrap();
        assert_eq!(record(guardian.exited().await).ended_by, EndedBy::Task);
        Some(())
    }));
}

#[test]
fn a_task_that_ends_while_no_daemon_lives_is_recorded() {
    local(async {
        let slot = tempfile::tempdir().unwrap();
        let (mut daemon, dir) = Daemon::start(slot.path(), FAR, COUNTING).await.unwrap();
        daemon.kill();
        std::fs::write(slot.path().join("finish"), "").unwrap();
        let record = eventually("the record", || dir.exit_record().unwrap()).await;
        assert_eq!((record.end, record.ended_by), (End::Exited(42), EndedBy::Task));
        gone(&[daemon.guardian, daemon.task]).await;
        match Guardian::connect(&dir).await {
            Err(ConnectError::Ended(found)) => assert_eq!(*found, record),
            other => panic!("{other:?}"),
        }
    });
}

/// With descendants that would rather live.
const STUBBORN: &str = "trap '' TERM
    setsid sh -c 'trap \"\" TERM; echo $$ > $D/away; exec sleep 300' &
    sh -c 'echo $$ > $D/stopped; kill -STOP $$; exec sleep 300' &
    while :; do date +%s%N > $D/beat.new; mv $D/beat.new $D/beat; sleep 0.01; done";

/// What becomes of a task whose daemon is kept from renewing its fence.
async fn ends_at_the_fence(halt: impl AsyncFn(&mut Daemon)) {
    in_time(async |reach| {
        let slot = tempfile::tempdir().unwrap();
        let (mut daemon, dir) = Daemon::start(slot.path(), reach, STUBBORN).await?;
        let files = ["away", "stopped"].map(|name| slot.path().join(name));
        let descendants = async { (number_in(&files[0]).await, number_in(&files[1]).await) };
        let (away, stopped) = tokio::select! {
            biased;
            pids = descendants => pids,
            () = has_ended(&dir) => return None,
        };
        halt(&mut daemon).await;
        let glimpse = look(&dir).await.ok().filter(|glimpse| !glimpse.is_ending)?;
        assert_eq!(glimpse.guardian_pid as i32, daemon.guardian);
        has_ended(&dir).await;
        assert_gone(&[daemon.task, away, stopped]);
        let late = BootTime::now().saturating_since(glimpse.fence.saturating_add(GRACE));
        assert!(late < Duration::from_secs(30), "dead by the fence and the grace: {late:?}");
        assert!(BootTime::now() >= glimpse.fence, "and not before");
        assert_eq!(dir.exit_record().unwrap().unwrap().ended_by, EndedBy::Fence);
        gone(&[daemon.guardian]).await;
        assert!(dir.try_lock_guard().unwrap().is_some());
        Some(())
    })
    .await;
}

async fn has_ended(dir: &RunDir) {
    eventually("the record", || dir.exit_record().unwrap().map(drop)).await;
}

#[test]
fn without_a_next_daemon_everything_ends_at_the_fence() {
    local(ends_at_the_fence(async |daemon| daemon.kill()));
}

#[test]
fn a_stopped_daemon_does_not_hold_the_fence() {
    local(ends_at_the_fence(async |daemon| {
        signal(daemon.pid(), Signal::STOP);
        stopped(daemon.pid()).await;
    }));
}

#[test]
fn of_two_connections_the_newest_is_obeyed() {
    local(async {
        let place = place();
        let mut first = start(&place, &sh(&place, "exec sleep 300")).await;
        let mut second = connect(&place.dir).await.unwrap();
        assert_eq!(first.exited().await, GuardianEnd::Displaced);
        // Nobody hears it any more.
        let _ = first.stop(Duration::ZERO, StopReason::Cancel);
        // To look is not to take over.
        assert!(!look(&place.dir).await.unwrap().is_ending);
        let mut third = connect(&place.dir).await.unwrap();
        assert_eq!(second.exited().await, GuardianEnd::Displaced);
        let _ = second.stop(Duration::ZERO, StopReason::Cancel);
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(is_alive(task_pid(&third)));
        third.stop(Duration::ZERO, StopReason::Stop).unwrap();
        assert_eq!(record(third.exited().await).ended_by, EndedBy::Stop);
        // The first one is still there as a handle, and was the parent.
        drop(first);
    });
}

#[test]
fn a_wrong_token_is_refused_and_disturbs_nobody() {
    local(async {
        let place = place();
        let mut guardian = start(&place, &sh(&place, "exec sleep 300")).await;
        let token = place.dir.path().join("token");
        let right = std::fs::read_to_string(&token).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode;
        assert_eq!(mode(&std::fs::metadata(&token).unwrap().permissions()) & 0o777, 0o600);
        assert_eq!(
            mode(&std::fs::metadata(place.dir.path()).unwrap().permissions()) & 0o777,
            0o700
        );

        let wrong = right.replace('0', "1").replacen('2', "3", 1);
        std::fs::write(&token, if wrong == right { "0".repeat(64) } else { wrong }).unwrap();
        assert!(matches!(connect(&place.dir).await, Err(ConnectError::Refused)));
        assert!(matches!(look(&place.dir).await, Err(ConnectError::Refused)));

        // Orders without a hello, nonsense, silence.
        let directory = std::fs::File::open(place.dir.path()).unwrap();
        let path = format!("/proc/self/fd/{}/guard.sock", directory.as_raw_fd());
        let mut stop = [0u8; 128];
        stop[0] = 3;
        let mut silent = Vec::new();
        for bytes in [&stop[..], &[0xff; 128], &[0xff; 4096], b"GET / HTTP/1.1\r\n\r\n"] {
            let mut socket = UnixStream::connect(&path).unwrap();
            let _ = socket.write_all(bytes);
            silent.push(socket);
        }
        for _ in 0..20 {
            silent.push(UnixStream::connect(&path).unwrap());
        }
        let _ = silent[0].read(&mut stop);
        std::fs::write(&token, right).unwrap();
        // The one that belongs here still hears, and a new one gets through.
        guardian.extend(BootTime::now().saturating_add(FAR)).unwrap();
        assert!(look(&place.dir).await.is_ok());
        guardian.stop(Duration::ZERO, StopReason::Cancel).unwrap();
        assert_eq!(record(guardian.exited().await).ended_by, EndedBy::Cancel);
    });
}

/// A crowd at the door fills the queue of a guardian that cannot let anybody in just now.
#[test]
fn a_full_queue_is_waited_for() {
    local(async {
        let place = place();
        let mut guardian = start(&place, &sh(&place, "exec sleep 300")).await;
        let pid = guardian_pid(&guardian);
        let glimpse = loop {
            signal(pid, Signal::STOP);
            stopped(pid).await;
            let mut crowd = Vec::new();
            while let Ok(socket) = knock(&place) {
                crowd.push(socket);
            }
            assert!(crowd.len() > 4, "{} have got into the queue", crowd.len());

            let asked = Instant::now();
            let mut look = std::pin::pin!(Guardian::look(&place.dir));
            // It has met the full queue once when it waits for the first time.
            let first = std::future::poll_fn(|context| Poll::Ready(look.as_mut().poll(context)));
            let first = first.await;
            signal(pid, Signal::CONT);
            let answer = match first {
                Poll::Ready(answer) => answer,
                Poll::Pending => look.await,
            };
            match answer {
                // Somebody was kept from running for all of the time that there is for an answer.
                Err(ConnectError::NoAnswer(_)) if asked.elapsed() >= ANSWER => {}
                answer => break answer.unwrap(),
            }
        };
        assert!(!glimpse.is_ending);
        guardian.stop(Duration::ZERO, StopReason::Cancel).unwrap();
        assert_eq!(record(guardian.exited().await).ended_by, EndedBy::Cancel);
    });
}

/// A worker may be killed before a guardian that is kept from running has answered it, and the next one comes.
#[test]
fn of_those_who_came_while_it_was_stopped_the_last_is_obeyed() {
    local(async {
        let place = place();
        let pid = guardian_pid(&start(&place, &sh(&place, "exec sleep 300")).await);
        let mut guardian = loop {
            signal(pid, Signal::STOP);
            stopped(pid).await;
            let asked = Instant::now();
            let mut last = Box::pin(Guardian::connect(&place.dir));
            for _ in 0..3 {
                // Said hello, and gone.
                drop(std::mem::replace(&mut last, Box::pin(Guardian::connect(&place.dir))));
                let first =
                    std::future::poll_fn(|context| Poll::Ready(last.as_mut().poll(context)));
                assert!(first.await.is_pending());
            }
            signal(pid, Signal::CONT);
            match last.await {
                // Somebody was kept from running for all of the time that there is for an answer.
                Err(ConnectError::NoAnswer(_)) if asked.elapsed() >= ANSWER => {}
                connected => break connected.unwrap(),
            }
        };
        guardian.stop(Duration::ZERO, StopReason::Cancel).unwrap();
        assert_eq!(record(guardian.exited().await).ended_by, EndedBy::Cancel);
    });
}

/// A connection to the guardian, if there is room in its queue.
fn knock(place: &Place) -> rustix::io::Result<OwnedFd> {
    let directory = std::fs::File::open(place.dir.path()).unwrap();
    let path = format!("/proc/self/fd/{}/guard.sock", directory.as_raw_fd());
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

#[test]
fn a_path_longer_than_an_address_is_no_hindrance() {
    local(async {
        let slot = tempfile::tempdir().unwrap();
        let deep = slot.path().join("a".repeat(100)).join("b".repeat(100));
        std::fs::create_dir_all(&deep).unwrap();
        let dir = RunDir::create(&deep, &"é".repeat(400), 1, DEFAULT_LOG_CAP).unwrap();
        let place = Place { slot, dir };
        let guardian = start(&place, &sh(&place, "exec sleep 300")).await;
        drop(guardian);
        let mut guardian = connect(&place.dir).await.unwrap();
        guardian.stop(Duration::ZERO, StopReason::Stop).unwrap();
        guardian.exited().await;
        let found = RunDir::find(&deep, &"é".repeat(400), 1).unwrap();
        assert_eq!(found.unwrap().run_id(), "é".repeat(400));
    });
}

#[test]
fn whoever_does_not_answer_is_told_from_who_has_ended() {
    local(async {
        let place = place();
        assert!(matches!(Guardian::connect(&place.dir).await, Err(ConnectError::NoAnswer(_))));
        let mut guardian = start(&place, &sh(&place, "exec sleep 300")).await;
        signal(guardian_pid(&guardian), Signal::STOP);
        stopped(guardian_pid(&guardian)).await;
        assert!(matches!(Guardian::connect(&place.dir).await, Err(ConnectError::NoAnswer(_))));
        assert!(place.dir.try_lock_guard().unwrap().is_none(), "it lives");
        signal(guardian_pid(&guardian), Signal::KILL);
        assert_eq!(left(&mut guardian).await, GuardianEnd::Lost);
        assert!(matches!(Guardian::connect(&place.dir).await, Err(ConnectError::NoAnswer(_))));
        assert!(place.dir.try_lock_guard().unwrap().is_some(), "it is dead");
    });
}
