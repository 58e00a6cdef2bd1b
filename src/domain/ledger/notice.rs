//! Whether what a store says of a notice can be true.

use super::{Answer, Fault};
use crate::domain::dispatch::DispatchStatus;
use crate::domain::status::Status;

/// A notice and its facts, as they are stored, beside the run whose end it tells.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NoticeEntry {
    /// The status.
    pub status: String,
    /// How often it was tried.
    pub attempt: i32,
    /// The status of the run that it tells.
    pub told: Option<String>,
    /// The status that the run has; nothing once it was pruned.
    pub run_status: Option<String>,
    /// From which status to which, in no order.
    pub facts: Vec<(Option<String>, String)>,
    /// What was answered to requests with a key.
    pub answers: Vec<Answer>,
}

/// Everything that is wrong with one notice.
///
/// ```
/// use leasehold::domain::ledger::{NoticeEntry, notice_faults};
/// let mut notice = NoticeEntry { status: "pending".into(), ..NoticeEntry::default() };
/// assert!(notice_faults(&notice).is_empty());
/// notice.run_status = Some("running".into());
/// assert_eq!(notice_faults(&notice)[0].what, "it has a notice of its end, and is running");
/// ```
pub fn notice_faults(notice: &NoticeEntry) -> Vec<Fault> {
    let mut found = Vec::new();
    let mut fault = |what| found.push(Fault { check: "notice", what });
    let Some(status) = DispatchStatus::parse(&notice.status) else {
        fault(format!("the status {:?} of its notice is none", notice.status));
        return found;
    };
    match notice.run_status.as_deref() {
        Some(run) if !Status::parse(run).is_some_and(Status::is_terminal) => {
            fault(format!("it has a notice of its end, and is {run}"));
        }
        Some(run) if notice.told.as_deref() != Some(run) => {
            let told = notice.told.as_deref().unwrap_or("nothing");
            fault(format!("it is {run}, and its notice says {told}"));
        }
        _ => {}
    }
    for (from, to) in &notice.facts {
        let from = from.as_deref().unwrap_or("nothing");
        let edge = DispatchStatus::parse(from).zip(DispatchStatus::parse(to));
        if !edge.is_some_and(|(from, to)| from.may_become(to)) {
            fault(format!("a fact of its notice says {from} -> {to}, which is no edge"));
        }
    }
    if !is_path(notice, status) {
        let facts = notice.facts.len();
        fault(format!("the {facts} facts of its notice are no path from pending to {status}"));
    }
    for what in notice.answers.iter().filter_map(|answer| answer.untrue(&notice.facts)) {
        fault(format!("of its notice, {what}"));
    }
    if status == DispatchStatus::Delivering && notice.attempt < 1 {
        fault("its notice is being sent, and was never tried".into());
    }
    found
}

/// Every status is left as often as it is entered, but for the two ends.
fn is_path(notice: &NoticeEntry, status: DispatchStatus) -> bool {
    DispatchStatus::ALL.into_iter().all(|of| {
        let word = of.as_str();
        let entered = notice.facts.iter().filter(|(_, to)| to == word).count();
        let left = notice.facts.iter().filter(|(from, _)| from.as_deref() == Some(word)).count();
        let (begins, ends) = (of == DispatchStatus::Pending, of == status);
        entered + usize::from(begins) == left + usize::from(ends)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(status: &str, facts: &[(&str, &str)]) -> NoticeEntry {
        NoticeEntry {
            status: status.into(),
            attempt: 1,
            told: Some("failed".into()),
            run_status: Some("failed".into()),
            facts: facts.iter().map(|(from, to)| (Some((*from).into()), (*to).into())).collect(),
            answers: Vec::new(),
        }
    }

    const TAKEN: (&str, &str) = ("pending", "delivering");

    #[test]
    fn what_really_happens_is_sound() {
        let again = ("delivering", "delivering");
        let failed = ("delivering", "pending");
        for (status, facts) in [
            ("pending", vec![]),
            ("delivering", vec![TAKEN, again, again]),
            ("pending", vec![failed, TAKEN]),
            ("delivered", vec![TAKEN, failed, TAKEN, ("delivering", "delivered")]),
            ("expired", vec![("pending", "expired")]),
            ("pending", vec![TAKEN, ("delivering", "dead_letter"), ("dead_letter", "pending")]),
        ] {
            assert_eq!(notice_faults(&notice(status, &facts)), [], "{status}");
        }
        let pruned = NoticeEntry { run_status: None, ..notice("pending", &[]) };
        assert_eq!(notice_faults(&pruned), []);
    }

    #[test]
    fn what_cannot_be_is_found() {
        let running = NoticeEntry { run_status: Some("running".into()), ..notice("pending", &[]) };
        let other = NoticeEntry { told: Some("completed".into()), ..notice("pending", &[]) };
        let untold = NoticeEntry { told: None, ..notice("pending", &[]) };
        let untried = NoticeEntry { attempt: 0, ..notice("delivering", &[TAKEN]) };
        for wrong in [
            running,
            other,
            untold,
            untried,
            notice("asleep", &[]),
            notice("delivered", &[]),
            notice("delivered", &[TAKEN]),
            notice("pending", &[TAKEN]),
            notice("delivering", &[TAKEN, TAKEN]),
        ] {
            assert_eq!(notice_faults(&wrong).len(), 1, "{wrong:?}");
        }
        let answers = |fact| {
            let change = (TAKEN.0.to_owned(), TAKEN.1.to_owned());
            let answers = vec![Answer { key: "k".into(), fact, change }];
            notice_faults(&NoticeEntry { answers, ..notice("delivering", &[TAKEN]) }).len()
        };
        assert_eq!([answers(Some(0)), answers(Some(1)), answers(None)], [0, 1, 1]);
        let edge = notice("delivered", &[("pending", "delivered")]);
        assert_eq!(notice_faults(&edge).len(), 1, "no such edge, though it is a path");
    }
}
