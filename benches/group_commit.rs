//! What group commit saves: the same durable writes by 1, 8, 64 and 256 callers at once, on SQLite with
//! `synchronous=FULL`.
//!
//! * *cycles*: callers claim a queued run and store its end, two writes one after the other, through [`Store::run_batch`]
//!   on a thread that batches whatever is waiting, as the writer of a worker does.
//! * *submits*: callers submit through a [`Handle`](leasehold::Handle) of a running worker.
//! * *tasks*: a worker with so many slots claims tasks that do nothing and stores their ends, with its ticks in between.
//!
//! The stores lie below the build directory, since a temporary directory may be memory, which has nothing to sync.

use std::error::Error;
use std::fs::File;
use std::future::Future;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use leasehold::clock::{Clock, SystemClock};
use leasehold::db::ops::{AttemptEnd, Claim, ClaimOutcome, Depart, Submit, Way};
use leasehold::db::{Job, Mode, Operation, Pending, Store, StoreUrl};
use leasehold::domain::ending::{EndedBy, Ending, Execution, Usage};
use leasehold::domain::run::RunEpoch;
use leasehold::domain::settings::RunSettings;
use leasehold::domain::status::Status;
use leasehold::domain::task::{TaskApplication, TaskSpec};
use leasehold::ids::{IdSource, RandomIds};
use leasehold::runtime::{Launched, Launcher, Orders, Outside, TaskEnd, TaskStart};
use leasehold::{Config, Runtime, RuntimeConfig};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::oneshot;

const CALLERS: [usize; 4] = [1, 8, 64, 256];
/// More than can be done in the time.
const QUEUED: usize = 100_000;

type Measured = Result<f64, Box<dyn Error>>;

fn main() -> Result<(), Box<dyn Error>> {
    // `cargo bench` says so; anybody else only wants to see that it works.
    let measures = std::env::args().any(|word| word == "--bench");
    let (length, queued) = if measures { (2000, QUEUED) } else { (50, 1000) };
    let length = Duration::from_millis(length);
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    println!("one write and sync of 4096 bytes here: {:.3} ms", 1e3 * sync_time(place.path())?);
    table("cycles", |callers| cycles(&fresh(place.path())?, callers, queued, length))?;
    table("submits", |callers| submits(&fresh(place.path())?, callers, length))?;
    table("tasks", |slots| tasks(&fresh(place.path())?, slots, queued, length))
}

fn table(what: &str, measure: impl Fn(usize) -> Measured) -> Result<(), Box<dyn Error>> {
    println!("\n{:>7}  {:>11}  {:>9}", "at once", format!("{what}/s"), "ratio");
    let mut single = None;
    for at_once in CALLERS {
        let rate = measure(at_once)?;
        let ratio = rate / *single.get_or_insert(rate);
        println!("{at_once:>7}  {rate:>11.0}  {ratio:>9.1}");
    }
    Ok(())
}

fn cycles(url: &StoreUrl, callers: usize, queued: usize, length: Duration) -> Measured {
    let (writer, ids) = Writer::with_tasks(url, queued)?;
    let next = AtomicUsize::new(0);
    repeat(callers, length, || async {
        let Some(id) = ids.get(next.fetch_add(1, Ordering::Relaxed)) else { return Ok(false) };
        let now = SystemClock.now();
        let claim = Claim {
            run_id: id.clone(),
            concurrency_key: None,
            worker_id: "bench".into(),
            lease_expires_at: (now + 300.0).into(),
            at: now,
            fact_id: RandomIds.fact_id(),
        };
        let claimed = writer.write(claim).await?;
        let end = Depart {
            run: RunEpoch { run_id: id.clone(), epoch: 1 },
            owner: "bench".into(),
            way: Way::Ended(Ending::from(Execution::OK)),
            attempt: Some(AttemptEnd {
                ended_by: EndedBy::Task,
                exit_code: 0,
                usage: Usage::default(),
            }),
            at: SystemClock.now(),
            fact_id: RandomIds.fact_id(),
        };
        let ended = writer.write(end).await?;
        assert_eq!(claimed, ClaimOutcome::Won { epoch: 1 });
        assert_eq!(ended, Some(Status::Completed));
        Ok(true)
    })
}

fn submits(url: &StoreUrl, callers: usize, length: Duration) -> Measured {
    let mut config = RuntimeConfig::new(url.clone());
    config.own_ticks = false;
    let runtime = Runtime::start(config)?;
    let handle = runtime.handle();
    let app = TaskApplication::new("agent", "host");
    let rate = repeat(callers, length, || async {
        handle.submit(&app).await?;
        Ok(true)
    });
    handle.shut_down_now();
    runtime.join();
    rate
}

fn tasks(url: &StoreUrl, slots: usize, queued: usize, length: Duration) -> Measured {
    drop(Writer::with_tasks(url, queued)?);
    let mut config = RuntimeConfig::new(url.clone());
    (config.concurrency, config.limit) = (slots, slots);
    let outside = Outside { launcher: Some(Arc::new(Nothing)), ..Outside::default() };
    let runtime = Runtime::start_with(config, outside)?;
    let handle = runtime.handle();
    let mut endings = handle.endings();
    let began = Instant::now();
    let waiting = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let done = waiting.block_on(async {
        let mut done = 0;
        let left = || length.saturating_sub(began.elapsed());
        while done < queued
            && let Ok(ended) = tokio::time::timeout(left(), endings.recv()).await
        {
            done += match ended {
                Ok(_) => 1,
                Err(RecvError::Lagged(missed)) => missed as usize,
                Err(RecvError::Closed) => break,
            };
        }
        done
    });
    let took = began.elapsed();
    handle.shut_down_now();
    runtime.join();
    Ok(done as f64 / took.as_secs_f64())
}

/// So many callers, each of which does it again and again. Answers how often a second.
fn repeat<F>(callers: usize, length: Duration, once: impl Fn() -> F) -> Measured
where
    F: Future<Output = Result<bool, Box<dyn Error>>>,
{
    let waiting = tokio::runtime::Builder::new_current_thread().build()?;
    let began = Instant::now();
    let caller = || async {
        let mut done = 0;
        while began.elapsed() < length && once().await? {
            done += 1;
        }
        Ok::<usize, Box<dyn Error>>(done)
    };
    let counts = waiting.block_on(join_all((0..callers).map(|_| caller())));
    let took = began.elapsed();
    Ok(counts.into_iter().sum::<Result<usize, _>>()? as f64 / took.as_secs_f64())
}

/// Batches whatever is waiting.
struct Writer(mpsc::Sender<Box<dyn Job>>);

impl Writer {
    /// A writer to a new store with `count` queued tasks, and their ids.
    fn with_tasks(url: &StoreUrl, count: usize) -> Result<(Writer, Vec<String>), Box<dyn Error>> {
        let mut store = Store::open(url, Mode::Write, &SystemClock, &RandomIds)?;
        let (sender, jobs) = mpsc::channel();
        let writer = Writer(sender);
        thread::spawn(move || {
            let mut waiting: Vec<Box<dyn Job>> = Vec::new();
            while let Some(job) = waiting.pop().or_else(|| jobs.recv().ok()) {
                waiting.push(job);
                waiting.extend(jobs.try_iter());
                waiting = store.run_batch(waiting);
            }
        });
        let app = TaskApplication::new("agent", "host");
        let spec = TaskSpec::check(&app, &Config::default().submit_rules())?;
        let ids: Vec<String> = (0..count).map(|_| RandomIds.task_id()).collect();
        let submit = |id: &String| Submit {
            spec: spec.clone(),
            settings: RunSettings::default(),
            stdin: None,
            id: id.clone(),
            at: SystemClock.now(),
            fact_id: RandomIds.fact_id(),
        };
        let waiting = tokio::runtime::Builder::new_current_thread().build()?;
        let stored = waiting.block_on(join_all(ids.iter().map(|id| writer.write(submit(id)))));
        stored.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok((writer, ids))
    }

    async fn write<O>(&self, operation: O) -> Result<O::Output, Box<dyn Error>>
    where
        O: Operation + Send + 'static,
        O::Output: Send + std::fmt::Debug,
    {
        let (reply, answer) = oneshot::channel();
        let deadline = Instant::now() + Duration::from_secs(60);
        let job = Pending::new(operation, deadline, |result| drop(reply.send(result)));
        self.0.send(Box::new(job)).map_err(|_| "the writer is gone")?;
        Ok(answer.await??)
    }
}

/// Tasks that end as soon as they are started.
#[derive(Debug)]
struct Nothing;

impl Launcher for Nothing {
    fn launch(&self, _: TaskStart, _: Orders) -> Launched {
        Box::pin(std::future::ready(Ok(TaskEnd::new(Execution::OK, EndedBy::Task))))
    }
}

fn fresh(place: &Path) -> Result<StoreUrl, Box<dyn Error>> {
    let dir = tempfile::tempdir_in(place)?.keep();
    Ok(StoreUrl::Sqlite(dir.join("queue.db")))
}

/// What a commit cannot go below.
fn sync_time(place: &Path) -> Measured {
    const TIMES: u32 = 200;
    let mut file = File::create(place.join("sync"))?;
    let began = Instant::now();
    for _ in 0..TIMES {
        file.write_all(&[0; 4096])?;
        file.sync_data()?;
    }
    Ok(began.elapsed().as_secs_f64() / f64::from(TIMES))
}
