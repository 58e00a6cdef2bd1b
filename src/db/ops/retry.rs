//! Submits a task again that has ended: a new run with the old one as its parent. The old one stays as it is.

use diesel::prelude::*;

use super::run_state::locked_status;
use super::submit::{Parent, Submit, Submitted};
use crate::db::engine::{AnyConn, Evidence, Operation};
use crate::db::schema::schedule_runs;
use crate::domain::status::Status;

/// Inserts a task as a child of an ended one.
#[derive(Debug, Clone)]
pub struct Retry {
    /// The run that has ended.
    pub ended_id: String,
    /// The new task.
    pub submit: Submit,
}

/// What came of a retry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Retried {
    /// As of any submit.
    Submitted(Submitted),
    /// The run has not ended; nothing was written.
    NotEnded(Status),
    /// There is no such run; nothing was written.
    NotFound,
}

impl Operation for Retry {
    type Output = Retried;

    fn name(&self) -> &'static str {
        "submit a task again"
    }

    fn subject(&self) -> Option<&str> {
        Some(&self.submit.id)
    }

    fn evidence(&self, output: &Retried) -> Option<Evidence<'_>> {
        match output {
            Retried::Submitted(submitted) => self.submit.evidence(submitted),
            Retried::NotEnded(_) | Retried::NotFound => None,
        }
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Retried> {
        // Locked, so that nobody removes it before its child is there.
        let status = match locked_status(conn, &self.ended_id)? {
            None => return Ok(Retried::NotFound),
            Some(status) => status,
        };
        if !status.is_terminal() {
            return Ok(Retried::NotEnded(status));
        }
        let depth = schedule_runs::table
            .find(&self.ended_id)
            .select(schedule_runs::chain_depth)
            .first(conn)?;
        let parent = Parent { id: &self.ended_id, depth };
        self.submit.submit(conn, Some(parent)).map(Retried::Submitted)
    }
}
