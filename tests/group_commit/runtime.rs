//! Group commit as a host sees it: many callers, one writer.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::Error;
use leasehold::db::Seam;
use leasehold::domain::task::TaskApplication;
use leasehold::runtime::Outside;
use leasehold::{Handle, Runtime, RuntimeConfig};

use crate::places::{Engine, Place, Raw, engines};

const SUBMITS: usize = 200;

/// A worker that looks at nothing by itself.
fn start(place: &Place, seam: Seam) -> Runtime {
    let mut config = RuntimeConfig::new(place.store_url());
    config.own_ticks = false;
    Runtime::start_with(config, Outside { seam: Some(seam), ..Outside::default() }).unwrap()
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

/// Holds the first submit for so many milliseconds: the others gather behind it.
fn slow_first(hold: u64) -> Seam {
    let calls = AtomicUsize::new(0);
    Arc::new(move |name, _| {
        if name == "submit a task" && calls.fetch_add(1, Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(hold));
        }
    })
}

#[test]
fn submits_that_wait_together_share_a_commit() {
    for engine in engines() {
        let place = Place::new(engine);
        let runtime = start(&place, slow_first(200));
        let mut beside = place.raw();
        if engine == Engine::Sqlite {
            // A reader keeps the log from being begun anew.
            beside.run("BEGIN; SELECT count(*) FROM schedule_runs");
        }
        let before = commits(&place, &mut beside);
        let answers = submit_many(&runtime.handle(), SUBMITS);
        let after = commits(&place, &mut beside);
        if engine == Engine::Sqlite {
            beside.run("COMMIT");
        }
        let mut ids: Vec<String> = answers.into_iter().map(Result::unwrap).collect();
        ids.sort();
        assert_eq!(stored_ids(&mut beside), ids, "{engine:?}");
        let shared = after - before;
        eprintln!("{engine:?}: {SUBMITS} submits in {shared} commits");
        assert!((1..=SUBMITS / 5).contains(&shared), "{engine:?}: {shared} commits");
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
        let (seen, first) = (Arc::clone(&order), slow_first(600));
        let runtime = start(
            &place,
            Arc::new(move |name, subject| {
                first(name, subject);
                seen.lock().unwrap().push(name);
            }),
        );
        let handle = runtime.handle();
        block_on(async {
            let app = nobodys_task();
            // The first one keeps the writer busy while the others gather, the heartbeat last.
            let submits = join_all((0..20).map(|i| {
                let (handle, app) = (&handle, &app);
                async move {
                    tokio::time::sleep(Duration::from_millis(if i == 0 { 0 } else { 150 })).await;
                    handle.submit(app).await.unwrap()
                }
            }));
            let beat = async {
                tokio::time::sleep(Duration::from_millis(300)).await;
                handle.tick().await.unwrap();
            };
            futures_util::future::join(submits, beat).await;
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
        let outside = Outside { seam: Some(slow_first(200)), ..Outside::default() };
        let runtime = Runtime::start_with(config, outside).unwrap();
        let answers = submit_many(&runtime.handle(), 50);
        let mut ids: Vec<String> = answers.into_iter().filter_map(Result::ok).collect();
        ids.sort();
        assert!((1..50).contains(&ids.len()), "{engine:?}: {}", ids.len());
        assert_eq!(stored_ids(&mut place.raw()), ids, "{engine:?}");
        assert!(submit_many(&runtime.handle(), 1)[0].is_ok());
        end(runtime);
    }
}
