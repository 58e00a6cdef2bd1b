//! `leasehold list`.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use leasehold::db::Run;
use leasehold::db::ops::ListRuns;
use leasehold::domain::claim_plan::required_tokens;
use leasehold::domain::status::Status;
use leasehold::domain::why::{Finding, Short, short};
use serde_json::Value;

use super::failure::Failure;
use super::lock_looks::LockLooks;
use super::locks::LockOption;
use super::state::StateOption;
use super::store::StoreOption;
use super::{out, text};

const EXAMPLES: &str = "\
Examples:
  leasehold list --status queued --status running
  leasehold list --limit 1000 --json";

/// List tasks, oldest first
///
/// Tasks of every status are listed unless --status names some. Times are UTC; TRIES counts how often a task was
/// claimed; WHY is the first reason of `leasehold why` for one that does not run. Long values are cut, which `show` and
/// --json do not do. What a task was given and what it has said is left to `show`, since it may be secret.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct List {
    /// Only tasks with this status; may be given more than once
    #[arg(long = "status", value_name = "STATUS", value_parser = status())]
    statuses: Vec<Status>,
    /// At most so many tasks
    #[arg(long, value_name = "COUNT", default_value_t = 100, allow_negative_numbers = true)]
    limit: u32,
    /// Print a JSON array of rows, with the column names of the table schedule_runs, and why
    ///
    /// Times are seconds since the epoch there. The columns trigger_context, action_args, error_detail and
    /// status_reason_summary are left to `show`: they may hold secrets.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    locks: LockOption,
    #[command(flatten)]
    state: StateOption,
}

/// Columns that hold what a task was given, or what it has said.
const UNLISTED: [&str; 4] =
    ["trigger_context", "action_args", "error_detail", "status_reason_summary"];

/// A status by its word.
pub(super) fn status() -> impl TypedValueParser<Value = Status> {
    PossibleValuesParser::new(Status::ALL.map(Status::as_str))
        .try_map(|name| Status::parse(&name).ok_or("no such status"))
}

impl List {
    pub(super) fn run(&self, store: &StoreOption) -> Result<(), Failure> {
        let query = ListRuns { statuses: self.statuses.clone(), limit: self.limit };
        let mut queue = store.read()?;
        let runs = queue.read(&query)?;
        let found = queue.why_each(&runs)?;
        let reasons = self.reasons(&runs, found);
        let rows = runs.into_iter().zip(reasons);
        if self.json {
            let rows = rows.map(|(run, why)| listed(&run, why)).collect::<Result<Vec<_>, _>>()?;
            return out::print(&text::json_array(&rows)?);
        }
        let rows = rows.map(|(run, why)| {
            [
                run.id,
                run.status,
                run.action_kind,
                text::or_none(run.execution_target.as_deref()).to_owned(),
                run.lease_attempts.to_string(),
                text::time(run.created_at),
                text::or_none(run.status_reason_code.as_deref()).to_owned(),
                text::or_none(why.as_deref()).to_owned(),
            ]
        });
        let headings = ["ID", "STATUS", "KIND", "TARGET", "TRIES", "CREATED", "REASON", "WHY"];
        out::print(&text::table(headings, rows))
    }

    /// In a few words, why each run does not run.
    fn reasons(&self, runs: &[Run], found: Vec<Vec<Finding>>) -> Vec<Option<String>> {
        let mut looks = LockLooks::default();
        let needs = |run: &Run| match run.status.as_str() {
            "queued" => {
                let needs = run.required_capabilities.as_ref().map(|text| text.0.as_str());
                required_tokens(needs).unwrap_or_default()
            }
            _ => Vec::new(),
        };
        if runs.iter().any(|run| looks.are_needed(&needs(run))) {
            // A list is worth having without them.
            looks.look_in(self.locks.to_look_at(&self.state).unwrap_or_default());
        }
        let reason = |(run, mut found): (&Run, Vec<Finding>)| {
            found.extend(looks.of(&needs(run)));
            let Short { words, at } = short(&found)?;
            Some(at.map_or_else(|| words.clone(), |at| format!("{words} {}", text::time(at))))
        };
        runs.iter().zip(found).map(reason).collect()
    }
}

fn listed(run: &Run, why: Option<String>) -> Result<Value, Failure> {
    let mut row = serde_json::to_value(run)?;
    if let Value::Object(columns) = &mut row {
        columns.retain(|name, _| !UNLISTED.contains(&name.as_str()));
        columns.insert("why".into(), why.into());
    }
    Ok(row)
}
