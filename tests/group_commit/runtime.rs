//! Group commit as a host sees it: many callers, one writer.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use futures_util::future::{join, join_all, join4};
use leasehold::Error;
use leasehold::db::Seam;
use leasehold::domain::task::TaskApplication;
use leasehold::runtime::{ActorSeam, Outside};
use leasehold::{Handle, Runtime, RuntimeConfig};

use crate::places::{Engine, Place, Raw, engines};

const SUBMITS: usize = 200;

/// A worker that looks at nothing by itself.
fn start(place: &Place, seam: Seam) -> Runtime {
    start_with(place, Outside { seam: Some(seam), ..Outside::default() })
}

fn start_with(place: &Place, outside: Outside) -> Runtime {
    let mut config = RuntimeConfig::new(place.store_url());
    config.own_ticks = false;
    Runtime::start_with(config, outside).unwrap()
}

fn nobodys_task() -> TaskApplication {
    let mut app = TaskApplication::new("agent", "host");
    app.required_capabilities = vec!["nobody has this".into()];
    app
}

fn submit_many(handle: &Handle, count: usize) -> Vec<Result<String, Error>> {
    let app = nobodys_task();
    block_on(join_all((0..count).map(|_| handle.submit(&app))))
}

#[tokio::main(flavor = "current_thread")]
async fn block_on<F: Future>(future: F) -> F::Output {
    future.await
}

fn end(runtime: Runtime) {
    runtime.handle().shut_down(Duration::ZERO);
    assert_eq!(runtime.join().code(), 0);
}

/// How many transactions have written to the store so far, as seen from outside.
fn commits(place: &Place, beside: &mut Raw) -> usize {
    match place.engine {
        Engine::Postgres => {
            let sql = "SELECT DISTINCT xmin::text AS value FROM schedule_runs";
            beside.texts(sql).len()
        }
        Engine::Sqlite => commit_frames(&place.dir.path().join("queue.db-wal")),
    }
}

/// Counts the frames of SQLite's log that end a transaction: those that say how large the database is after it.
/// (<https://sqlite.org/fileformat2.html#the_write_ahead_log>)
fn commit_frames(log: &std::path::Path) -> usize {
    let log = fs::read(log).unwrap();
    let number = |at: usize| u32::from_be_bytes(log[at..at + 4].try_into().unwrap());
    let (page_size, salts) = (number(8) as usize, (number(16), number(20)));
    let frames = (32..log.len()).step_by(24 + page_size);
    frames.filter(|&at| number(at + 4) > 0 && (number(at + 8), number(at + 12)) == salts).count()
}

fn stored_ids(beside: &mut Raw) -> Vec<String> {
    beside
        .texts("SELECT id AS value FROM schedule_runs ORDER BY id")
        .into_iter()
        .flatten()
        .collect()
}

/// Holds the first submit before it is written: the others gather behind it.
#[derive(Default)]
struct Gate {
    is_reached: AtomicBool,
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self, name: &str) {
        if name == "submit a task" && !self.is_reached.swap(true, Ordering::SeqCst) {
            let is_open = self.is_open.lock().unwrap();
            let most = Duration::from_secs(60);
            drop(self.opened.wait_timeout_while(is_open, most, |is_open| !*is_open).unwrap());
        }
    }

    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    fn seam(self: Arc<Gate>) -> Seam {
        Arc::new(move |name, _| self.pass(name))
    }
}

/// Goes to the worker and back so often that whatever was asked of it before is on its way to the writer: its actors take
/// turns.
async fn settle(handle: &Handle) {
    for _ in 0..50 {
        handle.is_work_left().await.unwrap();
    }
}

#[test]
fn submits_that_wait_together_share_a_commit() {
    for engine in engines() {
        let place = Place::new(engine);
        let gate = Arc::<Gate>::default();
        let runtime = start(&place, gate.clone().seam());
        let mut beside = place.raw();
        if engine == Engine::Sqlite {
            // A reader keeps the log from being begun anew.
            beside.run("BEGIN; SELECT count(*) FROM schedule_runs");
        }
        let before = commits(&place, &mut beside);
        let handle = runtime.handle();
        let answers = block_on(async {
            let app = nobodys_task();
            let submits = join_all((0..SUBMITS).map(|_| handle.submit(&app)));
            let open = async {
                settle(&handle).await;
                gate.open();
            };
            join(submits, open).await.0
        });
        let after = commits(&place, &mut beside);
        if engine == Engine::Sqlite {
            beside.run("COMMIT");
        }
        let mut ids: Vec<String> = answers.into_iter().map(Result::unwrap).collect();
        ids.sort();
        assert_eq!(stored_ids(&mut beside), ids, "{engine:?}");
        let shared = after - before;
        eprintln!("{engine:?}: {SUBMITS} submits in {shared} commits");
        assert!((1..=SUBMITS / 2).contains(&shared), "{engine:?}: {shared} commits");
        end(runtime);
    }
}

#[test]
fn a_writer_that_dies_loses_no_submit_and_stores_none_twice() {
    for engine in engines() {
        let place = Place::new(engine);
        let calls = AtomicUsize::new(0);
        let dies_once: Seam = Arc::new(move |name, _| {
            if name == "submit a task" && calls.fetch_add(1, Ordering::SeqCst) == 30 {
                std::panic::panic_any("a test's panic");
            }
        });
        let runtime = start(&place, dies_once);
        let answers = submit_many(&runtime.handle(), 60);
        let mut ids: Vec<String> = answers.into_iter().map(Result::unwrap).collect();
        ids.sort();
        assert_eq!(stored_ids(&mut place.raw()), ids, "{engine:?}");
        end(runtime);
    }
}

#[test]
fn what_a_lease_depends_on_goes_before_what_came_earlier() {
    for engine in engines() {
        let place = Place::new(engine);
        let order = Arc::new(Mutex::new(Vec::new()));
        let gate = Arc::<Gate>::default();
        let is_beating = Arc::<AtomicBool>::default();
        let (seen, first, beats) = (order.clone(), gate.clone(), is_beating.clone());
        let seam: Seam = Arc::new(move |name, _| {
            first.pass(name);
            seen.lock().unwrap().push(name);
        });
        let actor_seam: ActorSeam = Arc::new(move |actor| {
            beats.store(beats.load(Ordering::SeqCst) || actor == "heartbeat", Ordering::SeqCst)
        });
        let (seam, actor_seam) = (Some(seam), Some(actor_seam));
        let runtime = start_with(&place, Outside { seam, actor_seam, ..Outside::default() });
        let handle = runtime.handle();
        block_on(async {
            let app = nobodys_task();
            // The first one keeps the writer busy while the others gather, the heartbeat last.
            let first = handle.submit(&app);
            let others = async {
                while !gate.is_reached.load(Ordering::SeqCst) {
                    settle(&handle).await;
                }
                join_all((0..19).map(|_| handle.submit(&app))).await
            };
            let beat = async {
                while !gate.is_reached.load(Ordering::SeqCst) {
                    settle(&handle).await;
                }
                settle(&handle).await;
                handle.tick().await
            };
            let open = async {
                while !is_beating.load(Ordering::SeqCst) {
                    settle(&handle).await;
                }
                settle(&handle).await;
                gate.open();
            };
            let (first, others, beat, ()) = join4(first, others, beat, open).await;
            assert!(others.iter().chain([&first]).all(Result::is_ok), "{first:?}, {others:?}");
            beat.unwrap();
        });
        let order = order.lock().unwrap();
        let first_submit = order.iter().position(|name| *name == "submit a task").unwrap();
        let beat = order.iter().position(|name| *name == "write a heartbeat").unwrap();
        let submits_before = order[..beat].iter().filter(|name| **name == "submit a task").count();
        assert!(first_submit < beat && submits_before == 1, "{engine:?}: {order:?}");
        end(runtime);
    }
}

#[test]
fn too_many_waiting_submits_are_refused_and_the_others_kept() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut config = RuntimeConfig::new(place.store_url());
        (config.own_ticks, config.mailbox) = (false, 16);
        let gate = Arc::<Gate>::default();
        let outside = Outside { seam: Some(gate.clone().seam()), ..Outside::default() };
        let runtime = Runtime::start_with(config, outside).unwrap();
        let (handle, app) = (runtime.handle(), nobodys_task());
        // The writer goes on when one was refused.
        let submit = || async {
            let answer = handle.submit(&app).await;
            if answer.is_err() {
                gate.open();
            }
            answer
        };
        let answers = block_on(join_all((0..50).map(|_| submit())));
        let mut ids: Vec<String> = answers.into_iter().filter_map(Result::ok).collect();
        ids.sort();
        assert!((1..50).contains(&ids.len()), "{engine:?}: {}", ids.len());
        assert_eq!(stored_ids(&mut place.raw()), ids, "{engine:?}");
        assert!(submit_many(&runtime.handle(), 1)[0].is_ok());
        end(runtime);
    }
}
