//! The one place where a status is written: a guarded compare-and-swap of the row, and its fact.
//!
//! Every operation that changes the status of a run goes through [`swap`], and every one that changes that of a notice
//! through [`swap_dispatch`], in the caller's transaction. Whatever ends a run leaves its notice here, if it has one.

mod dispatch;

use diesel::prelude::*;

pub(super) use dispatch::{DispatchChange, swap_dispatch};

use super::notice::leave_notice;
use super::pause::NOT_HELD;
use crate::db::columns::JsonText;
use crate::db::engine::AnyConn;
use crate::db::fragments::{Condition, Kept};
use crate::db::moment::Moment;
use crate::db::schema::{schedule_runs, status_transitions};
use crate::domain::json_text;
use crate::domain::reason::Reason;
use crate::domain::status::Status;
use crate::domain::transition::{Entity, Guard, Patch, Principal};

/// A change whose edge the graph declares.
#[derive(Debug)]
pub(super) struct Change<'a> {
    pub id: &'a str,
    pub from: Status,
    pub to: Status,
    pub reason: &'a Reason,
    pub principal: &'a Principal,
    pub guard: &'a Guard,
    pub patch: &'a Patch,
    pub epoch: Epoch,
    pub exit_code: Option<i32>,
    pub error_detail: Option<&'a str>,
    /// When, in seconds since the epoch: the row's `updated_at` and the fact's `created_at`.
    pub at: f64,
    pub fact_id: &'a str,
}

static NO_GUARD: Guard = Guard { leased_by: None, lease_expires_at: None, lease_attempts: None };
static NO_PATCH: Patch = Patch { leased_by: None, lease_expires_at: None, lease_attempts: None };

impl<'a> Change<'a> {
    /// A change of a run that nobody has a lease of: only its status guards it.
    pub fn unleased(
        id: &'a str,
        (from, to): (Status, Status),
        reason: &'a Reason,
        principal: &'a Principal,
        at: f64,
        fact_id: &'a str,
    ) -> Change<'a> {
        Change {
            id,
            from,
            to,
            reason,
            principal,
            guard: &NO_GUARD,
            patch: &NO_PATCH,
            epoch: Epoch::AsPatched,
            exit_code: None,
            error_detail: None,
            at,
            fact_id,
        }
    }
}

/// What becomes of `lease_attempts`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Epoch {
    /// As the patch says, or as it is.
    AsPatched,
    /// One more, counted by the database: two claims can never get the same number. The lease runs out at this moment.
    /// A run that is held by a pause does not match.
    Next(Moment),
}

#[derive(AsChangeset)]
#[diesel(table_name = schedule_runs)]
struct Columns<'a> {
    status: &'static str,
    updated_at: f64,
    status_reason_code: &'static str,
    status_reason_summary: &'a str,
    status_evidence_refs: JsonText,
    ended_at: Option<f64>,
    exit_code: Option<i32>,
    error_detail: Option<&'a str>,
    leased_by: Option<Option<&'a str>>,
    lease_expires_at: Option<Option<f64>>,
}

#[derive(Insertable)]
// Without this Diesel takes each text for one of many, and prepares it anew.
#[diesel(table_name = status_transitions, treat_none_as_default_value = false)]
struct NewFact<'a> {
    id: &'a str,
    entity_type: &'static str,
    entity_id: &'a str,
    previous_status: &'static str,
    status: &'static str,
    reason_code: &'static str,
    reason_summary: &'a str,
    evidence_refs: JsonText,
    source: &'static str,
    actor: &'a str,
    created_at: f64,
    metadata: JsonText,
}

impl<'a> NewFact<'a> {
    /// All but what changed.
    fn of(reason: &'a Reason, principal: &'a Principal, at: f64) -> NewFact<'a> {
        NewFact {
            id: "",
            entity_type: "",
            entity_id: "",
            previous_status: "",
            status: "",
            reason_code: reason.code.as_str(),
            reason_summary: &reason.summary,
            evidence_refs: JsonText(reason.evidence_text()),
            source: principal.kind.as_str(),
            actor: &principal.id,
            created_at: at,
            metadata: JsonText(json_text::object(&reason.metadata)),
        }
    }

    fn insert(&self, conn: &mut AnyConn) -> QueryResult<()> {
        diesel::insert_into(status_transitions::table).values(self).execute(conn).map(drop)
    }
}

/// Writes the change and its fact if the row still has the expected status and passes the guard. Answers the row's
/// epoch after the change, or nothing when the row did not match; nothing is written then.
pub(super) fn swap(conn: &mut AnyConn, change: &Change<'_>) -> QueryResult<Option<i32>> {
    let epoch = update_row(conn, change)?;
    if epoch.is_some() {
        let fact = NewFact {
            id: change.fact_id,
            entity_type: Entity::ScheduleRun.as_str(),
            entity_id: change.id,
            previous_status: change.from.as_str(),
            status: change.to.as_str(),
            ..NewFact::of(change.reason, change.principal, change.at)
        };
        fact.insert(conn)?;
        if change.to.is_terminal() {
            leave_notice(conn, change.id, change.at, change.fact_id)?;
        }
    }
    Ok(epoch)
}

fn update_row(conn: &mut AnyConn, change: &Change<'_>) -> QueryResult<Option<i32>> {
    use schedule_runs::dsl;
    let columns = Columns {
        status: change.to.as_str(),
        updated_at: change.at,
        status_reason_code: change.reason.code.as_str(),
        status_reason_summary: &change.reason.summary,
        status_evidence_refs: JsonText(change.reason.evidence_text()),
        ended_at: change.to.is_terminal().then_some(change.at),
        exit_code: change.exit_code,
        error_detail: change.error_detail,
        leased_by: change.patch.leased_by.as_ref().map(Option::as_deref),
        lease_expires_at: change.patch.lease_expires_at,
    };
    let target = dsl::schedule_runs
        .filter(dsl::id.eq(change.id))
        .filter(dsl::status.eq(change.from.as_str()));
    // The two differ in their last assignments, which the type of the statement holds.
    macro_rules! guarded {
        ($target:expr, $more:expr) => {{
            let mut update = diesel::update($target).set((columns, $more)).into_boxed();
            if let Some(owner) = &change.guard.leased_by {
                update = update.filter(dsl::leased_by.eq(owner));
            }
            if let Some(expiry) = change.guard.lease_expires_at {
                update = update.filter(dsl::lease_expires_at.eq(expiry));
            }
            if let Some(epoch) = change.guard.lease_attempts {
                update = update.filter(dsl::lease_attempts.eq(epoch));
            }
            Kept(update.returning(dsl::lease_attempts)).get_result(conn).optional()
        }};
    }
    match change.epoch {
        Epoch::AsPatched => {
            guarded!(target, change.patch.lease_attempts.map(|n| dsl::lease_attempts.eq(n)))
        }
        Epoch::Next(expiry) => {
            let expiry = dsl::lease_expires_at.eq(expiry.on(conn));
            let target = target.filter(Condition(NOT_HELD));
            guarded!(target, (dsl::lease_attempts.eq(dsl::lease_attempts + 1), expiry))
        }
    }
}
