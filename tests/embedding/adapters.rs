//! Kinds of a host's own, run inside its process.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leasehold::db::ops::{Attempts, Cancelled, History};
use leasehold::db::{Query, Run, StoreUrl};
use leasehold::domain::ending::{ExecuteError, Execution};
use leasehold::domain::settings::{RunSettings, TaskLimits};
use leasehold::domain::task::TaskApplication;
use leasehold::domain::transition::Principal;
use leasehold::execute::{Adapter, AdapterTask};
use leasehold::process::guardian::{DEFAULT_LOG_CAP, GuardianProgram, Retention};
use leasehold::{Handle, Runtime, RuntimeConfig, Supervision};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::places::{Engine, Place, engines};

const PATIENCE: Duration = Duration::from_secs(60);

/// Does what its arguments say, and counts what was seen.
#[derive(Clone, Default)]
struct Does {
    begun: Arc<AtomicUsize>,
    /// Futures that have ended or were dropped.
    gone: Arc<AtomicUsize>,
    open: Arc<tokio::sync::Notify>,
    unblocked: Arc<AtomicBool>,
}

struct Gone(Arc<AtomicUsize>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Adapter for Does {
    async fn run(
        &self,
        task: AdapterTask,
        cancelled: CancellationToken,
    ) -> Result<Execution, ExecuteError> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let _gone = Gone(Arc::clone(&self.gone));
        match task.run.action_args["do"].as_str().unwrap() {
            "end" => {
                let code = task.run.action_args["code"].as_i64().unwrap();
                let exit_code = i32::try_from(code).unwrap();
                Ok(Execution { exit_code, detail: "its words".into() })
            }
            "fail" => Err(ExecuteError { kind: "Oops".into(), message: "it broke".into() }),
            "panic" => panic!("a fault"),
            "wait" => {
                self.open.notified().await;
                Ok(Execution::OK)
            }
            "heed" => {
                cancelled.cancelled().await;
                Ok(Execution::OK)
            }
            "block" => {
                while !self.unblocked.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Ok(Execution::OK)
            }
            other => panic!("{other}"),
        }
    }
}

struct Host {
    does: Does,
    runtime: Runtime,
    waiting: tokio::runtime::Runtime,
}

impl Host {
    fn new(place: &Place, settings: impl FnOnce(&mut RuntimeConfig)) -> Host {
        let does = Does::default();
        let mut config = RuntimeConfig::new(place.store_url());
        config.concurrency = 8;
        config.launch.adapters.in_process("own", does.clone()).unwrap();
        settings(&mut config);
        let waiting = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        Host { does, runtime: Runtime::start(config).unwrap(), waiting }
    }

    fn handle(&self) -> Handle {
        self.runtime.handle()
    }

    fn submit(&self, args: Value, settings: RunSettings) -> String {
        let mut app = TaskApplication::new("own", "host");
        app.args = args.as_object().unwrap().clone();
        self.waiting.block_on(self.handle().submit_with(&app, settings, None)).unwrap()
    }

    fn run(&self, id: &str) -> Run {
        self.waiting.block_on(self.handle().find(id)).unwrap().unwrap()
    }

    fn read<Q: Query<Output: Send> + Send + 'static>(&self, query: Q) -> Q::Output {
        self.waiting.block_on(self.handle().read(query)).unwrap()
    }

    fn until(&self, id: &str, status: &str) -> Run {
        until(|| {
            let run = self.run(id);
            if run.status == status { Ok(run) } else { Err(format!("{run:?}")) }
        })
    }

    fn until_begun(&self, count: usize) {
        until(|| match self.does.begun.load(Ordering::SeqCst) {
            begun if begun >= count => Ok(()),
            begun => Err(format!("{begun} begun")),
        });
    }

    fn until_gone(&self, count: usize) {
        until(|| match self.does.gone.load(Ordering::SeqCst) {
            gone if gone >= count => Ok(()),
            gone => Err(format!("{gone} gone")),
        });
    }

    fn cancel(&self, id: &str) {
        let handle = self.handle();
        let asked = self.waiting.block_on(handle.cancel(id, Principal::operator("test"))).unwrap();
        assert_eq!(asked, Cancelled::Requested);
    }

    fn steps(&self, id: &str) -> Vec<String> {
        let facts = self.read(History { run_id: id.into() });
        facts.into_iter().map(|fact| fact.reason_code).collect()
    }

    fn end(self) {
        self.handle().shut_down_now();
        assert_eq!(self.runtime.join().code(), 0);
    }
}

#[track_caller]
fn until<T>(mut look: impl FnMut() -> Result<T, String>) -> T {
    let began = Instant::now();
    loop {
        match look() {
            Ok(value) => return value,
            Err(seen) if began.elapsed() > PATIENCE => panic!("too late; last seen: {seen}"),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Runs a test on all engines at once, so that their waiting times are shared.
fn on_engines(test: impl Fn(&Place) + Sync) {
    std::thread::scope(|scope| {
        for engine in engines() {
            let test = &test;
            scope.spawn(move || test(&Place::new(engine)));
        }
    });
}

fn brief() -> RunSettings {
    RunSettings { grace: Some(0.1), ..RunSettings::default() }
}

fn guardians(state: &Path) -> Supervision {
    Supervision::Guardians {
        state_dir: state.to_owned(),
        program: Some(GuardianProgram::at(env!("CARGO_BIN_EXE_leasehold"))),
        log_cap: DEFAULT_LOG_CAP,
        retention: Retention { age: Duration::from_secs(3600), bytes: 1 << 20 },
    }
}

#[test]
fn ends_errors_and_panics_are_the_run_s_own() {
    for engine in engines() {
        let place = Place::new(engine);
        let host = Host::new(&place, |_| {});
        let of = |args| host.submit(args, RunSettings::default());
        let panics = of(json!({"do": "panic"}));
        let good = of(json!({"do": "end", "code": 0}));
        let bad = of(json!({"do": "end", "code": 3}));
        let fails = of(json!({"do": "fail"}));
        assert_eq!(host.until(&good, "completed").exit_code, Some(0));
        let run = host.until(&bad, "failed");
        assert_eq!((run.exit_code, run.error_detail.as_deref()), (Some(3), Some("its words")));
        let run = host.until(&fails, "failed");
        assert_eq!((run.exit_code, run.error_detail.as_deref()), (Some(1), Some("Oops: it broke")));
        let attempts = host.read(Attempts { run_id: fails });
        assert_eq!((attempts[0].ended_by.as_str(), attempts[0].exit_code), ("task", Some(1)));
        let run = host.until(&panics, "failed");
        assert_eq!(run.status_reason_code.as_deref(), Some("run.failed.exception"));
        let words = "the adapter of the kind \"own\" panicked: a fault";
        assert_eq!(run.error_detail.as_deref(), Some(words));
        // Nothing else has suffered.
        let after = of(json!({"do": "end", "code": 0}));
        host.until(&after, "completed");
        host.end();
    }
}

#[test]
fn a_cancel_is_told_and_what_does_not_heed_it_is_dropped_after_its_grace() {
    for engine in engines() {
        let place = Place::new(engine);
        let host = Host::new(&place, |_| {});
        let heeds = host.submit(json!({"do": "heed"}), RunSettings::default());
        let waits = host.submit(json!({"do": "wait"}), brief());
        host.until_begun(2);
        host.cancel(&heeds);
        host.cancel(&waits);
        // The one that heeds has five seconds, and needs none of them.
        let run = host.until(&heeds, "cancelled");
        assert_eq!(run.exit_code, None, "an end that was asked for is no result");
        host.until(&waits, "cancelled");
        host.until_gone(2);
        host.end();
    }
}

#[test]
fn code_that_blocks_keeps_nobody_else_and_its_run_ends_all_the_same() {
    let place = Place::new(Engine::Sqlite);
    let host = Host::new(&place, |config| config.concurrency = 1);
    let blocks = host.submit(json!({"do": "block"}), brief());
    host.until_begun(1);
    host.cancel(&blocks);
    host.until(&blocks, "cancelled");
    // In its slot, while it goes on.
    let after = host.submit(json!({"do": "end", "code": 0}), RunSettings::default());
    host.until(&after, "completed");
    assert_eq!(host.does.gone.load(Ordering::SeqCst), 1, "the blocking one is still at it");
    host.does.unblocked.store(true, Ordering::SeqCst);
    host.until_gone(2);
    host.end();
}

#[test]
fn a_timeout_ends_it() {
    for engine in engines() {
        let place = Place::new(engine);
        let host = Host::new(&place, |_| {});
        let settings = RunSettings { timeout: Some(0.2), ..brief() };
        let id = host.submit(json!({"do": "wait"}), settings);
        host.until(&id, "timed_out");
        // On a slow machine it may not even have begun.
        until(|| {
            match (host.does.begun.load(Ordering::SeqCst), host.does.gone.load(Ordering::SeqCst)) {
                (begun, gone) if begun == gone => Ok(()),
                seen => Err(format!("{seen:?}")),
            }
        });
        host.end();
    }
}

#[test]
fn a_shutdown_waits_for_what_ends_in_time_and_gives_the_rest_back() {
    for engine in engines() {
        let place = Place::new(engine);
        let host = Host::new(&place, |_| {});
        let id = host.submit(json!({"do": "wait"}), RunSettings::default());
        host.until_begun(1);
        host.handle().shut_down(PATIENCE);
        host.does.open.notify_one();
        assert_eq!(host.runtime.join().code(), 0);
        assert_eq!(place.queue().run(&id).unwrap().status, "completed");

        let host = Host::new(&place, |_| {});
        let id = host.submit(json!({"do": "wait"}), RunSettings::default());
        host.until_begun(1);
        host.handle().shut_down_now();
        let does = host.does.clone();
        assert_eq!(host.runtime.join().code(), 0);
        // Its thread is not waited for for long.
        until(|| {
            if does.gone.load(Ordering::SeqCst) == 1 { Ok(()) } else { Err("it is there".into()) }
        });
        let run = place.queue().run(&id).unwrap();
        assert_eq!(run.status_reason_code.as_deref(), Some("run.queued.shutdown"));
    }
}

#[test]
fn its_lease_is_renewed_and_when_it_is_lost_its_result_is_dropped() {
    on_engines(|place| {
        let host = Host::new(place, |config| config.queue.lease_ttl = 10.0);
        let id = host.submit(json!({"do": "wait"}), brief());
        host.until_begun(1);
        let first = host.run(&id).lease_expires_at.unwrap();
        until(|| match host.run(&id).lease_expires_at {
            Some(at) if at > first => Ok(()),
            at => Err(format!("{at:?}")),
        });
        // Somebody else has it from now on.
        place.raw().run("UPDATE schedule_runs SET lease_attempts = 2, leased_by = 'other', lease_expires_at = 9e9");
        host.until_gone(1);
        let run = host.run(&id);
        assert_eq!((run.status.as_str(), run.leased_by.as_deref()), ("running", Some("other")));
        host.end();
    });
}

#[test]
fn limits_that_nobody_could_keep_it_within_refuse_it() {
    let place = Place::new(Engine::Sqlite);
    let host = Host::new(&place, |_| {});
    let limits = TaskLimits { open_files: Some(10), ..TaskLimits::default() };
    let settings = RunSettings { limits: Some(limits), ..RunSettings::default() };
    let id = host.submit(json!({"do": "end", "code": 0}), settings);
    let run = host.until(&id, "failed");
    assert!(run.error_detail.unwrap().starts_with("LimitsNeedGuardian: "));
    assert_eq!(host.does.begun.load(Ordering::SeqCst), 0);
    host.end();
}

/// Nobody could take it over, so it is not left to anybody.
#[test]
fn a_worker_that_detaches_gives_it_back() {
    for engine in engines() {
        let place = Place::new(engine);
        let state = place.dir.path().join("state");
        let host = Host::new(&place, |config| config.supervision = guardians(&state));
        let id = host.submit(json!({"do": "heed"}), RunSettings::default());
        host.until_begun(1);
        host.handle().detach();
        assert_eq!(host.runtime.join().code(), 0);
        let run = place.queue().run(&id).unwrap();
        assert_eq!(run.status_reason_code.as_deref(), Some("run.queued.shutdown"));
    }
}

const HOST_STORE: &str = "TEST_HOST_STORE";
const HOST_STATE: &str = "TEST_HOST_STATE";

/// A host that is killed while such a task runs had begun it: the next one takes that for a lease that was lost, at once,
/// and never runs it beside itself.
#[test]
fn a_crash_of_the_host_counts_as_a_lost_lease() {
    if let Ok(url) = std::env::var(HOST_STORE) {
        return be_the_host(&url);
    }
    for engine in engines() {
        let place = Place::new(engine);
        let state = place.dir.path().join("state");
        let mut app = TaskApplication::new("own", "host");
        app.args.insert("do".into(), "wait".into());
        let config = leasehold::Config {
            own_kinds: ["own".to_owned()].into(),
            ..leasehold::Config::default()
        };
        let mut queue = place.open(config);
        let id = queue.submit_task(&app).unwrap();
        let name = "adapters::a_crash_of_the_host_counts_as_a_lost_lease";
        let mut dying = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(HOST_STORE, &place.url)
            .env(HOST_STATE, &state)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let begun = state.join("begun");
        until(|| if begun.exists() { Ok(()) } else { Err("not begun".into()) });
        dying.kill().unwrap();
        dying.wait().unwrap();
        assert_eq!(queue.run(&id).unwrap().status, "running");

        let host = Host::new(&place, |config| config.supervision = guardians(&state));
        host.until_begun(1);
        assert_eq!(
            host.steps(&id),
            ["run.started.ok", "run.queued.lease_expired", "run.started.ok"]
        );
        let lost = "SELECT CAST(lease_expiries AS TEXT) AS value FROM leasehold_runs";
        assert_eq!(place.raw().texts(lost), [Some("1".to_owned())]);
        host.does.open.notify_one();
        assert_eq!(host.until(&id, "completed").lease_attempts, 2);
        host.end();
    }
}

fn be_the_host(url: &str) {
    let state = std::env::var_os(HOST_STATE).unwrap();
    let does = Does::default();
    let mut config = RuntimeConfig::new(StoreUrl::parse(url).unwrap());
    config.launch.adapters.in_process("own", does.clone()).unwrap();
    config.supervision = guardians(Path::new(&state));
    let _runtime = Runtime::start(config).unwrap();
    until(|| if does.begun.load(Ordering::SeqCst) == 1 { Ok(()) } else { Err("not begun".into()) });
    std::fs::write(Path::new(&state).join("begun"), "").unwrap();
    // Until it is killed.
    std::thread::sleep(PATIENCE);
}
