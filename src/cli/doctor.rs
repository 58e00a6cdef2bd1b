//! `leasehold doctor`.
//!
//! Each check is a look at the machine or the store and a pure judgement of what was seen.

mod disk;
mod finding;
mod init;
mod machine;
mod service;
mod state_dir;
mod store;

use std::path::Path;
use std::process::ExitCode;

use leasehold::db::StoreUrl;

use super::failure::Failure;
use super::state::StateOption;
use super::store::StoreOption;
use super::worker::launch_settings;
use super::{out, text};
use finding::{Finding, State, lines};
use state_dir::SlotSeen;

const ABOUT: &str = "\
Each line is one check: ok, warning (something is weaker than it could be) or problem (work cannot
be done, or a promise is not kept), what was found, and what to do. Exit code 0 when nothing is a
problem, else 1.

Examples:
  leasehold doctor
  leasehold --store postgres://app@db.example/queue doctor --json";

/// Check the store, the state directory and this machine, and say what to do
///
/// Nothing is written, and no worker or task is disturbed. Run it as the user of the worker, where the worker runs: what
/// it says of the service manager is of the living workers of this store, or of itself when there is none. A store in a
/// file is read as a whole, to find damage.
#[derive(Debug, clap::Args)]
#[command(after_help = ABOUT)]
pub(super) struct Doctor {
    /// Print a JSON array of checks: check, state, what, todo
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state: StateOption,
}

impl Doctor {
    pub(super) fn run(&self, store: &StoreOption) -> Result<ExitCode, Failure> {
        let findings = self.findings(store);
        match self.json {
            true => out::print(&text::json_array(&findings)?)?,
            false => out::print(&lines(&findings))?,
        }
        let is_bad = findings.iter().any(|finding| finding.state == State::Problem);
        Ok(if is_bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn findings(&self, store: &StoreOption) -> Vec<Finding> {
        let (mut findings, store_id, is_shared) = match store.address() {
            Ok((url, _)) => {
                let (findings, id) = store::check(&url);
                (findings, id, matches!(url, StoreUrl::Postgres(_)))
            }
            Err(failure) => (vec![failed("store", failure)], None, false),
        };
        let mut workers = Vec::new();
        match self.state.directory() {
            Ok(directory) => {
                let (found, slots) = state_directory(&directory, store_id.as_deref());
                findings.extend(found);
                workers.extend(slots.iter().filter_map(|slot| slot.worker));
            }
            Err(failure) => findings.push(failed("state-directory", failure)),
        }
        findings.extend(machine::facilities());
        findings.push(machine::control_group());
        findings.push(machine::clock(is_shared));
        findings.extend(service::check(&workers));
        findings.push(init::check(&workers));
        findings.push(machine::privileges());
        findings.push(machine::li(&launch_settings().li));
        findings
    }
}

fn state_directory(directory: &Path, store_id: Option<&str>) -> (Vec<Finding>, Vec<SlotSeen>) {
    let mut findings = vec![
        state_dir::judge_directory(directory, state_dir::Directory::look(directory)),
        disk::judge(
            "state-disk",
            directory,
            "locks and sockets of guardians",
            disk::look(directory),
        ),
    ];
    // Which slots are this store's, only the store knows.
    let slots = match store_id.map(|id| state_dir::look_at_slots(directory, id)) {
        None => Vec::new(),
        Some(Ok(slots)) => {
            findings.extend(state_dir::judge_slots(&slots));
            slots
        }
        Some(Err(error)) => {
            let what =
                format!("the slots in {} cannot be looked at ({error})", directory.display());
            let todo = "run this as the user of the worker, where /proc is mounted";
            findings.push(Finding::warning("slots", what, todo));
            Vec::new()
        }
    };
    (findings, slots)
}

fn failed(check: &'static str, failure: Failure) -> Finding {
    match failure {
        Failure::Refused(reason) | Failure::WrongWord(reason) => Finding::error(check, &reason),
        Failure::Usage(error) => Finding::error(check, &error.to_string()),
    }
}
