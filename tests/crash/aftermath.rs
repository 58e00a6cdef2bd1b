//! What must be true of a store and of this machine whatever has crashed.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use leasehold::domain::status::Status;

use crate::bench::{self, Bench, until};
use crate::machine;

/// Runs a test on all engines at once, and looks at what it has left when its workers are gone.
pub(crate) fn on_engines(test: impl Fn(&Bench) + Sync) {
    bench::on_engines(|bench| {
        test(bench);
        assert_settled(bench);
    });
}

/// The same, on SQLite only.
pub(crate) fn on_sqlite(test: impl Fn(&Bench) + Sync) {
    bench::on_sqlite(|bench| {
        test(bench);
        assert_settled(bench);
    });
}

/// Nothing of the bench's runs is left in this machine, and the ledger is consistent.
#[track_caller]
pub(crate) fn assert_settled(bench: &Bench) {
    assert_owned(bench);
    assert_ledger(bench);
    until_none_is_left(bench);
}

/// A process of a task: whose it is, and which attempt of it.
#[derive(Debug, Clone)]
pub(crate) struct TaskProcess {
    pub(crate) pid: u32,
    pub(crate) run_id: String,
    pub(crate) epoch: i32,
}

/// Every living process of the bench's tasks, in whatever session, found by the environment that it was started with.
pub(crate) fn task_processes(bench: &Bench) -> Vec<TaskProcess> {
    let home = format!("HOME={}", bench.place.dir.path().display());
    let of_task = |pid| {
        let environment = machine::environment(pid);
        let of = |name: &str| environment.iter().find_map(|entry| entry.strip_prefix(name));
        environment.contains(&home).then_some(())?;
        let run_id = of("LEASEHOLD_RUN_ID=")?.to_owned();
        let epoch = of("LEASEHOLD_EPOCH=")?.parse().ok()?;
        machine::is_alive(pid).then_some(TaskProcess { pid, run_id, epoch })
    };
    machine::all().filter_map(of_task).collect()
}

/// The guardians of the bench's runs: who holds the lock of a run's directory.
pub(crate) fn guardians(bench: &Bench) -> Vec<u32> {
    let place = bench.place.dir.path().to_str().unwrap();
    let holds = |pid: &u32| {
        machine::open(*pid)
            .iter()
            .any(|file| file.starts_with(place) && file.contains("/guard.lock"))
    };
    let guards = |pid: &u32| machine::words(*pid).get(1).is_some_and(|verb| verb == "__guard");
    let there: Vec<u32> = machine::all().filter(guards).filter(holds).collect();
    // Until it has become its program, the process of a task looks like the guardian that has forked it.
    let is_task = |pid: u32| machine::parent(pid).is_some_and(|parent| there.contains(&parent));
    there.iter().copied().filter(|pid| !is_task(*pid)).collect()
}

/// Waits until no task and no guardian of the bench is left.
#[track_caller]
pub(crate) fn until_none_is_left(bench: &Bench) {
    until(|| {
        let (tasks, guardians) = (task_processes(bench), guardians(bench));
        if tasks.is_empty() && guardians.is_empty() {
            return Ok(());
        }
        // A look is not cheap where there are many processes.
        std::thread::sleep(Duration::from_millis(50));
        Err(format!("{guardians:?} guard, {tasks:?}"))
    });
}

/// No process lives whose run does not run in its attempt.
#[track_caller]
pub(crate) fn assert_owned(bench: &Bench) {
    // In this order: an attempt that is over for its row never comes back.
    let runs: HashMap<_, _> = bench.runs().into_iter().map(|run| (run.id.clone(), run)).collect();
    let owned = |process: &TaskProcess| {
        runs.get(&process.run_id).is_none_or(|run| {
            process.epoch > run.lease_attempts
                || process.epoch == run.lease_attempts && run.status == "running"
        })
    };
    let strays: Vec<_> =
        task_processes(bench).into_iter().filter(|process| !owned(process)).collect();
    let rows: Vec<_> = strays.iter().map(|stray| &runs[&stray.run_id]).collect();
    let words: Vec<_> = strays.iter().map(|stray| machine::words(stray.pid)).collect();
    assert!(strays.is_empty(), "nobody owns {strays:?} {words:?}: {rows:?}");
}

/// A run as the ledger has it.
#[derive(Debug, Default)]
struct Ledger {
    status: String,
    attempts: usize,
    has_owner: bool,
    has_expiry: bool,
    has_ended: bool,
    /// How often it has gone from one status to another.
    steps: BTreeMap<(String, String), usize>,
}

/// The facts of each run are one path along declared edges from `queued` to its status; each claim counts one attempt;
/// a run has an owner and an expiry if it runs, and an end if it is over.
#[track_caller]
pub(crate) fn assert_ledger(bench: &Bench) {
    // One statement: whatever is written meanwhile is in it or not.
    let rows = bench.texts(
        "SELECT run.id || ' ' || run.status || ' ' || run.lease_attempts
             || CASE WHEN run.leased_by IS NULL THEN ' -' ELSE ' owner' END
             || CASE WHEN run.lease_expires_at IS NULL THEN ' -' ELSE ' expiry' END
             || CASE WHEN run.ended_at IS NULL THEN ' -' ELSE ' end' END
             || COALESCE(' ' || fact.previous_status || ' ' || fact.status, '') AS value
         FROM schedule_runs run LEFT JOIN status_transitions fact ON fact.entity_id = run.id",
    );
    let mut runs: BTreeMap<String, Ledger> = BTreeMap::new();
    for row in rows {
        let words: Vec<&str> = row.split(' ').collect();
        let run = runs.entry(words[0].to_owned()).or_default();
        run.status = words[1].to_owned();
        run.attempts = words[2].parse().unwrap();
        run.has_owner = words[3] == "owner";
        run.has_expiry = words[4] == "expiry";
        run.has_ended = words[5] == "end";
        if let [from, to] = words[6..] {
            *run.steps.entry((from.to_owned(), to.to_owned())).or_default() += 1;
        }
    }
    for (id, run) in &runs {
        if let Err(wrong) = run.check() {
            panic!("{id}: {wrong}: {run:?} {:?}", bench.steps(id));
        }
    }
}

impl Ledger {
    fn check(&self) -> Result<(), &'static str> {
        let holds = |holds: bool, wrong| if holds { Ok(()) } else { Err(wrong) };
        // How much more often a status was left than reached.
        let mut balance: BTreeMap<&str, isize> = BTreeMap::new();
        for ((from, to), times) in &self.steps {
            let declared = Status::parse(from)
                .zip(Status::parse(to))
                .is_some_and(|(from, to)| from.may_become(to));
            holds(declared, "a step along no edge")?;
            *balance.entry(from).or_default() += times.cast_signed();
            *balance.entry(to).or_default() -= times.cast_signed();
        }
        // Every edge touches `queued` or leads there, so what is balanced is one path.
        *balance.entry("queued").or_default() -= 1;
        *balance.entry(&self.status).or_default() += 1;
        holds(balance.values().all(|more| *more == 0), "facts that are no path to its status")?;
        let claims = self.steps.get(&("queued".into(), "running".into()));
        holds(claims.copied().unwrap_or(0) == self.attempts, "attempts that are not its claims")?;
        let status = Status::parse(&self.status).ok_or("no status")?;
        if status == Status::Running {
            holds(self.has_owner && self.has_expiry, "running without an owner or an expiry")?;
        }
        if status == Status::Queued {
            holds(!self.has_owner && !self.has_expiry, "queued with an owner or an expiry")?;
        }
        holds(self.has_ended == status.is_terminal(), "an end that is none, or none")
    }
}

#[test]
fn what_is_no_path_is_seen() {
    let ledger = |status: &str, attempts, steps: &[(&str, &str, usize)]| Ledger {
        status: status.into(),
        attempts,
        has_owner: status != "queued",
        has_expiry: status != "queued",
        has_ended: status != "queued" && status != "running",
        steps: steps.iter().map(|(from, to, n)| ((from.to_string(), to.to_string()), *n)).collect(),
    };
    let (claim, back) = (("queued", "running", 2), ("running", "queued", 1));
    let end = ("running", "failed", 1);
    assert_eq!(ledger("queued", 0, &[]).check(), Ok(()));
    assert_eq!(ledger("failed", 2, &[claim, back, end]).check(), Ok(()));
    assert_eq!(ledger("running", 2, &[claim, back]).check(), Ok(()));
    for wrong in [
        ledger("completed", 2, &[claim, back, end]),
        ledger("failed", 1, &[claim, back, end]),
        ledger("failed", 2, &[claim, end]),
        ledger("failed", 2, &[claim, back, ("running", "failed", 2)]),
        ledger("queued", 1, &[("queued", "running", 1)]),
        ledger("queued", 1, &[("queued", "running", 1), ("failed", "queued", 1), end]),
        Ledger { has_owner: false, ..ledger("running", 2, &[claim, back]) },
        Ledger { has_ended: false, ..ledger("failed", 2, &[claim, back, end]) },
    ] {
        assert!(wrong.check().is_err(), "{wrong:?}");
    }
}
