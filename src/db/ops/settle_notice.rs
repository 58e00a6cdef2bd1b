//! Writes down how an attempt to send a notice went: it is delivered, tried again later, or given up.

use diesel::prelude::*;

use super::change::{DispatchChange, swap_dispatch};
use super::fraction;
use super::notice::due_in;
use crate::db::engine::{AnyConn, Evidence, Operation};
use crate::db::moment::Moment;
use crate::db::schema::dispatch_outbox;
use crate::domain::dispatch::DispatchStatus;
use crate::domain::ending::storable;
use crate::domain::notice::{AfterFailure, Backoff, Failed};
use crate::domain::reason::{Reason, ReasonCode};
use crate::domain::transition::{DispatchGuard, Principal};

/// What of an error is kept, in characters.
const ERROR_CHARS: usize = 500;

/// Writes down how an attempt went.
#[derive(Debug, Clone)]
pub struct SettleNotice {
    /// The notice.
    pub id: String,
    /// Which attempt.
    pub attempt: i32,
    /// Who made it.
    pub worker_id: String,
    /// How it went.
    pub result: Result<(), Failed>,
    /// The pauses between attempts.
    pub backoff: Backoff,
    /// When, in seconds since the epoch.
    pub at: f64,
    /// The id of the fact.
    pub fact_id: String,
}

impl Operation for SettleNotice {
    /// The status it has now; nothing when somebody else has taken the notice meanwhile.
    type Output = Option<DispatchStatus>;

    fn name(&self) -> &'static str {
        "settle a notice"
    }

    fn subject(&self) -> Option<&str> {
        Some(&self.id)
    }

    fn evidence(&self, output: &Self::Output) -> Option<Evidence<'_>> {
        output.is_some().then_some(Evidence::Fact(&self.fact_id))
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Self::Output> {
        use dispatch_outbox::dsl;
        let failed = match &self.result {
            Ok(()) => {
                let reason = Reason::new(ReasonCode::DISPATCH_SENT, "the receiver has it");
                return self.swap(conn, DispatchStatus::Delivered, &reason, None, None);
            }
            Err(failed) => failed,
        };
        let row: Option<(i32, Option<f64>)> = dsl::dispatch_outbox
            .find(&self.id)
            .select((dsl::max_attempts, dsl::expires_at))
            .first(conn)
            .optional()?;
        let Some((most, expires_at)) = row else { return Ok(None) };
        let error: String = storable(&failed.error).chars().take(ERROR_CHARS).collect();
        match self.backoff.after(self.attempt, most, failed, fraction(&self.fact_id)) {
            AfterFailure::GiveUp(code) => {
                let reason = Reason::new(code, error.clone());
                self.swap(conn, DispatchStatus::DeadLetter, &reason, None, Some(&error))
            }
            AfterFailure::Again(pause) => {
                // At its end it is looked at, and expires.
                let left = expires_at.map_or(pause, |end| (end - self.at).max(0.0));
                let pause = pause.min(left);
                let next = due_in(conn, self.at, pause);
                let reason = Reason::new(
                    ReasonCode::DISPATCH_BACKOFF,
                    format!("attempt {} of {most}, next in {pause:.1} s: {error}", self.attempt),
                );
                self.swap(conn, DispatchStatus::Pending, &reason, Some(next), Some(&error))
            }
        }
    }
}

impl SettleNotice {
    fn swap(
        &self,
        conn: &mut AnyConn,
        to: DispatchStatus,
        reason: &Reason,
        next: Option<Moment>,
        error: Option<&str>,
    ) -> QueryResult<Option<DispatchStatus>> {
        let change = DispatchChange {
            id: &self.id,
            from: DispatchStatus::Delivering,
            to,
            reason,
            principal: &Principal::system(self.worker_id.as_str()),
            guard: &DispatchGuard { attempt: Some(self.attempt), ..DispatchGuard::default() },
            attempt: None,
            next,
            last_error: Some(error),
            at: self.at,
            fact_id: &self.fact_id,
        };
        Ok(swap_dispatch(conn, &change)?.then_some(to))
    }
}
