//! What was answered to requests with a key.

use std::collections::HashMap;

use diesel::prelude::*;

use crate::db::engine::AnyConn;
use crate::db::schema::{leasehold_dispatch_keys, leasehold_transition_keys};
use crate::domain::ledger::Answer;

/// An answer as it is stored, with what it is about.
#[derive(Queryable)]
pub(super) struct StoredAnswer {
    of: String,
    key: String,
    fact_id: String,
    previous_status: String,
    status: String,
}

impl StoredAnswer {
    /// The answer beside the facts with these ids.
    pub fn found_in(self, facts: &[String]) -> Answer {
        Answer {
            key: self.key,
            fact: facts.iter().position(|fact| *fact == self.fact_id),
            change: (self.previous_status, self.status),
        }
    }
}

/// Answers by run, or by notice.
pub(super) type Answers = HashMap<String, Vec<StoredAnswer>>;

pub(super) fn of_runs(conn: &mut AnyConn, ids: &[&str]) -> QueryResult<Answers> {
    use leasehold_transition_keys::dsl;
    dsl::leasehold_transition_keys
        .select((dsl::run_id, dsl::key, dsl::fact_id, dsl::previous_status, dsl::status))
        .filter(dsl::run_id.eq_any(ids))
        .load(conn)
        .map(grouped)
}

pub(super) fn of_notices(conn: &mut AnyConn, ids: &[&str]) -> QueryResult<Answers> {
    use leasehold_dispatch_keys::dsl;
    dsl::leasehold_dispatch_keys
        .select((dsl::dispatch_id, dsl::key, dsl::fact_id, dsl::previous_status, dsl::status))
        .filter(dsl::dispatch_id.eq_any(ids))
        .load(conn)
        .map(grouped)
}

fn grouped(rows: Vec<StoredAnswer>) -> Answers {
    let mut of = Answers::new();
    for row in rows {
        of.entry(row.of.clone()).or_default().push(row);
    }
    of
}
