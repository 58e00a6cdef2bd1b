//! `leasehold verify`.

use std::process::ExitCode;

use leasehold::Config;
use leasehold::db::ops;
use serde_json::{Value, json};

use super::failure::Failure;
use super::harmless::harmless;
use super::out;
use super::store::StoreOption;

/// Check whether what the store says can be true, and change nothing
///
/// For every task: its facts are one path from queued to its status, along declared edges, and none follows an end;
/// what runs has an owner, an expiry and an epoch; no two that run have one key; the bound of leases that ran out holds;
/// each attempt that ended was begun; each notice tells of the end of its task, and none is missing; its events are its
/// facts, each once and in order; a key of a request stands for a fact. The store is seen as it was at one moment, whoever
/// writes meanwhile. Exit code 1 when something is wrong.
#[derive(Debug, clap::Args)]
pub(super) struct Verify {
    /// Print a JSON object: runs, facts, notices, and faults with run_id, check and what
    #[arg(long)]
    json: bool,
}

impl Verify {
    pub(super) fn run(&self, store: &StoreOption) -> Result<ExitCode, Failure> {
        let mut queue = store.read()?;
        let most_expiries = Config::daemon().max_lease_attempts;
        let is_complete = queue.is_complete();
        let found = queue.read(&ops::Verify { most_expiries, is_complete })?;
        if self.json {
            let fault = |(run_id, fault): &(String, leasehold::domain::ledger::Fault)| json!({ "run_id": run_id, "check": fault.check, "what": fault.what });
            let faults: Value = found.faults.iter().map(fault).collect();
            let all = json!({ "runs": found.runs, "facts": found.facts, "notices": found.notices, "faults": faults });
            out::print(&format!("{all}\n"))?;
        } else {
            let lines: String = found
                .faults
                .iter()
                .map(|(id, fault)| {
                    harmless(&format!("{id}: {}: {}", fault.check, fault.what)) + "\n"
                })
                .collect();
            let verdict = match found.faults.len() {
                0 => "nothing is wrong".to_owned(),
                count => format!("{count} faults"),
            };
            out::print(&format!(
                "{lines}{} tasks, {} facts: {verdict}\n",
                found.runs, found.facts
            ))?;
        }
        Ok(if found.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
