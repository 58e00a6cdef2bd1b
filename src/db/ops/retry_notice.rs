//! Sends a notice again that was given up.

use diesel::prelude::*;

use super::change::{DispatchChange, swap_dispatch};
use super::notice::due_in;
use crate::db::engine::{AnyConn, Evidence, Operation};
use crate::db::schema::dispatch_outbox;
use crate::db::words::known_dispatch_status;
use crate::domain::dispatch::DispatchStatus;
use crate::domain::notice::KIND;
use crate::domain::reason::{Reason, ReasonCode};
use crate::domain::transition::{DispatchGuard, Principal};

/// Sends a notice again that was given up, from its first attempt and at once. Its time is over no more.
#[derive(Debug, Clone)]
pub struct RetryNotice {
    /// The notice.
    pub id: String,
    /// Who wants it.
    pub by: Principal,
    /// When, in seconds since the epoch.
    pub at: f64,
    /// The id of the fact.
    pub fact_id: String,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resent {
    /// It is sent again.
    Yes,
    /// It was not given up: this is what it is.
    NotGivenUp(DispatchStatus),
    /// There is no such notice of a task.
    NotFound,
}

impl Operation for RetryNotice {
    type Output = Resent;

    fn name(&self) -> &'static str {
        "send a notice again"
    }

    fn subject(&self) -> Option<&str> {
        Some(&self.id)
    }

    fn evidence(&self, output: &Self::Output) -> Option<Evidence<'_>> {
        (*output == Resent::Yes).then_some(Evidence::Fact(&self.fact_id))
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Self::Output> {
        use dispatch_outbox::dsl;
        let row = dsl::dispatch_outbox.find(&self.id).filter(dsl::kind.eq(KIND));
        let word: Option<String> = row.select(dsl::status).first(conn).optional()?;
        let Some(word) = word else { return Ok(Resent::NotFound) };
        let from = known_dispatch_status(&word)?;
        if !matches!(from, DispatchStatus::DeadLetter | DispatchStatus::Expired) {
            return Ok(Resent::NotGivenUp(from));
        }
        let now = due_in(conn, self.at, 0.0);
        let change = DispatchChange {
            id: &self.id,
            from,
            to: DispatchStatus::Pending,
            reason: &Reason::new(ReasonCode::DISPATCH_BACKOFF, "sent again, as was asked for"),
            principal: &self.by,
            guard: &DispatchGuard::default(),
            attempt: Some(0),
            next: Some(now),
            last_error: Some(None),
            at: self.at,
            fact_id: &self.fact_id,
        };
        if !swap_dispatch(conn, &change)? {
            // Somebody else was first, which only PostgreSQL allows here.
            return Ok(Resent::NotGivenUp(DispatchStatus::Pending));
        }
        diesel::update(dsl::dispatch_outbox.find(&self.id))
            .set(dsl::expires_at.eq(None::<f64>))
            .execute(conn)?;
        Ok(Resent::Yes)
    }
}
