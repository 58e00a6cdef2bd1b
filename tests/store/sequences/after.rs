//! What comes after an end, and beside a run: steps of workflows, notices, retries, removal.

use leasehold::db::ops::{
    AdvanceSteps, ChangeDispatch, NoticeOf, Prune, Pruned, Rejected, Resent, Retried, Retry,
    RetryNotice, SettleNotice, SettledNotices, StepBegins, Steps, Submit, Submitted, TakeNotice,
    Taken,
};
use leasehold::domain::dispatch::DispatchStatus;
use leasehold::domain::notice::{Backoff, Failed};
use leasehold::domain::payload::IdempotencyKey;
use leasehold::domain::reason::{Reason, ReasonCode};
use leasehold::domain::run::RunEpoch;
use leasehold::domain::settings::RunSettings;
use leasehold::domain::status::Status;
use leasehold::domain::task::TaskSpec;
use leasehold::domain::transition::{DispatchGuard, DispatchPatch, Outcome, Principal, Transition};
use proptest::prelude::*;
use proptest::sample::Index;

use super::oracle::{MOST_SENDS, STEPS, Task};
use super::{Bench, Checked, Seen, worker};
use crate::kit::{self, task};

/// How an attempt to send a notice goes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sent {
    Well,
    ToTryAgain,
    ToNobody,
}

impl Bench {
    /// What the runner of a workflow writes next: a step has ended, or one begins, or both.
    pub(super) fn advance(&mut self, id: &str, seen: Seen, exit_code: i32) -> Checked {
        let task = &self.oracle.tasks[id];
        let number = task.steps.len();
        let (ends, begins) = match task.steps.last() {
            None => (false, Some(1)),
            Some((begun, None)) if *begun == task.epoch => {
                (true, (exit_code == 0).then_some(number + 1))
            }
            Some((begun, Some(code))) if *begun == task.epoch && *code != 0 => return Ok(()),
            Some((_, Some(0))) => (false, Some(number + 1)),
            Some(_) => (false, Some(number)),
        };
        let begins = begins.filter(|step| *step <= STEPS);
        let whole = |number: usize| i32::try_from(number).unwrap();
        let advance = AdvanceSteps {
            run: RunEpoch { run_id: id.into(), epoch: seen.epoch(task) },
            ended: ends.then(|| (whole(number), exit_code)),
            begins: begins.map(|step| StepBegins {
                step: whole(step),
                name: None,
                kind: "command".into(),
            }),
            at: self.oracle.now,
        };
        let said = self.write(&advance);
        let Some(task) = self.oracle.tasks.get_mut(id) else { return Ok(()) };
        let is_its = task.status == Status::Running && advance.run.epoch == task.epoch;
        prop_assert_eq!(said, is_its);
        if is_its {
            if let Some(last) = task.steps.last_mut().filter(|_| ends) {
                last.1 = Some(exit_code);
            }
            if let Some(step) = begins {
                task.steps.truncate(step - 1);
                task.steps.push((task.epoch, None));
            }
        }
        self.compare_steps(id)
    }

    fn compare_steps(&mut self, id: &str) -> Checked {
        let stored = self.read(&Steps { run_id: id.into() });
        let steps: Vec<_> = stored.iter().map(|step| (step.epoch, step.exit_code)).collect();
        let expected = self.oracle.tasks.get(id).map_or(&[][..], |task| &task.steps);
        prop_assert_eq!(&steps, expected, "the steps of {}", id);
        Ok(())
    }

    /// A run that has left a notice, if there is one, with the notice's id.
    fn some_notice(&mut self, among: &Index) -> Option<(String, String)> {
        let ids = self.oracle.told();
        let run_id = (!ids.is_empty()).then(|| among.get(&ids).clone())?;
        let notice = self.read(&NoticeOf { run_id: run_id.clone() });
        // That there is none is found by the comparison.
        Some((run_id, notice?.id))
    }

    pub(super) fn take_notice(&mut self, among: &Index, seen: Seen, by: u8) -> Checked {
        let Some((run_id, id)) = self.some_notice(among) else { return Ok(()) };
        let (now, fact_id) = (self.oracle.now, self.fact_id(0));
        let Some(notice) = self.oracle.notice(&run_id) else { return Ok(()) };
        let from = match notice.status {
            DispatchStatus::Delivering => DispatchStatus::Delivering,
            _ => DispatchStatus::Pending,
        };
        let attempt = seen.of(notice.attempt);
        let take =
            TakeNotice { id, from, attempt, worker_id: worker(by), lease: 5.0, at: now, fact_id };
        let taken = notice.take(from, attempt, now);
        let expected = (notice.status, notice.attempt);
        match self.write(&take) {
            Taken::Won(sent) => {
                prop_assert!(taken);
                prop_assert_eq!((DispatchStatus::Delivering, sent.attempt), expected);
            }
            Taken::Settled(status) => {
                prop_assert!(taken);
                prop_assert_eq!((status, attempt), expected);
            }
            Taken::Lost => prop_assert!(!taken),
        }
        self.compare_notice(&run_id)
    }

    pub(super) fn settle_notice(&mut self, among: &Index, seen: Seen, sent: Sent) -> Checked {
        let Some((run_id, id)) = self.some_notice(among) else { return Ok(()) };
        let (now, fact_id) = (self.oracle.now, self.fact_id(0));
        let Some(notice) = self.oracle.notice(&run_id) else { return Ok(()) };
        let attempt = seen.of(notice.attempt);
        let result = match sent {
            Sent::Well => Ok(()),
            Sent::ToTryAgain => Err(Failed::again("connection refused")),
            Sent::ToNobody => Err(Failed { is_final: true, ..Failed::again("gone") }),
        };
        let to = match sent {
            Sent::Well => DispatchStatus::Delivered,
            Sent::ToTryAgain if attempt < MOST_SENDS => DispatchStatus::Pending,
            Sent::ToTryAgain | Sent::ToNobody => DispatchStatus::DeadLetter,
        };
        let is_its = notice.status == DispatchStatus::Delivering && attempt == notice.attempt;
        if is_its {
            notice.go(to);
        }
        let settle = SettleNotice {
            id,
            attempt,
            worker_id: worker(0),
            result,
            backoff: Backoff::default(),
            at: now,
            fact_id,
        };
        prop_assert_eq!(self.write(&settle), is_its.then_some(to));
        self.compare_notice(&run_id)
    }

    pub(super) fn resend_notice(&mut self, among: &Index) -> Checked {
        let Some((run_id, id)) = self.some_notice(among) else { return Ok(()) };
        let (at, fact_id) = (self.oracle.now, self.fact_id(0));
        let resend = RetryNotice { id, by: Principal::operator("ada"), at, fact_id };
        let said = self.write(&resend);
        let Some(notice) = self.oracle.notice(&run_id) else { return Ok(()) };
        let expected = match notice.status {
            DispatchStatus::DeadLetter | DispatchStatus::Expired => {
                notice.go(DispatchStatus::Pending);
                (notice.attempt, notice.expires_at) = (0, None);
                Resent::Yes
            }
            status => Resent::NotGivenUp(status),
        };
        prop_assert_eq!(said, expected);
        self.compare_notice(&run_id)
    }

    /// An operator changes a notice, and repeats the request.
    pub(super) fn change_notice(&mut self, among: &Index, to: DispatchStatus) -> Checked {
        let Some((run_id, id)) = self.some_notice(among) else { return Ok(()) };
        let (at, key) = (self.oracle.now, self.fact_id(0));
        let Some(notice) = self.oracle.notice(&run_id) else { return Ok(()) };
        let (found, attempt) = (notice.status, notice.attempt);
        let patch = match to {
            DispatchStatus::Pending => DispatchPatch {
                attempt: Some(0),
                next_attempt_at: Some(at),
                last_error: Some(None),
            },
            DispatchStatus::Delivering => {
                DispatchPatch { attempt: Some(attempt + 1), ..DispatchPatch::default() }
            }
            _ => DispatchPatch::default(),
        };
        // Nobody asked for an acknowledgement.
        let is_possible = found.may_become(to) && to != DispatchStatus::Acked;
        if is_possible {
            notice.go(to);
            notice.attempt = patch.attempt.unwrap_or(attempt);
        }
        let change = ChangeDispatch {
            transition: Transition {
                id,
                from: None,
                to,
                reason: Reason::new(ReasonCode::DISPATCH_BACKOFF, "because a test says so"),
                principal: Principal::operator("ada"),
                guard: DispatchGuard { attempt: Some(attempt), ..DispatchGuard::default() },
                patch,
                idempotency_key: None,
            },
            key: IdempotencyKey::check(&key).ok(),
            at,
            fact_id: self.fact_id(0),
        };
        let said = self.write(&change);
        let again = ChangeDispatch { fact_id: self.fact_id(0), ..change };
        prop_assert_eq!(&self.write(&again), &said);
        match said {
            Ok(Outcome::Applied { previous, current, .. }) => {
                prop_assert!(is_possible);
                prop_assert_eq!((previous, current), (found, to));
            }
            Err(Rejected::Refused(_)) => prop_assert!(!is_possible),
            other => prop_assert!(false, "{}: {:?}", run_id, other),
        }
        self.compare_notice(&run_id)
    }

    fn compare_notice(&mut self, run_id: &str) -> Checked {
        let stored = self.read(&NoticeOf { run_id: run_id.into() });
        let is_pruned = !self.oracle.tasks.contains_key(run_id);
        let expected = self.oracle.notice(run_id);
        let stored = stored.map(|notice| {
            let status = DispatchStatus::parse(&notice.status);
            (status, notice.attempt, notice.expires_at, notice.schedule_run_id)
        });
        let expected = expected.map(|notice| {
            let run_id = (!is_pruned).then(|| run_id.to_owned());
            (Some(notice.status), notice.attempt, notice.expires_at, run_id)
        });
        prop_assert_eq!(stored, expected, "the notice of {}", run_id);
        Ok(())
    }

    pub(super) fn retry(&mut self, ended: &str) -> Checked {
        let (id, now) = (self.new_id(), self.oracle.now);
        let spec = TaskSpec::check(&task(), &kit::rules()).unwrap();
        let submit = Submit {
            spec,
            settings: RunSettings::default(),
            stdin: None,
            id: id.clone(),
            at: now,
            fact_id: self.fact_id(0),
        };
        let said = self.write(&Retry { ended_id: ended.into(), submit });
        let status = self.oracle.tasks[ended].status;
        if !status.is_terminal() {
            prop_assert_eq!(said, Retried::NotEnded(status));
            return Ok(());
        }
        prop_assert_eq!(said, Retried::Submitted(Submitted::New));
        let again = Task { parent: Some(ended.into()), ..Task::queued_at(now) };
        self.oracle.tasks.insert(id.clone(), again);
        self.ids.push(id);
        Ok(())
    }

    /// Removes those of some runs that have ended.
    pub(super) fn prune(&mut self, chosen: u32, with_facts: bool) -> Checked {
        let is_chosen = |place: usize| chosen >> (place % 32) & 1 == 1;
        let run_ids = self.ids.iter().enumerate().filter(|(place, _)| is_chosen(*place));
        let run_ids: Vec<_> = run_ids.map(|(_, id)| id.clone()).collect();
        let notice_ids = self.read(&SettledNotices { run_ids: run_ids.clone() });
        let said = self.write(&Prune { run_ids: run_ids.clone(), notice_ids, with_facts });
        let (mut removed, told) = (Pruned::default(), self.oracle.told());
        for id in run_ids {
            if let Some(facts) = self.oracle.remove(&id, with_facts) {
                removed.runs += 1;
                removed.facts += facts;
                self.ids.retain(|other| *other != id);
                self.compare_steps(&id)?;
            }
        }
        prop_assert_eq!(said, removed);
        told.iter().try_for_each(|run_id| self.compare_notice(run_id))
    }

    /// Everything beside the runs is what the oracle has.
    pub(super) fn compare_beside(&mut self) -> Checked {
        for id in self.ids.clone() {
            self.compare_steps(&id)?;
            self.compare_notice(&id)?;
        }
        Ok(())
    }
}
