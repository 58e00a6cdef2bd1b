//! The lock of a run, and the locks of the machine.

use std::fs::File;
use std::time::Duration;

use leasehold::process::guardian::{DEFAULT_LOG_CAP, RunDir, StartError, StopReason};
use rustix::process::Signal;

use super::support::*;

#[test]
fn one_guardian_per_directory() {
    local(async {
        let place = place();
        let mut guardian = start(&place, &sh(&place, "exec sleep 300")).await;
        let second = sh(&place, "touch $D/second");
        assert!(matches!(try_start(&place, &second).await, Err(StartError::Locked)));
        assert!(place.dir.try_lock_guard().unwrap().is_none());
        assert!(place.dir.clone().remove().is_err(), "a directory with a guardian stays");
        guardian.stop(Duration::ZERO, StopReason::Stop).unwrap();
        left(&mut guardian).await;
        // One epoch, one start.
        assert!(matches!(try_start(&place, &second).await, Err(StartError::Sealed)));
        assert!(!place.file("second").exists());
        place.dir.clone().remove().unwrap();
        assert!(!place.dir.path().exists());
    });
}

#[test]
fn a_run_that_was_given_up_is_never_started() {
    local(async {
        let place = place();
        let spec = sh(&place, "touch $D/started");
        let lock = place.dir.try_lock_guard().unwrap().expect("nobody has it");
        assert!(matches!(try_start(&place, &spec).await, Err(StartError::Sealed)));
        drop(lock);
        assert!(matches!(try_start(&place, &spec).await, Err(StartError::Sealed)), "for good");
        assert!(place.dir.try_lock_guard().unwrap().is_some(), "and can be given up again");
        assert!(!place.file("started").exists());
    });
}

#[test]
fn a_lock_that_a_foreign_program_holds_refuses_the_start() {
    local(async {
        let place = place();
        let lock = File::open(place.dir.path().join("guard.lock")).unwrap();
        lock.lock().unwrap();
        let spec = sh(&place, "touch $D/started");
        assert!(matches!(try_start(&place, &spec).await, Err(StartError::Locked)));
        assert!(place.dir.try_lock_guard().unwrap().is_none());
        // Closing alone would leave it to whatever a parallel test starts just now.
        lock.unlock().unwrap();
        let mut guardian = start(&place, &spec).await;
        guardian.exited().await;
        assert!(place.file("started").exists());
    });
}

#[test]
fn a_run_has_one_directory_per_epoch() {
    let slot = tempfile::tempdir().unwrap();
    let create = |id: &str, epoch| RunDir::create(slot.path(), id, epoch, DEFAULT_LOG_CAP);
    let one = create("../x y\n", 1).unwrap();
    assert_eq!(one.path().parent().unwrap(), slot.path().join("runs"));
    assert_eq!(create("../x y\n", 1).unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    let two = create("../x y\n", 2).unwrap();
    let mut listed = RunDir::list(slot.path()).unwrap();
    listed.runs.sort_by_key(RunDir::epoch);
    assert_eq!(listed.runs, [one.clone(), two]);
    assert_eq!((one.run_id(), one.epoch()), ("../x y\n", 1));
    // What was not finished, or was damaged, is named and is in nobody's way.
    std::fs::create_dir(slot.path().join("runs/abc.1")).unwrap();
    std::fs::create_dir(slot.path().join("runs/def.1.new")).unwrap();
    assert_eq!(RunDir::list(slot.path()).unwrap().unreadable.len(), 2);
    create("def", 1).unwrap();
    assert_eq!(RunDir::list(slot.path()).unwrap().unreadable.len(), 1);
    assert_eq!(RunDir::find(slot.path(), "nobody", 1).unwrap(), None);
    assert!(RunDir::list(&slot.path().join("no slot")).unwrap().runs.is_empty());
}

/// Alone: what a parallel test starts would have our descriptor of the lock, too, until it becomes its program.
#[test]
fn a_machine_lock_is_held_until_the_whole_tree_is_gone() {
    alone("locks::a_machine_lock_is_held_until_the_whole_tree_is_gone", || {
        local(async {
            let place = place();
            let lock = place.file("gpu.lock");
            let is_free = || File::open(&lock).unwrap().try_lock().is_ok();
            let mut spec = sh(
                &place,
                "setsid sh -c 'trap \"\" TERM; echo $$ > $D/away; exec sleep 300' >/dev/null 2>&1 &
                 trap 'exit 3' TERM; while :; do sleep 0.01; done",
            );
            for _ in 0..3 {
                let file = File::create(&lock).unwrap();
                let _ = file.try_lock();
                spec.locks.push(file.into());
            }
            assert!(!is_free());
            let mut guardian = start(&place, &spec).await;
            // Ours is closed, and the daemon may be gone.
            drop(spec);
            let away = number_in(&place.file("away")).await;
            assert!(!is_free());
            guardian.stop(FAR, StopReason::Cancel).unwrap();
            gone(&[task_pid(&guardian)]).await;
            assert!(!is_free(), "a descendant still lives");
            assert!(is_alive(away));
            guardian.stop(Duration::ZERO, StopReason::Cancel).unwrap();
            guardian.exited().await;
            assert_gone(&[away]);
            assert!(is_free(), "free when the end is told");
        });
    });
}

#[test]
fn a_machine_lock_is_free_when_a_guardian_is_killed() {
    local(async {
        let place = place();
        let lock = place.file("gpu.lock");
        let file = File::create(&lock).unwrap();
        file.lock().unwrap();
        let mut spec = sh(&place, "exec sleep 300");
        spec.locks.push(file.into());
        let guardian = start(&place, &spec).await;
        drop(spec);
        signal(guardian_pid(&guardian), Signal::KILL);
        gone(&[task_pid(&guardian), guardian_pid(&guardian)]).await;
        eventually("the lock is free", || File::open(&lock).unwrap().try_lock().ok()).await;
    });
}
