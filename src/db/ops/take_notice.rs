//! Takes a notice for one attempt: `pending` or `delivering`, by the attempt that was seen, to `delivering`.

use diesel::prelude::*;

use super::change::{DispatchChange, swap_dispatch};
use super::notice::due_in;
use crate::db::columns::JsonText;
use crate::db::engine::{AnyConn, Evidence, Operation};
use crate::db::moment::Moment;
use crate::db::schema::dispatch_outbox;
use crate::domain::dispatch::DispatchStatus;
use crate::domain::reason::{Reason, ReasonCode};
use crate::domain::transition::{DispatchGuard, Principal};

/// A notice as its sender gets it.
#[derive(Debug, Clone, PartialEq)]
pub struct NoticeToSend {
    /// Its id, which is that of the event.
    pub id: String,
    /// Whom it goes to.
    pub deliver_to: String,
    /// What it says, as the JSON text that was stored.
    pub payload: String,
    /// Which attempt this is.
    pub attempt: i32,
    /// Whose end it tells of; absent once the run was pruned.
    pub run_id: Option<String>,
}

/// Takes a notice that is due, for one attempt. One whose time is over, or whose last attempt nobody has finished, is
/// settled instead.
#[derive(Debug, Clone)]
pub struct TakeNotice {
    /// The notice.
    pub id: String,
    /// The status that was seen.
    pub from: DispatchStatus,
    /// The attempt that was seen: whoever takes it counts it up, so of two who have seen the same one fails.
    pub attempt: i32,
    /// Who takes it.
    pub worker_id: String,
    /// How long it is this worker's, in seconds.
    pub lease: f64,
    /// When, in seconds since the epoch.
    pub at: f64,
    /// The id of the fact.
    pub fact_id: String,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Taken {
    /// It is this worker's to send.
    Won(NoticeToSend),
    /// There is nothing to send any more.
    Settled(DispatchStatus),
    /// Somebody else was first.
    Lost,
}

/// What a notice says, where it goes, its attempts, its end, its run.
type ToTake = (JsonText, String, i32, Option<f64>, Option<String>);

impl Operation for TakeNotice {
    type Output = Taken;

    fn name(&self) -> &'static str {
        "take a notice"
    }

    fn subject(&self) -> Option<&str> {
        Some(&self.id)
    }

    fn evidence(&self, output: &Self::Output) -> Option<Evidence<'_>> {
        (*output != Taken::Lost).then_some(Evidence::Fact(&self.fact_id))
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Self::Output> {
        use dispatch_outbox::dsl;
        let row: Option<ToTake> = dsl::dispatch_outbox
            .find(&self.id)
            .select((
                dsl::payload,
                dsl::deliver_to,
                dsl::max_attempts,
                dsl::expires_at,
                dsl::schedule_run_id,
            ))
            .first(conn)
            .optional()?;
        let Some((payload, deliver_to, most, expires_at, run_id)) = row else {
            return Ok(Taken::Lost);
        };
        if expires_at.is_some_and(|end| end <= self.at) {
            let reason = Reason::new(ReasonCode::DISPATCH_EXPIRED, "it was not sent in time");
            return self.settle(conn, DispatchStatus::Expired, &reason);
        }
        // Whoever had begun the last attempt is gone, and may have died of it.
        if self.from == DispatchStatus::Delivering && self.attempt >= most {
            let summary = format!("nobody has finished attempt {} of {most}", self.attempt);
            let reason = Reason::new(ReasonCode::DISPATCH_MAX_ATTEMPTS, summary);
            return self.settle(conn, DispatchStatus::DeadLetter, &reason);
        }
        let attempt = self.attempt.saturating_add(1);
        let summary = format!("attempt {attempt} of {most} by {}", self.worker_id);
        let reason = Reason::new(ReasonCode::DISPATCH_ATTEMPT, summary);
        let until = due_in(conn, self.at, self.lease);
        let claim = (Some(attempt), Some(until));
        Ok(match self.swap(conn, DispatchStatus::Delivering, &reason, claim)? {
            true => {
                let (id, payload) = (self.id.clone(), payload.0);
                Taken::Won(NoticeToSend { id, deliver_to, payload, attempt, run_id })
            }
            false => Taken::Lost,
        })
    }
}

impl TakeNotice {
    fn settle(
        &self,
        conn: &mut AnyConn,
        to: DispatchStatus,
        reason: &Reason,
    ) -> QueryResult<Taken> {
        let settled = self.swap(conn, to, reason, (None, None))?;
        Ok(if settled { Taken::Settled(to) } else { Taken::Lost })
    }

    fn swap(
        &self,
        conn: &mut AnyConn,
        to: DispatchStatus,
        reason: &Reason,
        (attempt, next): (Option<i32>, Option<Moment>),
    ) -> QueryResult<bool> {
        let change = DispatchChange {
            id: &self.id,
            from: self.from,
            to,
            reason,
            principal: &Principal::system(self.worker_id.as_str()),
            guard: &DispatchGuard { attempt: Some(self.attempt), ..DispatchGuard::default() },
            attempt,
            next,
            last_error: None,
            at: self.at,
            fact_id: &self.fact_id,
        };
        swap_dispatch(conn, &change)
    }
}
