//! Two writers on PostgreSQL whose batches meet in the same rows.

use std::sync::{Arc, Barrier};
use std::thread;

use crate::operation::{Deed, Op, Said};
use crate::places::{Engine, Place, engines};
use crate::support::{Answer, Bench, PATIENCE, all_done, open, run_all};

const ROUNDS: usize = 8;
const ROWS: usize = 6;

/// Takes the row, and its time. A sequence is not undone with its transaction, so it counts what is run again.
fn add_one(row: usize) -> Deed {
    Deed::Run(format!(
        "SELECT nextval('runs');
         UPDATE leasehold_meta SET value = (value::int + 1)::text WHERE key = 'row {row}';
         SELECT pg_sleep(0.004)"
    ))
}

/// Both writers add one to each row, many times, one forwards and one backwards. Each sum is the number of those who
/// were told "done". Answers how many jobs were run again.
fn race(settings: &str, with_subjects: bool) -> usize {
    let place = Place::new(Engine::Postgres);
    let url = format!("{}{settings}", place.url);
    let stores = [open(&url), open(&url)];
    let mut beside = place.raw();
    beside.run("CREATE SEQUENCE runs");
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
                    ..Op::new(format!("{writer}-{round}-{row}"), add_one(row))
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
    let done = answers.iter().filter(|(_, answer)| answer.is_ok()).count();
    assert_eq!(done, answers.len(), "{answers:?}");
    let runs = beside.texts("SELECT last_value::text AS value FROM runs").remove(0).unwrap();
    runs.parse::<usize>().unwrap() - answers.len()
}

#[test]
fn opposite_orders_cost_a_retry_and_no_answer() {
    if !engines().contains(&Engine::Postgres) {
        return;
    }
    // Deadlocks are noticed at once. Where a batch was sacrificed its jobs ran again: that happens, or this tests nothing.
    let deadlocks = (0..10).any(|_| race("%20-cdeadlock_timeout%3D5", false) > 0);
    assert!(deadlocks, "the writers never met");
}

#[test]
fn rows_are_taken_in_one_order_so_that_batches_of_two_writers_wait_and_no_more() {
    if !engines().contains(&Engine::Postgres) {
        return;
    }
    // None is given up, unless one writer pauses for so long that the other waits in vain.
    let again: Vec<usize> = (0..3).map(|_| race("", true)).take_while(|again| *again > 0).collect();
    assert!(again.len() < 3, "{again:?} jobs were run again");
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
