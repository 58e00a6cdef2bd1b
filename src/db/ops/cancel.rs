//! Cancels a run: at once while it waits, by a recorded request while it runs.
//!
//! The request is a row, so it cannot be lost with a notification, and outlives the worker. Whoever has the run in hand
//! stops its process tree and only then writes `cancelled`; an end that the task reaches before stands.

use diesel::prelude::*;

use super::change::{Change, swap};
use super::events::event_of;
use super::run_state::{locked_status, record_cancel};
use crate::db::engine::{AnyConn, Evidence, Operation};
use crate::domain::event::EventId;
use crate::domain::reason::{Reason, ReasonCode};
use crate::domain::status::Status;
use crate::domain::transition::{Principal, TransitionRefusal};

/// Cancels a run, or asks for it.
#[derive(Debug, Clone)]
pub struct Cancel {
    /// The run.
    pub run_id: String,
    /// Who wants it.
    pub by: Principal,
    /// When, in seconds since the epoch.
    pub at: f64,
    /// The id of the fact, if there will be one.
    pub fact_id: String,
}

impl Cancel {
    /// A cancel that can be stored.
    ///
    /// # Errors
    /// [`TransitionRefusal::Nul`] for an id that no store could hold.
    pub fn new(
        run_id: &str,
        by: Principal,
        at: f64,
        fact_id: String,
    ) -> Result<Cancel, TransitionRefusal> {
        if run_id.contains('\0') || by.id.contains('\0') {
            return Err(TransitionRefusal::Nul);
        }
        Ok(Cancel { run_id: run_id.to_owned(), by, at, fact_id })
    }
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cancelled {
    /// The run waited, and is cancelled now.
    Yes {
        /// The fact's id: 32 lower-case hex digits.
        transition_id: String,
        /// The place of the change in the feed of events.
        event_id: EventId,
    },
    /// The run is running: its worker has been asked to stop it.
    Requested,
    /// The run had ended before, like this.
    TooLate(Status),
    /// There is no such run.
    NotFound,
}

impl Operation for Cancel {
    type Output = Cancelled;

    fn name(&self) -> &'static str {
        "cancel a run"
    }

    fn subject(&self) -> Option<&str> {
        Some(&self.run_id)
    }

    fn evidence(&self, cancelled: &Cancelled) -> Option<Evidence<'_>> {
        matches!(cancelled, Cancelled::Yes { .. }).then_some(Evidence::Fact(&self.fact_id))
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Cancelled> {
        let Some(status) = locked_status(conn, &self.run_id)? else {
            return Ok(Cancelled::NotFound);
        };
        if status.is_terminal() {
            return Ok(Cancelled::TooLate(status));
        }
        if status == Status::Running {
            record_cancel(conn, &self.run_id, &self.by, self.at)?;
            return Ok(Cancelled::Requested);
        }
        let summary = "task application cancelled before lease";
        let reason = Reason::new(ReasonCode::CANCELLED_ORCHESTRATOR, summary);
        let edge = (status, Status::Cancelled);
        let change =
            Change::unleased(&self.run_id, edge, &reason, &self.by, self.at, &self.fact_id);
        // The row is locked: it still has the status that was read.
        swap(conn, &change)?;
        let event_id = event_of(conn, &self.fact_id)?;
        Ok(Cancelled::Yes { transition_id: self.fact_id.clone(), event_id })
    }
}
