//! A store under test: batches, their answers, and what a second connection sees.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold::clock::SystemClock;
use leasehold::db::{Job, Mode, Operation, Pending, Store, StoreError, StoreUrl};
use leasehold::ids::RandomIds;

use crate::operation::{Op, Said};
use crate::places::{Engine, Place, Raw};

pub type Answer<T = Said> = Result<T, StoreError>;

/// Long enough for everything that is not about waiting.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn open(url: &str) -> Store {
    let url = StoreUrl::parse(url).unwrap();
    Store::open(&url, Mode::Write, &SystemClock, &RandomIds).unwrap()
}

/// A place, its writer, and a connection beside it.
pub struct Bench {
    pub place: Place,
    pub store: Store,
    pub beside: Raw,
}

impl Bench {
    pub fn new(engine: Engine) -> Bench {
        Bench::at(Place::new(engine))
    }

    pub fn at(place: Place) -> Bench {
        let store = open(&place.url);
        let mut beside = place.raw();
        beside.run("INSERT INTO leasehold_meta (key, value) VALUES ('tally', '0')");
        Bench { place, store, beside }
    }

    pub fn stored(&mut self) -> BTreeSet<String> {
        let sql = "SELECT id AS value FROM status_transitions";
        self.beside.texts(sql).into_iter().flatten().collect()
    }

    pub fn tally(&mut self) -> usize {
        let sql = "SELECT value FROM leasehold_meta WHERE key = 'tally'";
        self.beside.texts(sql)[0].as_ref().unwrap().parse().unwrap()
    }

    /// Runs `ops` until each is answered, and compares the answers with what is stored.
    pub fn run(&mut self, ops: &[Op]) -> Vec<Answer> {
        let answers = run_all(&mut self.store, ops, PATIENCE);
        self.check(ops, &answers);
        answers
    }

    /// As [`Bench::run`], for operations that are to share a batch; nothing when they do not.
    pub fn run_whole(&mut self, ops: &[Op]) -> Option<Vec<Answer>> {
        let answers = Batch::of(ops, PATIENCE).finish_whole(&mut self.store)?;
        self.check(ops, &answers);
        Some(answers)
    }

    /// Every "done" is there, everything else is not, and nothing was done twice.
    pub fn check(&mut self, ops: &[Op], answers: &[Answer]) {
        let stored = self.stored();
        for (op, answer) in ops.iter().zip(answers) {
            let done = matches!(answer, Ok(Said::Done));
            assert_eq!(stored.contains(&op.key), done, "{op:?} was answered {answer:?}");
        }
        assert_eq!(self.tally(), stored.len(), "{ops:?} were answered {answers:?}");
    }

    /// The store serves single writes and batches.
    pub fn assert_works(&mut self, round: &str) {
        let alone = self.store.write(&Op::write(format!("{round}-alone")));
        assert!(matches!(alone, Ok(Said::Done)), "{alone:?}");
        let ops = [Op::write(format!("{round}-one")), Op::write(format!("{round}-two"))];
        let answers = self.run(&ops);
        assert!(all_done(&answers), "{answers:?}");
        assert!(self.stored().contains(&format!("{round}-alone")));
    }
}

pub fn all_done(answers: &[Answer]) -> bool {
    answers.iter().all(|answer| matches!(answer, Ok(Said::Done)))
}

/// Makes attempts until one counts. A batch ends after 50 ms, and a machine may pause for longer: such an attempt tells
/// nothing of what was to be tried.
pub fn in_one_go<T>(attempt: impl FnMut(u32) -> Option<T>) -> T {
    (0..50).find_map(attempt).expect("no attempt came off in one go")
}

/// Jobs whose answers are collected.
pub struct Batch<T> {
    pub jobs: Vec<Box<dyn Job>>,
    answers: Arc<Mutex<Vec<Vec<Answer<T>>>>>,
}

impl<T: Send + 'static> Batch<T> {
    pub fn new() -> Batch<T> {
        Batch { jobs: Vec::new(), answers: Arc::default() }
    }

    pub fn of<O>(ops: &[O], patience: Duration) -> Batch<T>
    where
        O: Operation<Output = T> + Clone + Send + 'static,
    {
        let mut batch = Batch::new();
        ops.iter().for_each(|op| batch.add(op.clone(), patience));
        batch
    }

    pub fn add<O>(&mut self, op: O, patience: Duration)
    where
        O: Operation<Output = T> + Send + 'static,
    {
        self.add_as(op, patience, |output| output);
    }

    /// As [`Batch::add`], for operations of several kinds.
    pub fn add_as<O>(
        &mut self,
        op: O,
        patience: Duration,
        convert: impl FnOnce(O::Output) -> T + Send + 'static,
    ) where
        O: Operation + Send + 'static,
        O::Output: Send,
    {
        let place = self.jobs.len();
        self.answers.lock().unwrap().push(Vec::new());
        let answers = Arc::clone(&self.answers);
        let reply = move |answer: Result<O::Output, StoreError>| {
            answers.lock().unwrap()[place].push(answer.map(convert));
        };
        self.jobs.push(Box::new(Pending::new(op, Instant::now() + patience, reply)));
    }

    /// Runs one batch; how many jobs it left over.
    pub fn run_once(&mut self, store: &mut Store) -> usize {
        self.jobs = store.run_batch(std::mem::take(&mut self.jobs));
        self.jobs.len()
    }

    pub fn answered(&self) -> usize {
        self.watch()()
    }

    /// Counts the answers, for somebody else.
    pub fn watch(&self) -> impl Fn() -> usize + Send + use<T> {
        let answers = Arc::clone(&self.answers);
        move || answers.lock().unwrap().iter().filter(|answers| !answers.is_empty()).count()
    }

    /// As [`Batch::finish`], unless one batch does not take all.
    pub fn finish_whole(mut self, store: &mut Store) -> Option<Vec<Answer<T>>> {
        (self.run_once(store) == 0).then(|| self.finish(store))
    }

    /// Runs what is left, and takes the answers: exactly one for each.
    pub fn finish(mut self, store: &mut Store) -> Vec<Answer<T>> {
        while !self.jobs.is_empty() {
            self.run_once(store);
        }
        let answers = std::mem::take(&mut *self.answers.lock().unwrap());
        let only = |mut answers: Vec<Answer<T>>| {
            assert_eq!(answers.len(), 1, "each is answered exactly once");
            answers.remove(0)
        };
        answers.into_iter().map(only).collect()
    }
}

pub fn run_all<O>(store: &mut Store, ops: &[O], patience: Duration) -> Vec<Answer<O::Output>>
where
    O: Operation + Clone + Send + 'static,
    O::Output: Send + 'static,
{
    Batch::of(ops, patience).finish(store)
}
