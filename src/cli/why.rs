//! `leasehold why`.

use clap::Arg;
use leasehold::Config;
use leasehold::clock::{Clock, SystemClock};
use leasehold::domain::claim_plan::required_tokens;
use leasehold::domain::task::TaskSpec;
use leasehold::domain::why::{Finding, Short, Surroundings, View, explain, start};
use leasehold::queue::WhatIf;
use serde_json::{Value, json};

use super::failure::Failure;
use super::harmless::harmless;
use super::lock_looks::LockLooks;
use super::locks::LockOption;
use super::state::StateOption;
use super::store::StoreOption;
use super::submit::{Draft, TaskOptions};
use super::{out, text};

const EXAMPLES: &str = "\
Examples:
  leasehold why 15df84e0-b0a6-4920-9401-8165acdc8aab
  leasehold why --what-if agent --needs gpu-exclusive --after 10m";

const USAGE: &str = "\
leasehold why [--json] ID
       leasehold why [--json] --what-if KIND [OPTIONS OF submit] [-- PROG ARG...]";

/// Say why a task stands where it stands, or where one would stand that is not submitted
///
/// Each thing that decides about the task, with its numbers; a `!` is before those that keep it from being started, and
/// the first of them is what `list` shows. Workers that were not seen for 90 s count as stale. Locks are those of this
/// machine. Arguments are never shown.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = USAGE, mut_args(of_why))]
pub(super) struct Why {
    /// Say it of the task that `submit` would store with the same words; nothing is stored
    ///
    /// Whether it would be refused, and why; whether it could be claimed now, and by whom; and what it would wait for.
    #[arg(long)]
    what_if: bool,
    /// Print a JSON array of objects with check, blocks and what
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    locks: LockOption,
    #[command(flatten)]
    state: StateOption,
    #[command(flatten, next_help_heading = "With --what-if, as for submit")]
    task: TaskOptions,
}

/// An argument of `submit` as one of `why`.
fn of_why(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "what_if" | "json" | "lock_dir" | "state_dir" => arg,
        "kind" => arg
            .required(true)
            .value_name("ID|KIND")
            .help("The task's id, as `submit` printed it; with --what-if the kind of task")
            .long_help(None),
        // Nothing is waited for, but the words of a submit can be taken over.
        "wait" => arg.requires("what_if").hide(true),
        _ => arg.requires("what_if"),
    }
}

impl Why {
    pub(super) fn run(&self, store: &StoreOption) -> Result<(), Failure> {
        let found = if self.what_if { self.what_if(store)? } else { self.of_task(store)? };
        if self.json {
            let object = |finding: &Finding| json!({ "check": finding.check, "blocks": finding.blocks, "what": finding.what });
            let all: Vec<Value> = found.iter().map(object).collect();
            return out::print(&text::json_array(&all)?);
        }
        let line = |finding: &Finding| {
            let mark = if finding.blocks { "!" } else { " " };
            harmless(&format!("{mark} {}: {}", finding.check, finding.what)) + "\n"
        };
        out::print(&found.iter().map(line).collect::<String>())
    }

    fn of_task(&self, store: &StoreOption) -> Result<Vec<Finding>, Failure> {
        let mut queue = store.read()?;
        let run = queue.run(self.task.kind())?;
        let mut found = queue.why(&run.id)?;
        if run.status == "queued" {
            let needs = run.required_capabilities.as_ref().map(|text| text.0.as_str());
            found.extend(self.locks_of(&required_tokens(needs).unwrap_or_default())?);
        }
        Ok(found)
    }

    fn what_if(&self, store: &StoreOption) -> Result<Vec<Finding>, Failure> {
        match self.task.draft().and_then(|draft| self.what_if_stored(store, &draft)) {
            Err(Failure::Refused(reason)) => {
                Ok(vec![submit(true, format!("it would be refused: {reason}"))])
            }
            answer => answer,
        }
    }

    fn what_if_stored(&self, store: &StoreOption, draft: &Draft) -> Result<Vec<Finding>, Failure> {
        let Draft { config, app, settings, stdin } = draft;
        let (stored, mut found) = match store.read_if_there(config.clone())? {
            Some(mut queue) => match queue.what_if(app, settings, stdin.as_deref())? {
                WhatIf::New(found) => ("it would be stored", found),
                WhatIf::Again(id) => {
                    let what = format!("it is stored already, as {id}: nothing would be stored");
                    return Ok([vec![submit(false, what)], queue.why(&id)?].concat());
                }
            },
            None => {
                let spec = TaskSpec::check(app, &config.submit_rules())?;
                let found = explain(&View::of_task(&spec, settings), &nobody(config));
                ("it would be stored, and make the store", found)
            }
        };
        found.extend(self.locks_of(&app.required_capabilities)?);
        Ok([vec![submit(false, stored.into()), start(&found)], found].concat())
    }

    /// How it stands with the locks of this machine that a task needs.
    fn locks_of(&self, needs: &[String]) -> Result<Vec<Finding>, Failure> {
        let mut looks = LockLooks::default();
        if looks.are_needed(needs) {
            looks.look_in(self.locks.to_look_at(&self.state)?);
        }
        Ok(looks.of(needs))
    }
}

fn submit(blocks: bool, what: String) -> Finding {
    Finding { check: "submit", blocks, what, short: Short::default() }
}

/// What surrounds a task in a store that is not there.
fn nobody(config: &Config) -> Surroundings {
    Surroundings {
        workers: Vec::new(),
        pauses: Vec::new(),
        classes: config.classes.clone(),
        now: SystemClock.now(),
        stale: config.heartbeat_ttl,
    }
}
