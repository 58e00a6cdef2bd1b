//! `leasehold steps`.

use std::collections::HashMap;

use leasehold::db::StepRow;
use leasehold::db::ops;
use leasehold::domain::task::WORKFLOW;
use leasehold::domain::workflow::number;
use serde_json::{Value, json};

use super::failure::Failure;
use super::store::StoreOption;
use super::{out, text};

/// List the steps of a workflow, and how far it has come
///
/// STATE is done, failed, or begun: then the step runs, or its end was never seen. ATTEMPT is the one in which it was
/// begun last. A step that was not begun yet shows `-`. Times are UTC.
#[derive(Debug, clap::Args)]
pub(super) struct Steps {
    /// The task's id, as `submit` printed it
    id: String,
    /// Print a JSON array of all steps, with the column names of the table leasehold_steps
    ///
    /// Times are seconds since the epoch there; what is not known is null.
    #[arg(long)]
    json: bool,
}

impl Steps {
    pub(super) fn run(&self, store: &StoreOption) -> Result<(), Failure> {
        let mut queue = store.read()?;
        let run = queue.run(&self.id)?;
        let refused =
            |why| Err(Failure::Refused(format!("the task {} has no steps: {why}", run.id)));
        if run.action_kind != WORKFLOW {
            return refused("it is no workflow");
        }
        let Some(progress) = queue.progress(&run)? else {
            return refused("its arguments are no plan, or no store of this version has it");
        };
        let begun = queue.read(&ops::Steps { run_id: run.id.clone() })?;
        let mut begun: HashMap<i32, StepRow> =
            begun.into_iter().map(|row| (row.step, row)).collect();
        let steps = progress.plan.into_iter().enumerate().map(|(index, step)| {
            let number = number(index);
            (number, step, begun.remove(&number))
        });
        if self.json {
            let all: Vec<Value> = steps
                .map(|(number, step, begun)| {
                    let begun = begun.as_ref();
                    json!({
                        "step": number,
                        "name": step.name,
                        "kind": step.kind,
                        "epoch": begun.map(|row| row.epoch),
                        "begun_at": begun.map(|row| row.begun_at),
                        "ended_at": begun.and_then(|row| row.ended_at),
                        "exit_code": begun.and_then(|row| row.exit_code),
                    })
                })
                .collect();
            return out::print(&text::json_array(&all)?);
        }
        let rows = steps.map(|(number, step, begun)| {
            let of = |told: Option<String>| text::or_none(told.as_deref()).to_owned();
            let begun = begun.as_ref();
            [
                number.to_string(),
                of(step.name),
                step.kind,
                of(begun.map(|row| state(row).to_owned())),
                of(begun.map(|row| row.epoch.to_string())),
                of(begun.map(|row| text::time(row.begun_at))),
                of(begun.and_then(|row| row.ended_at).map(text::time)),
                of(begun.and_then(|row| row.exit_code).map(|code| code.to_string())),
            ]
        });
        let headings = ["STEP", "NAME", "KIND", "STATE", "ATTEMPT", "BEGUN", "ENDED", "EXIT"];
        out::print(&text::table(headings, rows))
    }
}

fn state(row: &StepRow) -> &'static str {
    match row.exit_code {
        Some(0) => "done",
        Some(_) => "failed",
        None => "begun",
    }
}
