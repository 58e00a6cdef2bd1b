//! The same for a notice: a guarded compare-and-swap of its row, and its fact.

use diesel::prelude::*;

use super::NewFact;
use crate::db::engine::AnyConn;
use crate::db::fragments::Kept;
use crate::db::moment::Moment;
use crate::db::schema::dispatch_outbox;
use crate::domain::dispatch::DispatchStatus;
use crate::domain::reason::Reason;
use crate::domain::transition::{DispatchGuard, Entity, Principal};

/// A change of a notice whose edge the policy declares.
#[derive(Debug)]
pub(in crate::db::ops) struct DispatchChange<'a> {
    pub id: &'a str,
    pub from: DispatchStatus,
    pub to: DispatchStatus,
    pub reason: &'a Reason,
    pub principal: &'a Principal,
    pub guard: &'a DispatchGuard,
    /// How often it was tried, if that changes.
    pub attempt: Option<i32>,
    /// When its next attempt is due, or the lease of the one that begins now runs out, if that changes.
    pub next: Option<Moment>,
    /// What went wrong, if that changes.
    pub last_error: Option<Option<&'a str>>,
    /// When, in seconds since the epoch: the row's `updated_at` and the fact's `created_at`.
    pub at: f64,
    pub fact_id: &'a str,
}

#[derive(AsChangeset)]
#[diesel(table_name = dispatch_outbox)]
struct Columns<'a> {
    status: &'static str,
    updated_at: f64,
    attempt: Option<i32>,
    last_error: Option<Option<&'a str>>,
}

/// Writes the change and its fact if the row still has the expected status and passes the guard. Answers whether it did;
/// nothing is written otherwise.
pub(in crate::db::ops) fn swap_dispatch(
    conn: &mut AnyConn,
    change: &DispatchChange<'_>,
) -> QueryResult<bool> {
    use dispatch_outbox::dsl;
    let columns = Columns {
        status: change.to.as_str(),
        updated_at: change.at,
        attempt: change.attempt,
        last_error: change.last_error,
    };
    let next = change.next.map(|next| dsl::next_attempt_at.eq(next.on(conn).assume_not_null()));
    let target = dsl::dispatch_outbox
        .filter(dsl::id.eq(change.id))
        .filter(dsl::status.eq(change.from.as_str()));
    let mut update = diesel::update(target).set((columns, next)).into_boxed();
    if let Some(attempt) = change.guard.attempt {
        update = update.filter(dsl::attempt.eq(attempt));
    }
    if let Some(at) = change.guard.next_attempt_at {
        update = update.filter(dsl::next_attempt_at.eq(at));
    }
    if let Some(error) = &change.guard.last_error {
        update = update.filter(dsl::last_error.eq(error));
    }
    let changed: Option<String> = Kept(update.returning(dsl::id)).get_result(conn).optional()?;
    if changed.is_none() {
        return Ok(false);
    }
    let fact = NewFact {
        id: change.fact_id,
        entity_type: Entity::Dispatch.as_str(),
        entity_id: change.id,
        previous_status: change.from.as_str(),
        status: change.to.as_str(),
        ..NewFact::of(change.reason, change.principal, change.at)
    };
    fact.insert(conn).map(|()| true)
}
