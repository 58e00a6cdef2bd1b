//! Which change of a run an idempotency key stands for.

use diesel::prelude::*;

use crate::db::engine::AnyConn;
use crate::db::schema::leasehold_transition_keys;
use crate::db::words::known_status;
use crate::domain::event::EventId;
use crate::domain::payload::IdempotencyKey;
use crate::domain::transition::Outcome;

/// What was asked for and answered under a key.
#[derive(Queryable, Selectable)]
#[diesel(table_name = leasehold_transition_keys)]
pub(super) struct Keyed {
    content_hash: String,
    fact_id: String,
    event_id: String,
    previous_status: String,
    status: String,
}

impl Keyed {
    /// The first answer, for the same request; for another one the id of the fact that has the key.
    pub fn answer(self, content_hash: &str) -> QueryResult<Result<Outcome, String>> {
        if self.content_hash != content_hash {
            return Ok(Err(self.fact_id));
        }
        let event_id: EventId = self
            .event_id
            .parse()
            .map_err(|error| diesel::result::Error::DeserializationError(Box::new(error)))?;
        Ok(Ok(Outcome::Applied {
            transition_id: self.fact_id,
            event_id: Some(event_id),
            previous: known_status(&self.previous_status)?,
            current: known_status(&self.status)?,
        }))
    }
}

/// What the key stands for, if it stands for something. The run is locked.
pub(super) fn keyed_change(
    conn: &mut AnyConn,
    run_id: &str,
    key: &IdempotencyKey,
) -> QueryResult<Option<Keyed>> {
    leasehold_transition_keys::table
        .find((run_id, key.as_str()))
        .select(Keyed::as_select())
        .first(conn)
        .optional()
}

/// Has the key stand for a change that applied.
pub(super) fn keep_key(
    conn: &mut AnyConn,
    (run_id, key): (&str, &IdempotencyKey),
    content_hash: &str,
    outcome: &Outcome,
    at: f64,
) -> QueryResult<()> {
    use leasehold_transition_keys::dsl;
    let Outcome::Applied { transition_id, event_id: Some(event_id), previous, current } = outcome
    else {
        return Ok(());
    };
    let row = (
        dsl::run_id.eq(run_id),
        dsl::key.eq(key.as_str()),
        dsl::content_hash.eq(content_hash),
        dsl::fact_id.eq(transition_id),
        dsl::event_id.eq(event_id.to_string()),
        dsl::previous_status.eq(previous.as_str()),
        dsl::status.eq(current.as_str()),
        dsl::created_at.eq(at),
    );
    diesel::insert_into(dsl::leasehold_transition_keys).values(row).execute(conn).map(drop)
}
