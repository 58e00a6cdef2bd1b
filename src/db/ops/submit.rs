//! Inserts a checked task as one queued run (ADR-0071 D2). No fact is written: history begins with the first change.

use diesel::prelude::*;

use super::change::{Change, swap};
use crate::db::columns::JsonText;
use crate::db::engine::{AnyConn, Evidence, Operation, on};
use crate::db::schema::{leasehold_keys, leasehold_runs, schedule_runs};
use crate::domain::json_text;
use crate::domain::payload;
use crate::domain::reason::{Reason, ReasonCode};
use crate::domain::settings::RunSettings;
use crate::domain::status::Status;
use crate::domain::task::TaskSpec;
use crate::domain::transition::Principal;

/// Inserts `spec` under `id`.
#[derive(Debug, Clone)]
pub struct Submit {
    /// The task.
    pub spec: TaskSpec,
    /// What its run starts with; stored beside the run if anything is set.
    pub settings: RunSettings,
    /// What the task reads from its standard input.
    pub stdin: Option<Vec<u8>>,
    /// Its id.
    pub id: String,
    /// When it is submitted, in seconds since the epoch.
    pub at: f64,
    /// The id of the fact, should it have to wait for a moment.
    pub fact_id: String,
}

#[derive(Insertable)]
// One text for all runs, so that it stays prepared; PostgreSQL would say DEFAULT for each absent value.
#[diesel(table_name = schedule_runs, treat_none_as_default_value = false)]
struct NewRun<'a> {
    id: &'a str,
    trigger_context: JsonText,
    action_kind: &'a str,
    action_args: JsonText,
    status: &'static str,
    chain_parent_id: Option<&'a str>,
    chain_depth: i32,
    fired_at: f64,
    created_at: f64,
    queued_at: f64,
    concurrency_key: Option<&'a str>,
    required_capabilities: JsonText,
    execution_target: &'a str,
    library_ref: Option<&'a str>,
    library_content_hash: Option<&'a str>,
}

/// What came of a submit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Submitted {
    /// The task is there, under its id.
    New,
    /// Its key stands for this task, which is the same; nothing was written.
    Again(String),
    /// Its key stands for this task, which is another one; nothing was written.
    Taken(String),
}

impl Operation for Submit {
    type Output = Submitted;

    fn name(&self) -> &'static str {
        "submit a task"
    }

    fn subject(&self) -> Option<&str> {
        Some(&self.id)
    }

    fn evidence(&self, output: &Submitted) -> Option<Evidence<'_>> {
        (*output == Submitted::New).then_some(Evidence::Run(&self.id))
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Submitted> {
        self.submit(conn, None)
    }
}

/// The task that another one is made from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parent<'a> {
    pub id: &'a str,
    /// How many tasks its own chain has before it.
    pub depth: i32,
}

impl Submit {
    /// Takes its key and inserts it, as a child of `parent` if there is one.
    pub(super) fn submit(
        &self,
        conn: &mut AnyConn,
        parent: Option<Parent<'_>>,
    ) -> QueryResult<Submitted> {
        match self.take_key(conn, parent)? {
            Submitted::New => self.insert(conn, parent).map(|()| Submitted::New),
            taken => Ok(taken),
        }
    }

    /// Writes the rows of a task whose key, if it has one, is its own.
    pub(super) fn insert(&self, conn: &mut AnyConn, parent: Option<Parent<'_>>) -> QueryResult<()> {
        let spec = &self.spec;
        let when = self.settings.when;
        let not_before = when.not_before.filter(|moment| *moment > self.at);
        let run = NewRun {
            id: &self.id,
            trigger_context: JsonText("{}".into()),
            action_kind: &spec.action_kind,
            action_args: JsonText(json_text::object(&spec.args)),
            status: Status::Queued.as_str(),
            chain_parent_id: parent.map(|parent| parent.id),
            chain_depth: parent.map_or(0, |parent| parent.depth.saturating_add(1)),
            fired_at: self.at,
            created_at: self.at,
            queued_at: when.place(self.at),
            concurrency_key: spec.concurrency_key.as_deref(),
            required_capabilities: JsonText(json_text::strings(&spec.required_capabilities)),
            execution_target: &spec.execution_target,
            library_ref: spec.library_ref.as_deref(),
            library_content_hash: spec.library_content_hash.as_deref(),
        };
        diesel::insert_into(schedule_runs::table).values(&run).execute(conn)?;
        if not_before.is_some() {
            self.wait(conn)?;
        }
        if self.settings.is_empty() && self.stdin.is_none() {
            return Ok(());
        }
        let beside = (
            leasehold_runs::run_id.eq(&self.id),
            leasehold_runs::settings.eq(JsonText(self.settings.text())),
            leasehold_runs::stdin.eq(self.stdin.as_deref()),
            leasehold_runs::lease_expiries.eq(0),
            leasehold_runs::wake_at.eq(not_before),
            leasehold_runs::expires_at.eq(when.expires),
            leasehold_runs::failures.eq(0),
        );
        diesel::insert_into(leasehold_runs::table).values(beside).execute(conn).map(drop)
    }

    /// In the same transaction, so that nobody can claim it meanwhile, the original's worker on the same store included.
    fn wait(&self, conn: &mut AnyConn) -> QueryResult<()> {
        let edge = (Status::Queued, Status::WaitingDependency);
        let reason = Reason::new(ReasonCode::NOT_BEFORE, "it is not to be started yet");
        let by = Principal::operator("submit");
        let change = Change::unleased(&self.id, edge, &reason, &by, self.at, &self.fact_id);
        swap(conn, &change).map(drop)
    }

    /// Has the key stand for this task; says for which it stands if it is taken. Whoever comes second waits here for the
    /// end of the other's transaction. A task without a key is always a new one.
    pub(super) fn take_key(
        &self,
        conn: &mut AnyConn,
        parent: Option<Parent<'_>>,
    ) -> QueryResult<Submitted> {
        use leasehold_keys::dsl;
        let Some(key) = &self.spec.idempotency_key else { return Ok(Submitted::New) };
        let hash = payload::hash(&self.spec, &self.settings, self.stdin.as_deref());
        let hash = parent.map_or(hash.clone(), |parent| payload::hash_of_retry(&hash, parent.id));
        let row = (
            dsl::key.eq(key.as_str()),
            dsl::payload_hash.eq(&hash),
            dsl::run_id.eq(&self.id),
            dsl::created_at.eq(self.at),
        );
        let taken = on!(&mut *conn, c => {
            diesel::insert_into(dsl::leasehold_keys).values(row).on_conflict_do_nothing().execute(c)
        })?;
        if taken == 1 {
            return Ok(Submitted::New);
        }
        let (stored, run_id): (String, String) = dsl::leasehold_keys
            .find(key.as_str())
            .select((dsl::payload_hash, dsl::run_id))
            .first(conn)?;
        Ok(match stored == hash {
            true => Submitted::Again(run_id),
            false => Submitted::Taken(run_id),
        })
    }

    /// Has the key stand for nothing again, if it was this task that took it.
    pub(super) fn give_key_back(&self, conn: &mut AnyConn) -> QueryResult<()> {
        use leasehold_keys::dsl;
        let Some(key) = &self.spec.idempotency_key else { return Ok(()) };
        let own = dsl::leasehold_keys.find(key.as_str()).filter(dsl::run_id.eq(&self.id));
        diesel::delete(own).execute(conn).map(drop)
    }
}
