//! Which change of a notice an idempotency key stands for.

use diesel::prelude::*;

use crate::db::engine::AnyConn;
use crate::db::schema::leasehold_dispatch_keys;
use crate::db::words::known_dispatch_status;
use crate::domain::dispatch::DispatchStatus;
use crate::domain::payload::IdempotencyKey;
use crate::domain::transition::Outcome;

/// What was asked for and answered under a key.
#[derive(Queryable, Selectable)]
#[diesel(table_name = leasehold_dispatch_keys)]
pub(super) struct KeyedDispatch {
    content_hash: String,
    fact_id: String,
    previous_status: String,
    status: String,
}

impl KeyedDispatch {
    /// The first answer, for the same request; for another one the id of the fact that has the key.
    pub fn answer(
        self,
        content_hash: &str,
    ) -> QueryResult<Result<Outcome<DispatchStatus>, String>> {
        if self.content_hash != content_hash {
            return Ok(Err(self.fact_id));
        }
        Ok(Ok(Outcome::Applied {
            transition_id: self.fact_id,
            event_id: None,
            previous: known_dispatch_status(&self.previous_status)?,
            current: known_dispatch_status(&self.status)?,
        }))
    }
}

/// What the key stands for, if it stands for something. The notice is locked.
pub(super) fn keyed_dispatch(
    conn: &mut AnyConn,
    id: &str,
    key: &IdempotencyKey,
) -> QueryResult<Option<KeyedDispatch>> {
    leasehold_dispatch_keys::table
        .find((id, key.as_str()))
        .select(KeyedDispatch::as_select())
        .first(conn)
        .optional()
}

/// Has the key stand for a change that applied.
pub(super) fn keep_dispatch_key(
    conn: &mut AnyConn,
    (id, key): (&str, &IdempotencyKey),
    content_hash: &str,
    outcome: &Outcome<DispatchStatus>,
    at: f64,
) -> QueryResult<()> {
    use leasehold_dispatch_keys::dsl;
    let Outcome::Applied { transition_id, previous, current, .. } = outcome else { return Ok(()) };
    let row = (
        dsl::dispatch_id.eq(id),
        dsl::key.eq(key.as_str()),
        dsl::content_hash.eq(content_hash),
        dsl::fact_id.eq(transition_id),
        dsl::previous_status.eq(previous.as_str()),
        dsl::status.eq(current.as_str()),
        dsl::created_at.eq(at),
    );
    diesel::insert_into(dsl::leasehold_dispatch_keys).values(row).execute(conn).map(drop)
}
