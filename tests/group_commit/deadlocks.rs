//! Two writers on PostgreSQL whose batches meet in the same rows.

use std::sync::{Arc, Barrier};
use std::thread;

use crate::operation::{Deed, Op, Said};
use crate::places::{Engine, Place, engines};
use crate::support::{Answer, Bench, PATIENCE, all_done, open, run_all};

const ROUNDS: usize = 8;
const ROWS: usize = 6;

/// Takes the row, and its time.
fn add_one(row: usize, seconds: f64) -> Deed {
    Deed::Run(format!(
        "UPDATE leasehold_meta SET value = (value::int + 1)::text WHERE key = 'row {row}';
         SELECT pg_sleep({seconds})"
    ))
}

/// Both writers add one to each row, many times, one forwards and one backwards. Each sum is the number of those who
/// were told "done".
fn race(settings: &str, with_subjects: bool, seconds: f64) -> Option<(usize, usize)> {
    if !engines().contains(&Engine::Postgres) {
        return None;
    }
    let place = Place::new(Engine::Postgres);
    let url = format!("{}{settings}", place.url);
    let stores = [open(&url), open(&url)];
    let mut beside = place.raw();
    for row in 0..ROWS {
        beside.run(&format!("INSERT INTO leasehold_meta VALUES ('row {row}', '0')"));
    }
    let start = Arc::new(Barrier::new(stores.len()));
    let writers = stores.into_iter().enumerate().map(|(writer, mut store)| {
        let start = Arc::clone(&start);
        thread::spawn(move || {
            let mut answers: Vec<(usize, Answer)> = Vec::new();
            for round in 0..ROUNDS {
                let mut order: Vec<usize> = (0..ROWS).collect();
                if writer == 1 {
                    order.reverse();
                }
                let op = |&row: &usize| Op {
                    subject: with_subjects.then(|| format!("row {row}")),
                    ..Op::new(format!("{writer}-{round}-{row}"), add_one(row, seconds))
                };
                let ops: Vec<Op> = order.iter().map(op).collect();
                start.wait();
                answers.extend(order.into_iter().zip(run_all(&mut store, &ops, PATIENCE)));
            }
            answers
        })
    });
    let writers: Vec<_> = writers.collect();
    let answers: Vec<(usize, Answer)> =
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
    for row in 0..ROWS {
        let told =
            |&&(of, ref answer): &&(usize, Answer)| of == row && matches!(answer, Ok(Said::Done));
        let done = answers.iter().filter(told).count();
        let sql = format!("SELECT value FROM leasehold_meta WHERE key = 'row {row}'");
        assert_eq!(beside.texts(&sql), [Some(done.to_string())], "row {row}: {answers:?}");
    }
    let facts = beside.texts("SELECT DISTINCT xmin::text AS value FROM status_transitions");
    let done = answers.iter().filter(|(_, answer)| answer.is_ok()).count();
    assert_eq!(done, answers.len(), "{answers:?}");
    Some((answers.len(), facts.len()))
}

#[test]
fn opposite_orders_cost_a_retry_and_no_answer() {
    // Deadlocks are noticed at once.
    let Some((jobs, transactions)) = race("%20-cdeadlock_timeout%3D5", false, 0.004) else {
        return;
    };
    // Where a batch was sacrificed its jobs ran alone: that happened, or this tests nothing.
    assert!(transactions > jobs / ROWS, "{transactions} transactions for {jobs} jobs");
}

#[test]
fn rows_are_taken_in_one_order_so_that_batches_of_two_writers_wait_and_no_more() {
    let Some((jobs, transactions)) = race("", true, 0.0) else { return };
    // Some may be cut by the clock; none is given up.
    assert!(transactions < jobs / 2, "{transactions} transactions for {jobs} jobs");
}

/// Sacrificed three times, as the server would say it; a sequence is not undone with its transaction.
#[test]
fn a_victim_is_run_again_and_a_hopeless_one_gives_up() {
    if !engines().contains(&Engine::Postgres) {
        return;
    }
    let mut bench = Bench::new(Engine::Postgres);
    bench.beside.run("CREATE SEQUENCE tries");
    for (state, message) in
        [("40001", "could not serialize access"), ("40P01", "deadlock detected")]
    {
        for (times, count) in [(3, 1), (3, 5), (1000, 1), (1000, 5)] {
            bench.beside.run("ALTER SEQUENCE tries RESTART");
            let raise = format!(
                "DO $$ BEGIN IF nextval('tries') <= {times} THEN
                     RAISE EXCEPTION SQLSTATE '{state}' USING MESSAGE = '{message}';
                 END IF; END $$"
            );
            let mut ops: Vec<Op> =
                (0..count).map(|i| Op::write(format!("{state}-{times}-{count}-{i}"))).collect();
            ops[count / 2].deed = Deed::Run(raise);
            let mut answers = bench.run(&ops);
            let victim = answers.remove(count / 2);
            assert_eq!(victim.is_ok(), times == 3, "{victim:?}");
            assert!(all_done(&answers), "{answers:?}");
        }
    }
    bench.assert_works("after");
}
