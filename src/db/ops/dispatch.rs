//! Changes the status of a notice in the outbox: the seed's `transition()` for the entity `dispatch`.

use diesel::prelude::*;

use super::change::{DispatchChange, swap_dispatch};
use super::dispatch_keys::{keep_dispatch_key, keyed_dispatch};
use super::transition::Rejected;
use crate::db::engine::{AnyConn, Evidence, Operation};
use crate::db::moment::Moment;
use crate::db::schema::dispatch_outbox;
use crate::db::words::known_dispatch_status;
use crate::domain::dispatch::{DispatchStatus, check_edge};
use crate::domain::notice::{KIND, LATER, moment};
use crate::domain::payload::IdempotencyKey;
use crate::domain::transition::{DispatchGuard, DispatchTransition, Outcome, TransitionRefusal};

/// Applies a checked [`DispatchTransition`], of a notice of any kind.
#[derive(Debug, Clone)]
pub struct ChangeDispatch {
    /// What is asked for.
    pub transition: DispatchTransition,
    /// What makes the change once for all of its repetitions.
    pub key: Option<IdempotencyKey>,
    /// When, in seconds since the epoch.
    pub at: f64,
    /// The id of the fact that is written if the change applies.
    pub fact_id: String,
}

/// The columns that decide.
#[derive(Queryable)]
struct Seen {
    kind: String,
    status: String,
    attempt: i32,
    next_attempt_at: f64,
    last_error: Option<String>,
    ack_required: i32,
}

impl Operation for ChangeDispatch {
    type Output = Result<Outcome<DispatchStatus>, Rejected>;

    fn name(&self) -> &'static str {
        "change the status of a notice"
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
        let id = &self.transition.id;
        // Whoever repeats a request waits here for the end of the other's transaction, and then sees its key.
        if !lock(conn, id)? {
            return Ok(Err(Rejected::NotFound));
        }
        let hash = self.transition.content_hash();
        if let Some(first) = keyed_dispatch(conn, id, key)? {
            return Ok(first.answer(&hash)?.map_err(Rejected::KeyTaken));
        }
        let output = self.change(conn)?;
        // What is refused or lost writes nothing, so that the key stays free for a request that can be met.
        if let Ok(outcome) = &output {
            keep_dispatch_key(conn, (id, key), &hash, outcome, self.at)?;
        }
        Ok(output)
    }
}

impl ChangeDispatch {
    fn change(&self, conn: &mut AnyConn) -> QueryResult<<Self as Operation>::Output> {
        let asked = &self.transition;
        let Some(seen) = self.see(conn)? else { return Ok(Err(Rejected::NotFound)) };
        let found = known_dispatch_status(&seen.status)?;
        if asked.from.as_deref().is_some_and(|from| from != seen.status) {
            return Ok(Ok(Outcome::Conflict { found }));
        }
        let edge = (found, asked.to);
        if let Err(refusal) = check_edge(edge, &asked.guard, &asked.patch, &asked.principal) {
            return Ok(Err(Rejected::Refused(refusal)));
        }
        if asked.to == DispatchStatus::Acked && seen.ack_required == 0 {
            return Ok(Err(Rejected::Refused(TransitionRefusal::AckNotRequired)));
        }
        // Moments of ours stand later in the column than they are.
        let later = if seen.kind == KIND { LATER } else { 0.0 };
        let next =
            if seen.kind == KIND { moment(seen.next_attempt_at) } else { seen.next_attempt_at };
        if !asked.guard.admits(seen.attempt, next, seen.last_error.as_deref()) {
            return Ok(Ok(Outcome::Conflict { found }));
        }
        let guarded = asked.guard.next_attempt_at.map(|_| seen.next_attempt_at);
        let guard = DispatchGuard { next_attempt_at: guarded, ..asked.guard.clone() };
        let patch = &asked.patch;
        let change = DispatchChange {
            id: &asked.id,
            from: found,
            to: asked.to,
            reason: &asked.reason,
            principal: &asked.principal,
            guard: &guard,
            attempt: patch.attempt,
            next: patch.next_attempt_at.map(|at| Moment::At(at + later)),
            last_error: patch.last_error.as_ref().map(Option::as_deref),
            at: self.at,
            fact_id: &self.fact_id,
        };
        if swap_dispatch(conn, &change)? {
            let transition_id = self.fact_id.clone();
            // The feed of events is of runs.
            let (event_id, previous, current) = (None, found, asked.to);
            return Ok(Ok(Outcome::Applied { transition_id, event_id, previous, current }));
        }
        // Another writer won between the read and the swap, which only PostgreSQL allows.
        Ok(match self.see(conn)? {
            Some(seen) => Ok(Outcome::Conflict { found: known_dispatch_status(&seen.status)? }),
            None => Err(Rejected::NotFound),
        })
    }

    fn see(&self, conn: &mut AnyConn) -> QueryResult<Option<Seen>> {
        use dispatch_outbox::dsl;
        dsl::dispatch_outbox
            .find(&self.transition.id)
            .select((
                dsl::kind,
                dsl::status,
                dsl::attempt,
                dsl::next_attempt_at,
                dsl::last_error,
                dsl::ack_required,
            ))
            .first(conn)
            .optional()
    }
}

/// Whether there is such a notice, which nobody else can change then before this transaction ends.
fn lock(conn: &mut AnyConn, id: &str) -> QueryResult<bool> {
    let row = dispatch_outbox::table.find(id).select(dispatch_outbox::id);
    let found: Option<String> = match conn {
        #[cfg(feature = "postgres")]
        AnyConn::Postgres(c) => row.for_update().first(c).optional()?,
        AnyConn::Sqlite(c) => row.first(c).optional()?,
    };
    Ok(found.is_some())
}
