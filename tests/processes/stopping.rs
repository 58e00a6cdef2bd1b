//! How a task is made to end, and that nobody else is.

use std::time::{Duration, Instant};

use leasehold::process::End;
use leasehold::process::direct::Running;

use super::support::*;

const NO_GRACE_NEEDED: Duration = Duration::from_secs(600);

/// Starts a script and waits until it has written to the file that it finds in `$READY`.
async fn ready(script: &str) -> (Running, i32) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ready");
    let mut command = sh(script);
    command.env = vec![("READY".into(), file.clone().into())];
    let running = Running::spawn(&command).unwrap();
    let number = number_in(&file).await;
    (running, number)
}

fn killed(signal: i32) -> End {
    End::Signalled { signal, core_dumped: false }
}

#[test]
fn term_reaches_the_whole_group_and_is_enough() {
    local(async {
        let (mut running, child) = ready("sleep 99 & echo $! > $READY; wait").await;
        let begin = Instant::now();
        assert!(running.stopper().terminate(NO_GRACE_NEEDED));
        let ending = running.wait().await;
        assert_eq!((ending.end, ending.stopped), (killed(15), true));
        assert!(!is_alive(child));
        assert!(begin.elapsed() < DEADLINE, "{:?}", begin.elapsed());
    });
}

#[test]
fn a_task_may_end_in_its_own_way_within_the_grace() {
    local(async {
        let (mut running, _) =
            ready("trap 'echo bye; exit 3' TERM; echo 1 > $READY; while :; do sleep 0.01; done")
                .await;
        assert!(running.stopper().terminate(NO_GRACE_NEEDED));
        let ending = running.wait().await;
        assert_eq!((ending.end, ending.stopped), (End::Exited(3), true));
        assert!(ending.detail().contains("bye"), "{}", ending.detail());
    });
}

#[test]
fn a_task_that_ignores_term_is_killed_after_the_grace() {
    local(async {
        let (mut running, _) =
            ready("trap '' TERM; echo 1 > $READY; while :; do sleep 0.05; done").await;
        let stopper = running.stopper();
        let begin = Instant::now();
        assert!(stopper.terminate(Duration::from_millis(400)));
        let ending = running.wait().await;
        let took = begin.elapsed();
        assert_eq!((ending.end, ending.stopped), (killed(9), true));
        assert!(took >= Duration::from_millis(400) && took < DEADLINE, "{took:?}");
        assert!(
            !stopper.terminate(Duration::ZERO) && !stopper.kill(),
            "afterwards there is nothing to stop"
        );
    });
}

#[test]
fn a_child_of_the_leader_has_the_grace_even_when_the_leader_leaves_first() {
    local(async {
        let script = "trap 'exit 0' TERM; \
                      (trap 'sleep 2.5; echo saved; exit' TERM; echo 1 > $READY; \
                      while :; do sleep 0.01; done) & wait";
        let (mut running, _) = ready(script).await;
        let begin = Instant::now();
        assert!(running.stopper().terminate(NO_GRACE_NEEDED));
        let ending = running.wait().await;
        assert_eq!(ending.end, End::Exited(0));
        assert!(ending.detail().contains("saved"), "{:?} {:?}", ending.detail(), begin.elapsed());
        assert!(begin.elapsed() < DEADLINE);
    });
}

#[test]
fn a_child_of_the_leader_that_ignores_term_is_killed_after_the_grace() {
    local(async {
        let (mut running, child) = ready(
            "sh -c \"trap '' TERM; echo \\$\\$ > $READY; while :; do sleep 0.05; done\" \
                 >/dev/null 2>&1 & wait",
        )
        .await;
        let begin = Instant::now();
        assert!(running.stopper().terminate(Duration::from_millis(600)));
        let ending = running.wait().await;
        assert_eq!(ending.end, killed(15));
        let took = begin.elapsed();
        assert!(took >= Duration::from_millis(600) && took < DEADLINE, "{took:?}");
        gone(child).await;
    });
}

#[test]
fn a_stopped_task_ends_by_term() {
    local(async {
        let mut running = Running::spawn(&sh("kill -STOP $$; exit 1")).unwrap();
        let leader = pid(&running);
        eventually("the task is stopped", || is_stopped(leader).then_some(())).await;
        assert!(running.stopper().terminate(NO_GRACE_NEEDED));
        assert_eq!(running.wait().await.end, killed(15));
    });
}

#[test]
fn asking_again_sends_no_second_term_but_brings_the_kill_forward() {
    local(async {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("number");
        let mut command =
            sh("trap 'echo term; echo 2 > $F' TERM; echo 1 > $F; while :; do sleep 0.01; done");
        command.env = vec![("F".into(), file.clone().into())];
        let mut running = Running::spawn(&command).unwrap();
        number_in(&file).await;
        let stopper = running.stopper();
        assert!(stopper.terminate(NO_GRACE_NEEDED));
        let handled =
            || std::fs::read(&file).is_ok_and(|contents| contents == b"2\n").then_some(());
        eventually("the TERM is handled", handled).await;
        let begin = Instant::now();
        assert!(stopper.terminate(NO_GRACE_NEEDED * 2));
        assert!(stopper.terminate(Duration::from_millis(300)));
        let ending = running.wait().await;
        assert_eq!(ending.end, killed(9));
        assert_eq!(ending.stdout.bytes(), b"term\n");
        assert!(begin.elapsed() >= Duration::from_millis(300), "{:?}", begin.elapsed());
    });
}

#[test]
fn kill_is_at_once_also_during_a_grace() {
    local(async {
        let (mut running, _) =
            ready("trap '' TERM; echo 1 > $READY; while :; do sleep 0.05; done").await;
        let stopper = running.stopper();
        assert!(stopper.terminate(Duration::MAX));
        let begin = Instant::now();
        let waiting = tokio::task::spawn_local(async move { running.wait().await });
        assert!(std::thread::spawn(move || stopper.kill()).join().unwrap());
        assert_eq!(waiting.await.unwrap().end, killed(9));
        assert!(begin.elapsed() < DEADLINE);
    });
}

#[test]
fn an_end_that_comes_first_stands() {
    local(async {
        let mut running = Running::spawn(&sh("exit 0")).unwrap();
        let leader = pid(&running);
        // Without giving the thread away: the watch has not seen the end yet, and the leader is
        // still a zombie.
        let deadline = Instant::now() + DEADLINE;
        while is_alive(leader) {
            assert!(Instant::now() < deadline);
            std::hint::spin_loop();
        }
        assert!(!running.stopper().terminate(Duration::ZERO));
        assert!(!running.stopper().kill());
        let ending = running.wait().await;
        assert_eq!((ending.end, ending.stopped), (End::Exited(0), false));
    });
}

#[test]
fn dropping_the_handle_kills_the_group() {
    local(async {
        let (running, child) = ready("trap '' TERM HUP; sleep 99 & echo $! > $READY; wait").await;
        let leader = pid(&running);
        drop(running);
        gone(child).await;
        eventually("the leader is reaped", || stat(leader).is_none().then_some(())).await;
    });
}

#[test]
fn a_panic_of_the_owner_kills_the_group() {
    local(async {
        let (running, child) = ready("sleep 99 & echo $! > $READY; wait").await;
        let leader = pid(&running);
        let owner = tokio::task::spawn_local(async move {
            let mut running = running;
            tokio::select! {
                _ = running.wait() => {}
                () = tokio::task::yield_now() => std::panic::panic_any("the owner's bug"),
            }
        });
        assert!(owner.await.unwrap_err().is_panic());
        gone(child).await;
        eventually("the leader is reaped", || stat(leader).is_none().then_some(())).await;
    });
}

#[test]
fn dropping_the_runtime_kills_and_reaps() {
    let reaped = (0..5).any(|_| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (mut running, child) = runtime.block_on(ready("sleep 99 & echo $! > $READY; wait"));
        let leader = pid(&running);
        drop(runtime);
        let is_reaped = stat(leader).is_none();
        local(async {
            gone(child).await;
            match running.wait().await.end {
                // On a busy machine it can take longer to die than anybody waits.
                End::Unkillable => false,
                end => {
                    assert_eq!((end, is_reaped), (killed(9), true));
                    true
                }
            }
        })
    });
    assert!(reaped, "reaped before the runtime is gone");
}

#[test]
fn a_runtime_of_many_threads_will_do() {
    let (end, leader) = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut running = Running::spawn(&sh("sleep 99")).unwrap();
            let stopper = running.stopper();
            let wait = tokio::spawn(async move { (running.wait().await.end, pid(&running)) });
            tokio::spawn(async move { stopper.terminate(NO_GRACE_NEEDED) });
            wait.await.unwrap()
        })
    })
    .join()
    .unwrap();
    assert_eq!((end, stat(leader)), (killed(15), None));
}

/// A limit of direct children, kept here so that it is known when it goes.
#[test]
fn a_descendant_in_a_session_of_its_own_is_out_of_reach() {
    local(async {
        let (mut running, child) =
            ready("setsid sh -c 'echo $$ > $READY; exec sleep 99' >/dev/null 2>&1 & wait").await;
        assert!(running.stopper().terminate(NO_GRACE_NEEDED));
        assert_eq!(running.wait().await.end, killed(15));
        assert!(is_alive(child));
        let child = rustix::process::Pid::from_raw(child).unwrap();
        rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
    });
}

#[test]
fn a_leader_that_leaves_its_group_is_reached_and_signalled_once() {
    // A shell with job control puts its jobs in other groups; python can move the leader itself.
    let script = "import os,signal,time\n\
                  n=[]\n\
                  signal.signal(signal.SIGTERM, lambda *a: (os.write(1, b't'), n.append(1)))\n\
                  child=os.fork()\n\
                  if child==0:\n  os.setpgid(0,0); time.sleep(99)\n\
                  while True:\n  \
                    try: os.setpgid(0,child); break\n  \
                    except OSError: time.sleep(0.001)\n\
                  print(os.getpid(), file=open(os.environ['READY'],'w'), flush=True)\n\
                  while not n: time.sleep(0.01)\n\
                  time.sleep(0.1); os.kill(child, 9); os._exit(4)\n";
    let Some(python) = ["/usr/bin/python3", "/usr/local/bin/python3"]
        .into_iter()
        .find(|p| std::path::Path::new(p).exists())
    else {
        println!("SKIPPED: no python3");
        return;
    };
    local(async {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ready");
        let mut command = command([python, "-c", script]);
        command.env = vec![("READY".into(), file.clone().into())];
        let mut running = Running::spawn(&command).unwrap();
        assert_eq!(number_in(&file).await, pid(&running));
        assert_ne!(stat(pid(&running)).unwrap().2, pid(&running), "it has left its group");
        assert!(running.stopper().terminate(NO_GRACE_NEEDED));
        let ending = running.wait().await;
        assert_eq!((ending.end, ending.stdout.bytes()), (End::Exited(4), b"t".as_slice()));
    });
}

#[test]
fn a_stop_right_after_the_start_never_hits_our_own_group() {
    alone("stopping::a_stop_right_after_the_start_never_hits_our_own_group", || {
        // A bystander in our own group: a signal to it would reach this child, and us.
        let mut bystander = std::process::Command::new("sleep").arg("99").spawn().unwrap();
        local(async {
            for round in 0..200 {
                let mut running = Running::spawn(&sh("sleep 99 & wait")).unwrap();
                let (asked, signal) = match round % 2 {
                    0 => (running.stopper().kill(), 9),
                    _ => (running.stopper().terminate(NO_GRACE_NEEDED), 15),
                };
                assert!(asked, "round {round}");
                assert_eq!(running.wait().await.end, killed(signal), "round {round}");
            }
        });
        assert_eq!(bystander.try_wait().unwrap(), None);
        bystander.kill().unwrap();
        bystander.wait().unwrap();
    });
}

/// A task that has become another user, and a process that may not signal other users: root without
/// `CAP_KILL`.
#[test]
fn a_task_that_cannot_be_killed_is_given_up_and_said_to_be() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: needs root");
        return;
    }
    let wrap = |exe: &std::path::Path| {
        let mut process = std::process::Command::new("setpriv");
        process.arg("--bounding-set=-kill").arg(exe);
        process
    };
    alone_by("stopping::a_task_that_cannot_be_killed_is_given_up_and_said_to_be", wrap, || {
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(
            directory.path(),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .unwrap();
        let hold = write_script(directory.path(), "hold", "", 0o644);
        let mut task = sh("exec setpriv --reuid=61234 --clear-groups \
             sh -c 'while [ -e $HOLD ]; do sleep 0.05; done'");
        task.env = vec![("HOLD".into(), hold.clone().into())];
        local(async {
            let mut running = Running::spawn(&task).unwrap();
            let leader = pid(&running);
            let is_another = || {
                let status = std::fs::read_to_string(format!("/proc/{leader}/status")).ok()?;
                status.contains("Uid:\t61234\t61234\t61234").then_some(())
            };
            eventually("the task is another user", is_another).await;
            let begin = Instant::now();
            assert!(running.stopper().kill());
            let ending = running.wait().await;
            println!("given up after {:?}", begin.elapsed());
            assert_eq!(
                (ending.end, ending.exit_code(), ending.stopped),
                (End::Unkillable, 1, true)
            );
            assert!(ending.detail().contains("still there"), "{}", ending.detail());
            assert!(begin.elapsed() < DEADLINE, "{:?}", begin.elapsed());
            assert!(is_alive(leader));

            // It leaves at last, and the next start reaps it.
            std::fs::remove_file(&hold).unwrap();
            eventually("the task has left", || (!is_alive(leader)).then_some(())).await;
            assert_eq!(children(), [leader]);
            Running::spawn(&command(["true"])).unwrap().wait().await;
            assert!(children().is_empty(), "{:?}", children());
        });
    });
}
