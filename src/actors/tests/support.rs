use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::sync::Notify;

use crate::RuntimeConfig;
use crate::clock::ManualClock;
use crate::db::ops::{FindRun, History, ListWorkers};
use crate::db::{Fact, Mode, Query, Run, Seam, StoreUrl};
use crate::domain::ending::{EndedBy, ExecuteError, Execution};
use crate::domain::task::TaskApplication;
use crate::ids::CountedIds;
use crate::runtime::{
    ActorSeam, ExitReason, LaunchFailure, Launched, Launcher, Orders, Outside, Runtime, TaskEnd,
    TaskStart,
};

/// What the manual clock reads at first.
pub(super) const NOW: f64 = 1_700_000_000.0;
/// Nothing here takes longer unless it is broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// A runtime whose every surrounding a test decides.
pub(super) struct Bench {
    pub runtime: Runtime,
    pub clock: Arc<ManualClock>,
    ids: Arc<CountedIds>,
    pub tasks: Arc<Tasks>,
    pub url: String,
    _dir: TempDir,
}

/// What the stub launcher does, and has done.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    /// Ids in the order of their launches.
    pub launched: Mutex<Vec<String>>,
    /// What tasks of a kind do; others end well at once.
    plans: Mutex<HashMap<String, Plan>>,
    released: Notify,
    open: std::sync::atomic::AtomicBool,
}

#[derive(Debug, Clone)]
pub(super) enum Plan {
    /// Ends like this.
    End(Result<Execution, LaunchFailure>),
    /// Runs until it is released or asked to stop.
    Wait,
    /// Panics instead of starting.
    Panic,
}

impl Tasks {
    pub fn plan(&self, kind: &str, plan: Plan) {
        self.plans.lock().unwrap().insert(kind.into(), plan);
    }

    pub fn release(&self) {
        self.open.store(true, std::sync::atomic::Ordering::SeqCst);
        self.released.notify_waiters();
    }

    pub fn launches(&self) -> Vec<String> {
        self.launched.lock().unwrap().clone()
    }
}

#[derive(Debug)]
struct Stub(Arc<Tasks>);

impl Launcher for Stub {
    fn launch(&self, start: TaskStart, orders: Orders) -> Launched {
        let mut stop = orders.stop;
        let run = start.run;
        self.0.launched.lock().unwrap().push(run.id.clone());
        let tasks = Arc::clone(&self.0);
        let plan = tasks.plans.lock().unwrap().get(&run.action_kind).cloned();
        Box::pin(async move {
            match plan {
                None => Ok(by_itself(Execution::OK)),
                Some(Plan::End(result)) => result.map(by_itself),
                Some(Plan::Panic) => panic!("a launcher that panics"),
                Some(Plan::Wait) => {
                    let released = tasks.released.notified();
                    if tasks.open.load(std::sync::atomic::Ordering::SeqCst) {
                        return Ok(by_itself(Execution::OK));
                    }
                    tokio::select! {
                        () = released => Ok(by_itself(Execution::OK)),
                        order = stop.asked() => {
                            let killed = Execution { exit_code: -15, detail: String::new() };
                            Ok(TaskEnd::new(killed, order.ended_by))
                        }
                    }
                }
            }
        })
    }
}

fn by_itself(execution: Execution) -> TaskEnd {
    TaskEnd::new(execution, EndedBy::Task)
}

impl Bench {
    pub fn new() -> Bench {
        Bench::with(|_| {}, None)
    }

    /// A bench whose settings and seam a test decides. The timer never fires, and polls come fast.
    pub fn with(settings: impl FnOnce(&mut RuntimeConfig), seam: Option<Seam>) -> Bench {
        Bench::start(settings, seam, None)
    }

    /// A bench in which a test may make any actor panic.
    pub fn mined(settings: impl FnOnce(&mut RuntimeConfig), actors: ActorSeam) -> Bench {
        Bench::start(settings, None, Some(actors))
    }

    fn start(
        settings: impl FnOnce(&mut RuntimeConfig),
        seam: Option<Seam>,
        actor_seam: Option<ActorSeam>,
    ) -> Bench {
        let dir = TempDir::new().unwrap();
        let url = format!("sqlite:{}", dir.path().join("queue.db").display());
        let mut config = RuntimeConfig::new(StoreUrl::parse(&url).unwrap());
        config.tick = Duration::from_secs(3600);
        config.concurrency = 8;
        settings(&mut config);
        let (clock, tasks) = (Arc::new(ManualClock::at(NOW)), Arc::new(Tasks::default()));
        let ids = Arc::new(CountedIds::default());
        let outside = Outside {
            clock: Some(clock.clone()),
            ids: Some(ids.clone()),
            launcher: Some(Arc::new(Stub(tasks.clone()))),
            seam,
            actor_seam,
        };
        let runtime = Runtime::start_with(config, outside).unwrap();
        Bench { runtime, clock, ids, tasks, url, _dir: dir }
    }

    pub fn submit(&self, kind: &str) -> String {
        wait(self.runtime.handle().submit(&TaskApplication::new(kind, "host"))).unwrap()
    }

    pub fn read<Q>(&self, query: Q) -> Q::Output
    where
        Q: Query + Send + 'static,
        Q::Output: Send,
    {
        wait(self.runtime.handle().read(query)).unwrap()
    }

    pub fn run(&self, id: &str) -> Run {
        self.read(FindRun { run_id: id.into() }).unwrap()
    }

    pub fn history(&self, id: &str) -> Vec<Fact> {
        self.read(History { run_id: id.into() })
    }

    pub fn reasons(&self, id: &str) -> Vec<String> {
        self.history(id).into_iter().map(|fact| fact.reason_code).collect()
    }

    pub fn heartbeats(&self) -> Vec<f64> {
        self.read(ListWorkers).into_iter().map(|worker| worker.last_heartbeat_at).collect()
    }

    /// Waits until the run has this status.
    pub fn until(&self, id: &str, status: &str) -> Run {
        until(|| {
            let run = self.run(id);
            if run.status == status { Ok(run) } else { Err(format!("{id} is {}", run.status)) }
        })
    }

    /// A second queue on the same store: another worker, as far as this one can tell.
    pub fn other(&self) -> crate::Queue {
        let url = StoreUrl::parse(&self.url).unwrap();
        let (clock, ids) = (self.clock.clone(), self.ids.clone());
        crate::Queue::open_with(&url, Mode::Write, crate::Config::default(), clock, ids).unwrap()
    }

    pub fn end(self) -> ExitReason {
        self.runtime.handle().shut_down(Duration::ZERO);
        self.runtime.join()
    }
}

/// Drives a future from outside any runtime, as a host without one does.
pub(super) fn wait<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(PATIENCE, future).await.expect("an answer in time")
    })
}

/// Polls until `look` is satisfied, and fails with the last thing it saw.
pub(super) fn until<T>(mut look: impl FnMut() -> Result<T, String>) -> T {
    let began = Instant::now();
    loop {
        match look() {
            Ok(value) => return value,
            Err(seen) if began.elapsed() > PATIENCE => panic!("too late; last seen: {seen}"),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

pub(super) fn failing(kind: &str, message: &str) -> Plan {
    Plan::End(Err(LaunchFailure::Failed(ExecuteError {
        kind: kind.into(),
        message: message.into(),
    })))
}
