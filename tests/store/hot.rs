//! The hot operations, each as a test runs it, and the indexes that its statements must use.

use leasehold::db::{Moment, ops};
use leasehold::domain::dispatch::DispatchStatus;
use leasehold::domain::ending::{EndedBy, Execution, Usage};
use leasehold::domain::event::EventId;
use leasehold::domain::notice::{Backoff, Failed, Notify};
use leasehold::domain::pause::{Pause, Pauses, Scope};
use leasehold::domain::payload::IdempotencyKey;
use leasehold::domain::reason::{Reason, ReasonCode};
use leasehold::domain::run::RunEpoch;
use leasehold::domain::status::Status;
use leasehold::domain::transition::Principal;

use crate::kit::{Watched, change, claim, submit, submit_requiring, until};

pub const RUNS_KEY: &str = "the key of schedule_runs";
/// What this project keeps beside a run.
pub const BESIDE_KEY: &str = "the key of leasehold_runs";
pub const WORKERS_KEY: &str = "the key of workers";
/// The steps of workflows.
pub const STEPS: &str = "the key of leasehold_steps";
pub const FACTS_KEY: &str = "the key of status_transitions";
pub const EVENTS_KEY: &str = "the key of leasehold_events";
/// What keys of requests stand for.
pub const REQUESTS_KEY: &str = "the key of leasehold_transition_keys";
const QUEUE: &str = "leasehold_queue";
const READY: &str = "leasehold_ready";
const LEASES: &str = "leasehold_leases";
const WAKES: &str = "leasehold_wakes";
const EXPIRIES: &str = "leasehold_expiries";
const LISTING: &str = "leasehold_listing";
pub const OUTBOX_KEY: &str = "the key of dispatch_outbox";
const NOTICES_DUE: &str = "leasehold_notices_due";
const NOTICES: &str = "leasehold_notices";

pub struct Hot {
    pub name: &'static str,
    /// The index of each statement in order; a statement that only inserts has none.
    pub indexes: &'static [&'static str],
    /// Runs it on rows of its own, whose ids begin with the given text.
    pub run: fn(&mut Watched, &str),
}

/// Three pages: without a time, the first with one, a later one.
fn pages(on: &mut Watched, tag: &str, pauses: &Pauses) {
    let later = ops::PageStart::After(1_000.0, id(tag, 4));
    for start in [ops::PageStart::head(), ops::PageStart::Timed, later] {
        on.read(&ops::ClaimPage { start, pauses: pauses.clone() });
    }
}

pub const ALL: [Hot; 31] = [
    Hot {
        name: "submit",
        indexes: &[],
        run: |on, tag| drop(on.write(&submit_requiring(&id(tag, 1), &["gpu-exclusive"]))),
    },
    Hot {
        name: "claim with a key",
        indexes: &["leasehold_busy_keys", RUNS_KEY],
        run: |on, tag| {
            let key = format!("{tag}:gpu-exclusive");
            let won = on.write(&claim(&id(tag, 1), Some(&key), "w", &id(tag, 90)));
            assert_eq!(won, ops::ClaimOutcome::Won { epoch: 1 });
        },
    },
    Hot {
        name: "submit and claim without a key",
        indexes: &[RUNS_KEY],
        run: |on, tag| {
            on.write(&submit(&id(tag, 2)));
            let won = on.write(&claim(&id(tag, 2), None, "w", &id(tag, 91)));
            assert_eq!(won, ops::ClaimOutcome::Won { epoch: 1 });
        },
    },
    Hot {
        name: "end under owner and expiry, failed",
        indexes: &[RUNS_KEY, BESIDE_KEY],
        run: |on, tag| {
            let mut end = change(&id(tag, 1), Some(Status::Running), Status::Failed, &id(tag, 92));
            end.transition.guard.leased_by = Some("w".into());
            end.transition.guard.lease_expires_at = Some(2_000.0);
            end.exit = Some(ops::Exit { code: 1, error_detail: Some("no".into()) });
            assert!(on.write(&end).unwrap().is_applied());
        },
    },
    Hot {
        name: "end under owner and epoch, completed",
        indexes: &[RUNS_KEY, BESIDE_KEY],
        run: |on, tag| {
            let to = Status::Completed;
            let mut end = change(&id(tag, 2), Some(Status::Running), to, &id(tag, 93));
            end.transition.guard.leased_by = Some("w".into());
            end.transition.guard.lease_attempts = Some(1);
            end.exit = Some(ops::Exit { code: 0, error_detail: None });
            assert!(on.write(&end).unwrap().is_applied());
        },
    },
    Hot {
        name: "change from whatever there is",
        indexes: &[RUNS_KEY, RUNS_KEY, BESIDE_KEY],
        run: |on, tag| {
            on.write(&submit(&id(tag, 3)));
            let cancel = change(&id(tag, 3), None, Status::Cancelled, &id(tag, 94));
            assert!(on.write(&cancel).unwrap().is_applied());
        },
    },
    Hot {
        name: "reap",
        indexes: &[RUNS_KEY, BESIDE_KEY, RUNS_KEY],
        run: |on, tag| {
            on.write(&submit(&id(tag, 4)));
            on.write(&claim(&id(tag, 4), None, "w", &id(tag, 95)));
            let reap = ops::Reap {
                counted: ops::Counted::Attempts,
                seen: expired(&id(tag, 4)),
                max_attempts: 3,
                at: 3_000.0,
                fact_id: id(tag, 96),
            };
            assert!(on.write(&reap).is_some());
        },
    },
    Hot {
        name: "read what a run starts with, and requested cancels",
        indexes: &[BESIDE_KEY, BESIDE_KEY],
        run: |on, tag| {
            on.read(&ops::FindSettings { run_id: id(tag, 5) });
            on.read(&ops::CancelRequests { run_ids: vec![id(tag, 5)] });
        },
    },
    Hot {
        name: "renew, by either clock",
        indexes: &[RUNS_KEY, RUNS_KEY, RUNS_KEY],
        run: |on, tag| {
            on.write(&submit(&id(tag, 5)));
            on.write(&claim(&id(tag, 5), None, "w", &id(tag, 80)));
            for lease_expires_at in [Moment::At(3_000.0), Moment::FromNow(30.0)] {
                let runs = vec![epoch(&id(tag, 5))];
                let renew = ops::Renew { owner: "w".into(), runs, lease_expires_at };
                assert_eq!(on.write(&renew).len(), 1);
            }
        },
    },
    Hot {
        name: "end a run that has ended by itself",
        indexes: &[RUNS_KEY, BESIDE_KEY],
        run: |on, tag| {
            let way = ops::Way::Ended(Execution::OK.into());
            let (ended_by, usage) = (EndedBy::Task, Usage::default());
            let attempt = ops::AttemptEnd { ended_by, exit_code: 0, usage };
            let end = depart(&id(tag, 5), way, Some(attempt), id(tag, 81));
            assert_eq!(on.write(&end), Some(Status::Completed));
        },
    },
    Hot {
        name: "give a run back",
        indexes: &[RUNS_KEY, BESIDE_KEY, RUNS_KEY],
        run: |on, tag| {
            on.write(&submit(&id(tag, 6)));
            on.write(&claim(&id(tag, 6), None, "w", &id(tag, 82)));
            let way = ops::Way::Back(Reason::new(ReasonCode::SHUTDOWN, ""));
            let back = depart(&id(tag, 6), way, None, id(tag, 83));
            assert_eq!(on.write(&back), Some(Status::Queued));
        },
    },
    Hot {
        name: "what the queue waits for, the first page of a class, and a later one",
        indexes: &[READY, READY, READY],
        run: |on, tag| {
            on.write(&submit(&id(tag, 98)));
            let classes = on.read(&ops::ReadyClasses::default());
            let class = classes[0].clone();
            on.read(&ops::ReadyPage { class: class.clone(), after: None });
            on.read(&ops::ReadyPage { class, after: Some((1_000.0, id(tag, 4))) });
        },
    },
    Hot {
        name: "pages of the contract: without a time, the first with one, a later one",
        indexes: &[QUEUE, QUEUE, QUEUE],
        run: |on, tag| pages(on, tag, &Pauses::default()),
    },
    Hot {
        name: "the same while two kinds and a target are paused",
        indexes: &[QUEUE, QUEUE, QUEUE],
        run: |on, tag| {
            let scopes = [Scope::kind("flow"), Scope::kind("play"), Scope::target("daytona")];
            let pauses: Pauses = scopes.into_iter().map(Result::unwrap).collect();
            pages(on, tag, &pauses);
        },
    },
    Hot {
        name: "what is paused, and a claim of a run that is held",
        indexes: &[RUNS_KEY, RUNS_KEY],
        run: |on, tag| {
            let flows = Scope::kind("flow").unwrap();
            let pause = Pause::new(flows, 1.0, Principal::operator("test"), None).unwrap();
            on.write(&ops::StorePause(pause));
            let mut flow = submit(&id(tag, 9));
            flow.spec.action_kind = "flow".into();
            on.write(&flow);
            // To pause and to submit is not what is looked at here.
            on.take();
            on.read(&ops::ListPauses);
            let held = on.write(&claim(&id(tag, 9), None, "w", &id(tag, 86)));
            assert_eq!(held, ops::ClaimOutcome::Held);
        },
    },
    Hot {
        name: "end a run that has failed by itself",
        indexes: &[
            RUNS_KEY, STEPS, RUNS_KEY, RUNS_KEY, BESIDE_KEY, BESIDE_KEY, RUNS_KEY, BESIDE_KEY,
        ],
        run: |on, tag| {
            on.write(&submit(&id(tag, 7)));
            on.write(&claim(&id(tag, 7), None, "w", &id(tag, 84)));
            let failed = Execution { exit_code: 1, detail: String::new() };
            let end = depart(&id(tag, 7), ops::Way::Ended(failed.into()), None, id(tag, 85));
            assert_eq!(on.write(&end), Some(Status::Failed));
        },
    },
    Hot {
        name: "the steps of a workflow",
        indexes: &[STEPS],
        run: |on, tag| drop(on.read(&ops::Steps { run_id: id(tag, 7) })),
    },
    Hot {
        name: "busy keys",
        indexes: &["leasehold_busy_keys"],
        run: |on, _| drop(on.read(&ops::BusyKeys)),
    },
    Hot {
        name: "write a heartbeat and read it",
        indexes: &[WORKERS_KEY],
        run: |on, tag| {
            let worker_id = id(tag, 1);
            let beat = ops::Heartbeat {
                worker_id,
                capabilities: vec![],
                targets: vec![],
                kinds: Some(vec!["agent".into()]),
                at: 1.0,
            };
            on.write(&beat);
            on.read(&ops::LastHeartbeat { worker_id: beat.worker_id });
        },
    },
    Hot {
        name: "pages of expired leases, by either clock",
        indexes: &[LEASES, LEASES, LEASES, LEASES],
        run: |on, tag| {
            for now in [Moment::At(5_000.0), Moment::FromNow(0.0)] {
                for after in [None, Some(expired(&id(tag, 4)))] {
                    on.read(&ops::ExpiredPage { now, after });
                }
            }
        },
    },
    Hot {
        name: "what is due, by either clock, and when the next is",
        indexes: &[WAKES, EXPIRIES, WAKES, EXPIRIES, WAKES, EXPIRIES],
        run: |on, _| {
            for now in [Moment::At(5_000.0), Moment::FromNow(0.0)] {
                on.read(&ops::DuePage { now });
            }
            on.read(&ops::NextDue);
        },
    },
    Hot {
        name: "find a run",
        indexes: &[RUNS_KEY],
        run: |on, tag| assert!(on.read(&ops::FindRun { run_id: id(tag, 1) }).is_some()),
    },
    Hot {
        name: "what was made from a run",
        indexes: &["leasehold_children"],
        run: |on, tag| assert!(on.read(&ops::Children { run_id: id(tag, 1) }).is_empty()),
    },
    Hot {
        name: "history",
        indexes: &["idx_status_transitions_entity"],
        run: |on, tag| assert_eq!(on.read(&ops::History { run_id: id(tag, 1) }).len(), 2),
    },
    Hot {
        name: "a change under a key, and its repetition",
        indexes: &[
            RUNS_KEY,
            REQUESTS_KEY,
            RUNS_KEY,
            BESIDE_KEY,
            EVENTS_KEY,
            RUNS_KEY,
            REQUESTS_KEY,
        ],
        run: |on, tag| {
            let from = Some(Status::Queued);
            let mut keyed = change(&id(tag, 6), from, Status::Cancelled, &id(tag, 77));
            keyed.key = Some(IdempotencyKey::check("k").unwrap());
            let first = on.write_whole(&keyed);
            keyed.fact_id = id(tag, 78);
            assert_eq!(on.write_whole(&keyed), first);
        },
    },
    Hot {
        name: "events after one, and facts of them",
        indexes: &[EVENTS_KEY, FACTS_KEY, EVENTS_KEY],
        run: |on, _| {
            let mut cancel = ops::Events { after: None, limit: 1 };
            // A transaction of anybody on the server may hold it back.
            until("a change can be read", || {
                let Some(newest) = on.read(&ops::NewestEvent) else { return false };
                cancel.after = Some(EventId { number: newest.number - 1, ..newest });
                on.read(&cancel).unwrap()[0].transition_id.is_some()
            });
            on.forget_ran();
            assert_eq!(on.read(&cancel).unwrap().len(), 1);
            assert!(on.read(&ops::Events { after: None, limit: 1 }).unwrap()[0].status.is_some());
        },
    },
    Hot {
        name: "the newest event",
        indexes: &[EVENTS_KEY],
        run: |on, _| assert!(on.read(&ops::NewestEvent).is_some()),
    },
    Hot {
        name: "listings of all, of one status, of two",
        indexes: &[LISTING, LISTING, LISTING],
        run: |on, _| {
            for statuses in [vec![], vec![Status::Failed], vec![Status::Failed, Status::Queued]] {
                on.read(&ops::ListRuns { statuses, limit: 50 });
            }
        },
    },
    Hot {
        name: "leave a notice, take it, write down how it went",
        indexes: &[
            RUNS_KEY, BESIDE_KEY, RUNS_KEY, OUTBOX_KEY, OUTBOX_KEY, OUTBOX_KEY, OUTBOX_KEY,
            OUTBOX_KEY, OUTBOX_KEY, OUTBOX_KEY,
        ],
        run: |on, tag| {
            let mut told = submit(&id(tag, 8));
            told.settings.notify = Some(Notify::to("https://example.com/hook"));
            on.write(&told);
            let queued = Some(Status::Queued);
            let end = change(&id(tag, 8), queued, Status::Cancelled, &id(tag, 70));
            assert!(on.write(&end).unwrap().is_applied());
            for (attempt, result) in [(0, Err(Failed::again("no"))), (1, Ok(()))] {
                let take = ops::TakeNotice {
                    id: id(tag, 70),
                    from: DispatchStatus::Pending,
                    attempt,
                    worker_id: "w".into(),
                    lease: 1.0,
                    at: 1_003.0,
                    fact_id: id(tag, 71 + 2 * attempt as u32),
                };
                assert!(matches!(on.write(&take), ops::Taken::Won(_)));
                let settle = ops::SettleNotice {
                    id: id(tag, 70),
                    attempt: attempt + 1,
                    worker_id: "w".into(),
                    result,
                    backoff: Backoff::default(),
                    at: 1_004.0,
                    fact_id: id(tag, 72 + 2 * attempt as u32),
                };
                assert!(on.write(&settle).is_some());
            }
        },
    },
    Hot {
        name: "pages of notices that are due, by either clock, and when the next is",
        indexes: &[NOTICES_DUE; 7],
        run: |on, _| {
            on.read(&ops::NextNotice { now: None });
            for now in [Moment::At(5_000.0), Moment::FromNow(0.0)] {
                let last = ops::DueNotice {
                    id: "n".into(),
                    status: "pending".into(),
                    attempt: 0,
                    deliver_to: String::new(),
                    next_attempt_at: 3_000.0,
                };
                for after in [None, Some(last)] {
                    on.read(&ops::DueNotices { now, after });
                }
                on.read(&ops::NextNotice { now: Some(now) });
            }
        },
    },
    Hot {
        name: "a notice, listings of all and of one status",
        indexes: &[OUTBOX_KEY, NOTICES, NOTICES],
        run: |on, tag| {
            assert!(on.read(&ops::FindNotice { id: id(tag, 70) }).is_some());
            for status in [None, Some(DispatchStatus::Delivered)] {
                on.read(&ops::ListNotices { status, limit: 50 });
            }
        },
    },
];

fn id(tag: &str, number: u32) -> String {
    format!("{tag}-{number:02}")
}

fn epoch(run_id: &str) -> RunEpoch {
    RunEpoch { run_id: run_id.into(), epoch: 1 }
}

fn depart(
    run_id: &str,
    way: ops::Way,
    attempt: Option<ops::AttemptEnd>,
    fact_id: String,
) -> ops::Depart {
    ops::Depart { run: epoch(run_id), owner: "w".into(), way, attempt, at: 1_500.0, fact_id }
}

fn expired(run_id: &str) -> ops::ExpiredLease {
    ops::ExpiredLease {
        run_id: run_id.into(),
        lease_expires_at: 2_000.0,
        lease_attempts: 1,
        claimed_at: None,
    }
}
