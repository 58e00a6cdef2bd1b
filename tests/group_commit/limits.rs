//! Where a batch ends, and the order within it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use crate::operation::{Deed, Op};
use crate::places::{Engine, engines};
use crate::support::{Batch, Bench, PATIENCE, all_done, in_one_go};

/// In how many transactions the facts were written that begin with `prefix`.
fn transactions(bench: &mut Bench, prefix: &str) -> usize {
    let sql = format!(
        "SELECT DISTINCT xmin::text AS value FROM status_transitions WHERE id LIKE '{prefix}%'"
    );
    bench.beside.texts(&sql).len()
}

#[test]
fn more_jobs_than_fit_are_answered_by_the_next_batches() {
    for engine in engines() {
        let mut bench = Bench::new(engine);
        let ops: Vec<Op> = (0..600).map(|i| Op::write(format!("many-{i:03}"))).collect();
        let mut batch = Batch::of(&ops, PATIENCE);
        let mut rounds = 0;
        while !batch.jobs.is_empty() {
            let before = batch.jobs.len();
            let left = batch.run_once(&mut bench.store);
            assert!((1..=256).contains(&(before - left)), "{engine:?}: {before} -> {left}");
            assert_eq!(batch.answered(), ops.len() - left, "what is not left is answered");
            rounds += 1;
        }
        let answers = batch.finish(&mut bench.store);
        bench.check(&ops, &answers);
        assert!(all_done(&answers));
        assert!((3..ops.len() / 2).contains(&rounds), "{engine:?}: {rounds} batches");
        if engine == Engine::Postgres {
            assert_eq!(transactions(&mut bench, "many"), rounds, "one transaction each");
        }
    }
}

#[test]
fn a_batch_that_takes_long_is_cut_after_the_job_that_made_it_so() {
    for engine in engines() {
        let mut bench = Bench::new(engine);
        let mut ops: Vec<Op> = (0..6).map(|i| Op::write(format!("slow-{i}"))).collect();
        ops[0].deed = Deed::Sleep(60);
        ops[1].deed = Deed::Sleep(60);
        let mut batch = Batch::of(&ops, PATIENCE);
        for done in [1, 2] {
            assert_eq!(batch.run_once(&mut bench.store), 6 - done, "{engine:?}");
            assert_eq!((batch.answered(), bench.stored().len()), (done, done), "{engine:?}");
        }
        assert!(all_done(&batch.finish(&mut bench.store)));
        assert_eq!(bench.stored().len(), 6);
    }
}

#[test]
fn those_behind_one_that_failed_are_left_for_the_next_batch() {
    for engine in engines() {
        for deed in [Deed::Panic, Deed::Fail] {
            in_one_go(|_| {
                let mut bench = Bench::new(engine);
                let mut ops: Vec<Op> = (0..6).map(|i| Op::write(format!("op-{i}"))).collect();
                ops[1].deed = deed.clone();
                let mut batch = Batch::of(&ops, PATIENCE);
                let left = batch.run_once(&mut bench.store);
                if left == 5 {
                    return None;
                }
                assert_eq!(left, 4, "{engine:?}");
                assert_eq!((batch.answered(), bench.stored().len()), (2, 1), "{engine:?}");
                let answers = batch.finish(&mut bench.store);
                bench.check(&ops, &answers);
                Some(())
            });
        }
    }
}

#[test]
fn a_batch_runs_in_the_order_given() {
    for engine in engines() {
        let mut bench = Bench::new(engine);
        bench.beside.run("CREATE TABLE steps (step TEXT NOT NULL)");
        let step = |name: &str| Deed::Run(format!("INSERT INTO steps VALUES ('{name}')"));
        let mut ops = Vec::new();
        for (name, subject) in [("1", "m"), ("2", "b"), ("3", "m"), ("4", "a")] {
            let op = Op::new(name, step(name));
            ops.push(Op { subject: Some(subject.into()), ..op });
        }
        assert!(all_done(&bench.run(&ops)));
        let order = match engine {
            Engine::Sqlite => "SELECT step AS value FROM steps ORDER BY rowid",
            Engine::Postgres => "SELECT step AS value FROM steps ORDER BY ctid",
        };
        let steps: Vec<String> = bench.beside.texts(order).into_iter().flatten().collect();
        // PostgreSQL has row locks: there batches run by row, and only within one row by order.
        let expected = if engine == Engine::Sqlite { "1234" } else { "4213" };
        assert_eq!(steps.concat(), expected, "{engine:?}");
    }
}

#[test]
fn the_seam_is_called_before_each_write_of_a_batch() {
    for engine in engines() {
        let mut bench = Bench::new(engine);
        let seen = Arc::new(Mutex::new(BTreeSet::new()));
        let list = Arc::clone(&seen);
        bench.store.set_seam(Arc::new(move |_, subject| {
            list.lock().unwrap().insert(subject.map(str::to_owned));
        }));
        let with_subject =
            |i: u32| Op { subject: Some(format!("s{i}")), ..Op::write(i.to_string()) };
        let ops: Vec<Op> = (0..3).map(with_subject).collect();
        bench.run(&ops);
        assert_eq!(*seen.lock().unwrap(), ops.into_iter().map(|op| op.subject).collect());
    }
}

#[test]
fn an_empty_batch_is_nothing() {
    for engine in engines() {
        let mut bench = Bench::new(engine);
        assert!(bench.store.run_batch(Vec::new()).is_empty());
    }
}
