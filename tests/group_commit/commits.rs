//! The connection is lost during COMMIT: what is stored decides, and nobody is told "done" of what is not.

use leasehold::config::Config;
use leasehold::db::ops::{ChangeStatus, Claim, ClaimOutcome, Renew, Submit};
use leasehold::db::{Operation, StoreError};
use leasehold::domain::reason::{Reason, ReasonCode};
use leasehold::domain::settings::RunSettings;
use leasehold::domain::status::Status;
use leasehold::domain::task::{TaskApplication, TaskSpec};
use leasehold::domain::transition::{Guard, Outcome, Patch, Principal, Transition};

use crate::operation::{Deed, Op, Said};
use crate::places::{Engine, engines};
use crate::proxy::{Cut, Proxy};
use crate::support::{Answer, Batch, Bench, PATIENCE, all_done, in_one_go, open};

/// A store on the far side of a proxy.
fn bench() -> Option<(Bench, Proxy)> {
    if !engines().contains(&Engine::Postgres) {
        return None;
    }
    let mut bench = Bench::new(Engine::Postgres);
    let proxy = Proxy::to(&bench.place.url);
    bench.store = open(&proxy.url);
    Some((bench, proxy))
}

fn five(name: &str) -> Vec<Op> {
    (0..5).map(|i| Op::write(format!("{name}-{i}"))).collect()
}

fn unknown<T>(answer: &Answer<T>) -> bool {
    matches!(answer, Err(StoreError::OutcomeUnknown { .. }))
}

#[test]
fn after_the_server_has_done_it_everybody_hears_so() {
    let Some((mut bench, proxy)) = bench() else { return };
    for count in [5, 1] {
        proxy.cut(Cut::After);
        let answers = bench.run(&five(&format!("after-{count}"))[..count]);
        assert!(proxy.has_cut());
        assert!(all_done(&answers), "{answers:?}");
    }
    bench.assert_works("after");
}

#[test]
fn before_the_server_hears_of_it_nobody_is_told_that_it_is_done() {
    let Some((mut bench, proxy)) = bench() else { return };
    for count in [5, 1] {
        let answers = in_one_go(|round| {
            proxy.cut(Cut::Before);
            bench.run_whole(&five(&format!("before-{count}-{round}"))[..count])
        });
        assert!(proxy.has_cut());
        assert!(answers.iter().all(unknown), "{answers:?}");
    }
    bench.assert_works("after");
}

#[test]
fn a_single_write_is_settled_in_the_same_way() {
    let Some((mut bench, proxy)) = bench() else { return };
    proxy.cut(Cut::After);
    let answer = bench.store.write(&Op::write("stored"));
    assert!(matches!(answer, Ok(Said::Done)), "{answer:?}");
    proxy.cut(Cut::Before);
    assert!(unknown(&bench.store.write(&Op::write("lost"))));
    assert_eq!(bench.stored().into_iter().collect::<Vec<_>>(), ["stored"]);
}

#[test]
fn without_evidence_it_is_unknown() {
    let Some((mut bench, proxy)) = bench() else { return };
    let mut ops = five("silent");
    ops.iter_mut().for_each(|op| op.has_evidence = false);
    for cut in [Cut::After, Cut::Before] {
        let answers = in_one_go(|_| {
            bench.beside.run("DELETE FROM status_transitions");
            proxy.cut(cut);
            Batch::of(&ops, PATIENCE).finish_whole(&mut bench.store)
        });
        assert!(answers.iter().all(unknown), "{answers:?}");
        assert_eq!(bench.stored().len(), if cut == Cut::After { 5 } else { 0 });
    }
}

#[test]
fn a_server_that_is_gone_for_good_leaves_it_unknown() {
    let Some((mut bench, proxy)) = bench() else { return };
    let answers = in_one_go(|round| {
        proxy.cut(Cut::AfterForGood);
        let batch = Batch::of(&five(&format!("gone-{round}")), PATIENCE);
        batch.finish_whole(&mut bench.store)
    });
    assert!(answers.iter().all(unknown), "{answers:?}");
    let answer = bench.store.write(&Op::write("meanwhile"));
    assert!(matches!(answer, Err(StoreError::Unreachable { .. })), "{answer:?}");
    proxy.cut(Cut::No);
    bench.assert_works("after");
}

#[test]
fn one_jobs_evidence_speaks_for_those_that_have_none() {
    let Some((mut bench, proxy)) = bench() else { return };
    for position in 0..5 {
        let answers = in_one_go(|round| {
            let mut ops = five(&format!("one-{position}-{round}"));
            for (i, op) in ops.iter_mut().enumerate() {
                op.has_evidence = i == position;
            }
            proxy.cut(Cut::After);
            bench.run_whole(&ops)
        });
        assert!(all_done(&answers), "at {position}: {answers:?}");
    }
}

#[test]
fn jobs_that_the_batch_did_not_reach_are_done_afterwards() {
    let Some((mut bench, proxy)) = bench() else { return };
    for cut in [Cut::After, Cut::Before] {
        let mut ops = five(&format!("{cut:?}"));
        ops[0].deed = Deed::Sleep(70);
        proxy.cut(cut);
        let answers = bench.run(&ops);
        assert!(proxy.has_cut());
        let (reached, left) = answers.split_at(1);
        let expected =
            if cut == Cut::After { all_done(reached) } else { reached.iter().all(unknown) };
        assert!(expected, "{cut:?}: {reached:?}");
        assert!(all_done(left), "{cut:?}: {left:?}");
    }
}

fn submit(id: &str) -> Submit {
    let spec =
        TaskSpec::check(&TaskApplication::new("agent", "host"), &Config::default().submit_rules());
    Submit {
        spec: spec.unwrap(),
        settings: RunSettings::default(),
        stdin: None,
        id: id.into(),
        at: 1.0,
        fact_id: format!("{id} waits"),
    }
}

fn claim(id: &str, worker: &str) -> Claim {
    Claim {
        run_id: id.into(),
        concurrency_key: None,
        worker_id: worker.into(),
        lease_expires_at: 1e9.into(),
        at: 2.0,
        fact_id: format!("{id} claimed by {worker}"),
    }
}

fn complete(id: &str) -> ChangeStatus {
    let transition = Transition {
        id: id.into(),
        from: Some(Status::Running.as_str().into()),
        to: Status::Completed,
        reason: Reason::new(ReasonCode::COMPLETED, "done"),
        principal: Principal::system("test"),
        guard: Guard::default(),
        patch: Patch::default(),
        idempotency_key: None,
    };
    ChangeStatus {
        transition,
        exit: None,
        key: None,
        asks_event: false,
        at: 3.0,
        fact_id: format!("{id} completed"),
    }
}

fn add<O>(batch: &mut Batch<String>, op: O)
where
    O: Operation + Send + 'static,
    O::Output: std::fmt::Debug + Send,
{
    batch.add_as(op, PATIENCE, |output| format!("{output:?}"));
}

fn is_there(bench: &mut Bench, table: &str, id: &str) -> bool {
    let sql = format!("SELECT id AS value FROM {table} WHERE id = '{id}'");
    !bench.beside.texts(&sql).is_empty()
}

#[test]
fn a_claim_that_was_lost_is_no_sign_that_its_batch_was() {
    let Some((mut bench, proxy)) = bench() else { return };
    bench.store.write(&submit("a")).unwrap();
    bench.store.write(&claim("a", "first")).unwrap();
    let (answers, id) = in_one_go(|round| {
        let mut batch = Batch::new();
        add(&mut batch, claim("a", "second"));
        let (owner, lease_expires_at) = ("first".into(), 2e9.into());
        add(&mut batch, Renew { owner, runs: Vec::new(), lease_expires_at });
        let id = format!("b{round}");
        add(&mut batch, submit(&id));
        proxy.cut(Cut::After);
        Some((batch.finish_whole(&mut bench.store)?, id))
    });
    let texts: Vec<&str> = answers.iter().map(|answer| answer.as_deref().unwrap()).collect();
    assert_eq!(texts, [&*format!("{:?}", ClaimOutcome::Lost), "{}", "New"]);
    assert!(is_there(&mut bench, "schedule_runs", &id));
    assert!(!is_there(&mut bench, "status_transitions", "a claimed by second"));
}

/// An ending whose answer was lost is sent again under the same fact id. Its fact from the first time says nothing
/// about the batch of the second.
#[test]
fn a_fact_of_an_earlier_try_is_no_sign_that_a_batch_is_stored() {
    let Some((mut bench, proxy)) = bench() else { return };
    for (id, neighbour) in [("a", "b"), ("x", "y")] {
        bench.store.write(&submit(id)).unwrap();
        bench.store.write(&claim(id, "w")).unwrap();
        let applied = bench.store.write(&complete(id)).unwrap();
        assert!(matches!(applied, Ok(Outcome::Applied { .. })), "{applied:?}");
        let answers = in_one_go(|_| {
            let mut batch = Batch::new();
            add(&mut batch, complete(id));
            add(&mut batch, submit(neighbour));
            proxy.cut(Cut::Before);
            batch.finish_whole(&mut bench.store)
        });
        assert!(answers.iter().all(unknown), "{answers:?}");
        assert!(!is_there(&mut bench, "schedule_runs", neighbour));
    }
}
