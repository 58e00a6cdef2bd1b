//! Somebody else holds a lock.

use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use leasehold::db::StoreError;

use crate::operation::{Deed, Op};
use crate::places::{Engine, Place, Raw, engines};
use crate::support::{Answer, Batch, Bench, PATIENCE, all_done, in_one_go};

const SHORT: Duration = Duration::from_millis(300);

/// A little for slow machines, and far less than one wait of the engine's own.
const ABOUT: Duration = Duration::from_millis(2500);

/// Makes attempts until one takes no longer than [`ABOUT`]. A machine that pauses draws one out, and what waits for longer
/// than it should all of them.
fn soon(mut attempt: impl FnMut(u32) -> Duration) {
    let took: Vec<Duration> =
        (0..5).map_while(|round| Some(attempt(round)).filter(|took| *took >= ABOUT)).collect();
    assert!(took.len() < 5, "{took:?}");
}

fn hold_writer_lock(place: &Place) -> Raw {
    let mut foreign = place.raw();
    foreign.run("BEGIN IMMEDIATE");
    foreign
}

fn busy(answer: &Answer) -> bool {
    matches!(answer, Err(StoreError::Busy { .. }))
}

fn five(name: &str) -> Vec<Op> {
    (0..5).map(|i| Op::write(format!("{name}-{i}"))).collect()
}

#[test]
fn a_lock_released_in_time_delays_the_batch_and_no_more() {
    let mut bench = Bench::new(Engine::Sqlite);
    // The wait is no reason to cut the batch off after its first job.
    in_one_go(|round| {
        let mut foreign = hold_writer_lock(&bench.place);
        let release = thread::spawn(move || {
            thread::sleep(SHORT);
            foreign.run("COMMIT");
        });
        let ops = five(&format!("waiting-{round}"));
        let mut batch = Batch::of(&ops, PATIENCE);
        let left = batch.run_once(&mut bench.store);
        let answers = batch.finish(&mut bench.store);
        release.join().unwrap();
        bench.check(&ops, &answers);
        assert!(all_done(&answers), "{answers:?}");
        (left < 4).then_some(())
    });
}

#[test]
fn a_lock_that_stays_is_busy_at_the_deadline() {
    let mut bench = Bench::new(Engine::Sqlite);
    for count in [1, 5] {
        soon(|round| {
            let mut foreign = hold_writer_lock(&bench.place);
            let began = Instant::now();
            let ops = &five(&format!("refused-{count}-{round}"))[..count];
            let answers = Batch::of(ops, SHORT).finish(&mut bench.store);
            let took = began.elapsed();
            assert!(answers.iter().all(busy), "{answers:?}");
            assert!(took >= SHORT, "{took:?}");
            foreign.run("COMMIT");
            bench.check(ops, &answers);
            bench.assert_works(&format!("after-{count}-{round}"));
            took
        });
    }
}

#[test]
fn each_waits_until_its_own_deadline() {
    for position in 0..5 {
        soon(|_| {
            let mut bench = Bench::new(Engine::Sqlite);
            let foreign = hold_writer_lock(&bench.place);
            let began = Instant::now();
            let ops = five("mixed");
            let mut batch = Batch::new();
            for (i, op) in ops.iter().enumerate() {
                batch.add(op.clone(), if i == position { SHORT } else { PATIENCE });
            }
            let first = release_after_an_answer(foreign, batch.watch());
            let mut answers = batch.finish(&mut bench.store);
            bench.check(&ops, &answers);
            let its_own = answers.remove(position);
            assert!(busy(&its_own), "at {position}: {its_own:?}");
            assert!(all_done(&answers), "at {position}: {answers:?}");
            first.recv().unwrap() - began
        });
    }
}

/// Lets the lock go when the first of those who wait for it has its answer, or none ever has one. Tells when that was.
fn release_after_an_answer(
    mut foreign: Raw,
    answered: impl Fn() -> usize + Send + 'static,
) -> Receiver<Instant> {
    let (sender, first) = channel();
    thread::spawn(move || {
        let began = Instant::now();
        while answered() == 0 && began.elapsed() < 2 * PATIENCE {
            thread::sleep(Duration::from_millis(1));
        }
        let _ = sender.send(Instant::now());
        foreign.run("COMMIT");
    });
    first
}

/// A batch is given up for another reason while a foreign writer takes the lock: nobody waits in vain for longer than
/// its deadline, however many there are.
#[test]
fn a_lock_taken_after_a_batch_was_given_up() {
    soon(|_| {
        in_one_go(|_| {
            let mut bench = Bench::new(Engine::Sqlite);
            let (place, ops) = (&bench.place, five("late"));
            let path = place.url.strip_prefix("sqlite:").unwrap().to_owned();
            let holder = std::sync::Mutex::new(None);
            let mut batch = Batch::of(&ops, SHORT);
            batch.add(Locker { path, holder: holder.into() }, SHORT);
            let began = Instant::now();
            let mut answers = batch.finish(&mut bench.store);
            let took = began.elapsed();
            // What a batch of its own has stored before.
            if !bench.stored().is_empty() {
                return None;
            }
            answers.pop();
            assert!(answers.iter().all(busy), "{answers:?}");
            Some(took)
        })
    });
}

/// Fails, and leaves a foreign writer behind that gets the lock as soon as the batch has let it go.
struct Locker {
    path: String,
    holder: std::sync::Arc<std::sync::Mutex<Option<Raw>>>,
}

impl leasehold::db::Operation for Locker {
    type Output = crate::operation::Said;

    fn name(&self) -> &'static str {
        "test"
    }

    fn run(&self, conn: &mut leasehold::db::AnyConn) -> diesel::QueryResult<Self::Output> {
        use diesel::connection::{Connection, SimpleConnection};
        conn.batch_execute("ROLLBACK")?;
        let mut holder = self.holder.lock().unwrap();
        if holder.is_none() {
            let mut foreign = diesel::SqliteConnection::establish(&self.path).unwrap();
            foreign.batch_execute("BEGIN IMMEDIATE")?;
            *holder = Some(Raw::Sqlite(foreign));
        }
        Err(diesel::result::Error::RollbackTransaction)
    }
}

fn on_postgres() -> Option<Bench> {
    engines().contains(&Engine::Postgres).then(|| Bench::new(Engine::Postgres))
}

fn touch(row: &str) -> Deed {
    Deed::Run(format!("UPDATE leasehold_meta SET value = 'touched' WHERE key = '{row}'"))
}

/// Makes a row, and locks it for somebody else.
fn hold_row(bench: &mut Bench) -> Raw {
    bench.beside.run("INSERT INTO leasehold_meta VALUES ('held', '') ON CONFLICT DO NOTHING");
    let mut foreign = bench.place.raw();
    foreign.run("BEGIN; UPDATE leasehold_meta SET value = 'theirs' WHERE key = 'held'");
    foreign
}

/// A key of this store, since the locks of all tests stand in one table.
fn key(bench: &Bench) -> String {
    format!("held {}", bench.place.dir.path().display())
}

fn hold_key(bench: &mut Bench) -> Raw {
    let mut foreign = bench.place.raw();
    let key = key(bench);
    foreign.run(&format!("BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('{key}', 0))"));
    foreign
}

/// One of five wants what somebody else holds.
fn wanting(bench: &Bench, name: &str, position: usize, by_key: bool) -> Vec<Op> {
    let mut ops = five(name);
    match by_key {
        true => ops[position].lock = Some(key(bench)),
        false => ops[position].deed = touch("held"),
    }
    ops
}

#[test]
fn on_postgres_one_that_waits_for_a_lock_is_done_when_it_comes_free() {
    let Some(mut bench) = on_postgres() else { return };
    for by_key in [false, true] {
        let mut foreign = if by_key { hold_key(&mut bench) } else { hold_row(&mut bench) };
        let release = thread::spawn(move || {
            thread::sleep(SHORT);
            foreign.run("COMMIT");
        });
        let ops = wanting(&bench, &format!("free-{by_key}"), 2, by_key);
        let answers = bench.run(&ops);
        release.join().unwrap();
        assert!(all_done(&answers), "{answers:?}");
    }
}

#[test]
fn on_postgres_a_lock_that_stays_is_busy_for_the_one_that_wants_it() {
    let Some(mut bench) = on_postgres() else { return };
    for (by_key, position) in (0..5).flat_map(|position| [(false, position), (true, position)]) {
        soon(|round| {
            let mut foreign = if by_key { hold_key(&mut bench) } else { hold_row(&mut bench) };
            let name = format!("held-{by_key}-{position}-{round}");
            let ops = wanting(&bench, &name, position, by_key);
            let mut batch = Batch::new();
            for (i, op) in ops.iter().enumerate() {
                batch.add(op.clone(), if i == position { SHORT } else { PATIENCE });
            }
            let began = Instant::now();
            let mut answers = batch.finish(&mut bench.store);
            let took = began.elapsed();
            foreign.run("ROLLBACK");
            bench.check(&ops, &answers);
            let its_own = answers.remove(position);
            assert!(busy(&its_own), "at {position}: {its_own:?}");
            assert!(all_done(&answers), "at {position}: {answers:?}");
            took
        });
    }
    bench.assert_works("after");
}
