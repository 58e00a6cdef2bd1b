//! A guardian is killed.

use std::time::Duration;

use leasehold::process::guardian::{
    GuardianEnd, Leftovers, LeftoversError, StopReason, kill_leftovers,
};
use rustix::process::Signal;

use super::support::*;

#[test]
fn the_task_dies_with_its_guardian_and_the_rest_is_swept() {
    local(async {
        let place = place();
        let script = "trap '' TERM
            sleep 300 & echo $! > $D/group
            setsid sh -c 'trap \"\" TERM; echo $$ > $D/away; exec sleep 300' &
            (setsid sh -c 'echo $$ > $D/parent; env -i sh -c \"echo \\$\\$ > $D/bare; sleep 300; :\"; :' &)
            setsid sh -c 'echo $$ > $D/stopped; kill -STOP $$; exec sleep 300' &
            setsid sh -c 'echo $$ > $D/forks; while :; do sleep 0.01; done' &
            wait; wait; wait";
        let mut guardian = start(&place, &sh(&place, script)).await;
        let mut pids = Vec::new();
        for name in ["group", "away", "parent", "bare", "stopped", "forks"] {
            pids.push(number_in(&place.file(name)).await);
        }
        // One that looks like it and is not: the same run, without its secret.
        let mut stranger = std::process::Command::new("sleep")
            .arg("300")
            .envs([("LEASEHOLD_RUN_ID", "run-1"), ("LEASEHOLD_EPOCH", "7")])
            .spawn()
            .unwrap();
        // A living guardian is never swept.
        assert!(matches!(kill_leftovers(&place.dir).await, Err(LeftoversError::GuardianLives)));
        signal(guardian_pid(&guardian), Signal::KILL);
        assert_eq!(left(&mut guardian).await, GuardianEnd::Lost);
        // The leader dies by itself: it would wait for its children for ever.
        gone(&[task_pid(&guardian)]).await;
        let leftovers = kill_leftovers(&place.dir).await.unwrap();
        println!("{leftovers:?}");
        assert_gone(&pids);
        assert!(leftovers.begun && leftovers.killed >= pids.len());
        assert!(leftovers.unkillable.is_empty());
        assert_eq!(stranger.try_wait().unwrap(), None, "strangers live");
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        assert_eq!(kill_leftovers(&place.dir).await.unwrap().killed, 0, "again, there is nothing");
        place.dir.remove().unwrap();
    });
}

#[test]
fn where_no_guardian_was_started_nothing_has_begun() {
    local(async {
        assert_eq!(kill_leftovers(&place().dir).await.unwrap(), Leftovers::default());
    });
}

#[test]
fn our_own_process_is_never_signalled() {
    alone("leftovers::our_own_process_is_never_signalled", || {
        local(async {
            let place = place();
            let identity = std::fs::read_to_string(place.dir.path().join("run.json")).unwrap();
            let identity: serde_json::Value = serde_json::from_str(&identity).unwrap();
            // Execute ourselves with the badge of the run on: everything fits but who we are.
            if std::env::var_os("LEASEHOLD_RUN_MARK").is_none() {
                let status = std::process::Command::new(std::env::current_exe().unwrap())
                    .args(arguments("leftovers::our_own_process_is_never_signalled"))
                    .env("LEASEHOLD_RUN_MARK", identity["mark"].as_str().unwrap())
                    .env("LEASEHOLD_RUN_ID", "run-1")
                    .env("LEASEHOLD_EPOCH", "7")
                    .env("SWEEP", place.dir.path())
                    .status()
                    .unwrap();
                assert!(status.success(), "{status}");
                return;
            }
            let path = std::env::var_os("SWEEP").unwrap();
            let dir = leasehold::process::guardian::RunDir::open(path.as_ref()).unwrap();
            let mut child = std::process::Command::new("sleep").arg("300").spawn().unwrap();
            assert_eq!(kill_leftovers(&dir).await.unwrap().killed, 1, "the child, and not us");
            assert_eq!(
                std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap()),
                Some(9)
            );
        });
    });
}

#[test]
fn a_guardian_that_dies_while_it_kills_leaves_nothing_unfound() {
    local(async {
        let place = place();
        let script =
            "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ > $D/away; exec sleep 300' &
            echo $$ > $D/leader; while :; do sleep 0.01; done";
        let mut guardian = start(&place, &sh(&place, script)).await;
        let pids = [number_in(&place.file("away")).await, number_in(&place.file("leader")).await];
        guardian.stop(Duration::from_secs(60), StopReason::Cancel).unwrap();
        while !look(&place.dir).await.unwrap().is_ending {}
        signal(guardian_pid(&guardian), Signal::KILL);
        assert_eq!(left(&mut guardian).await, GuardianEnd::Lost);
        kill_leftovers(&place.dir).await.unwrap();
        assert_gone(&pids);
    });
}
