//! Changes the status of a run: the seed's `transition()` (ADR-0071 D3), and the end of an execution.

use diesel::prelude::*;

use super::change::{Change, Epoch, swap};
use super::events::event_of;
use super::run_state::locked_status;
use super::transition_keys::{keep_key, keyed_change};
use crate::db::engine::{AnyConn, Evidence, Operation};
use crate::db::schema::schedule_runs;
use crate::db::words::known_status;
use crate::domain::payload::IdempotencyKey;
use crate::domain::status::Status;
use crate::domain::transition::{Outcome, Transition, TransitionRefusal};

/// Applies a checked [`Transition`].
#[derive(Debug, Clone)]
pub struct ChangeStatus {
    /// What is asked for.
    pub transition: Transition,
    /// How an execution ended, when that is why.
    pub exit: Option<Exit>,
    /// What makes the change once for all of its repetitions.
    pub key: Option<IdempotencyKey>,
    /// Whether the answer is to name the event: that costs a read.
    pub asks_event: bool,
    /// When, in seconds since the epoch.
    pub at: f64,
    /// The id of the fact that is written if the change applies.
    pub fact_id: String,
}

/// The outcome columns that only an executor fills.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// The exit code; `-N` for signal N.
    pub code: i32,
    /// What went wrong; absent for a success.
    pub error_detail: Option<String>,
}

/// Why a change was not even tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejected {
    /// There is no such row.
    NotFound,
    /// The graph has no such edge.
    Refused(TransitionRefusal),
    /// The key stands for another change of the same run, which has this id.
    KeyTaken(String),
}

/// The columns that decide.
type Seen = (String, Option<String>, Option<f64>, i32);

impl Operation for ChangeStatus {
    type Output = Result<Outcome, Rejected>;

    fn name(&self) -> &'static str {
        "change a status"
    }

    fn subject(&self) -> Option<&str> {
        Some(&self.transition.id)
    }

    fn evidence(&self, output: &Self::Output) -> Option<Evidence<'_>> {
        // A repetition has the fact of the first request.
        let applied = matches!(output, Ok(Outcome::Applied { transition_id, .. }) if *transition_id == self.fact_id);
        applied.then_some(Evidence::Fact(&self.fact_id))
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Self::Output> {
        let Some(key) = &self.key else { return self.change(conn) };
        // Whoever repeats a request waits here for the end of the other's transaction, and then sees its key.
        if locked_status(conn, &self.transition.id)?.is_none() {
            return Ok(Err(Rejected::NotFound));
        }
        let exit = self.exit.as_ref().map(|exit| (exit.code, exit.error_detail.as_deref()));
        let hash = self.transition.content_hash(exit);
        if let Some(first) = keyed_change(conn, &self.transition.id, key)? {
            return Ok(first.answer(&hash)?.map_err(Rejected::KeyTaken));
        }
        let output = self.change(conn)?;
        // What is refused or lost writes nothing, so that the key stays free for a request that can be met.
        if let Ok(outcome) = &output {
            keep_key(conn, (&self.transition.id, key), &hash, outcome, self.at)?;
        }
        Ok(output)
    }
}

impl ChangeStatus {
    fn change(&self, conn: &mut AnyConn) -> QueryResult<Result<Outcome, Rejected>> {
        let asked = &self.transition;
        // Where the caller names a declared edge the swap itself is the check; the row is read only when it fails.
        let named = asked.from.as_deref().and_then(Status::parse);
        if let Some(from) = named.filter(|from| from.may_become(asked.to))
            && let Some(applied) = self.swap_from(conn, from)?
        {
            return Ok(Ok(applied));
        }
        let Some(seen) = self.see(conn)? else { return Ok(Err(Rejected::NotFound)) };
        let found = known_status(&seen.0)?;
        if asked.from.as_deref().is_some_and(|from| from != seen.0) {
            return Ok(Ok(Outcome::Conflict { found }));
        }
        if !found.may_become(asked.to) {
            return Ok(Err(Rejected::Refused(TransitionRefusal::undeclared(found, asked.to))));
        }
        if !asked.guard.admits(seen.1.as_deref(), seen.2, seen.3) {
            return Ok(Ok(Outcome::Conflict { found }));
        }
        match self.swap_from(conn, found)? {
            Some(applied) => Ok(Ok(applied)),
            None => self.lost(conn, found),
        }
    }

    fn swap_from(&self, conn: &mut AnyConn, from: Status) -> QueryResult<Option<Outcome>> {
        let asked = &self.transition;
        let change = Change {
            id: &asked.id,
            from,
            to: asked.to,
            reason: &asked.reason,
            principal: &asked.principal,
            guard: &asked.guard,
            patch: &asked.patch,
            epoch: Epoch::AsPatched,
            exit_code: self.exit.as_ref().map(|exit| exit.code),
            error_detail: self.exit.as_ref().and_then(|exit| exit.error_detail.as_deref()),
            at: self.at,
            fact_id: &self.fact_id,
        };
        if swap(conn, &change)?.is_none() {
            return Ok(None);
        }
        let asks_event = self.asks_event || self.key.is_some();
        Ok(Some(Outcome::Applied {
            transition_id: self.fact_id.clone(),
            event_id: asks_event.then(|| event_of(conn, &self.fact_id)).transpose()?,
            previous: from,
            current: asked.to,
        }))
    }

    fn see(&self, conn: &mut AnyConn) -> QueryResult<Option<Seen>> {
        use schedule_runs::dsl;
        dsl::schedule_runs
            .find(&self.transition.id)
            .select((dsl::status, dsl::leased_by, dsl::lease_expires_at, dsl::lease_attempts))
            .first(conn)
            .optional()
    }

    /// Another writer won between the read and the swap, which only PostgreSQL allows.
    fn lost(&self, conn: &mut AnyConn, before: Status) -> QueryResult<Result<Outcome, Rejected>> {
        match self.see(conn)? {
            Some(seen) => {
                let found = Status::parse(&seen.0).unwrap_or(before);
                Ok(Ok(Outcome::Conflict { found }))
            }
            None => Ok(Err(Rejected::NotFound)),
        }
    }
}
