//! Tasks that are submitted together: each for itself, or all or none.

use std::sync::{Arc, Mutex};

use leasehold::domain::submission::Submission;
use leasehold::domain::task::TaskApplication;
use leasehold::{Config, Error, Queue};
use serde_json::json;

use crate::kit::count;
use crate::places::{Engine, Place, engines};

fn task(n: usize) -> Submission {
    let mut app = TaskApplication::new("agent", "host");
    app.args.insert("n".into(), json!(n));
    app.into()
}

fn keyed(key: &str, n: usize) -> Submission {
    let mut task = task(n);
    task.app.idempotency_key = Some(key.into());
    task
}

/// A queue that notes its writes.
fn queue(place: &Place) -> (Queue, Arc<Mutex<Vec<&'static str>>>) {
    let mut queue = Queue::open(&place.url, Config::daemon()).unwrap();
    let writes: Arc<Mutex<Vec<&'static str>>> = Arc::default();
    let notes = Arc::clone(&writes);
    queue.set_seam(Arc::new(move |name, _| notes.lock().unwrap().push(name)));
    (queue, writes)
}

fn args_of(queue: &mut Queue, id: &str) -> String {
    queue.run(id).unwrap().action_args.0
}

#[test]
fn each_has_its_answer_in_its_place_and_a_thousand_share_a_transaction() {
    for engine in engines() {
        let place = Place::new(engine);
        let (mut queue, writes) = queue(&place);
        let mut tasks: Vec<Submission> = (0..2500).map(task).collect();
        for bad in [0, 999, 1500, 2499] {
            tasks[bad].app.action_kind = "poem".into();
        }
        tasks[7].settings.timeout = Some(-1.0);
        tasks[8].stdin = Some(b"input".to_vec());
        tasks[9].settings.when.not_before = Some(1e12);
        let answers = queue.submit_tasks(&tasks);
        assert_eq!(*writes.lock().unwrap(), ["submit tasks"; 3]);
        assert_eq!(answers.len(), tasks.len());
        for (n, answer) in answers.iter().enumerate() {
            match answer {
                Ok(id) if n % 100 == 50 => {
                    assert_eq!(args_of(&mut queue, id), format!("{{\"n\": {n}}}"));
                }
                Ok(_) => {}
                Err(error) => assert!([0, 7, 999, 1500, 2499].contains(&n), "{n}: {error}"),
            }
        }
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 2495);
        assert_eq!(answers[7].as_ref().unwrap_err().code(), "timeout");
        let waits = queue.run(answers[9].as_ref().unwrap()).unwrap();
        assert_eq!(waits.status, "waiting_dependency");
        let mut raw = place.raw();
        assert_eq!(count(&mut raw, "schedule_runs"), 2495);
        assert_eq!(count(&mut raw, "leasehold_runs WHERE stdin IS NOT NULL"), 1);
        assert!(queue.submit_tasks(&[]).is_empty());
    }
}

#[test]
fn a_key_stands_for_one_task_within_a_batch_too() {
    for engine in engines() {
        let place = Place::new(engine);
        let (mut queue, _) = queue(&place);
        let before = queue.submit_task(&keyed("old", 1).app).unwrap();
        let tasks = [
            keyed("a", 1),
            keyed("a", 1),
            keyed("a", 2),
            keyed("old", 1),
            keyed("old", 2),
            task(3),
        ];
        let answers = queue.submit_tasks(&tasks);
        let first = answers[0].as_ref().unwrap();
        assert_eq!(answers[1].as_ref().unwrap(), first);
        assert_eq!(answers[3].as_ref().unwrap(), &before);
        for (place, existing) in [(2, first), (4, &before)] {
            match &answers[place] {
                Err(Error::KeyTaken { existing: named, .. }) => assert_eq!(named, existing),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(count(&mut place.raw(), "schedule_runs"), 3);
        // Without keys in the configuration they are refused, as in a single submit.
        let mut plain = Queue::open(&place.url, Config::default()).unwrap();
        let answers = plain.submit_tasks(&[keyed("b", 1), task(1)]);
        assert_eq!(answers[0].as_ref().unwrap_err().code(), "idempotency_key");
        assert!(answers[1].is_ok());
    }
}

#[test]
fn all_or_none_writes_nothing_when_one_is_refused() {
    for engine in engines() {
        let place = Place::new(engine);
        let (mut queue, writes) = queue(&place);
        let before = queue.submit_task(&keyed("old", 1).app).unwrap();
        queue.submit_task(&keyed("older", 1).app).unwrap();
        writes.lock().unwrap().clear();
        let refused = |queue: &mut Queue, tasks: &[Submission]| match queue
            .submit_tasks_atomic(tasks)
        {
            Err(Error::Batch { refused, of }) => {
                assert_eq!(of, tasks.len());
                refused.into_iter().map(|(place, error)| (place, error.code())).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        };
        let mut poem = task(1);
        poem.app.action_kind = "poem".into();
        let tasks = [task(1), poem, keyed("a", 1), keyed("a", 2)];
        assert_eq!(refused(&mut queue, &tasks), [(1, "action_kind"), (3, "idempotency_conflict")]);
        let too_many = vec![task(1); 10_001];
        assert_eq!(queue.submit_tasks_atomic(&too_many).unwrap_err().code(), "argument");
        assert!(
            writes.lock().unwrap().is_empty(),
            "all of that is seen before anything is written"
        );
        let tasks = [keyed("a", 1), keyed("old", 2), keyed("b", 1), keyed("older", 2)];
        let conflicts = [(1, "idempotency_conflict"), (3, "idempotency_conflict")];
        assert_eq!(refused(&mut queue, &tasks), conflicts);
        let mut raw = place.raw();
        assert_eq!(count(&mut raw, "schedule_runs"), 2);
        assert_eq!(count(&mut raw, "leasehold_keys"), 2);

        let tasks = [keyed("a", 2), keyed("old", 1), task(9), keyed("a", 2)];
        let ids = queue.submit_tasks_atomic(&tasks).unwrap();
        assert_eq!((&ids[1], &ids[3]), (&before, &ids[0]));
        assert_eq!(args_of(&mut queue, &ids[2]), "{\"n\": 9}");
        assert_eq!(count(&mut raw, "schedule_runs"), 4);
        assert_eq!(queue.submit_tasks_atomic(&[]).unwrap(), Vec::<String>::new());
    }
}

#[test]
fn what_the_database_refuses_of_one_task_keeps_no_other_from_being_stored() {
    for engine in engines() {
        let place = Place::new(engine);
        let (mut queue, _) = queue(&place);
        place.poison();
        let mut tasks = vec![keyed("a", 1), keyed("b", 2), keyed("c", 3)];
        tasks[1].app.args.insert("poison".into(), json!(1));
        let answers = queue.submit_tasks(&tasks);
        assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
        assert_eq!(answers[1].as_ref().unwrap_err().code(), "store_sql");
        let mut raw = place.raw();
        assert_eq!(count(&mut raw, "schedule_runs"), 2);
        assert_eq!(count(&mut raw, "leasehold_keys"), 2, "the key of the third stands for nothing");
        tasks[0] = keyed("d", 1);
        assert_eq!(queue.submit_tasks_atomic(&tasks).unwrap_err().code(), "store_sql");
        assert_eq!(count(&mut raw, "schedule_runs"), 2);
        assert_eq!(count(&mut raw, "leasehold_keys"), 2);
    }
}

#[test]
fn a_store_that_cannot_be_written_is_asked_once() {
    let place = Place::new(Engine::Sqlite);
    let (mut queue, writes) = queue(&place);
    let mut tasks: Vec<Submission> = (0..1500).map(task).collect();
    tasks[1200].app.action_kind = "poem".into();
    let mut raw = place.raw();
    raw.run("BEGIN IMMEDIATE");
    let answers = queue.submit_tasks(&tasks);
    assert_eq!(writes.lock().unwrap().len(), 1);
    for (n, answer) in answers.iter().enumerate() {
        let expected = if n == 1200 { "action_kind" } else { "store_busy" };
        assert_eq!(answer.as_ref().unwrap_err().code(), expected, "{n}");
    }
    raw.run("COMMIT");
    assert_eq!(queue.submit_tasks(&tasks).iter().filter(|answer| answer.is_ok()).count(), 1499);
}
