//! Whether what a store says of a run, or of its notice, can be true.

mod notice;
mod steps;

pub use notice::{NoticeEntry, notice_faults};
pub use steps::StepEntry;
use steps::broken_steps;

use super::status::Status;

/// A run and its facts, as they are stored.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Entry {
    /// The status.
    pub status: String,
    /// Whether a schedule has made it: such a run may have begun anywhere.
    pub is_scheduled: bool,
    /// Who has its lease.
    pub owner: Option<String>,
    /// When the lease runs out.
    pub lease_expires_at: Option<f64>,
    /// How often it was claimed.
    pub epoch: i32,
    /// When it ended.
    pub ended_at: Option<f64>,
    /// How often its lease ran out.
    pub expiries: i32,
    /// Whether it is known when it goes back to the queue.
    pub wakes: bool,
    /// The epochs whose end is written down beside the run.
    pub attempts: Vec<i32>,
    /// From which status to which, in no order.
    pub facts: Vec<(Option<String>, String)>,
    /// Its events, in the order of the feed. What was before the feed is not in it, and the oldest may be removed.
    pub events: Vec<Happened>,
    /// What was answered to requests with a key.
    pub answers: Vec<Answer>,
    /// Its steps by number, if it is a workflow.
    pub steps: Vec<StepEntry>,
}

/// What an event says of its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    /// It was inserted, with this status.
    Inserted(String),
    /// The fact at this place in the entry's facts.
    Changed(usize),
    /// A fact that is none of the run's.
    Unknown,
}

/// What was answered to a request with a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The key.
    pub key: String,
    /// The place of its fact in the entry's facts; absent when it is none of them.
    pub fact: Option<usize>,
    /// From which status to which.
    pub change: (String, String),
}

impl Answer {
    /// What is wrong with it beside these facts.
    fn untrue(&self, facts: &[(Option<String>, String)]) -> Option<String> {
        let (from, to) = &self.change;
        let fact = self.fact.and_then(|place| facts.get(place));
        let is_told = fact.is_some_and(|fact| fact.0.as_ref() == Some(from) && fact.1 == *to);
        let key = &self.key;
        (!is_told).then(|| format!("the key {key:?} stands for {from} -> {to}, and no fact does"))
    }
}

/// Which promise is broken, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The name of the check.
    pub check: &'static str,
    /// What is wrong.
    pub what: String,
}

/// Everything that is wrong with one run.
///
/// ```
/// use leasehold::domain::ledger::{Entry, faults};
/// let mut run = Entry { status: "running".into(), ..Entry::default() };
/// assert_eq!(faults(&run, 3).iter().map(|fault| fault.check).collect::<Vec<_>>(), ["path", "lease"]);
/// ```
pub fn faults(run: &Entry, most_expiries: i32) -> Vec<Fault> {
    let Some(status) = Status::parse(&run.status) else {
        let what = format!("its status {:?} is none", run.status);
        return vec![Fault { check: "status", what }];
    };
    let mut found = Vec::new();
    let mut fault = |check, what| found.push(Fault { check, what });
    for (from, to) in &run.facts {
        if let Some(what) = undeclared(from.as_deref(), to) {
            fault("edge", what);
        }
    }
    if let Some(what) = broken_path(run, status) {
        fault("path", what);
    }
    if let Some(what) = broken_feed(run) {
        fault("feed", what);
    }
    for what in run.answers.iter().filter_map(|answer| answer.untrue(&run.facts)) {
        fault("answer", what);
    }
    if let Some(what) = broken_steps(run) {
        fault("steps", what);
    }
    if status == Status::Running && !run.is_scheduled {
        let lasts = run.lease_expires_at.is_some_and(f64::is_finite);
        if run.owner.is_none() || !lasts || run.epoch < 1 {
            let (owner, expiry) = (&run.owner, run.lease_expires_at);
            fault(
                "lease",
                format!("it runs with owner {owner:?}, expiry {expiry:?}, epoch {}", run.epoch),
            );
        }
    }
    // A scheduled run is the original's, which leaves the column empty at times.
    if status.is_terminal()
        && !run.is_scheduled
        && !run.attempts.is_empty()
        && run.ended_at.is_none()
    {
        fault("end", "it has ended at no time".into());
    }
    if status == Status::RetryWait && !run.is_scheduled && !run.attempts.is_empty() && !run.wakes {
        fault("wait", "it waits for its next try, and for no moment".into());
    }
    if run.expiries > most_expiries {
        fault(
            "bound",
            format!("its lease ran out {} times, and {most_expiries} end it", run.expiries),
        );
    }
    if let Some(epoch) = run.attempts.iter().find(|epoch| !(1..=run.epoch).contains(*epoch)) {
        fault(
            "attempt",
            format!("attempt {epoch} has an end, and it was claimed {} times", run.epoch),
        );
    }
    found
}

fn undeclared(from: Option<&str>, to: &str) -> Option<String> {
    let declared = from
        .and_then(Status::parse)
        .zip(Status::parse(to))
        .is_some_and(|(from, to)| from.may_become(to));
    (!declared)
        .then(|| format!("a fact says {} -> {to}, which is no edge", from.unwrap_or("nothing")))
}

/// Neither times nor ids order the facts. They are one path if every status is left as often as it is entered, but for
/// the two ends: all cycles of the graph pass `queued`, so nothing hangs loose.
fn broken_path(run: &Entry, status: Status) -> Option<String> {
    let balance = |of: Status| {
        let entered = run.facts.iter().filter(|(_, to)| to == of.as_str()).count();
        let left =
            run.facts.iter().filter(|(from, _)| from.as_deref() == Some(of.as_str())).count();
        i64::try_from(entered).unwrap_or(i64::MAX) - i64::try_from(left).unwrap_or(i64::MAX)
    };
    let balances = Status::ALL.map(|of| balance(of) - i64::from(of == status));
    // What is left over is where it began.
    let begins: Vec<_> =
        Status::ALL.into_iter().zip(balances).filter(|(_, left)| *left != 0).collect();
    match begins[..] {
        [(Status::Queued, -1)] => None,
        [(_, -1)] if run.is_scheduled => None,
        _ => {
            let facts: Vec<_> = run
                .facts
                .iter()
                .map(|(from, to)| format!("{} -> {to}", from.as_deref().unwrap_or("nothing")))
                .collect();
            let facts = if facts.is_empty() { "none".into() } else { facts.join(", ") };
            Some(format!("its facts are no path from queued to {status}: {facts}"))
        }
    }
}

/// Unlike facts, events have an order: each begins where the one before it has led, and the last has led to where the run
/// is. From the first one on none is missing, and there are as many as there are facts if that is the run's first.
fn broken_feed(run: &Entry) -> Option<String> {
    let mut seen = vec![false; run.facts.len()];
    let mut at: Option<&str> = None;
    for event in &run.events {
        let (from, to) = match event {
            Happened::Unknown => return Some("an event is of a fact that the run has not".into()),
            Happened::Inserted(status) => (None, status),
            Happened::Changed(place) => match run.facts.get(*place).zip(seen.get_mut(*place)) {
                Some((_, is_seen)) if *is_seen => return Some("a fact has two events".into()),
                Some((fact, is_seen)) => {
                    *is_seen = true;
                    (fact.0.as_deref(), &fact.1)
                }
                None => return Some("an event is of a fact that the run has not".into()),
            },
        };
        if let Some(at) = at.filter(|at| Some(*at) != from) {
            let from = from.unwrap_or("nothing");
            return Some(format!("an event {from} -> {to} follows one that has led to {at}"));
        }
        at = Some(to);
    }
    if let Some(at) = at.filter(|at| *at != run.status) {
        return Some(format!("its last event has led to {at}, and it is {}", run.status));
    }
    let missing = seen.iter().filter(|is_seen| !**is_seen).count();
    let is_whole = matches!(run.events.first(), Some(Happened::Inserted(_)));
    (is_whole && missing > 0)
        .then(|| format!("{missing} of its {} facts have no event", seen.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(status: &str, facts: &[(&str, &str)]) -> Entry {
        Entry {
            status: status.into(),
            owner: Some("h:1".into()),
            lease_expires_at: Some(1.0),
            epoch: 3,
            ended_at: Some(2.0),
            attempts: vec![1, 3],
            facts: facts.iter().map(|(from, to)| (Some((*from).into()), (*to).into())).collect(),
            ..Entry::default()
        }
    }

    fn checks(run: &Entry) -> Vec<&'static str> {
        faults(run, 3).into_iter().map(|fault| fault.check).collect()
    }

    #[test]
    fn a_path_in_any_order_is_one() {
        let path = [
            ("running", "completed"),
            ("queued", "running"),
            ("running", "queued"),
            ("queued", "running"),
        ];
        assert_eq!(checks(&run("completed", &path)), [""; 0]);
        assert_eq!(checks(&run("queued", &[])), [""; 0]);
    }

    #[test]
    fn what_is_missing_doubled_or_after_the_end_is_found() {
        let (start, end) = (("queued", "running"), ("running", "failed"));
        assert_eq!(checks(&run("failed", &[end])), ["path"]);
        assert_eq!(checks(&run("failed", &[start])), ["path"]);
        assert_eq!(checks(&run("failed", &[start, end, end])), ["path"]);
        assert_eq!(checks(&run("completed", &[start, end])), ["path"]);
        assert_eq!(checks(&run("queued", &[start, end, ("failed", "queued")])), ["edge"]);
        let unheard = Entry { facts: vec![(None, "queued".into())], ..run("queued", &[]) };
        assert_eq!(checks(&unheard), ["edge", "path"]);
        let elsewhere =
            Entry { is_scheduled: true, ..run("completed", &[("running", "completed")]) };
        assert_eq!(checks(&elsewhere), [""; 0], "a scheduled run may begin as running");
        assert_eq!(checks(&run("asleep", &[])), ["status"]);
    }

    #[test]
    fn events_are_the_facts_in_their_order_from_some_moment_on() {
        use Happened::{Changed, Inserted, Unknown};
        let facts = [("queued", "running"), ("running", "queued"), ("queued", "running")];
        let with = |events: &[Happened]| {
            checks(&Entry { events: events.to_vec(), ..run("running", &facts) })
        };
        let begun = || Inserted("queued".into());
        for right in [
            &[][..],
            &[begun(), Changed(0), Changed(1), Changed(2)],
            &[begun(), Changed(2), Changed(1), Changed(0)],
            &[Changed(1), Changed(2)],
            &[Changed(2)],
        ] {
            assert_eq!(with(right), [""; 0], "{right:?}");
        }
        for wrong in [
            &[begun()][..],
            &[begun(), Changed(0)],
            &[begun(), Changed(0), Changed(1)],
            &[Changed(1)],
            &[begun(), Changed(1), Changed(0), Changed(2)],
            &[begun(), Changed(0), Changed(1), Changed(0)],
            &[Changed(0), begun(), Changed(0)],
            &[begun(), begun(), Changed(0), Changed(1), Changed(2)],
            &[Inserted("running".into()), Changed(1), Changed(2), Changed(0)],
            &[Unknown, Changed(0), Changed(1), Changed(2)],
            &[begun(), Changed(3)],
        ] {
            assert_eq!(with(wrong), ["feed"], "{wrong:?}");
        }
    }

    #[test]
    fn an_answer_to_a_key_is_a_fact() {
        let answer = |fact, from: &str, to: &str| {
            let change = (from.to_owned(), to.to_owned());
            let answers = vec![Answer { key: "k".into(), fact, change }];
            checks(&Entry { answers, ..run("running", &[("queued", "running")]) })
        };
        assert_eq!(answer(Some(0), "queued", "running"), [""; 0]);
        for (fact, from, to) in [
            (None, "queued", "running"),
            (Some(1), "queued", "running"),
            (Some(0), "queued", "cancelled"),
            (Some(0), "running", "running"),
        ] {
            assert_eq!(answer(fact, from, to), ["answer"], "{fact:?} {from} {to}");
        }
    }

    #[test]
    fn leases_bounds_and_attempts_are_looked_at() {
        let start = [("queued", "running")];
        for spoil in [
            |run: &mut Entry| run.owner = None,
            |run: &mut Entry| run.lease_expires_at = None,
            |run: &mut Entry| run.lease_expires_at = Some(f64::INFINITY),
        ] {
            let mut run = run("running", &start);
            spoil(&mut run);
            assert_eq!(checks(&run), ["lease"]);
        }
        assert_eq!(checks(&Entry { expiries: 4, ..run("running", &start) }), ["bound"]);
        assert_eq!(checks(&Entry { attempts: vec![4], ..run("running", &start) }), ["attempt"]);
        let waits = run("retry_wait", &[("queued", "running"), ("running", "retry_wait")]);
        assert_eq!(checks(&waits), ["wait"]);
        assert_eq!(checks(&Entry { wakes: true, ..waits }), [""; 0]);
        let ended = [("queued", "running"), ("running", "completed")];
        assert_eq!(checks(&Entry { ended_at: None, ..run("completed", &ended) }), ["end"]);
    }
}
