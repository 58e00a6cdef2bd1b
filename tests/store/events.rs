//! The feed of events: nothing is lost, nothing repeated, and what happens to a run comes in its order, whoever writes at
//! the same time and however slowly.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use diesel::result::QueryResult;
use leasehold::db::ops::{self, Cancelled, ClaimOutcome};
use leasehold::db::{AnyConn, Event, Mode, Operation, Store};
use leasehold::domain::event::{CursorRefusal, EventId};
use leasehold::domain::status::Status;
use leasehold::domain::transition::{
    Guard, Outcome, Patch, Principal, StateReason, TransitionRequest,
};
use leasehold::{Config, Error, Queue};

use crate::kit::{at_once, change, claim, count, one, open, store, submit, task};
use crate::original;
use crate::places::{Engine, Place, Raw, engines};

/// Whatever anybody does on the server can hold the feed back for a while, other tests among them.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reads on from one place, as a subscriber does.
struct Follower {
    queue: Queue,
    after: Option<EventId>,
    seen: Vec<Event>,
}

impl Follower {
    fn new(place: &Place) -> Follower {
        let queue = open(place, Mode::Read).unwrap();
        Follower { queue, after: None, seen: Vec::new() }
    }

    /// One page, in pages of an odd size.
    fn look(&mut self) -> usize {
        let page = self.queue.events(self.after, 7).unwrap();
        self.after = page.last().map(|event| event.id).or(self.after);
        let count = page.len();
        self.seen.extend(page);
        count
    }

    /// Until so many have come; more would be seen by whoever looks once more.
    fn until(&mut self, count: usize) -> &[Event] {
        let began = Instant::now();
        while self.seen.len() < count {
            if self.look() == 0 {
                let late = began.elapsed() > PATIENCE;
                assert!(!late, "{} of {count} events: {:?}", self.seen.len(), self.seen.last());
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        &self.seen
    }

    fn steps(&self) -> Vec<(&str, &str, &str)> {
        fn word(word: &Option<String>) -> &str {
            word.as_deref().unwrap_or("-")
        }
        self.seen
            .iter()
            .map(|event| (event.run_id.as_str(), word(&event.previous_status), word(&event.status)))
            .collect()
    }
}

/// Each run and each fact of the store has come exactly once, in ascending places, and those of a run are one path.
fn assert_complete(events: &[Event], raw: &mut Raw) {
    assert!(events.windows(2).all(|pair| pair[0].id < pair[1].id), "the places ascend");
    let facts: HashSet<_> =
        events.iter().filter_map(|event| event.transition_id.as_deref()).collect();
    let stored: Vec<String> =
        raw.texts("SELECT id AS value FROM status_transitions").into_iter().flatten().collect();
    assert_eq!(facts.len(), stored.len(), "facts that came, and that there are");
    assert!(stored.iter().all(|id| facts.contains(id.as_str())));
    let runs = count(raw, "schedule_runs");
    assert_eq!(events.len(), stored.len() + runs, "nothing came twice");
    let mut last: BTreeMap<&str, &str> = BTreeMap::new();
    for event in events {
        let before = last.insert(&event.run_id, event.status.as_deref().unwrap());
        assert_eq!(before, event.previous_status.as_deref(), "{event:?} in its order");
    }
    for (run, status) in last {
        let now =
            one(raw, &format!("SELECT status AS value FROM schedule_runs WHERE id = '{run}'"));
        assert_eq!(now, status, "{run}");
    }
}

#[test]
fn submits_and_changes_come_in_order_with_what_their_facts_say() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut queue = Queue::open(&place.url, Config::daemon()).unwrap();
        assert_eq!(
            (queue.newest_event().unwrap(), queue.events(None, 10).unwrap()),
            (None, vec![])
        );
        let (a, b) = (queue.submit_task(&task()).unwrap(), queue.submit_task(&task()).unwrap());
        let cancelled = queue.cancel(&a, &Principal::operator("ada")).unwrap();
        let mut follower = Follower::new(&place);
        let [first, second, third] = follower.until(3) else { panic!("{:?}", follower.seen) };
        for (event, run) in [(first, &a), (second, &b)] {
            assert_eq!((&event.run_id, event.status.as_deref()), (run, Some("queued")));
            let rest = (&event.previous_status, &event.reason_code, &event.transition_id);
            assert_eq!(rest, (&None, &None, &None));
            assert_eq!(event.created_at, queue.run(run).unwrap().created_at);
        }
        let fact = queue.read(&ops::History { run_id: a.clone() }).unwrap().remove(0);
        let expected = Event {
            id: third.id,
            created_at: fact.created_at,
            run_id: a.clone(),
            previous_status: Some("queued".into()),
            status: Some("cancelled".into()),
            reason_code: Some("run.cancelled.orchestrator".into()),
            source: Some("operator".into()),
            actor: Some("ada".into()),
            transition_id: Some(fact.id.clone()),
        };
        assert_eq!(*third, expected);
        assert_eq!(cancelled, Cancelled::Yes { transition_id: fact.id, event_id: third.id });
        let third = third.id;
        assert_eq!(queue.newest_event().unwrap(), Some(third));
        assert_eq!(queue.events(None, 0).unwrap(), []);
        assert_eq!(queue.events(Some(third), 10).unwrap(), []);
        assert_complete(&follower.seen, &mut place.raw());
    }
}

#[test]
fn a_change_answers_its_place_where_keys_are_turned_on_and_is_the_contract_s_elsewhere() {
    for engine in engines() {
        let place = Place::new(engine);
        for config in [Config::default(), Config::daemon()] {
            let is_keyed = config.idempotency;
            let mut queue = Queue::open(&place.url, config).unwrap();
            let request = TransitionRequest {
                entity_type: "schedule_run".into(),
                entity_id: queue.submit_task(&task()).unwrap(),
                from_state: None,
                to_state: "cancelled".into(),
                reason: StateReason {
                    code: "run.cancelled.operator".into(),
                    ..StateReason::default()
                },
                actor: Principal::operator("ada"),
                idempotency_key: "k".into(),
            };
            let outcome = queue.transition(&request, Guard::default(), Patch::default()).unwrap();
            let Outcome::Applied { transition_id, event_id, .. } = outcome else {
                panic!("{outcome:?}")
            };
            assert_eq!(event_id.is_some(), is_keyed);
            let Some(event_id) = event_id else { continue };
            let mut follower = Follower::new(&place);
            let event = follower.until(4).last().unwrap();
            assert_eq!((event.id, &event.transition_id), (event_id, &Some(transition_id)));
        }
    }
}

/// One of the things that happen to a run.
enum Step {
    Claim(ops::Claim),
    Change(Box<ops::ChangeStatus>),
    Submit(Box<ops::Submit>),
}

/// Several operations in one transaction, as a batch has them.
struct Batch(Vec<Step>);

impl Operation for Batch {
    /// How many facts were written.
    type Output = usize;

    fn name(&self) -> &'static str {
        "do several things"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<usize> {
        let mut facts = 0;
        for step in &self.0 {
            facts += usize::from(match step {
                Step::Claim(claim) => matches!(claim.run(conn)?, ClaimOutcome::Won { .. }),
                Step::Change(change) => {
                    matches!(change.run(conn)?, Ok(outcome) if outcome.is_applied())
                }
                Step::Submit(submit) => {
                    submit.run(conn)?;
                    false
                }
            });
        }
        Ok(facts)
    }
}

const RUNS: usize = 12;

/// What writer `writer` does in its transaction `round`: things to runs that all writers share.
fn batch(writer: usize, round: usize) -> Batch {
    let mut steps: Vec<Step> = (0..5)
        .map(|part| {
            let mix = (writer * 7919 + round * 104_729 + part * 1_299_709) % 65_521;
            let (run, kind) = (format!("r{}", mix % RUNS), mix / RUNS % 10);
            let fact = format!("{writer}-{round}-{part}");
            match kind {
                0 if round % 10 == 9 => {
                    Step::Change(Box::new(change(&run, None, Status::Cancelled, &fact)))
                }
                0..5 => Step::Claim(claim(&run, None, "w", &fact)),
                _ => Step::Change(Box::new(change(
                    &run,
                    Some(Status::Running),
                    Status::Queued,
                    &fact,
                ))),
            }
        })
        .collect();
    if round % 8 == 7 {
        steps.push(Step::Submit(Box::new(submit(&format!("new-{writer}-{round}")))));
    }
    // All take their row locks in one order: the point here is the order of events, not deadlocks.
    steps.sort_by(|one, other| subject(one).cmp(subject(other)));
    Batch(steps)
}

fn subject(step: &Step) -> &str {
    match step {
        Step::Claim(claim) => &claim.run_id,
        Step::Change(change) => &change.transition.id,
        Step::Submit(submit) => &submit.id,
    }
}

/// On a busy machine a writer of SQLite may wait for longer than it has patience.
fn write(store: &mut Store, batch: &Batch) {
    while let Err(error) = store.write(batch) {
        assert!(error.is_retryable(), "{error}");
    }
}

/// Counts one more when it is dropped.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Eight writers and two readers, beside whatever `beside` does until it is told that the writers are done.
fn storm(place: &Place, beside: impl Fn(&dyn Fn() -> bool) + Sync) {
    const WRITERS: usize = 8;
    const ROUNDS: usize = 60;
    let mut first = store(place);
    for run in 0..RUNS {
        first.write(&submit(&format!("r{run}"))).unwrap();
    }
    let done = AtomicUsize::new(0);
    let is_over = || done.load(Ordering::SeqCst) == WRITERS;
    let followers = at_once(WRITERS + 3, |number| {
        if number == WRITERS {
            beside(&is_over);
            return None;
        }
        if number < WRITERS {
            // Counted in a panic, too: nobody waits for a writer that has failed.
            let _done = Counted(&done);
            let mut store = store(place);
            for round in 0..ROUNDS {
                write(&mut store, &batch(number, round));
            }
            return None;
        }
        let mut follower = Follower::new(place);
        while !is_over() {
            follower.look();
        }
        Some(follower)
    });
    let mut raw = place.raw();
    let all = count(&mut raw, "schedule_runs") + count(&mut raw, "status_transitions");
    assert!(all > RUNS + WRITERS * ROUNDS / 2, "{all} events");
    let mut seen: Vec<Follower> = followers.into_iter().flatten().collect();
    for follower in &mut seen {
        follower.until(all);
        assert_eq!(follower.look(), 0, "nothing comes twice");
        assert_complete(&follower.seen, &mut raw);
    }
    assert_eq!(seen[0].seen, seen[1].seen, "all readers see one order");
}

#[test]
fn a_reader_in_a_storm_of_writers_sees_everything_once_and_in_order_on_sqlite() {
    storm(&Place::new(Engine::Sqlite), |_| {});
}

#[test]
fn a_reader_in_a_storm_of_writers_sees_everything_once_and_in_order_on_postgres() {
    for engine in engines().into_iter().filter(|engine| *engine == Engine::Postgres) {
        let place = Place::new(engine);
        // Transactions of somebody else, each of which holds the feed back for a while and then adds to it, or does not.
        storm(&place, |is_over| {
            let mut raw = place.raw();
            for number in 0.. {
                raw.run(&format!("BEGIN; {}", inserted_run(&format!("held-{number}"))));
                std::thread::sleep(Duration::from_millis(15));
                raw.run(if number % 3 == 0 { "ROLLBACK" } else { "COMMIT" });
                if is_over() {
                    return;
                }
            }
        });
    }
}

fn inserted_run(id: &str) -> String {
    format!(
        "INSERT INTO schedule_runs (id, trigger_context, action_kind, action_args, status, fired_at, created_at)
         VALUES ('{id}', '{{}}', 'agent', '{{}}', 'queued', 1, 1)"
    )
}

/// A change as raw SQL makes it: the row and its fact.
fn changed(run: &str, from: &str, to: &str, fact: &str) -> String {
    format!(
        "UPDATE schedule_runs SET status = '{to}' WHERE id = '{run}' AND status = '{from}';
         INSERT INTO status_transitions (id, entity_type, entity_id, previous_status, status, reason_code, source, created_at)
         VALUES ('{fact}', 'schedule_run', '{run}', '{from}', '{to}', 'run.started.ok', 'system', 1)"
    )
}

#[test]
fn a_transaction_that_is_held_open_holds_what_comes_after_it_back_and_nothing_is_lost_on_postgres()
{
    for engine in engines().into_iter().filter(|engine| *engine == Engine::Postgres) {
        let place = Place::new(engine);
        let mut store = store(&place);
        store.write(&submit("before")).unwrap();
        let mut follower = Follower::new(&place);
        follower.until(1);
        // It has taken its number, and commits after those that take theirs later.
        let mut held = place.raw();
        held.run(&format!("BEGIN; {}", inserted_run("held")));
        store.write(&submit("after")).unwrap();
        store.write(&claim("after", None, "w", "f")).unwrap();
        for _ in 0..5 {
            assert_eq!(follower.look(), 0, "{:?}", follower.steps());
        }
        held.run("COMMIT");
        follower.until(4);
        let order = [
            ("before", "-", "queued"),
            ("held", "-", "queued"),
            ("after", "-", "queued"),
            ("after", "queued", "running"),
        ];
        assert_eq!(follower.steps(), order);
        // One that is undone leaves a hole, which nobody waits for.
        held.run(&format!("BEGIN; {}", inserted_run("undone")));
        store.write(&submit("last")).unwrap();
        assert_eq!(follower.look(), 0);
        held.run("ROLLBACK");
        follower.until(5);
        assert_eq!(follower.steps()[4], ("last", "-", "queued"));
    }
}

/// Ids of transactions do not order what happens to one run: the older transaction may change it later.
#[test]
fn an_older_transaction_that_changes_a_run_later_comes_later_on_postgres() {
    for engine in engines().into_iter().filter(|engine| *engine == Engine::Postgres) {
        let place = Place::new(engine);
        let mut store = store(&place);
        store.write(&submit("r")).unwrap();
        let mut older = place.raw();
        older.run(&format!("BEGIN; {}", inserted_run("first of the older")));
        store.write(&claim("r", None, "w", "of the younger")).unwrap();
        older.run(&changed("r", "running", "queued", "of the older"));
        older.run("COMMIT");
        let mut follower = Follower::new(&place);
        follower.until(4);
        let of_run: Vec<_> = follower.steps().into_iter().filter(|(run, ..)| *run == "r").collect();
        let order = [("r", "-", "queued"), ("r", "queued", "running"), ("r", "running", "queued")];
        assert_eq!(of_run, order);
        assert_complete(&follower.seen, &mut place.raw());
    }
}

#[test]
fn what_others_write_is_in_the_feed_and_other_entities_are_not() {
    for engine in engines() {
        let place = Place::new(engine);
        drop(place.queue());
        let mut raw = place.raw();
        raw.run(&inserted_run("theirs"));
        raw.run(&changed("theirs", "queued", "running", "f1"));
        raw.run(
            "INSERT INTO status_transitions (id, entity_type, entity_id, status, reason_code, source, created_at)
             VALUES ('f2', 'session', 'theirs', 'running', 'run.started.ok', 'system', 1)",
        );
        store(&place).write(&submit("ours")).unwrap();
        let mut follower = Follower::new(&place);
        follower.until(3);
        let order =
            [("theirs", "-", "queued"), ("theirs", "queued", "running"), ("ours", "-", "queued")];
        assert_eq!(follower.steps(), order);
    }
}

#[test]
fn an_adopted_store_has_the_events_that_come_after_its_adoption() {
    let place = Place::new(Engine::Sqlite);
    original::copy_to(&place);
    let mut reader = open(&place, Mode::Read).unwrap();
    assert_eq!((reader.newest_event().unwrap(), reader.events(None, 10).unwrap()), (None, vec![]));
    let mut queue = place.queue();
    assert_eq!(queue.events(None, 10).unwrap(), []);
    let id = queue.submit_task(&task()).unwrap();
    let events = queue.events(None, 10).unwrap();
    assert_eq!(events.iter().map(|event| &event.run_id).collect::<Vec<_>>(), [&id]);
}

#[test]
fn an_event_outlives_its_run_and_even_its_fact() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut store = store(&place);
        store.write(&submit("r")).unwrap();
        store.write(&claim("r", None, "w", "f")).unwrap();
        place.raw().run("DELETE FROM status_transitions; DELETE FROM schedule_runs");
        store.write(&submit("next")).unwrap();
        let mut follower = Follower::new(&place);
        follower.until(3);
        let order = [("r", "-", "queued"), ("r", "-", "-"), ("next", "-", "queued")];
        assert_eq!(follower.steps(), order);
        assert_eq!(follower.seen[1].transition_id.as_deref(), Some("f"));
    }
}

#[test]
fn a_number_is_never_given_again_and_who_missed_removed_events_is_told() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut queue = place.queue();
        let mut store = store(&place);
        for (number, id) in ["a", "b", "c"].into_iter().enumerate() {
            let at = 1_000.0 + number as f64;
            store.write(&ops::Submit { at, ..submit(id) }).unwrap();
        }
        let mut follower = Follower::new(&place);
        let ids: Vec<EventId> = follower.until(3).iter().map(|event| event.id).collect();
        assert_eq!(queue.remove_events(1_002.0).unwrap(), 2);
        assert_eq!(queue.remove_events(1_002.0).unwrap(), 0);
        // Whoever has seen them goes on, and whoever begins gets what is kept.
        for after in [None, Some(ids[1])] {
            let events = queue.events(after, 10).unwrap();
            assert_eq!(events.iter().map(|event| event.id).collect::<Vec<_>>(), ids[2..]);
        }
        let error = queue.events(Some(ids[0]), 10).unwrap_err();
        let removed = CursorRefusal::Removed { after: ids[0], removed: ids[1] };
        assert!(matches!(&error, Error::Cursor(refusal) if *refusal == removed), "{error}");
        assert_eq!(error.code(), "cursor_removed");
        // The newest stays, so that its place is not given again.
        assert_eq!(queue.remove_events(f64::MAX).unwrap(), 0);
        assert_eq!(queue.events(Some(ids[1]), 10).unwrap().len(), 1);
        if engine == Engine::Sqlite {
            let error = place.raw().try_run("DELETE FROM leasehold_events").unwrap_err();
            assert!(error.to_string().contains("the newest event stays"), "{error}");
        }
        store.write(&submit("d")).unwrap();
        follower.until(4);
        assert!(follower.seen[3].id > ids[2]);
        assert_eq!(follower.steps()[3], ("d", "-", "queued"));
    }
}

#[test]
fn many_events_are_removed_a_few_hundred_at_a_time() {
    for engine in engines() {
        let place = Place::new(engine);
        drop(place.queue());
        let rows: Vec<String> = (0..1_300).map(|n| inserted_run(&format!("r{n}"))).collect();
        place.raw().run(&rows.join(";"));
        Follower::new(&place).until(1_300);
        assert_eq!(place.queue().remove_events(2.0).unwrap(), 1_299, "{engine:?}");
        let kept = place.queue().events(None, 10).unwrap();
        assert_eq!(kept.iter().map(|event| event.run_id.as_str()).collect::<Vec<_>>(), ["r1299"]);
    }
}

#[test]
fn a_cursor_that_this_store_never_gave_is_refused() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut queue = place.queue();
        queue.submit_task(&task()).unwrap();
        let mut follower = Follower::new(&place);
        let newest = follower.until(1)[0].id;
        let of_the_other_engine = match engine {
            Engine::Sqlite => EventId { stamp: 700, ..newest },
            Engine::Postgres => EventId { stamp: 0, ..newest },
        };
        // As of a store that was put back to an older state.
        let later = match engine {
            Engine::Sqlite => EventId { number: newest.number + 1, ..newest },
            Engine::Postgres => EventId { stamp: newest.stamp + 1_000_000_000, ..newest },
        };
        for after in [of_the_other_engine, later] {
            let error = queue.events(Some(after), 10).unwrap_err();
            assert_eq!(error.code(), "cursor_unknown", "{error}");
            assert!(error.to_string().contains(&after.to_string()), "{error}");
        }
    }
}

/// A dump that is restored on another server brings stamps that are ahead of that server's ids.
#[test]
fn a_store_that_was_restored_on_a_younger_server_goes_on_behind_its_old_events() {
    for engine in engines().into_iter().filter(|engine| *engine == Engine::Postgres) {
        let place = Place::new(engine);
        store(&place).write(&submit("a")).unwrap();
        Follower::new(&place).until(1);
        place.raw().run("UPDATE leasehold_events SET stamp = stamp + 1000000000");
        let newest = one(
            &mut place.raw(),
            "SELECT stamp::text || ' ' || number AS value FROM leasehold_events",
        );
        let (stamp, number) = newest.split_once(' ').unwrap();
        let newest = EventId { stamp: stamp.parse().unwrap(), number: number.parse().unwrap() };
        // Whoever had seen the old one goes on after it.
        store(&place).write(&submit("b")).unwrap();
        let mut follower = Follower::new(&place);
        follower.after = Some(newest);
        follower.until(1);
        assert_eq!(follower.steps(), [("b", "-", "queued")]);
        let mut all = Follower::new(&place);
        all.until(2);
        assert_eq!(all.steps(), [("a", "-", "queued"), ("b", "-", "queued")]);
        // Once: the next who opens the store leaves it alone.
        let offset = "SELECT leasehold_event_offset()::text AS value";
        let before = one(&mut place.raw(), offset);
        store(&place).write(&submit("c")).unwrap();
        assert_eq!(one(&mut place.raw(), offset), before);
        follower.until(2);
    }
}
