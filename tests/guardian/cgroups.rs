//! Tasks in cgroups of their own. Where this machine lets nobody make any, that is said and nothing is tried.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::process::End;
use leasehold::process::cgroup::delegated;
use leasehold::process::guardian::{
    EndedBy, GuardianEnd, RunSpec, StartError, StopReason, kill_leftovers,
};
use rustix::process::Signal;

use super::support::*;

/// Where cgroups can be made here.
fn parent() -> Option<PathBuf> {
    let parent = delegated();
    if parent.is_none() {
        let said = "SKIPPED: this machine has no cgroup v2 in which others can be made";
        let _ = writeln!(std::io::stderr(), "{said}");
    }
    parent
}

fn in_cgroup(parent: &Path, mut spec: RunSpec) -> RunSpec {
    spec.cgroup = Some(parent.to_owned());
    spec
}

/// The cgroup that the run has, or had.
fn cgroup_of(place: &Place) -> PathBuf {
    std::fs::read_link(place.dir.path().join("cgroup")).unwrap()
}

fn members(cgroup: &Path) -> Vec<i32> {
    let list = std::fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    list.lines().map(|pid| pid.parse().unwrap()).collect()
}

#[test]
fn a_task_is_in_a_cgroup_of_its_own_that_goes_with_it() {
    let Some(parent) = parent() else { return };
    local(async {
        let place = place();
        let script = "sleep 300 & echo $! > $D/child; setsid sleep 300 & exec sleep 300";
        let mut guardian = start(&place, &in_cgroup(&parent, sh(&place, script))).await;
        let child = number_in(&place.file("child")).await;
        let cgroup = cgroup_of(&place);
        assert_eq!(cgroup.parent(), Some(parent.as_path()));
        eventually("three members", || (members(&cgroup).len() == 3).then_some(())).await;
        let there = members(&cgroup);
        assert!(there.contains(&task_pid(&guardian)) && there.contains(&child), "{there:?}");
        assert!(
            !there.contains(&guardian_pid(&guardian)),
            "its guardian is not to be killed with it"
        );
        guardian.stop(Duration::ZERO, StopReason::Cancel).unwrap();
        assert_eq!(record(left(&mut guardian).await).ended_by, EndedBy::Cancel);
        assert!(!cgroup.exists(), "{cgroup:?}");
    });
}

#[test]
fn what_forks_without_end_is_ended() {
    let Some(parent) = parent() else { return };
    local(async {
        let place = place();
        // Each of them starts its successor and dies, in a session of its own: no list shows them for long.
        let link = "trap '' TERM\nif [ -e $D/stop ]; then exit; fi\nsetsid sh $D/link & setsid sh $D/link & exit\n";
        std::fs::write(place.file("link"), link).unwrap();
        let script = "ulimit -u 4000; sh $D/link; exec sleep 300";
        let mut guardian = start(&place, &in_cgroup(&parent, sh(&place, script))).await;
        let cgroup = cgroup_of(&place);
        eventually("a crowd", || (members(&cgroup).len() > 20).then_some(())).await;
        guardian.stop(Duration::ZERO, StopReason::Cancel).unwrap();
        let end = record(left(&mut guardian).await);
        std::fs::write(place.file("stop"), "").unwrap();
        assert_eq!((end.ended_by, end.unkillable.as_slice()), (EndedBy::Cancel, &[][..]));
        assert!(!cgroup.exists(), "{:?}", members(&cgroup));
    });
}

#[test]
fn the_sweep_finds_who_hides_from_everything_else() {
    let Some(parent) = parent() else { return };
    local(async {
        let place = place();
        // Its parent is dead, its session another, its environment empty.
        let script =
            "setsid sh -c 'env -i /bin/sh -c \"echo \\$\\$ > $0/hidden; exec sleep 300\" & exit' $D
            exec sleep 300";
        let mut guardian = start(&place, &in_cgroup(&parent, sh(&place, script))).await;
        let hidden = number_in(&place.file("hidden")).await;
        let cgroup = cgroup_of(&place);
        signal(guardian_pid(&guardian), Signal::KILL);
        assert_eq!(left(&mut guardian).await, GuardianEnd::Lost);
        gone(&[task_pid(&guardian)]).await;
        assert!(is_alive(hidden));
        let leftovers = kill_leftovers(&place.dir).await.unwrap();
        assert_gone(&[hidden]);
        assert!(leftovers.begun && leftovers.killed >= 1 && leftovers.unkillable.is_empty());
        assert!(!cgroup.exists());
    });
}

#[test]
fn nothing_is_left_of_a_start_that_failed() {
    let Some(parent) = parent() else { return };
    local(async {
        let place = place();
        let path = place.file("broken");
        write_program(&path, "#!/no/such/interpreter\n", 0o755);
        let spec = in_cgroup(&parent, spec(command([path.to_str().unwrap()])));
        let failed = try_start(&place, &spec).await;
        assert!(matches!(failed, Err(StartError::Task(_))), "{failed:?}");
        assert!(!cgroup_of(&place).exists());
    });
}

#[test]
fn a_directory_that_is_no_cgroup_is_left_alone() {
    local(async {
        let (place, stranger) = (place(), tempfile::tempdir().unwrap());
        let mut guardian = start(&place, &in_cgroup(stranger.path(), sh(&place, "exit 7"))).await;
        assert_eq!(record(guardian.exited().await).end, End::Exited(7));
        assert_eq!(std::fs::read_dir(stranger.path()).unwrap().count(), 0);
    });
}
