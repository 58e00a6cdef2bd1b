//! Guardians that are forked instead of executed.

use std::time::Duration;

use leasehold::process::guardian::{
    BootTime, ForkServer, Guardian, GuardianEnd, GuardianProgram, StartError, Stdin, StopReason,
};
use rustix::process::Signal;

use super::support::*;

async fn forked(server: &ForkServer, place: &Place, script: &str) -> Guardian {
    Guardian::start_forked(server, &place.dir, &sh(place, script)).await.unwrap()
}

/// The parent of a guardian.
fn parent(guardian: &Guardian) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", guardian.guardian_pid())).unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    rest.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn it_does_what_one_that_is_executed_does_and_leaves_nothing() {
    alone("forked::it_does_what_one_that_is_executed_does_and_leaves_nothing", || {
        local(async {
            // Whatever the runtime opens, it has opened.
            run(&place(), "exit 0").await;
            let before = held_without_children().await;
            let server = ForkServer::start(&program()).await.unwrap();
            let made = children();
            for code in 0..20 {
                let place = place();
                let script = format!("echo to $PPID; sleep 300 >/dev/null 2>&1 & exit {code}");
                let mut guardian = forked(&server, &place, &script).await;
                let pid = guardian_pid(&guardian);
                let record = record(left(&mut guardian).await);
                assert_eq!(record.ending().exit_code(), code);
                assert_eq!(record.stdout.tail.bytes(), format!("to {pid}\n").as_bytes());
                assert_eq!(record.leftovers_killed, 1);
                assert_eq!(children(), made, "it was no child of ours");
                place.dir.remove().unwrap();
            }
            drop(server);
            held_again(&before).await;
        });
    });
}

#[test]
fn it_outlives_what_has_forked_it() {
    local(async {
        let (ended, killed) = (place(), place());
        let server = ForkServer::start(&program()).await.unwrap();
        let mut one = forked(&server, &ended, "exec sleep 300").await;
        drop(server);
        let server = ForkServer::start(&program()).await.unwrap();
        let mut other = forked(&server, &killed, "exec sleep 300").await;
        let server_pid = parent(&other);
        signal(server_pid, Signal::KILL);
        gone(&[server_pid]).await;
        for guardian in [&mut one, &mut other] {
            assert!(is_alive(task_pid(guardian)));
            guardian.stop(Duration::ZERO, StopReason::Cancel).unwrap();
            assert_eq!(record(guardian.exited().await).ending().exit_code(), -15);
        }
        // Now there is nobody to fork: it is executed.
        let third = place();
        let mut guardian = forked(&server, &third, "exit 4").await;
        assert_eq!(record(guardian.exited().await).ending().exit_code(), 4);
    });
}

#[test]
fn its_death_before_it_says_that_it_has_started_is_noticed() {
    local(async {
        let server = ForkServer::start(&program()).await.unwrap();
        for _ in 0..20 {
            let place = place();
            // Now and then this is quicker than the guardian's word.
            let spec = sh(&place, "kill -KILL $PPID; exec sleep 300");
            lost(Guardian::start_forked(&server, &place.dir, &spec).await).await;
        }
        // Killed while it waits for the rest of what it is told, as one of whom nothing is heard.
        let place = place();
        let mut spec = sh(&place, "exit 0");
        spec.stdin = Stdin::Bytes(vec![0; 64 << 20]);
        spec.fence = BootTime::now().saturating_add(Duration::from_secs(60));
        // Those that were killed before may not be reaped yet.
        let before = children_of(server.pid());
        let killed = async {
            let is_new = |pid: &i32| !before.contains(pid);
            let new = || children_of(server.pid()).into_iter().find(is_new);
            signal(eventually("it is there", new).await, Signal::KILL);
        };
        let (started, ()) =
            tokio::join!(Guardian::start_forked(&server, &place.dir, &spec), killed);
        lost(started).await;
        assert!(BootTime::now() < spec.fence, "at once, and not at its fence");
    });
}

async fn lost(started: Result<Guardian, StartError>) {
    match started {
        Ok(mut guardian) => assert_eq!(guardian.exited().await, GuardianEnd::Lost),
        Err(error) => assert!(matches!(error, StartError::Died { .. }), "{error}"),
    }
}

fn children_of(pid: u32) -> Vec<i32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_ascii_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

#[test]
fn a_program_that_makes_no_guardians_is_refused() {
    local(async {
        for program in ["/nowhere/leasehold", "/bin/true"] {
            assert!(ForkServer::start(&GuardianProgram::at(program)).await.is_err(), "{program}");
        }
    });
}
