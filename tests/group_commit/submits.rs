//! Tasks that are submitted together through a handle.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::domain::submission::Submission;
use leasehold::domain::task::TaskApplication;
use leasehold::ids::{IdSource, RandomIds};
use leasehold::runtime::Outside;
use leasehold::{Config, Error, Queue, Runtime, RuntimeConfig};
use serde_json::json;

use crate::places::{Place, Raw, engines};

/// A worker that looks at nothing by itself, and what is called before each of its writes of tasks.
fn start(place: &Place, seam: impl Fn() + Send + Sync + 'static) -> Runtime {
    let mut config = RuntimeConfig::new(place.store_url());
    config.own_ticks = false;
    config.queue = Config::daemon();
    let seam = Arc::new(move |name: &'static str, _: Option<&str>| {
        if name.starts_with("submit") {
            seam();
        }
    });
    Runtime::start_with(config, Outside { seam: Some(seam), ..Outside::default() }).unwrap()
}

fn task(n: usize) -> Submission {
    let mut app = TaskApplication::new("agent", "host");
    app.required_capabilities = vec!["nobody has this".into()];
    app.args.insert("n".into(), json!(n));
    app.into()
}

fn keyed(key: &str, n: usize) -> Submission {
    let mut task = task(n);
    task.app.idempotency_key = Some(key.into());
    task
}

#[tokio::main(flavor = "current_thread")]
async fn block_on<F: Future>(future: F) -> F::Output {
    future.await
}

fn end(runtime: Runtime) {
    runtime.handle().shut_down(Duration::ZERO);
    assert_eq!(runtime.join().code(), 0);
}

/// Ids and arguments, as they are stored.
fn stored(raw: &mut Raw) -> Vec<String> {
    let sql =
        "SELECT id || ' ' || CAST(action_args AS TEXT) AS value FROM schedule_runs ORDER BY 1";
    raw.texts(sql).into_iter().flatten().collect()
}

fn expected(answers: &[Result<String, Error>]) -> Vec<String> {
    let row = |(n, answer): (usize, &Result<String, Error>)| {
        answer.as_ref().ok().map(|id| format!("{id} {{\"n\": {n}}}"))
    };
    let mut rows: Vec<String> = answers.iter().enumerate().filter_map(row).collect();
    rows.sort();
    rows
}

#[test]
fn each_has_its_answer_and_few_share_a_transaction() {
    for engine in engines() {
        let place = Place::new(engine);
        let writes = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&writes);
        let runtime = start(&place, move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        let mut tasks: Vec<Submission> = (0..600).map(task).collect();
        tasks[300].app.action_kind = "poem".into();
        let answers = block_on(runtime.handle().submit_tasks(&tasks));
        assert_eq!(answers[300].as_ref().unwrap_err().code(), "action_kind");
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 599);
        assert_eq!(stored(&mut place.raw()), expected(&answers), "{engine:?}");
        // Three, and each once more that a batch which the clock has cut leaves for the next.
        assert!((3..=6).contains(&writes.load(Ordering::SeqCst)), "{engine:?}: {writes:?}");
        end(runtime);
    }
}

#[test]
fn keys_and_all_or_none_are_as_in_a_queue() {
    for engine in engines() {
        let place = Place::new(engine);
        let runtime = start(&place, || {});
        let handle = runtime.handle();
        let answers = block_on(handle.submit_tasks(&[keyed("a", 1), keyed("a", 1), keyed("a", 2)]));
        let id = answers[0].as_ref().unwrap();
        assert_eq!(answers[1].as_ref().unwrap(), id);
        assert_eq!(answers[2].as_ref().unwrap_err().code(), "idempotency_conflict");
        let refused = block_on(handle.submit_tasks_atomic(&[keyed("b", 1), keyed("a", 2)]));
        match refused.unwrap_err() {
            Error::Batch { refused, of: 2 } => assert_eq!(refused[0].0, 1),
            other => panic!("{other:?}"),
        }
        let ids = block_on(handle.submit_tasks_atomic(&[keyed("b", 2), keyed("a", 1)])).unwrap();
        assert_eq!(&ids[1], id);
        assert_eq!(stored(&mut place.raw()).len(), 2, "{engine:?}");
        end(runtime);
    }
}

#[test]
fn a_writer_that_dies_loses_no_task_of_a_batch_and_stores_none_twice() {
    for engine in engines() {
        let place = Place::new(engine);
        let calls = AtomicUsize::new(0);
        let runtime = start(&place, move || {
            if calls.fetch_add(1, Ordering::SeqCst) % 2 == 1 {
                std::panic::panic_any("a test's panic");
            }
        });
        let tasks: Vec<Submission> = (0..600).map(task).collect();
        let answers = block_on(runtime.handle().submit_tasks(&tasks));
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        assert_eq!(stored(&mut place.raw()), expected(&answers), "{engine:?}");
        end(runtime);
    }
}

/// The writer dies once the batch is stored, so that its answer is lost: who was new is found by its id, and the others
/// are asked for again.
#[test]
fn an_answer_that_is_lost_is_found_in_the_store() {
    for engine in engines() {
        let place = Place::new(engine);
        let old =
            Queue::open(&place.url, Config::daemon()).unwrap().submit_task(&keyed("old", 0).app);
        let mut config = RuntimeConfig::new(place.store_url());
        config.own_ticks = false;
        config.queue = Config::daemon();
        let ids = Arc::new(NotedIds::default());
        let (made, other) = (Arc::clone(&ids), Mutex::new(Some(place.raw())));
        // In the place of the lost writer, whose transaction wrote one row.
        let seam = Arc::new(move |name: &'static str, _: Option<&str>| {
            if name == "submit tasks"
                && let Some(mut raw) = other.lock().unwrap().take()
            {
                let id = made.0.lock().unwrap()[1].clone();
                raw.run(&format!(
                    "INSERT INTO schedule_runs (id, trigger_context, action_kind, action_args, status, chain_depth,
                       fired_at, created_at, queued_at, lease_attempts, required_capabilities, execution_target)
                     VALUES ('{id}', '{{}}', 'agent', '{{}}', 'queued', 0, 1, 1, 1, 0, '[]', 'host')"
                ));
                std::panic::panic_any("a test's panic");
            }
        });
        let outside = Outside { seam: Some(seam), ids: Some(ids.clone()), ..Outside::default() };
        let runtime = Runtime::start_with(config, outside).unwrap();
        let answers = block_on(runtime.handle().submit_tasks(&[keyed("old", 0), task(1)]));
        let answers: Vec<String> = answers.into_iter().map(Result::unwrap).collect();
        assert_eq!(answers, [old.unwrap(), ids.0.lock().unwrap()[1].clone()], "{engine:?}");
        assert_eq!(stored(&mut place.raw()).len(), 2, "{engine:?}");
        end(runtime);
    }
}

/// Random ids, of which those of tasks are noted.
#[derive(Debug, Default)]
struct NotedIds(Mutex<Vec<String>>);

impl IdSource for NotedIds {
    fn task_id(&self) -> String {
        let id = RandomIds.task_id();
        self.0.lock().unwrap().push(id.clone());
        id
    }

    fn fact_id(&self) -> String {
        RandomIds.fact_id()
    }

    fn incarnation(&self) -> String {
        RandomIds.incarnation()
    }

    fn invocation_id(&self) -> String {
        RandomIds.invocation_id()
    }
}
