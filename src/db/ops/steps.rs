//! How far a workflow has come (its steps, each once, as it was begun last).

use diesel::prelude::*;

use super::run_state::is_running_in;
use crate::db::engine::{AnyConn, Operation, Query, on};
use crate::db::rows::StepRow;
use crate::db::schema::leasehold_steps;
use crate::domain::run::RunEpoch;

/// Notes that a step has ended, or that one begins, or both at once: what begins is stored before it is started.
///
/// Only the attempt that the run is in may write: an older one is told so and changes nothing. Whose the lease is does
/// not matter, since it may change its owner while the attempt goes on.
#[derive(Debug, Clone)]
pub struct AdvanceSteps {
    /// The run, and the attempt that writes.
    pub run: RunEpoch,
    /// The number of the step that has ended, and its exit code.
    pub ended: Option<(i32, i32)>,
    /// The one that begins.
    pub begins: Option<StepBegins>,
    /// When, in seconds since the epoch.
    pub at: f64,
}

/// A step that begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepBegins {
    /// Its number, from 1.
    pub step: i32,
    /// What it is called.
    pub name: Option<String>,
    /// Its kind.
    pub kind: String,
}

impl Operation for AdvanceSteps {
    /// Whether the run still runs in this attempt; if not, nothing was written.
    type Output = bool;

    fn name(&self) -> &'static str {
        "note the steps of a workflow"
    }

    fn subject(&self) -> Option<&str> {
        Some(&self.run.run_id)
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<bool> {
        use leasehold_steps::dsl;
        if !is_running_in(conn, &self.run)? {
            return Ok(false);
        }
        if let Some((step, exit_code)) = self.ended {
            diesel::update(dsl::leasehold_steps.find((&self.run.run_id, step)))
                .set((dsl::ended_at.eq(self.at), dsl::exit_code.eq(exit_code)))
                .execute(conn)?;
        }
        if let Some(StepBegins { step, name, kind }) = &self.begins {
            let begun = (
                dsl::epoch.eq(self.run.epoch),
                dsl::begun_at.eq(self.at),
                dsl::ended_at.eq(None::<f64>),
                dsl::exit_code.eq(None::<i32>),
            );
            let which = (dsl::run_id.eq(&self.run.run_id), dsl::step.eq(*step));
            on!(conn, c => {
                diesel::insert_into(dsl::leasehold_steps)
                    .values((which, dsl::name.eq(name), dsl::kind.eq(kind), begun))
                    .on_conflict((dsl::run_id, dsl::step))
                    .do_update()
                    .set(begun)
                    .execute(c)
                    .map(drop)
            })?;
        }
        Ok(true)
    }
}

/// The steps of a workflow that were begun, in order.
#[derive(Debug, Clone)]
pub struct Steps {
    /// The run.
    pub run_id: String,
}

impl Query for Steps {
    type Output = Vec<StepRow>;

    fn name(&self) -> &'static str {
        "read the steps of a workflow"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Vec<StepRow>> {
        use leasehold_steps::dsl;
        let mut rows: Vec<StepRow> = dsl::leasehold_steps
            .select(StepRow::as_select())
            .filter(dsl::run_id.eq(&self.run_id))
            .load(conn)?;
        rows.sort_by_key(|row| row.step);
        Ok(rows)
    }
}

/// The step with which this attempt has failed, if it was a workflow: its number and its name. There is one at the most,
/// since it ends the attempt.
pub(super) fn failed_step(
    conn: &mut AnyConn,
    run: &RunEpoch,
) -> QueryResult<Option<(i32, Option<String>)>> {
    use leasehold_steps::dsl;
    dsl::leasehold_steps
        .select((dsl::step, dsl::name))
        .filter(dsl::run_id.eq(&run.run_id))
        .filter(dsl::epoch.eq(run.epoch))
        .filter(dsl::exit_code.ne(0))
        .first(conn)
        .optional()
}

/// Has a workflow begin again with its first step.
pub(super) fn forget_steps(conn: &mut AnyConn, run_id: &str) -> QueryResult<()> {
    use leasehold_steps::dsl;
    diesel::delete(dsl::leasehold_steps.filter(dsl::run_id.eq(run_id))).execute(conn).map(drop)
}
