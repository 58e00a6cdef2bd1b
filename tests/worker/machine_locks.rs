//! Locks of the machine behind exclusive tokens: between workers of different stores, against other programs, and to
//! the last process of a task. Nothing here is known to the database.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::domain::allow::AllowList;
use leasehold::domain::capability::CapabilityClass;
use leasehold::domain::task::TaskApplication;
use leasehold::process::guardian::{DEFAULT_LOG_CAP, GuardianProgram, Retention};
use leasehold::{Runtime, RuntimeConfig, Supervision};
use rustix::process::Signal;

use crate::bench::{Bench, Worker, needing, on_engines, on_sqlite, sh, until};
use crate::machine;

const GPU: &str = "gpu-exclusive";
/// The timer is out of the way: what is noticed is noticed by the look at locks.
const WORDS: [&str; 5] = ["--advertise", GPU, "--tick", "300s", "--log=debug"];
const OWNERS: [&str; 2] = ["guardians", "direct"];

fn worker(bench: &Bench, words: &[&str]) -> Worker {
    bench.worker(&[&WORDS[..], words].concat()).ready()
}

fn gpu(script: impl Into<String>) -> TaskApplication {
    needing(GPU, sh(script))
}

fn lock_of(bench: &Bench) -> PathBuf {
    bench.file("locks/gpu-exclusive.lock")
}

/// As a program does that knows nothing of this project.
fn take(lock: &Path) -> Option<File> {
    let file = File::create(lock).unwrap();
    match file.try_lock() {
        Ok(()) => Some(file),
        Err(std::fs::TryLockError::WouldBlock) => None,
        Err(std::fs::TryLockError::Error(error)) => panic!("{error}"),
    }
}

#[track_caller]
fn until_taken(lock: &Path) -> File {
    until(|| take(lock).ok_or_else(|| "it is held".to_owned()))
}

#[track_caller]
fn until_logged(worker: &Worker, words: &str, times: usize) {
    until(|| match worker.log().matches(words).count() {
        count if count >= times => Ok(()),
        count => Err(format!("{words}: {count} times")),
    });
}

#[track_caller]
fn number_in(bench: &Bench, name: &str) -> u32 {
    until(|| {
        let lines = bench.lines(name);
        lines.first().and_then(|line| line.parse().ok()).ok_or_else(|| format!("{lines:?}"))
    })
}

/// It is as it was submitted.
#[track_caller]
fn assert_untouched(bench: &Bench, id: &str) {
    let run = bench.run(id);
    assert_eq!((run.status.as_str(), run.lease_attempts), ("queued", 0), "{run:?}");
    assert_eq!(bench.steps(id), [""; 0]);
}

/// Another program, which holds a lock until it is told to let go.
struct Stranger(Child);

impl Stranger {
    fn with(lock: &Path) -> Stranger {
        std::fs::create_dir_all(lock.parent().unwrap()).unwrap();
        let mut flock = Command::new("flock");
        let child = flock.arg(lock).args(["cat"]).stdin(Stdio::piped()).spawn().unwrap();
        until(|| take(lock).map_or(Ok(()), |_| Err("it is free".to_owned())));
        Stranger(child)
    }

    fn let_go(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

#[test]
fn workers_of_different_stores_never_run_two_tasks_of_one_token_at_once() {
    on_engines(|bench| {
        let other = Bench::new(bench.place.engine);
        let (locks, inside) = (bench.file("locks"), bench.file("inside"));
        let (locks, inside) = (locks.to_str().unwrap(), inside.to_str().unwrap());
        // `mkdir` tells whether anybody else is in there.
        let task = gpu(format!("mkdir {inside} || exit 9; sleep 0.15; rmdir {inside} || exit 8"));
        for bench in [bench, &other] {
            bench.submit_all(&vec![task.clone(); 5]);
        }
        let words = ["--lock-dir", locks, "--concurrency", "3"];
        let mut words_of_other = words.to_vec();
        words_of_other.extend(["--supervision", "direct"]);
        let _workers = (worker(bench, &words), worker(&other, &words_of_other));
        for bench in [bench, &other] {
            bench.until_all("completed");
            let claims = "SELECT DISTINCT CAST(lease_attempts AS TEXT) AS value FROM schedule_runs";
            assert_eq!(bench.texts(claims), ["1"]);
        }
    });
}

#[test]
fn a_run_whose_lock_another_program_holds_stays_queued_and_says_who_it_is() {
    on_engines(|bench| {
        for owner in OWNERS {
            let lock = lock_of(bench);
            let stranger = Stranger::with(&lock);
            let waiting = bench.submit(&gpu("true"));
            let worker = worker(bench, &["--supervision", owner, "--concurrency", "1"]);
            let holder = format!("held by process {} (flock)", stranger.0.id());
            until_logged(&worker, &holder, 1);
            // It keeps nobody else waiting, though there is room for one at a time only.
            let free = bench.submit(&sh("true"));
            bench.until_status(&free, "completed");
            until_logged(&worker, "still waits for a lock", 2);
            let log = worker.log();
            assert_eq!(log.matches(&holder).count(), 1, "said once: {log}");
            assert!(log.contains(&waiting) && log.contains(lock.to_str().unwrap()), "{log}");
            assert_untouched(bench, &waiting);
            stranger.let_go();
            let run = bench.until_status(&waiting, "completed");
            assert_eq!(run.lease_attempts, 1);
        }
    });
}

/// The kernel names who took a lock, not who has it.
#[test]
fn the_holder_is_named_anew_when_it_is_another_one() {
    on_engines(|bench| {
        let lock = lock_of(bench);
        std::fs::create_dir_all(lock.parent().unwrap()).unwrap();
        let mine = take(&lock).unwrap();
        let mut heir =
            Command::new("sleep").arg("300").stdin(mine.try_clone().unwrap()).spawn().unwrap();
        let id = bench.submit(&gpu("true"));
        let worker = worker(bench, &[]);
        until_logged(&worker, &format!("held by process {} (", std::process::id()), 1);
        drop(mine);
        until_logged(&worker, &format!("held by process {} (sleep)", heir.id()), 1);
        assert_untouched(bench, &id);
        heir.kill().unwrap();
        heir.wait().unwrap();
        bench.until_status(&id, "completed");
    });
}

#[test]
fn a_lock_is_held_to_the_last_process_of_a_task() {
    on_engines(|bench| {
        // With guardians it may leave the session as well.
        for (owner, away) in OWNERS.into_iter().zip(["setsid", ""]) {
            let left = format!("left-{owner}");
            let script = format!(
                "{away} sh -c 'trap \"\" TERM HUP; echo $$ >{left}; while :; do sleep 0.05; done' & \
                 until [ -s {left} ]; do sleep 0.01; done; exit 0"
            );
            let _worker = worker(bench, &["--supervision", owner]);
            let id = bench.submit(&gpu(script));
            let pid = number_in(bench, &left);
            let _held = until_taken(&lock_of(bench));
            assert!(!machine::is_alive(pid), "{owner}: the lock was free before");
            bench.until_status(&id, "completed");
        }
    });
}

#[test]
fn the_lock_of_a_task_outlives_its_worker_and_not_the_task() {
    on_engines(|bench| {
        let other = Bench::new(bench.place.engine);
        let locks = bench.file("locks");
        let mut first = worker(bench, &[]);
        let id = bench.submit(&gpu("echo $$ >pid; until [ -e go ]; do sleep 0.02; done"));
        let pid = number_in(bench, "pid");
        first.signal(Signal::KILL);
        first.exit();
        assert!(take(&lock_of(bench)).is_none());
        let behind = other.submit(&gpu("true"));
        let next = worker(&other, &["--lock-dir", locks.to_str().unwrap()]);
        until_logged(&next, "held by process ", 1);
        let log = next.log();
        let (_, holder) = log.split_once("held by process ").unwrap();
        let holder: u32 = holder.split_once(' ').unwrap().0.parse().unwrap();
        assert!(machine::is_alive(holder) && holder != first.pid() && holder != pid, "{log}");
        until_logged(&next, "still waits for a lock", 2);
        assert_untouched(&other, &behind);
        assert!(machine::is_alive(pid));
        // The next worker takes the task over, and its lock stays with its guardian.
        let second = worker(bench, &[]);
        until_logged(&second, "taken over", 1);
        assert!(take(&lock_of(bench)).is_none());
        std::fs::write(bench.file("go"), "").unwrap();
        bench.until_status(&id, "completed");
        other.until_status(&behind, "completed");
    });
}

#[test]
fn a_task_does_not_see_its_lock_and_its_worker_keeps_no_copy_of_it() {
    on_engines(|bench| {
        for owner in OWNERS {
            let (seen, go) = (format!("seen-{owner}"), format!("go-{owner}"));
            let script = format!(
                "for fd in /proc/$$/fd/*; do readlink $fd >>{seen}.new; done; mv {seen}.new {seen}; \
                 until [ -e {go} ]; do sleep 0.02; done"
            );
            let worker = worker(bench, &["--supervision", owner]);
            let id = bench.submit(&gpu(script));
            let seen = until(|| match bench.lines(&seen) {
                lines if lines.is_empty() => Err("nothing".to_owned()),
                lines => Ok(lines),
            });
            assert!(
                seen.len() >= 3 && !seen.iter().any(|link| link.ends_with(".lock")),
                "{seen:?}"
            );
            let lock = lock_of(bench).to_str().unwrap().to_owned();
            assert!(take(&lock_of(bench)).is_none());
            // The task may be quicker than the worker, which gives its own away when it hears of the start.
            until(|| match machine::open(worker.pid()) {
                open if open.contains(&lock) == (owner == "direct") => Ok(()),
                open => Err(format!("{owner}: {open:?}")),
            });
            std::fs::write(bench.file(&go), "").unwrap();
            bench.until_status(&id, "completed");
            let of_worker = machine::open(worker.pid());
            assert!(!of_worker.contains(&lock), "{of_worker:?}");
            until_taken(&lock_of(bench));
        }
    });
}

/// What is not started leaves its lock free: a program that is not there, a task that was cancelled, a stop.
#[test]
fn what_does_not_start_or_is_stopped_frees_its_lock() {
    on_engines(|bench| {
        for owner in OWNERS {
            let mut worker = worker(bench, &["--supervision", owner]);
            let broken = bench.submit(&needing(GPU, crate::bench::command("no-such-program", &[])));
            bench.until_status(&broken, "failed");
            until_taken(&lock_of(bench));
            let pid = format!("pid-{owner}");
            let hangs = bench.submit(&gpu(format!("echo $$ >{pid}; exec sleep 300")));
            number_in(bench, &pid);
            bench.program(["cancel", &hangs]).output().unwrap();
            bench.until_status(&hangs, "cancelled");
            until_taken(&lock_of(bench));
            let pid = format!("pid2-{owner}");
            let stopped = bench.submit(&gpu(format!("echo $$ >{pid}; exec sleep 300")));
            number_in(bench, &pid);
            worker.signal(Signal::TERM);
            worker.signal(Signal::INT);
            worker.leaves_with(0);
            assert_eq!(bench.run(&stopped).status, "queued");
            until_taken(&lock_of(bench));
            bench.program(["cancel", &stopped]).output().unwrap();
        }
    });
}

#[test]
fn different_tokens_do_not_wait_for_each_other_and_several_are_taken_together() {
    on_engines(|bench| {
        let locks = bench.file("locks");
        for guardians in [true, false] {
            let mut config = RuntimeConfig::new(bench.place.store_url());
            config.queue.allow_commands = AllowList::parse("sh");
            config.queue.classes =
                config.queue.classes.with("a/camera", CapabilityClass::Serialization);
            config.advertise = vec![GPU.into(), "a/camera".into()];
            (config.concurrency, config.limit) = (1, 1);
            config.tick = Duration::from_secs(300);
            config.lock_dir = Some(locks.clone());
            if guardians {
                config.supervision = Supervision::Guardians {
                    state_dir: bench.file("state"),
                    program: Some(GuardianProgram::at(env!("CARGO_BIN_EXE_leasehold"))),
                    log_cap: DEFAULT_LOG_CAP,
                    retention: Retention::default(),
                };
            }
            std::fs::create_dir_all(&locks).unwrap();
            let camera = until_taken(&locks.join("a%2Fcamera.lock"));
            let runtime = Runtime::start(config).unwrap();
            let (one, both) = (needing("a/camera", sh("true")), needing("a/camera", gpu("true")));
            let waiting = [bench.submit(&one), bench.submit(&both)];
            let others = bench.submit_all(&vec![gpu("true"); 3]);
            for id in &others {
                bench.until_status(id, "completed");
            }
            until_taken(&lock_of(bench));
            for id in &waiting {
                assert_untouched(bench, id);
            }
            drop(camera);
            for id in &waiting {
                bench.until_status(id, "completed");
            }
            runtime.handle().shut_down_now();
            assert_eq!(runtime.join().code(), 0);
        }
    });
}

/// What the tests name by the environment is found by default, and made only by a worker that needs it.
#[test]
fn without_a_name_the_locks_are_those_of_the_machine_or_of_the_state_directory() {
    on_sqlite(|bench| {
        let ready = |words: &[&str]| {
            let mut program = bench.program(["worker", "--once"].iter().chain(words));
            program.env_remove("LEASEHOLD_LOCK_DIR");
            let mut worker = Worker::start(program, bench.log_file());
            worker.leaves_with(0);
            let log = worker.log();
            log.lines().find(|line| line.contains("ready")).unwrap().to_owned()
        };
        let plain = ready(&["--advertise", "a"]);
        assert!(!plain.contains("lock_dir"), "{plain}");
        let shared = Path::new(leasehold::process::machine_lock::SHARED);
        let own = bench.file(".local/state/leasehold/locks");
        let line = ready(&["--advertise", GPU]);
        let used = [shared, &own]
            .into_iter()
            .find(|dir| line.ends_with(&format!("lock_dir={}", dir.display())));
        assert!(used.is_some_and(Path::is_dir), "{line}");
    });
}

#[test]
fn a_lock_directory_that_cannot_be_used_is_refused_before_anything_is_made() {
    on_engines(|bench| {
        let file = bench.file("a-file");
        std::fs::write(&file, "").unwrap();
        for dir in [file.clone(), file.join("below")] {
            let program = bench.program(["worker", "--lock-dir", dir.to_str().unwrap()]).output();
            let output = program.unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{said}");
            let rule = "give one in which this user may make files, on a local file system";
            assert!(said.starts_with("leasehold: the lock directory cannot be "), "{said}");
            assert!(said.contains(dir.to_str().unwrap()) && said.contains(rule), "{said}");
        }
        let state = bench.file(".local/state/leasehold").read_dir();
        assert!(state.is_err_and(|error| error.kind() == ErrorKind::NotFound));
    });
}
