//! One operation of five goes wrong, at each position.

use leasehold::db::StoreError;

use crate::operation::{Deed, Op, Said};
use crate::places::{Engine, engines};
use crate::support::{Answer, Bench, PATIENCE, all_done, run_all};

type Expect = fn(&Answer) -> bool;

/// Runs five operations of which one does `deed`, and one alone; the others must not notice.
fn at_each_position(engine: Engine, deed: &Deed, expect: Expect) {
    let mut bench = Bench::new(engine);
    for position in 0..5 {
        let ops = five(position, deed);
        let mut answers = bench.run(&ops);
        let its_own = answers.remove(position);
        assert!(expect(&its_own), "{engine:?}, {deed:?} at {position}: {its_own:?}");
        assert!(all_done(&answers), "{engine:?}, {deed:?} at {position}: {answers:?}");
        bench.assert_works(&format!("after-{position}"));
    }
    let answers = bench.run(&[Op::new("single", deed.clone())]);
    assert!(expect(&answers[0]), "{engine:?}, {deed:?} alone: {answers:?}");
    bench.assert_works("after-single");
}

fn five(position: usize, deed: &Deed) -> Vec<Op> {
    let deed_of = |i| if i == position { deed.clone() } else { Deed::Write };
    (0..5).map(|i| Op::new(format!("{position}-{i}"), deed_of(i))).collect()
}

fn on_both(deed: &Deed, expect: Expect) {
    engines().into_iter().for_each(|engine| at_each_position(engine, deed, expect));
}

fn panicked(answer: &Answer) -> bool {
    matches!(answer, Err(StoreError::Panicked { .. }))
}

fn refused(answer: &Answer) -> bool {
    matches!(answer, Err(StoreError::Sql { .. }))
}

#[test]
fn a_panic() {
    on_both(&Deed::Panic, panicked);
}

#[test]
fn a_panic_with_savepoints_open() {
    on_both(&Deed::PanicInside, panicked);
}

#[test]
fn a_savepoint_left_open() {
    on_both(&Deed::LeaveOpen, refused);
}

#[test]
fn a_statement_that_fails() {
    on_both(&Deed::Fail, refused);
}

#[test]
fn a_failed_statement_that_the_operation_hides() {
    // On SQLite such a statement undoes itself only: that the operation may carry on.
    at_each_position(Engine::Sqlite, &Deed::HideFailure, |answer| matches!(answer, Ok(Said::Done)));
    for engine in engines().into_iter().filter(|engine| *engine == Engine::Postgres) {
        at_each_position(engine, &Deed::HideFailure, refused);
    }
}

#[test]
fn a_failed_savepoint_that_the_operation_hides() {
    // A savepoint that was undone leaves the transaction as it was before, on both engines.
    on_both(&Deed::HideFailureInside, |answer| matches!(answer, Ok(Said::Done)));
}

#[test]
fn a_refusal_is_an_output() {
    on_both(&Deed::Refuse, |answer| matches!(answer, Ok(Said::Refused)));
}

#[test]
fn a_unique_violation() {
    for engine in engines() {
        let mut bench = Bench::new(engine);
        for position in 0..5 {
            let mut ops = five(position, &Deed::Write);
            bench.store.write(&Op::write(format!("there-{position}"))).unwrap();
            ops[position].key = format!("there-{position}");
            let mut answers = run_all(&mut bench.store, &ops, PATIENCE);
            assert!(refused(&answers.remove(position)), "{engine:?} at {position}");
            assert!(all_done(&answers), "{engine:?} at {position}: {answers:?}");
            assert_eq!(bench.tally(), bench.stored().len());
            bench.assert_works(&format!("after-{position}"));
        }
    }
}

#[test]
fn two_of_a_batch_that_exclude_each_other() {
    for engine in engines() {
        let mut bench = Bench::new(engine);
        let ops = [Op::write("a"), Op::write("same"), Op::write("same"), Op::write("b")];
        let answers = run_all(&mut bench.store, &ops, PATIENCE);
        assert!(refused(&answers[2]), "{engine:?}: {answers:?}");
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 3);
        assert_eq!((bench.tally(), bench.stored().len()), (3, 3));
    }
}

#[test]
fn a_full_disk() {
    let full: Expect = |answer| matches!(answer, Err(StoreError::Full { .. }));
    at_each_position(Engine::Sqlite, &Deed::Full, full);
    // What PostgreSQL says then, in its own words.
    let no_room = "DO $$ BEGIN RAISE EXCEPTION SQLSTATE '53100' \
                   USING MESSAGE = 'could not extend file: No space left on device'; END $$";
    for engine in engines().into_iter().filter(|engine| *engine == Engine::Postgres) {
        at_each_position(engine, &Deed::Run(no_room.into()), full);
    }
}

#[test]
fn a_full_disk_that_the_operation_hides() {
    // SQLite has rolled the whole transaction back: the neighbours that ran before went with it.
    at_each_position(Engine::Sqlite, &Deed::HideFull, |answer| answer.is_err());
    at_each_position(Engine::Sqlite, &Deed::HideFullInside, |answer| answer.is_err());
}
