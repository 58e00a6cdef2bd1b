//! Rows as queries return them, with the column names of the tables, in JSON too.

use diesel::prelude::*;
use serde::Serialize;

use super::columns::JsonText;
use super::schema::{
    dispatch_outbox, leasehold_attempts, leasehold_steps, schedule_runs, status_transitions,
    workers,
};
use crate::domain::event::EventId;
use crate::domain::workflow::BegunStep;

/// A run: one row of `schedule_runs`. Times are seconds since the epoch; JSON columns are their stored text.
#[derive(Debug, Clone, PartialEq, Queryable, Selectable, Serialize)]
#[diesel(table_name = schedule_runs)]
#[expect(missing_docs, reason = "the columns are those of ADR-0071 D2")]
pub struct Run {
    pub id: String,
    pub schedule_id: Option<String>,
    pub invocation_id: Option<String>,
    pub trigger_context: JsonText,
    pub action_kind: String,
    pub action_args: JsonText,
    pub status: String,
    pub exit_code: Option<i32>,
    pub chain_parent_id: Option<String>,
    pub chain_depth: i32,
    pub fired_at: f64,
    pub ended_at: Option<f64>,
    pub error_detail: Option<String>,
    pub created_at: f64,
    pub updated_at: Option<f64>,
    pub status_reason_code: Option<String>,
    pub status_reason_summary: Option<String>,
    pub status_evidence_refs: Option<JsonText>,
    pub queued_at: Option<f64>,
    pub leased_by: Option<String>,
    pub lease_expires_at: Option<f64>,
    pub concurrency_key: Option<String>,
    pub lease_attempts: i32,
    pub required_capabilities: Option<JsonText>,
    pub execution_target: Option<String>,
    pub library_ref: Option<String>,
    pub library_content_hash: Option<String>,
}

/// A fact of history: one row of `status_transitions`.
#[derive(Debug, Clone, PartialEq, Queryable, Selectable, Serialize)]
#[diesel(table_name = status_transitions)]
#[expect(missing_docs, reason = "the columns are those of ADR-0071 D3")]
pub struct Fact {
    pub id: String,
    pub entity_type: String,
    pub entity_id: String,
    pub previous_status: Option<String>,
    pub status: String,
    pub reason_code: String,
    pub reason_summary: Option<String>,
    pub evidence_refs: Option<JsonText>,
    pub source: String,
    pub actor: Option<String>,
    pub created_at: f64,
    pub metadata: Option<JsonText>,
}

/// How an attempt ended: one row of `leasehold_attempts`.
#[derive(Debug, Clone, PartialEq, Queryable, Selectable, Serialize)]
#[diesel(table_name = leasehold_attempts)]
#[expect(missing_docs, reason = "the columns are those of the table")]
pub struct Attempt {
    #[serde(skip)]
    pub run_id: String,
    pub epoch: i32,
    pub owner: String,
    pub ended_at: f64,
    pub ended_by: String,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub core_dumped: Option<i32>,
    pub user_seconds: Option<f64>,
    pub system_seconds: Option<f64>,
    pub max_rss_kib: Option<i64>,
    pub leftovers: Option<i32>,
}

/// A step of a workflow that was begun: one row of `leasehold_steps`.
#[derive(Debug, Clone, PartialEq, Queryable, Selectable, Serialize)]
#[diesel(table_name = leasehold_steps)]
#[expect(missing_docs, reason = "the columns are those of the table")]
pub struct StepRow {
    #[serde(skip)]
    pub run_id: String,
    pub step: i32,
    pub name: Option<String>,
    pub kind: String,
    pub epoch: i32,
    pub begun_at: f64,
    pub ended_at: Option<f64>,
    pub exit_code: Option<i32>,
}

impl From<&StepRow> for BegunStep {
    fn from(row: &StepRow) -> BegunStep {
        let StepRow { step, epoch, begun_at, exit_code, .. } = *row;
        BegunStep { step, epoch, begun_at, exit_code }
    }
}

/// Something that happened to a run: that it was inserted, or that its status changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    /// Its place in the feed; who has seen it goes on after that.
    pub id: EventId,
    /// When, in seconds since the epoch, by the clock of whoever did it: the order is that of the ids.
    pub created_at: f64,
    /// The run. It may have been removed since.
    pub run_id: String,
    /// The status before; absent for a run that was inserted.
    pub previous_status: Option<String>,
    /// The status from then on; absent, with the rest, only when somebody has removed the fact.
    pub status: Option<String>,
    /// Why; absent for a run that was inserted.
    pub reason_code: Option<String>,
    /// What kind of principal has changed it.
    pub source: Option<String>,
    /// Which one.
    pub actor: Option<String>,
    /// The fact's id; absent for a run that was inserted.
    pub transition_id: Option<String>,
}

/// A worker's last heartbeat: one row of `workers`.
#[derive(Debug, Clone, PartialEq, Queryable, Selectable, Serialize)]
#[diesel(table_name = workers)]
#[expect(missing_docs, reason = "the columns are those of ADR-0071 D4")]
pub struct Worker {
    pub worker_id: String,
    pub advertised_capabilities: JsonText,
    pub execution_targets: JsonText,
    pub last_heartbeat_at: f64,
    pub leased_run_id: Option<String>,
}

/// A notice of an ended task: one row of `dispatch_outbox`.
#[derive(Debug, Clone, PartialEq, Queryable, Selectable, Serialize)]
#[diesel(table_name = dispatch_outbox)]
#[expect(missing_docs, reason = "the columns are those of the original's table")]
pub struct Notice {
    pub id: String,
    pub kind: String,
    pub deliver_to: String,
    pub payload: JsonText,
    pub status: String,
    pub attempt: i32,
    pub max_attempts: i32,
    /// As a moment: the column holds a [later](crate::domain::notice::LATER) one.
    pub next_attempt_at: f64,
    pub schedule_run_id: Option<String>,
    pub last_error: Option<String>,
    pub created_at: f64,
    pub expires_at: Option<f64>,
    pub updated_at: Option<f64>,
}
