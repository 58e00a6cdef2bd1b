//! The steps of a workflow: who may write them, and what stays.

use leasehold::db::ops::{AdvanceSteps, StepBegins, Steps};
use leasehold::domain::reason::{Reason, ReasonCode};
use leasehold::domain::run::RunEpoch;
use leasehold::domain::status::Status;
use leasehold::{Queue, db::ops};

use crate::kit::{claim, submit};
use crate::places::{Place, engines};

fn run(epoch: i32) -> RunEpoch {
    RunEpoch { run_id: "r".into(), epoch }
}

fn begins(step: i32) -> Option<StepBegins> {
    Some(StepBegins { step, name: Some(format!("s{step}")), kind: "command".into() })
}

/// Number, epoch, exit code.
fn stored(queue: &mut Queue) -> Vec<(i32, i32, Option<i32>)> {
    let rows = queue.read(&Steps { run_id: "r".into() }).unwrap();
    rows.into_iter().map(|row| (row.step, row.epoch, row.exit_code)).collect()
}

#[test]
fn only_the_attempt_that_runs_notes_steps() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut queue = place.queue();
        let mut store = crate::kit::store(&place);
        let mut advance = |epoch, ended, begins| {
            store.write(&AdvanceSteps { run: run(epoch), ended, begins, at: 5.0 }).unwrap()
        };
        let mut write = crate::kit::store(&place);
        write.write(&submit("r")).unwrap();
        assert!(!advance(0, None, begins(1)), "it is queued");
        write.write(&claim("r", None, "w", "f1")).unwrap();
        assert!(!advance(2, None, begins(1)), "nobody has claimed it so often");
        assert!(advance(1, None, begins(1)));
        assert!(advance(1, Some((1, 0)), begins(2)), "an end and a beginning at once");
        // Said again, as after a lost answer, it changes nothing.
        assert!(advance(1, Some((1, 0)), begins(2)));
        assert_eq!(stored(&mut queue), [(1, 1, Some(0)), (2, 1, None)]);

        // Another owner has the lease, in the same attempt.
        place.raw().run("UPDATE schedule_runs SET leased_by = 'heir'");
        assert!(advance(1, Some((2, 7)), None));
        let back = ops::Depart {
            run: run(1),
            owner: "heir".into(),
            way: ops::Way::Back(Reason::new(ReasonCode::SHUTDOWN, "")),
            attempt: None,
            at: 6.0,
            fact_id: "f2".into(),
        };
        assert_eq!(write.write(&back).unwrap(), Some(Status::Queued));
        assert!(!advance(1, Some((2, 0)), begins(3)), "it is back in the queue");
        write.write(&claim("r", None, "w2", "f3")).unwrap();
        assert!(!advance(1, Some((2, 0)), begins(3)), "another attempt has it");
        assert_eq!(stored(&mut queue), [(1, 1, Some(0)), (2, 1, Some(7))]);
        assert!(advance(2, None, begins(2)));
        assert_eq!(stored(&mut queue), [(1, 1, Some(0)), (2, 2, None)]);

        // Whoever prunes the run prunes its steps.
        place.raw().run("DELETE FROM schedule_runs WHERE id = 'r'");
        assert_eq!(stored(&mut queue), []);
    }
}

#[test]
fn what_adapters_a_worker_has_goes_with_it() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut store = crate::kit::store(&place);
        let beat = |kinds: &[&str]| ops::Heartbeat {
            worker_id: "w".into(),
            capabilities: vec![],
            targets: vec![],
            kinds: Some(kinds.iter().map(|kind| (*kind).to_owned()).collect()),
            at: 1.0,
        };
        store.write(&beat(&["agent"])).unwrap();
        store.write(&beat(&["agent", "own"])).unwrap();
        let all = store.read(&ops::ListAdapters).unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].1.0, r#"["agent", "own"]"#);
        assert_eq!(store.write(&ops::ForgetWorkers { unseen_since: 2.0 }).unwrap(), 1);
        assert_eq!(store.read(&ops::ListAdapters).unwrap(), []);
    }
}
