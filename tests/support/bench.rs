//! Worker processes beside one store, and what is seen of them there.

#![allow(dead_code, reason = "each test program uses its own part of this")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use leasehold::db::ops::{History, ListRuns};
use leasehold::db::{Fact, Run};
use leasehold::domain::allow::AllowList;
use leasehold::domain::task::TaskApplication;
use leasehold::{Config, Queue, Runtime, RuntimeConfig};
use rustix::process::{Pid, Signal, kill_process};

use crate::places::{Engine, Place, Raw, engines, patiently};

/// Only something broken takes so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(150);
/// The program.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");
/// What tasks of these tests may run.
const ALLOWED: &str = "true,false,sh,cat,no-such-program,a-directory";

/// Workers beside one store.
pub(crate) struct Bench {
    /// Connections for the looks that polling makes.
    queue: Mutex<Queue>,
    raw: Mutex<Raw>,
    workers: AtomicU32,
    pub(crate) place: Place,
}

/// Runs a test on all engines at once, so that their waiting times are shared.
pub(crate) fn on_engines(test: impl Fn(&Bench) + Sync) {
    on(&engines(), test);
}

/// The same, for what is only so on SQLite.
pub(crate) fn on_sqlite(test: impl Fn(&Bench) + Sync) {
    on(&[Engine::Sqlite], test);
}

/// The same, for what is only so on PostgreSQL.
pub(crate) fn on_postgres(test: impl Fn(&Bench) + Sync) {
    let engines: Vec<_> =
        engines().into_iter().filter(|engine| *engine == Engine::Postgres).collect();
    on(&engines, test);
}

fn on(engines: &[Engine], test: impl Fn(&Bench) + Sync) {
    std::thread::scope(|scope| {
        for engine in engines {
            let body = || test(&Bench::new(*engine));
            std::thread::Builder::new()
                .name(engine.name().into())
                .spawn_scoped(scope, body)
                .unwrap();
        }
    });
}

/// Polls until `look` is satisfied, and fails with the last thing it saw.
#[track_caller]
pub(crate) fn until<T>(mut look: impl FnMut() -> Result<T, String>) -> T {
    let began = Instant::now();
    loop {
        match look() {
            Ok(value) => return value,
            Err(seen) if began.elapsed() > PATIENCE => panic!("too late; last seen: {seen}"),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// A shell script as a task.
pub(crate) fn sh(script: impl Into<String>) -> TaskApplication {
    command("sh", &["-c", &script.into()])
}

pub(crate) fn command(program: &str, words: &[&str]) -> TaskApplication {
    let mut app = TaskApplication::new("command", "host");
    app.args.insert("action_command".into(), program.into());
    app.args.insert("action_command_args".into(), words.into());
    app
}

/// The same task for workers that advertise `token`.
pub(crate) fn needing(token: &str, mut app: TaskApplication) -> TaskApplication {
    app.required_capabilities.push(token.into());
    app
}

impl Bench {
    pub(crate) fn new(engine: Engine) -> Bench {
        let place = Place::new(engine);
        let allow_commands = AllowList::parse(ALLOWED);
        let queue = place.open(Config { allow_commands, ..Config::default() });
        let raw = place.raw();
        Bench { queue: Mutex::new(queue), raw: Mutex::new(raw), workers: AtomicU32::new(0), place }
    }

    pub(crate) fn engine(&self) -> &'static str {
        self.place.engine.name()
    }

    /// A file in the directory of the store, which is also that of the tasks.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.place.dir.path().join(name)
    }

    /// The program, with this store named by its environment and nothing else known to it.
    pub(crate) fn program<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Command {
        self.program_at(Path::new(PROGRAM), words)
    }

    /// The same of a copy of the program.
    pub(crate) fn program_at<S: AsRef<OsStr>>(
        &self,
        program: &Path,
        words: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut program = Command::new(program);
        program
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.place.dir.path())
            .env("LEASEHOLD_STORE", &self.place.url)
            // Locks of the whole machine would let the tests wait for each other.
            .env("LEASEHOLD_LOCK_DIR", self.file("locks"))
            .env("LEASEHOLD_ALLOW_COMMANDS", ALLOWED)
            .current_dir(self.place.dir.path())
            .stdin(Stdio::null())
            .args(words);
        program
    }

    /// Starts a worker.
    pub(crate) fn worker(&self, words: &[&str]) -> Worker {
        Worker::start(self.program(["worker"].iter().chain(words)), self.log_file())
    }

    /// Runs a worker that leaves by itself; it must leave well.
    #[track_caller]
    pub(crate) fn work(&self, words: &[&str]) -> Worker {
        let mut worker = self.worker(words);
        worker.leaves_with(0);
        worker
    }

    pub(crate) fn log_file(&self) -> PathBuf {
        self.file(&format!("worker-{}.log", self.workers.fetch_add(1, Ordering::Relaxed)))
    }

    pub(crate) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn submit(&self, app: &TaskApplication) -> String {
        // A worker that the machine keeps waiting may hold the lock for long.
        patiently(|| self.queue().submit_task(app)).unwrap()
    }

    /// Submits a script by the program, with these options.
    #[track_caller]
    pub(crate) fn submit_script(&self, options: &[&str], script: &str) -> String {
        let words = [&["submit", "command"], options, &["--", "sh", "-c", script]].concat();
        let output = self.program(words).output().unwrap();
        assert!(output.status.success(), "{options:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// The ledger finds nothing.
    #[track_caller]
    pub(crate) fn assert_sound(&self) {
        let output = self.program(["verify"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    /// Submits many, in shared transactions.
    pub(crate) fn submit_all(&self, apps: &[TaskApplication]) -> Vec<String> {
        let mut config = RuntimeConfig::new(self.place.store_url());
        config.own_ticks = false;
        config.mailbox = apps.len() + 1;
        config.queue.allow_commands = AllowList::parse(ALLOWED);
        let runtime = Runtime::start(config).unwrap();
        let handle = runtime.handle();
        let submits = join_all(apps.iter().map(|app| handle.submit(app)));
        let waiting = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let ids = waiting.block_on(submits).into_iter().map(Result::unwrap).collect();
        handle.shut_down_now();
        assert_eq!(runtime.join().code(), 0);
        ids
    }

    pub(crate) fn run(&self, id: &str) -> Run {
        self.queue().run(id).unwrap()
    }

    pub(crate) fn runs(&self) -> Vec<Run> {
        self.queue().read(&ListRuns { statuses: Vec::new(), limit: 1_000_000 }).unwrap()
    }

    /// How many runs have each status.
    pub(crate) fn statuses(&self) -> BTreeMap<String, usize> {
        let counts = "SELECT status || ' ' || count(*) AS value FROM schedule_runs GROUP BY status";
        let counts = self.texts(counts).into_iter();
        let parts = counts.map(|count| {
            let (status, count) = count.split_once(' ').unwrap();
            (status.to_owned(), count.parse().unwrap())
        });
        parts.collect()
    }

    /// Waits until all runs there are have this status. However many there are: only something broken brings none of them
    /// there for so long.
    #[track_caller]
    pub(crate) fn until_all(&self, status: &str) {
        let (mut there, mut all) = (0, false);
        while !all {
            (there, all) = until(|| {
                let statuses = self.statuses();
                let now = statuses.get(status).copied().unwrap_or(0);
                let all = statuses.keys().all(|there| there == status);
                if all || now > there { Ok((now, all)) } else { Err(format!("{statuses:?}")) }
            });
        }
    }

    #[track_caller]
    pub(crate) fn until_status(&self, id: &str, status: &str) -> Run {
        until(|| {
            let run = self.run(id);
            if run.status == status { Ok(run) } else { Err(format!("{run:?}")) }
        })
    }

    pub(crate) fn facts(&self, id: &str) -> Vec<Fact> {
        self.queue().read(&History { run_id: id.into() }).unwrap()
    }

    /// A run's history as `from>to reason`.
    pub(crate) fn steps(&self, id: &str) -> Vec<String> {
        let step = |fact: Fact| {
            format!(
                "{}>{} {}",
                fact.previous_status.unwrap_or_default(),
                fact.status,
                fact.reason_code
            )
        };
        self.facts(id).into_iter().map(step).collect()
    }

    /// How often each sort of change was written, over all runs.
    pub(crate) fn changes(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        let sql = "SELECT previous_status || '>' || status || ' ' || reason_code AS value FROM status_transitions";
        for change in self.texts(sql) {
            *counts.entry(change).or_default() += 1;
        }
        counts
    }

    pub(crate) fn texts(&self, sql: &str) -> Vec<String> {
        let mut raw = self.raw.lock().unwrap_or_else(PoisonError::into_inner);
        raw.texts(sql).into_iter().flatten().collect()
    }

    /// The lines that tasks have written to a file of the bench.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.file(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// A worker process. It is killed when dropped; its log shows when a test fails.
pub(crate) struct Worker {
    child: Child,
    log: PathBuf,
}

impl Worker {
    pub(crate) fn start(program: Command, log: PathBuf) -> Worker {
        Worker::try_start(program, log).unwrap()
    }

    /// The same, where the machine may have nothing left for it.
    pub(crate) fn try_start(mut program: Command, log: PathBuf) -> io::Result<Worker> {
        program.stdout(Stdio::null()).stderr(File::create(&log)?);
        Ok(Worker { child: program.spawn()?, log })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits until it is ready to claim.
    #[track_caller]
    pub(crate) fn ready(self) -> Worker {
        until(|| if self.log().contains("ready") { Ok(()) } else { Err(self.log()) });
        self
    }

    /// As a crash does it.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::KILL);
        assert_eq!(self.exit().code(), None);
    }

    #[track_caller]
    pub(crate) fn exit(&mut self) -> ExitStatus {
        let log = self.log.clone();
        until(|| self.child.try_wait().unwrap().ok_or_else(|| end_of(&log)))
    }

    #[track_caller]
    pub(crate) fn leaves_with(&mut self, code: i32) {
        let status = self.exit();
        assert_eq!(status.code(), Some(code), "{status}: {}", end_of(&self.log));
    }

    pub(crate) fn has_left(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Two signals end it and its tasks; of different kinds, since the kernel folds equal ones into one.
    pub(crate) fn end_at_once(&mut self) {
        self.signal(Signal::TERM);
        self.signal(Signal::INT);
        let began = Instant::now();
        while !self.has_left() && began.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }
}

fn end_of(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.has_left() {
            self.end_at_once();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            println!("--- {}\n{}", self.log.display(), end_of(&self.log));
        }
    }
}
