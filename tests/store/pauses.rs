//! Pauses: what is held is not claimed, by anybody, and everything else is.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use leasehold::db::ops::{ClaimOutcome, ListRuns, Paused, Resume};
use leasehold::db::{Operation, Store};
use leasehold::domain::ending::{ExecuteError, Execution};
use leasehold::domain::pause::Scope;
use leasehold::domain::run::ClaimedRun;
use leasehold::domain::status::Status;
use leasehold::domain::task::TaskApplication;
use leasehold::domain::transition::Principal;
use leasehold::queue::WorkerCall;
use leasehold::{Config, Queue};

use crate::kit::{claim, store, submit, task};
use crate::places::{Engine, NOW, Place, engines};

/// For so long a pause waits for claims that are under way, and a little longer.
const WAIT: Duration = Duration::from_millis(4_500);

fn ada() -> Principal {
    Principal::operator("ada")
}

fn call(targets: &[&str]) -> WorkerCall {
    let mut call = WorkerCall::new("host:w", &Config::default());
    call.execution_targets = targets.iter().map(|target| target.to_string()).collect();
    call
}

fn until(mut look: impl FnMut() -> Result<(), String>) {
    let began = Instant::now();
    while let Err(seen) = look() {
        assert!(began.elapsed() < Duration::from_secs(60), "too late; last seen: {seen}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// What a tick of a worker for these targets runs, by kind and target.
fn tick(queue: &mut Queue, targets: &[&str]) -> Vec<String> {
    let mut ran = Vec::new();
    let mut execute = |run: &ClaimedRun| -> Result<Execution, ExecuteError> {
        ran.push(format!("{} {}", run.action_kind, run.execution_target.as_deref().unwrap()));
        Ok(Execution::OK)
    };
    queue.worker_tick(&call(targets), &mut execute).unwrap();
    ran
}

#[test]
fn what_is_paused_is_not_claimed_and_the_rest_is() {
    for engine in engines() {
        let place = Place::new(engine);
        let (mut queue, _clock) = place.manual_queue(Config::default());
        for (kind, target) in [("agent", "host"), ("flow", "host"), ("flow", "daytona")] {
            queue.submit_task(&TaskApplication::new(kind, target)).unwrap();
        }
        let flows = Scope::kind("flow").unwrap();
        assert_eq!(queue.pause(flows.clone(), ada(), Some("r".into())).unwrap(), Paused::Now);
        assert_eq!(tick(&mut queue, &["host", "daytona"]), ["agent host"]);

        // Who pauses it again hears of the first, and changes nothing.
        let again = queue.pause(flows.clone(), Principal::operator("bob"), None).unwrap();
        let Paused::Before(first) = again else { panic!("{again:?}") };
        assert_eq!((first.by, first.since, first.reason), (ada(), NOW, Some("r".into())));

        let daytona = Scope::target("daytona").unwrap();
        queue.pause(daytona.clone(), ada(), None).unwrap();
        assert!(queue.resume(&flows).unwrap().is_some());
        assert_eq!(tick(&mut queue, &["host", "daytona"]), ["flow host"]);

        queue.pause(Scope::Queue, ada(), None).unwrap();
        assert!(queue.resume(&daytona).unwrap().is_some());
        queue.submit_task(&task()).unwrap();
        assert_eq!(tick(&mut queue, &["host", "daytona"]), [""; 0], "the whole queue is paused");
        assert_eq!(queue.pauses().unwrap().len(), 1);
        assert!(queue.resume(&Scope::Queue).unwrap().is_some());
        assert!(queue.resume(&Scope::Queue).unwrap().is_none());
        assert_eq!(tick(&mut queue, &["host", "daytona"]), ["flow daytona", "agent host"]);
    }
}

/// More than a pass reads, and more than it may try.
#[test]
fn a_head_of_held_runs_hides_nothing_and_uses_up_no_limit() {
    for engine in engines() {
        let place = Place::new(engine);
        let (mut queue, clock) = place.manual_queue(Config::default());
        let flow = queue.submit_task(&TaskApplication::new("flow", "host")).unwrap();
        let rows = "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 6000)";
        place.raw().run(&format!(
            "INSERT INTO schedule_runs (id, trigger_context, action_kind, action_args, status, chain_depth, fired_at,
                created_at, queued_at, lease_attempts, required_capabilities, execution_target)
             {rows} SELECT '{flow}-' || n, '{{}}', 'flow', '{{}}', 'queued', 0, 1, 1, 1, 0, '[]', 'host' FROM numbers"
        ));
        clock.advance(1.0);
        queue.submit_task(&task()).unwrap();
        queue.pause(Scope::kind("flow").unwrap(), ada(), None).unwrap();
        assert_eq!(tick(&mut queue, &["host"]), ["agent host"]);
    }
}

#[test]
fn a_claim_of_a_held_run_is_refused_whoever_has_read_it_before() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut store = store(&place);
        store.write(&submit("r1")).unwrap();
        let mut queue = place.queue();
        for scope in [Scope::Queue, Scope::kind("agent").unwrap(), Scope::target("host").unwrap()] {
            queue.pause(scope.clone(), ada(), None).unwrap();
            let held = store.write(&claim("r1", None, "w", "f1")).unwrap();
            assert_eq!(held, ClaimOutcome::Held, "{scope}");
            queue.resume(&scope).unwrap();
        }
        // No epoch is spent on it.
        let won = store.write(&claim("r1", None, "w", "f1")).unwrap();
        assert_eq!(won, ClaimOutcome::Won { epoch: 1 });
    }
}

/// SQLite's lock is no queue: among those who never rest one may wait for it in vain.
fn write<O: Operation>(store: &mut Store, operation: &O) -> O::Output {
    loop {
        match store.write(operation) {
            Err(error) if error.is_retryable() => {}
            written => return written.unwrap(),
        }
    }
}

/// Set when it is dropped, in a panic as well: nobody works on for a test that has failed.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Workers claim as fast as they can; what ran when a pause had answered is all that runs until the resume.
#[test]
fn after_a_pause_has_answered_nothing_is_claimed() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut queue = place.queue();
        let (done, tried) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            for worker in 0..4 {
                let (place, done, tried) = (&place, &done, &tried);
                scope.spawn(move || {
                    let mut store = store(place);
                    for number in 0.. {
                        let id = format!("w{worker}-{number}");
                        write(&mut store, &submit(&id));
                        write(&mut store, &claim(&id, None, "w", &format!("f-{id}")));
                        tried.fetch_add(1, Ordering::SeqCst);
                        if done.load(Ordering::SeqCst) {
                            return;
                        }
                    }
                });
            }
            let _done = Done(&done);
            let mut running = || {
                let all = ListRuns { statuses: vec![Status::Running], limit: 1_000_000 };
                queue.read(&all).unwrap().len()
            };
            let (mut pausing, mut resuming) = (place.queue(), store(&place));
            let mut pauses = 0;
            for _ in 0..10 {
                let before = running();
                until(|| match running() {
                    more if more > before => Ok(()),
                    same => Err(format!("{same} are running")),
                });
                let mut began = Instant::now();
                until(|| {
                    began = Instant::now();
                    let paused = pausing.pause(Scope::Queue, ada(), None);
                    paused.map(drop).map_err(|error| error.to_string())
                });
                // A claim that a server has under way for as long as that is waited for no longer.
                let has_waited = engine == Engine::Sqlite || began.elapsed() < WAIT;
                let (paused_at, trials) = (running(), tried.load(Ordering::SeqCst));
                until(|| match tried.load(Ordering::SeqCst) - trials {
                    more if more > 20 => Ok(()),
                    more => Err(format!("{more} more were tried")),
                });
                if has_waited {
                    assert_eq!(running(), paused_at, "{engine:?}");
                    pauses += 1;
                }
                write(&mut resuming, &Resume { scope: Scope::Queue });
            }
            assert!(pauses > 0, "{engine:?}: each has waited in vain");
        });
    }
}

/// A claim that has changed its row and not committed yet has won; a pause that has not seen its end has not answered.
#[test]
fn a_pause_waits_for_claims_that_are_under_way() {
    for engine in engines().into_iter().filter(|engine| *engine == Engine::Postgres) {
        let place = Place::new(engine);
        store(&place).write(&submit("r1")).unwrap();
        let mut raw = place.raw();
        raw.run("BEGIN; UPDATE schedule_runs SET status = 'running' WHERE id = 'r1'");
        thread::scope(|scope| {
            let pausing = scope.spawn(|| {
                let mut queue = place.queue();
                let began = Instant::now();
                queue.pause(Scope::Queue, ada(), None).unwrap();
                (began, Instant::now())
            });
            let mut queue = place.queue();
            until(|| match queue.pauses().unwrap().len() {
                1 => Ok(()),
                count => Err(format!("{count} pauses")),
            });
            // One that does not wait has the time to answer.
            thread::sleep(Duration::from_millis(100));
            let before = Instant::now();
            raw.run("COMMIT");
            let (began, answered) = pausing.join().unwrap();
            assert!(answered > before || answered - began > WAIT, "it has not waited");
        });
    }
}
