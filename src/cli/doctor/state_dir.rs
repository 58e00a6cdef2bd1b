//! The directory in which the runs of this host are kept, and what is in it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::clock::{Clock, SystemClock};
use leasehold::process::guardian::RunDir;
use leasehold::process::slot::Slot;
use leasehold::process::{BootTime, LockTable};
use rustix::fs::{Access, access};

use super::disk::nearest;
use super::finding::Finding;

/// The directory as it is seen.
#[derive(Debug, Clone, Copy)]
pub(super) enum Directory {
    /// It is to be made; whether it can be.
    Missing {
        can_be_made: bool,
    },
    /// Something else is in its place.
    Other,
    There {
        mode: u32,
        owner: u32,
        user: u32,
        writable: bool,
    },
}

impl Directory {
    pub(super) fn look(path: &Path) -> io::Result<Directory> {
        let usable = |place: &Path| {
            access(place, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK).is_ok()
        };
        match fs::metadata(path) {
            Ok(seen) if seen.is_dir() => Ok(Directory::There {
                mode: seen.mode() & 0o7777,
                owner: seen.uid(),
                user: rustix::process::geteuid().as_raw(),
                writable: usable(path),
            }),
            Ok(_) => Ok(Directory::Other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let above = nearest(path);
                Ok(Directory::Missing { can_be_made: above.is_dir() && usable(above) })
            }
            Err(error) => Err(error),
        }
    }
}

pub(super) fn judge_directory(path: &Path, seen: io::Result<Directory>) -> Finding {
    const CHECK: &str = "state-directory";
    let place = path.display();
    let another = "name another one with --state-dir";
    match seen {
        Err(error) => {
            Finding::problem(CHECK, format!("{place} cannot be looked at ({error})"), another)
        }
        Ok(Directory::Other) => {
            Finding::problem(CHECK, format!("{place} is no directory"), another)
        }
        Ok(Directory::Missing { can_be_made: true }) => {
            Finding::ok(CHECK, format!("{place} is not there yet; the first worker makes it"))
        }
        Ok(Directory::Missing { can_be_made: false }) => Finding::problem(
            CHECK,
            format!("{place} is not there, and this user cannot make it"),
            format!("make it for the user of the worker, or {another}"),
        ),
        Ok(Directory::There { mode, owner, user, writable }) => {
            let what = format!("{place} has mode {mode:04o} and owner {owner}");
            let close = format!("chmod 700 {place}");
            if !writable {
                let what = format!("{what}: user {user} cannot use it");
                let todo = format!("run the worker as its owner, or {another}");
                return Finding::problem(CHECK, what, todo);
            }
            if mode & 0o022 != 0 {
                let what = format!("{what}: others can put runs there");
                return Finding::problem(CHECK, what, close);
            }
            if mode & 0o077 != 0 {
                return Finding::warning(CHECK, format!("{what}: others can look into it"), close);
            }
            if owner != user {
                let what = format!("{what}: not the user {user} who asks");
                let todo = "run every worker of this directory as its owner";
                return Finding::warning(CHECK, what, todo);
            }
            Finding::ok(CHECK, what)
        }
    }
}

/// A slot as it is seen.
#[derive(Debug, Clone, Default)]
pub(super) struct SlotSeen {
    /// The worker that holds it.
    pub(super) worker: Option<u32>,
    runs: Vec<RunSeen>,
    /// Directories that do not say which run they belong to, those that are being made not counted.
    damaged: usize,
}

/// A run as its directory shows it.
#[derive(Debug, Clone, Copy)]
struct RunSeen {
    guardian_lives: bool,
    /// Made before the machine was started.
    earlier_boot: bool,
}

/// All slots of a store.
pub(super) fn look_at_slots(state_dir: &Path, store_id: &str) -> io::Result<Vec<SlotSeen>> {
    let up = Duration::from_nanos(BootTime::now().as_nanos());
    let now = UNIX_EPOCH + Duration::from_secs_f64(SystemClock.now());
    let boot = now.checked_sub(up).unwrap_or(UNIX_EPOCH);
    let locks = LockTable::read()?;
    let slots = Slot::paths(state_dir, store_id)?;
    slots.iter().map(|path| look_at_slot(path, &locks, boot)).collect()
}

fn look_at_slot(path: &Path, locks: &LockTable, boot: SystemTime) -> io::Result<SlotSeen> {
    let mut slot = SlotSeen { worker: Slot::worker_pid(path, locks)?, ..SlotSeen::default() };
    let found = RunDir::list(path)?;
    for run in found.runs {
        // What is not there any more was stored meanwhile.
        let Ok(made_at) = run.made_at() else { continue };
        let earlier_boot = made_at < boot;
        slot.runs
            .push(RunSeen { guardian_lives: run.guardian_pid(locks)?.is_some(), earlier_boot });
    }
    let unfinished = |path: &&PathBuf| path.extension().is_some_and(|ending| ending == "new");
    let damaged = found.unreadable.iter().filter(|path| !unfinished(path) && path.exists());
    slot.damaged = damaged.count();
    Ok(slot)
}

pub(super) fn judge_slots(slots: &[SlotSeen]) -> Vec<Finding> {
    vec![slots_in_use(slots), unowned(slots), left_behind(slots)]
}

fn slots_in_use(slots: &[SlotSeen]) -> Finding {
    let living = slots.iter().filter(|slot| slot.worker.is_some()).count();
    let damaged: usize = slots.iter().map(|slot| slot.damaged).sum();
    let what = format!("slots of this store: {}, with a living worker: {living}", slots.len());
    match damaged {
        0 => Finding::ok("slots", what),
        _ => Finding::warning(
            "slots",
            format!("{what}; directories that do not say which run they belong to: {damaged}"),
            "look at them before you remove them: a task may still run there, until its fence",
        ),
    }
}

/// Runs in slots without a worker.
fn orphans(slots: &[SlotSeen]) -> impl Iterator<Item = &RunSeen> {
    slots.iter().filter(|slot| slot.worker.is_none()).flat_map(|slot| &slot.runs)
}

fn unowned(slots: &[SlotSeen]) -> Finding {
    match orphans(slots).filter(|run| run.guardian_lives).count() {
        0 => Finding::ok("unowned-tasks", "no task runs without a worker"),
        count => Finding::warning(
            "unowned-tasks",
            format!("tasks that run on without a worker, until their fences: {count}"),
            "start a worker on this host, with this store and state directory: it takes them over",
        ),
    }
}

fn left_behind(slots: &[SlotSeen]) -> Finding {
    const CHECK: &str = "earlier-runs";
    let gone: Vec<_> = orphans(slots).filter(|run| !run.guardian_lives).collect();
    if gone.is_empty() {
        return Finding::ok(CHECK, "nothing is left of earlier workers");
    }
    let earlier = gone.iter().filter(|run| run.earlier_boot).count();
    Finding::warning(
        CHECK,
        format!(
            "runs that are left and whose guardians are gone: {}, from before the machine was last started: {earlier}",
            gone.len()
        ),
        "start a worker on this host: it stores how they ended, or gives them back to the queue",
    )
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    fn directory(seen: Directory) -> State {
        judge_directory(Path::new("/state"), Ok(seen)).state
    }

    #[test]
    fn a_directory_for_its_owner_alone_is_good() {
        let there = |mode, owner, writable| Directory::There { mode, owner, user: 7, writable };
        assert_eq!(directory(there(0o700, 7, true)), State::Ok);
        assert_eq!(directory(there(0o755, 7, true)), State::Warning);
        assert_eq!(directory(there(0o770, 7, true)), State::Problem);
        assert_eq!(directory(there(0o700, 8, true)), State::Warning);
        assert_eq!(directory(there(0o700, 8, false)), State::Problem);
        assert_eq!(directory(Directory::Missing { can_be_made: true }), State::Ok);
        assert_eq!(directory(Directory::Missing { can_be_made: false }), State::Problem);
        assert_eq!(directory(Directory::Other), State::Problem);
        let unseen = judge_directory(Path::new("/state"), Err(io::ErrorKind::Other.into()));
        assert_eq!(unseen.state, State::Problem);
    }

    #[test]
    fn only_what_has_no_worker_is_left_behind() {
        let run = |guardian_lives| RunSeen { guardian_lives, earlier_boot: false };
        let slot = |worker, runs: &[bool]| SlotSeen {
            worker,
            runs: runs.iter().map(|lives| run(*lives)).collect(),
            damaged: 0,
        };
        let states = |slots: &[SlotSeen]| {
            judge_slots(slots).iter().map(|found| found.state).collect::<Vec<_>>()
        };
        assert_eq!(states(&[]), [State::Ok; 3]);
        assert_eq!(states(&[slot(Some(1), &[true, false])]), [State::Ok; 3]);
        let unowned = [slot(Some(1), &[true]), slot(None, &[true])];
        assert_eq!(states(&unowned), [State::Ok, State::Warning, State::Ok]);
        let gone = [slot(None, &[false])];
        assert_eq!(states(&gone), [State::Ok, State::Ok, State::Warning]);
        let damaged = [SlotSeen { damaged: 1, ..SlotSeen::default() }];
        assert_eq!(states(&damaged), [State::Warning, State::Ok, State::Ok]);
    }
}
