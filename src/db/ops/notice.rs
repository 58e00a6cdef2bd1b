//! Leaves the notice of a run with its end.

use diesel::prelude::*;

use crate::db::columns::JsonText;
use crate::db::engine::{AnyConn, on};
use crate::db::fragments::Kept;
use crate::db::moment::Moment;
use crate::db::schema::{dispatch_outbox, leasehold_runs, schedule_runs};
use crate::domain::dispatch::DispatchStatus;
use crate::domain::notice::{EndedTask, KIND, LATER, dedup_key, payload};
use crate::domain::settings::RunSettings;

/// Leaves the notice of a run that has ended in this transaction, if its settings ask for one. Its id is that of the fact
/// that says how the run ended.
pub(super) fn leave_notice(
    conn: &mut AnyConn,
    run_id: &str,
    at: f64,
    fact_id: &str,
) -> QueryResult<()> {
    use dispatch_outbox::dsl;
    let settings: Option<Option<JsonText>> = leasehold_runs::table
        .find(run_id)
        .select(leasehold_runs::settings)
        .first(conn)
        .optional()?;
    let notify = settings
        .flatten()
        .and_then(|text| RunSettings::parse(&text.0).ok())
        .and_then(|settings| settings.notify);
    let Some(notify) = notify else { return Ok(()) };
    let (kind, status, reason_code, exit_code, attempts, created_at): (
        String,
        String,
        Option<String>,
        Option<i32>,
        i32,
        f64,
    ) = schedule_runs::table
        .find(run_id)
        .select((
            schedule_runs::action_kind,
            schedule_runs::status,
            schedule_runs::status_reason_code,
            schedule_runs::exit_code,
            schedule_runs::lease_attempts,
            schedule_runs::created_at,
        ))
        .first(conn)?;
    let task = EndedTask {
        run_id,
        kind: &kind,
        status: &status,
        reason_code: reason_code.as_deref().unwrap_or_default(),
        exit_code,
        attempts,
        created_at,
        ended_at: at,
    };
    let now = due_in(conn, at, 0.0);
    let row = (
        dsl::id.eq(fact_id),
        dsl::kind.eq(KIND),
        dsl::deliver_to.eq(&notify.to),
        dsl::payload.eq(JsonText(payload(fact_id, &task))),
        dsl::dedup_key.eq(dedup_key(run_id)),
        dsl::status.eq(DispatchStatus::Pending.as_str()),
        dsl::attempt.eq(0),
        dsl::max_attempts.eq(i32::try_from(notify.attempts).unwrap_or(i32::MAX)),
        dsl::next_attempt_at.eq(now.on(conn).assume_not_null()),
        dsl::ack_required.eq(0),
        dsl::schedule_run_id.eq(run_id),
        dsl::created_at.eq(at),
        dsl::expires_at.eq(notify.within.map(|within| at + within)),
        dsl::updated_at.eq(at),
    );
    // What is in the way, which only a stranger can have put there, must not keep the run from ending.
    on!(conn, c => {
        let insert = diesel::insert_into(dsl::dispatch_outbox).values(row).on_conflict_do_nothing();
        let left: Option<String> = Kept(insert.returning(dsl::id)).get_result(c).optional()?;
        drop(left);
        Ok(())
    })
}

/// So many seconds after now, which is `at` by this host's clock, as the column holds it. Where hosts share a server its
/// clock decides, as it does over leases.
pub(super) fn due_in(conn: &AnyConn, at: f64, seconds: f64) -> Moment {
    match conn {
        #[cfg(feature = "postgres")]
        AnyConn::Postgres(_) => Moment::FromNow(seconds + LATER),
        AnyConn::Sqlite(_) => Moment::At(at + seconds + LATER),
    }
}
