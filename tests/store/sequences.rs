//! Any sequence of operations against an oracle in memory: each answer, each row and each history is what the rules say,
//! and in the end the ledger finds nothing.

mod after;
mod oracle;

use std::collections::HashSet;

use leasehold::db::ops::{
    AttemptEnd, Cancel, Cancelled, ChangeStatus, Claim, ClaimOutcome, ClaimPage, Counted, Depart,
    DuePage, ExpiredPage, FindRun, History, ListPauses, Loss, PageStart, Paused, ReadyClasses,
    ReadyPage, Reap, Rejected, RemoveEvents, Renew, Resume, StorePause, Submit, SubmitTasks,
    Submitted, TakeOver, Verify, Wake, Way,
};
use leasehold::db::{Operation, Query, Store};
use leasehold::domain::capability::CapabilityClasses;
use leasehold::domain::claim_plan::{Offer, in_queue_order};
use leasehold::domain::contract::Unmet;
use leasehold::domain::dispatch::DispatchStatus;
use leasehold::domain::ending::{EndedBy, Ending, Execution, Usage};
use leasehold::domain::notice::Notify;
use leasehold::domain::pause::{Pause, Scope};
use leasehold::domain::payload::IdempotencyKey;
use leasehold::domain::reason::{Reason, ReasonCode};
use leasehold::domain::retry::RetryPolicy;
use leasehold::domain::run::RunEpoch;
use leasehold::domain::settings::{RunSettings, When};
use leasehold::domain::status::Status;
use leasehold::domain::task::TaskSpec;
use leasehold::domain::transition::{Guard, Outcome, Patch, Principal, Transition};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config as Cases, TestCaseError, TestRunner};

use self::after::Sent;
use self::oracle::{BACKOFF, Leaving, MOST_EXPIRIES, MOST_SENDS, Oracle, Task, agrees};
use crate::kit::{self, task};
use crate::places::{Engine, NOW, Place, engines};

/// How long a lease lasts.
const TTL: f64 = 10.0;

/// A task as somebody submits it.
#[derive(Debug, Clone)]
struct Wish {
    key: Option<u8>,
    payload: u8,
    after: Option<u8>,
    expires: Option<u8>,
    priority: i32,
    exclusive: bool,
    max_failures: u32,
    tells_within: Option<u8>,
}

#[derive(Debug, Clone)]
enum Step {
    Submit(Wish),
    SubmitMany(Vec<Wish>, bool),
    Pass(u8),
    Claim(Chosen, u8),
    Claimed(Chosen, Seen, Leaving, u32),
    Renew(u8, u8),
    TakeOver(Chosen, u8, u8, Seen),
    Cancel(Chosen),
    Reap,
    WhatIsDue,
    Change { run: Chosen, from: Option<Status>, to: Status, epoch: Option<Seen> },
    Pause(usize),
    Resume(usize),
    Advance(Chosen, Seen, i32),
    TakeNotice(Index, Seen, u8),
    SettleNotice(Index, Seen, Sent),
    ResendNotice(Index),
    ChangeNotice(Index, DispatchStatus),
    Retry(Chosen),
    Prune(u32, bool),
    RemoveEvents(u8),
    Sleep(u8),
    Reopen,
}

/// What is paused; the last two hold nothing, since all tasks are agents for the host.
fn scope(number: usize) -> Scope {
    let kind = |name| Scope::kind(name).unwrap();
    let target = |name| Scope::target(name).unwrap();
    [Scope::Queue, kind("agent"), target("host"), kind("flow"), target("daytona")][number].clone()
}

/// Which run: mostly one that the step is meant for, so that a sequence gets somewhere.
#[derive(Debug, Clone)]
struct Chosen {
    among: Index,
    any: bool,
}

/// Whether whoever acts has seen the newest epoch.
#[derive(Debug, Clone, Copy)]
enum Seen {
    Now,
    Before,
}

impl Seen {
    fn of(self, number: i32) -> i32 {
        match self {
            Seen::Now => number,
            Seen::Before => number - 1,
        }
    }

    fn epoch(self, of: &Task) -> i32 {
        self.of(of.epoch)
    }
}

fn wish() -> impl Strategy<Value = Wish> {
    let moment = || prop::option::weighted(0.2, 0..20_u8);
    let wish = (
        prop::option::weighted(0.3, 0..4_u8),
        0..2_u8,
        moment(),
        moment(),
        -1..2_i32,
        prop::bool::weighted(0.2),
        0..6_u32,
        prop::option::of(0..60_u8),
    );
    wish.prop_map(
        |(key, payload, after, expires, priority, exclusive, max_failures, tells_within)| Wish {
            key,
            payload,
            after,
            expires,
            priority,
            exclusive,
            max_failures,
            tells_within,
        },
    )
}

fn steps() -> impl Strategy<Value = Step> {
    let seen = || prop_oneof![9 => Just(Seen::Now), 1 => Just(Seen::Before)];
    let leaving = prop_oneof![
        1 => Just(Leaving::Ended(0)),
        8 => Just(Leaving::Ended(7)),
        1 => Just(Leaving::Ended(-9)),
        2 => Just(Leaving::Unmet),
        1 => Just(Leaving::Cancelled),
        1 => Just(Leaving::TimedOut),
        2 => Just(Leaving::Back),
        6 => Just(Leaving::GuardianLost),
    ];
    // Only `Claim` makes a run that has an owner, and only an end makes one that waits for a moment.
    let to: Vec<_> = Status::ALL
        .into_iter()
        .filter(|to| ![Status::Running, Status::RetryWait].contains(to))
        .collect();
    let sent = prop_oneof![
        1 => Just(Sent::Well),
        2 => Just(Sent::ToTryAgain),
        1 => Just(Sent::ToNobody),
    ];
    let exit_code = prop_oneof![3 => Just(0), 1 => Just(7)];
    let run = || {
        (any::<Index>(), prop::bool::weighted(0.15)).prop_map(|(among, any)| Chosen { among, any })
    };
    prop_oneof![
        3 => wish().prop_map(Step::Submit),
        1 => (prop::collection::vec(wish(), 0..4), any::<bool>())
            .prop_map(|(wishes, atomic)| Step::SubmitMany(wishes, atomic)),
        10 => (0..3_u8).prop_map(Step::Pass),
        2 => (run(), 0..3_u8).prop_map(|(run, worker)| Step::Claim(run, worker)),
        10 => (run(), seen(), leaving, any::<u32>())
            .prop_map(|(run, seen, way, fraction)| Step::Claimed(run, seen, way, fraction)),
        2 => (0..3_u8, 2..20_u8).prop_map(|(by, seconds)| Step::Renew(by, seconds)),
        2 => (run(), 0..3_u8, 0..3_u8, seen())
            .prop_map(|(run, from, to, seen)| Step::TakeOver(run, from, to, seen)),
        1 => run().prop_map(Step::Cancel),
        4 => Just(Step::Reap),
        4 => Just(Step::WhatIsDue),
        2 => (run(), prop::option::of(select(Status::ALL.to_vec())), select(to), prop::option::of(seen()))
            .prop_map(|(run, from, to, epoch)| Step::Change { run, from, to, epoch }),
        1 => (0..5_usize).prop_map(Step::Pause),
        4 => (0..5_usize).prop_map(Step::Resume),
        6 => (run(), seen(), exit_code).prop_map(|(run, seen, code)| Step::Advance(run, seen, code)),
        3 => (any::<Index>(), seen(), 0..3_u8)
            .prop_map(|(among, seen, by)| Step::TakeNotice(among, seen, by)),
        3 => (any::<Index>(), seen(), sent)
            .prop_map(|(among, seen, sent)| Step::SettleNotice(among, seen, sent)),
        1 => any::<Index>().prop_map(Step::ResendNotice),
        1 => (any::<Index>(), select(DispatchStatus::ALL.to_vec()))
            .prop_map(|(among, to)| Step::ChangeNotice(among, to)),
        1 => run().prop_map(Step::Retry),
        1 => (any::<u32>(), any::<bool>())
            .prop_map(|(chosen, with_facts)| Step::Prune(chosen, with_facts)),
        1 => (0..40_u8).prop_map(Step::RemoveEvents),
        4 => (1..12_u8).prop_map(Step::Sleep),
        1 => Just(Step::Reopen),
    ]
}

fn worker(number: u8) -> String {
    format!("here:{number:08x}")
}

struct Bench {
    place: Place,
    store: Store,
    oracle: Oracle,
    /// Of a worker that can serve everything.
    offer: Offer,
    /// The order of submits.
    ids: Vec<String>,
    made: u32,
    facts: u32,
}

type Checked = Result<(), TestCaseError>;

impl Bench {
    fn new(engine: Engine) -> Bench {
        let place = Place::new(engine);
        let store = kit::store(&place);
        if engine == Engine::Sqlite {
            // What a power cut would do is for others to test.
            place.raw().run("PRAGMA synchronous = OFF");
        }
        let oracle = Oracle { now: NOW, ..Oracle::default() };
        let tokens = ["gpu-exclusive".to_owned()];
        let offer = Offer::new(&tokens, &[], CapabilityClasses::default());
        Bench { place, store, oracle, offer, ids: Vec::new(), made: 0, facts: 0 }
    }

    fn write<O: Operation>(&mut self, operation: &O) -> O::Output {
        self.store.write(operation).unwrap()
    }

    fn read<Q: Query>(&mut self, query: &Q) -> Q::Output {
        self.store.read(query).unwrap()
    }

    /// An id of a fact whose last digits are these.
    fn fact_id(&mut self, last: u32) -> String {
        self.facts += 1;
        format!("{:024x}{last:08x}", self.facts)
    }

    fn new_id(&mut self) -> String {
        self.made += 1;
        format!("run-{:04}", self.made)
    }

    /// One of the runs in this status, if there is one.
    fn some(&self, run: &Chosen, status: Status) -> Option<String> {
        self.some_that(run, |of| of == status)
    }

    fn some_that(&self, run: &Chosen, is_meant: impl Fn(Status) -> bool) -> Option<String> {
        let meant = |id: &&String| run.any || is_meant(self.oracle.tasks[*id].status);
        let meant: Vec<_> = self.ids.iter().filter(meant).collect();
        let ids = if meant.is_empty() { self.ids.iter().collect() } else { meant };
        (!ids.is_empty()).then(|| (*run.among.get(&ids)).clone())
    }

    fn step(&mut self, step: &Step) -> Checked {
        match step {
            Step::Submit(wish) => self.submit(wish),
            Step::SubmitMany(wishes, atomic) => self.submit_many(wishes, *atomic),
            Step::Pass(by) => self.pass(*by),
            Step::Claim(run, by) => match self.some(run, Status::Queued) {
                Some(id) => self.claim(&id, *by),
                None => Ok(()),
            },
            Step::Claimed(run, seen, way, fraction) => match self.some(run, Status::Running) {
                Some(id) => self.depart(&id, *seen, *way, *fraction),
                None => Ok(()),
            },
            Step::Renew(by, seconds) => self.renew(*by, f64::from(*seconds)),
            Step::TakeOver(run, from, to, seen) => match self.some(run, Status::Running) {
                Some(id) => self.take_over(&id, worker(*from), worker(*to), *seen),
                None => Ok(()),
            },
            Step::Cancel(run) => match self.some(run, Status::Running) {
                Some(id) => self.cancel(&id),
                None => Ok(()),
            },
            Step::Reap => self.reap(),
            Step::WhatIsDue => self.wake(),
            Step::Change { run, from, to, epoch } => {
                match self.some(run, Status::WaitingDependency) {
                    Some(id) => self.change(&id, *from, *to, *epoch),
                    None => Ok(()),
                }
            }
            Step::Pause(number) => self.pause(*number),
            Step::Resume(number) => {
                let lifted = self.write(&Resume { scope: scope(*number) });
                let since = self.oracle.pauses.remove(&scope(*number));
                prop_assert_eq!(lifted.map(|pause| pause.since), since);
                Ok(())
            }
            Step::Advance(run, seen, exit_code) => match self.some(run, Status::Running) {
                Some(id) => self.advance(&id, *seen, *exit_code),
                None => Ok(()),
            },
            Step::TakeNotice(among, seen, by) => self.take_notice(among, *seen, *by),
            Step::SettleNotice(among, seen, sent) => self.settle_notice(among, *seen, *sent),
            Step::ResendNotice(among) => self.resend_notice(among),
            Step::ChangeNotice(among, to) => self.change_notice(among, *to),
            Step::Retry(run) => match self.some_that(run, Status::is_terminal) {
                Some(id) => self.retry(&id),
                None => Ok(()),
            },
            Step::Prune(chosen, with_facts) => self.prune(*chosen, *with_facts),
            Step::RemoveEvents(age) => {
                // Each run keeps the events from some moment on, which is for the ledger to see.
                let before = self.oracle.now - f64::from(*age);
                self.write(&RemoveEvents { before });
                Ok(())
            }
            Step::Sleep(seconds) => {
                self.oracle.now += f64::from(*seconds);
                Ok(())
            }
            Step::Reopen => {
                self.store = kit::store(&self.place);
                Ok(())
            }
        }
    }

    /// What is asked of the store, and what the oracle makes of it: the payload under its key, and the task.
    fn asked(&mut self, wish: &Wish) -> (Submit, Option<(String, u8)>, Task) {
        let Wish { key, payload, after, expires, priority, exclusive, max_failures, tells_within } =
            wish;
        let now = self.oracle.now;
        let mut app = task();
        app.args.insert("action_prompt".into(), format!("prompt {payload}").into());
        if *exclusive {
            app.required_capabilities.push("gpu-exclusive".into());
        }
        let mut spec = TaskSpec::check(&app, &kit::rules()).unwrap();
        // Settings are part of what makes two tasks the same, so one with a key has those of its payload.
        let max_failures = if key.is_some() { u32::from(*payload) } else { *max_failures };
        let tells_within =
            tells_within.filter(|_| key.is_none()).map(|within| 1.0 + f64::from(within));
        let key = key.map(|key| format!("key-{key}"));
        spec.idempotency_key = key.as_ref().map(|key| IdempotencyKey::check(key).unwrap());
        let retry = (max_failures > 0).then(|| RetryPolicy {
            max_failures,
            base: BACKOFF / 4.0,
            cap: BACKOFF,
            ..RetryPolicy::default()
        });
        let when = When {
            not_before: after.map(|seconds| now + f64::from(seconds)),
            expires: expires.map(|seconds| now + f64::from(seconds)),
            priority: *priority,
        };
        let concurrency_key = spec.concurrency_key.clone();
        let notify = tells_within.map(|within| Notify {
            attempts: MOST_SENDS as u32,
            within: Some(within),
            ..Notify::to("https://example.com/hook")
        });
        let id = self.new_id();
        let settings = RunSettings { retry, when, notify, ..RunSettings::default() };
        let fact_id = self.fact_id(0);
        let submit = Submit { spec, settings, stdin: None, id: id.clone(), at: now, fact_id };
        // With exclusive tasks a payload is another one.
        let payload = payload + if *exclusive { 100 } else { 0 };
        let mut task = Task {
            key: concurrency_key,
            wake_at: when.not_before.filter(|moment| *moment > now),
            expires_at: when.expires,
            max_failures,
            tells_within,
            ..Task::queued_at(now - 60.0 * f64::from(*priority))
        };
        if task.wake_at.is_some() {
            task.go(Status::WaitingDependency, "run.waiting_dependency.not_before", now);
        }
        (submit, key.map(|key| (key, payload)), task)
    }

    fn submit(&mut self, wish: &Wish) -> Checked {
        let (submit, key, task) = self.asked(wish);
        let expected = self.oracle.submit(&submit.id, key, task);
        prop_assert_eq!(&self.write(&submit), &expected);
        if expected == Submitted::New {
            self.ids.push(submit.id);
        }
        Ok(())
    }

    /// All of them, or none when they are to go together and the key of one is taken.
    fn submit_many(&mut self, wishes: &[Wish], atomic: bool) -> Checked {
        let mut after = self.oracle.clone();
        let (mut submits, mut expected) = (Vec::new(), Vec::new());
        for wish in wishes {
            let (submit, key, task) = self.asked(wish);
            expected.push(after.submit(&submit.id, key, task));
            submits.push(submit);
        }
        let ids: Vec<_> = submits.iter().map(|submit| submit.id.clone()).collect();
        prop_assert_eq!(&self.write(&SubmitTasks { submits, atomic }), &expected);
        let is_taken = |submitted: &Submitted| matches!(submitted, Submitted::Taken(_));
        if atomic && expected.iter().any(is_taken) {
            return Ok(());
        }
        self.oracle = after;
        let new = ids.into_iter().zip(expected).filter(|(_, said)| *said == Submitted::New);
        self.ids.extend(new.map(|(id, _)| id));
        Ok(())
    }

    fn pause(&mut self, number: usize) -> Checked {
        let (scope, now) = (scope(number), self.oracle.now);
        let pause = Pause::new(scope.clone(), now, Principal::operator("ada"), None).unwrap();
        let said = self.write(&StorePause(pause));
        let before = self.oracle.pauses.get(&scope).copied();
        let said = match said {
            Paused::Now => None,
            Paused::Before(pause) => Some(pause.since),
        };
        prop_assert_eq!(said, before);
        self.oracle.pauses.entry(scope).or_insert(now);
        Ok(())
    }

    /// Reads the queue and claims its head.
    fn pass(&mut self, by: u8) -> Checked {
        let mut pauses = self.read(&ListPauses).into_iter().map(|pause| pause.scope).collect();
        let mut by_class = Vec::new();
        for class in self.read(&ReadyClasses::default()) {
            if class.is_claimable(&self.offer, &HashSet::new(), &pauses) {
                by_class.extend(self.read(&ReadyPage { class, after: None }));
            }
        }
        in_queue_order(&mut by_class);
        let mut seen = Vec::new();
        let mut start = Some(PageStart::head());
        while let Some(page_start) = start {
            let page = ClaimPage { start: page_start, pauses };
            let rows = self.read(&page);
            start = page.start.next(&rows);
            seen.extend(rows.into_iter().map(|run| run.id));
            pauses = page.pauses;
        }
        prop_assert_eq!(&seen, &self.oracle.queue());
        let by_class: Vec<_> = by_class.into_iter().map(|run| run.id).collect();
        prop_assert_eq!(&by_class, &seen);
        match seen.first() {
            Some(id) => self.claim(&id.clone(), by),
            None => Ok(()),
        }
    }

    fn claim(&mut self, id: &str, by: u8) -> Checked {
        let now = self.oracle.now;
        let key = self.oracle.tasks[id].key.clone();
        let claim = Claim {
            run_id: id.into(),
            concurrency_key: key.clone(),
            worker_id: worker(by),
            lease_expires_at: (now + TTL).into(),
            at: now,
            fact_id: self.fact_id(0),
        };
        let said = self.write(&claim);
        let (busy, held) = (self.oracle.is_busy(key.as_ref()), self.oracle.is_held());
        let Some(task) = self.oracle.tasks.get_mut(id) else { return Ok(()) };
        let expected = match task.status {
            _ if busy => ClaimOutcome::Busy,
            Status::Queued if held => ClaimOutcome::Held,
            Status::Queued => {
                task.go(Status::Running, "run.started.ok", now);
                task.epoch += 1;
                (task.owner, task.lease) = (Some(worker(by)), Some(now + TTL));
                ClaimOutcome::Won { epoch: task.epoch }
            }
            _ => ClaimOutcome::Lost,
        };
        prop_assert_eq!(said, expected);
        Ok(())
    }

    fn depart(&mut self, id: &str, seen: Seen, way: Leaving, last: u32) -> Checked {
        let now = self.oracle.now;
        let task = &self.oracle.tasks[id];
        let epoch = seen.epoch(task);
        let execution = |exit_code| Execution { exit_code, detail: String::new() };
        let depart = Depart {
            run: RunEpoch { run_id: id.into(), epoch },
            owner: task.owner.clone().unwrap_or_else(|| worker(0)),
            way: match way {
                Leaving::Ended(code) => Way::Ended(Ending::from(execution(code))),
                Leaving::Unmet => Way::Ended(Ending::unmet(&Unmet {
                    why: "there is no report".into(),
                    detail: String::new(),
                })),
                Leaving::Cancelled => Way::Cancelled,
                Leaving::TimedOut => Way::TimedOut { timeout: Some(1.0) },
                Leaving::Back => Way::Back(Reason::new(ReasonCode::SHUTDOWN, "a test says so")),
                Leaving::GuardianLost => Way::Lost { loss: Loss::Guardian, max: MOST_EXPIRIES },
            },
            attempt: Some(AttemptEnd {
                ended_by: EndedBy::Task,
                exit_code: 0,
                usage: Usage::default(),
            }),
            at: now,
            fact_id: self.fact_id(last),
        };
        let said = self.write(&depart);
        let Some(task) = self.oracle.tasks.get_mut(id) else { return Ok(()) };
        let is_its = task.status == Status::Running && epoch == task.epoch;
        if is_its {
            task.depart(way, f64::from(last) / f64::from(u32::MAX), now);
            task.attempts.push(epoch);
        }
        prop_assert_eq!(said, is_its.then_some(task.status));
        Ok(())
    }

    fn renew(&mut self, by: u8, seconds: f64) -> Checked {
        let new = self.oracle.now + seconds;
        let runs = self.oracle.tasks.iter();
        let runs: Vec<_> =
            runs.map(|(id, task)| RunEpoch { run_id: id.clone(), epoch: task.epoch }).collect();
        let renew = Renew { owner: worker(by), runs, lease_expires_at: new.into() };
        let said = self.write(&renew);
        for (id, task) in &mut self.oracle.tasks {
            let is_its = task.status == Status::Running && task.owner == Some(worker(by));
            let run = RunEpoch { run_id: id.clone(), epoch: task.epoch };
            prop_assert_eq!(said.contains(&run), is_its);
            if is_its {
                task.lease = task.lease.map(|lease| lease.max(new));
            }
        }
        Ok(())
    }

    fn take_over(&mut self, id: &str, from: String, to: String, seen: Seen) -> Checked {
        let now = self.oracle.now;
        let epoch = seen.epoch(&self.oracle.tasks[id]);
        let take_over = TakeOver {
            run: RunEpoch { run_id: id.into(), epoch },
            from: from.clone(),
            to: to.clone(),
            now: Some(now.into()),
            lease_expires_at: (now + TTL).into(),
        };
        let said = self.write(&take_over);
        let Some(task) = self.oracle.tasks.get_mut(id) else { return Ok(()) };
        let lasts = task.lease.is_some_and(|lease| lease > now);
        let is_its = task.status == Status::Running && task.owner == Some(from);
        let taken = is_its && lasts && epoch == task.epoch;
        prop_assert_eq!(said, taken);
        if taken {
            task.owner = Some(to);
            task.lease = task.lease.map(|lease| lease.max(now + TTL));
        }
        Ok(())
    }

    fn cancel(&mut self, id: &str) -> Checked {
        let (now, fact_id) = (self.oracle.now, self.fact_id(0));
        let cancel = Cancel::new(id, Principal::operator("test"), now, fact_id).unwrap();
        let said = self.write(&cancel);
        let Some(task) = self.oracle.tasks.get_mut(id) else { return Ok(()) };
        let expected = match task.status {
            Status::Running => {
                task.cancel_requested = true;
                Cancelled::Requested
            }
            status if status.is_terminal() => Cancelled::TooLate(status),
            _ => {
                task.go(Status::Cancelled, "run.cancelled.orchestrator", now);
                let is_this = matches!(&said, Cancelled::Yes { transition_id, .. } if *transition_id == cancel.fact_id);
                prop_assert!(is_this, "{:?}", said);
                return Ok(());
            }
        };
        prop_assert_eq!(said, expected);
        Ok(())
    }

    fn reap(&mut self) -> Checked {
        let now = self.oracle.now;
        let page = self.read(&ExpiredPage { now: now.into(), after: None });
        let mut ids: Vec<_> = page.iter().map(|lease| lease.run_id.clone()).collect();
        ids.sort();
        prop_assert_eq!(ids, self.oracle.expired());
        for seen in page {
            let id = seen.run_id.clone();
            let fact_id = self.fact_id(0);
            let counted = Counted::Expiries;
            let reap = Reap { seen, counted, max_attempts: MOST_EXPIRIES, at: now, fact_id };
            let said = self.write(&reap);
            let Some(task) = self.oracle.tasks.get_mut(&id) else { continue };
            task.lose("run.queued.lease_expired", now);
            prop_assert_eq!(said, Some(task.status));
        }
        Ok(())
    }

    fn wake(&mut self) -> Checked {
        let now = self.oracle.now;
        let mut said = std::collections::BTreeMap::new();
        for (run_id, due) in self.read(&DuePage { now: now.into() }) {
            let fact_id = self.fact_id(0);
            let wake = Wake { run_id: run_id.clone(), due, at: now, fact_id };
            if let Some(status) = self.write(&wake) {
                said.insert(run_id, status);
            }
        }
        prop_assert_eq!(said, self.oracle.wake());
        Ok(())
    }

    fn change(
        &mut self,
        id: &str,
        from: Option<Status>,
        to: Status,
        epoch: Option<Seen>,
    ) -> Checked {
        let now = self.oracle.now;
        let epoch = epoch.map(|seen| seen.epoch(&self.oracle.tasks[id]));
        let code = ReasonCode::CANCELLED_ORCHESTRATOR;
        let change = ChangeStatus {
            transition: Transition {
                id: id.into(),
                from: from.map(|status| status.as_str().into()),
                to,
                reason: Reason::new(code, "because a test says so"),
                principal: Principal::operator("test"),
                guard: Guard { lease_attempts: epoch, ..Guard::default() },
                patch: Patch::default(),
                idempotency_key: None,
            },
            exit: None,
            key: IdempotencyKey::check(&self.fact_id(0)).ok(),
            asks_event: true,
            at: now,
            fact_id: self.fact_id(0),
        };
        let said = self.write(&change);
        // Repeated under its key it has the same answer, and nothing is written.
        let again = ChangeStatus { fact_id: self.fact_id(0), ..change };
        prop_assert_eq!(&self.write(&again), &said);
        let Some(task) = self.oracle.tasks.get_mut(id) else { return Ok(()) };
        let found = task.status;
        match said {
            Ok(Outcome::Applied { previous, current, .. }) => {
                prop_assert_eq!((previous, current), (found, to));
                prop_assert!(from.is_none_or(|from| from == found));
                prop_assert!(epoch.is_none_or(|epoch| epoch == task.epoch));
                prop_assert!(found.may_become(to));
                task.go(to, code.as_str(), now);
            }
            Ok(Outcome::Conflict { found: said }) => {
                prop_assert_eq!(said, found);
                let is_another = from.is_some_and(|from| from != found);
                prop_assert!(is_another || epoch.is_some_and(|epoch| epoch != task.epoch));
            }
            Err(Rejected::Refused(_)) => prop_assert!(!found.may_become(to)),
            Err(rejected) => prop_assert!(false, "{}: {:?}", id, rejected),
        }
        Ok(())
    }

    /// What is stored is what the oracle has.
    fn compare(&mut self) -> Checked {
        for id in self.ids.clone() {
            let row = self.read(&FindRun { run_id: id.clone() });
            let Some(row) = row else {
                return Err(TestCaseError::fail(format!("{id} is not stored")));
            };
            agrees(&self.oracle.tasks[&id], &row).map_err(TestCaseError::fail)?;
        }
        Ok(())
    }

    /// Histories, and whether the ledger is content.
    fn close(&mut self) -> Checked {
        for id in self.ids.clone() {
            let facts = self.read(&History { run_id: id.clone() });
            let codes: Vec<_> = facts.iter().map(|fact| fact.reason_code.as_str()).collect();
            prop_assert_eq!(&codes, &self.oracle.tasks[&id].facts, "{}", id);
        }
        for (id, left) in self.oracle.removed.clone() {
            prop_assert_eq!(self.read(&FindRun { run_id: id.clone() }), None);
            let facts = self.read(&History { run_id: id });
            let codes: Vec<_> = facts.iter().map(|fact| fact.reason_code.as_str()).collect();
            prop_assert_eq!(codes, left);
        }
        self.compare_beside()?;
        let verify = Verify { most_expiries: MOST_EXPIRIES, is_complete: true };
        let verified = self.read(&verify);
        prop_assert_eq!(&verified.faults, &[]);
        prop_assert_eq!(verified.runs, self.ids.len());
        Ok(())
    }
}

fn holds(engine: Engine, steps: &[Step]) -> Checked {
    let mut bench = Bench::new(engine);
    for step in steps {
        bench.step(step)?;
        bench.compare()?;
    }
    bench.close()
}

fn check(engine: Engine, cases: u32) {
    let cases = Cases { cases, failure_persistence: None, ..Cases::default() };
    let sequences = prop::collection::vec(steps(), 1..120);
    let result = TestRunner::new(cases).run(&sequences, |steps| holds(engine, &steps));
    result.unwrap_or_else(|error| panic!("{engine:?}: {error}"));
}

#[test]
fn any_sequence_of_operations_leaves_what_the_rules_say_sqlite() {
    check(Engine::Sqlite, 60);
}

#[test]
fn any_sequence_of_operations_leaves_what_the_rules_say_postgres() {
    if engines().contains(&Engine::Postgres) {
        check(Engine::Postgres, 20);
    }
}
