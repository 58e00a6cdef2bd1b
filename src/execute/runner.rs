//! The runner: the process of a workflow, which starts its steps and notes in the store how far they have come.
//!
//! A step is started only once it is stored that it begins, and the next one only once it is stored that the one before it
//! is done. Who has the lease keeps the runner within it; the runner knows only its epoch, and leaves as soon as the run
//! is in another one.

use std::ffi::OsString;
use std::io::{self, Write};
use std::time::Duration;

use super::workflow::{Script, ScriptStep, VERB};
use crate::clock::{Clock, SystemClock};
use crate::db::ops::{AdvanceSteps, StepBegins, Steps};
use crate::db::{Store, StoreError};
use crate::domain::run::RunEpoch;
use crate::domain::workflow::{self, BegunStep};
use crate::process::End;
use crate::process::steps::{Stage, StepEnd};

/// How long it waits before it asks a store again that has not answered, at first and at last.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// How long it waits when this machine has nothing left to start a step with.
const NO_RESOURCES: Duration = Duration::from_secs(1);
/// What ends a runner that was told to end while no step ran.
const TOLD: End = End::Signalled { signal: libc::SIGTERM, core_dumped: false };
/// What ends one that cannot go on.
const FAILED: End = End::Exited(1);

/// If this process was started to run a workflow, does so and leaves from here.
pub(crate) fn runner_entry() {
    if std::env::args_os().nth(1).is_some_and(|verb| verb == VERB) {
        run();
    }
}

fn run() -> ! {
    let inherited = std::env::vars_os().collect();
    let (stage, given) = match Stage::enter() {
        Ok(entered) => entered,
        Err(error) => {
            say(&format!("this machine cannot run a workflow: {error}"));
            std::process::exit(1)
        }
    };
    let (script, input) = match Script::read(&given) {
        Ok(read) => read,
        Err(problem) => {
            say(&format!("cannot run a workflow: {problem}"));
            stage.leave_as(FAILED)
        }
    };
    drop(given);
    stage.know(&script.variables);
    let store = Store::known(script.store());
    let runner = Runner { stage, script, input, inherited, store, is_silent: false };
    runner.run()
}

/// To the run's standard error, whose end is kept if the run fails.
fn say(words: &str) {
    // Nobody may be reading.
    let _ = writeln!(io::stderr(), "leasehold: {words}");
}

struct Runner {
    stage: Stage,
    script: Script,
    /// What each step reads that brings no input of its own.
    input: Option<Vec<u8>>,
    inherited: Vec<(OsString, OsString)>,
    store: Store,
    /// The store has not answered, and that was said.
    is_silent: bool,
}

impl Runner {
    fn run(mut self) -> ! {
        let end = self.steps();
        self.stage.leave_as(end)
    }

    /// Runs what is not done yet, and answers the end of the whole.
    fn steps(&mut self) -> End {
        let query = Steps { run_id: self.script.run_id.clone() };
        let begun = match self.ask(|store| store.read(&query)) {
            Ok(rows) => rows.iter().map(BegunStep::from).collect::<Vec<_>>(),
            Err(end) => return end,
        };
        let steps = std::mem::take(&mut self.script.steps);
        let mut done = None;
        for (index, step) in steps.iter().enumerate().skip(workflow::next_step(&begun)) {
            let number = workflow::number(index);
            let is_told = self.stage.is_told();
            let begins =
                StepBegins { step: number, name: step.name.clone(), kind: step.kind.clone() };
            if let Err(end) = self.advance(done.take(), (!is_told).then_some(begins)) {
                return end;
            }
            if is_told {
                return TOLD;
            }
            let end = match self.step(index, step) {
                StepEnd::Own(End::Exited(0)) => {
                    done = Some((number, 0));
                    continue;
                }
                StepEnd::Own(end) => end,
                StepEnd::Stopped(end) => return end,
                StepEnd::Unkillable => {
                    say("processes that it has left cannot be killed");
                    FAILED
                }
            };
            let code = match end {
                End::Exited(code) => code,
                End::Signalled { signal, .. } => -signal,
                End::Unkillable | End::Lost => 1,
            };
            // Whoever has the run by now, this step has failed.
            let _ = self.advance(Some((number, code)), None);
            return end;
        }
        self.advance(done, None).err().unwrap_or(End::Exited(0))
    }

    fn step(&mut self, index: usize, step: &ScriptStep) -> StepEnd {
        loop {
            let input = self.input.as_deref();
            let command = self.script.command(index, step, &self.inherited, input);
            match self.stage.run(&command, self.script.limits.into()) {
                Ok(end) => return end,
                Err(error) if error.is_resource_exhausted() => {
                    self.stage.pause(NO_RESOURCES);
                    if self.stage.is_told() {
                        return StepEnd::Stopped(TOLD);
                    }
                }
                Err(error) => {
                    let _ = writeln!(io::stderr(), "SpawnError: {error}");
                    return StepEnd::Own(FAILED);
                }
            }
        }
    }

    /// Notes what has ended and what begins; otherwise the runner has to end like this.
    fn advance(
        &mut self,
        ended: Option<(i32, i32)>,
        begins: Option<StepBegins>,
    ) -> Result<(), End> {
        if ended.is_none() && begins.is_none() {
            return Ok(());
        }
        let run = RunEpoch { run_id: self.script.run_id.clone(), epoch: self.script.epoch };
        let advance = AdvanceSteps { run, ended, begins, at: SystemClock.now() };
        match self.ask(|store| store.write(&advance))? {
            true => Ok(()),
            false => {
                say("the run is no longer in this attempt: the workflow ends here");
                Err(FAILED)
            }
        }
    }

    /// Asks the store, again and again until it answers: how long that may take, the fence says. Between two questions there
    /// is no connection, since a step may take hours.
    fn ask<T>(
        &mut self,
        mut question: impl FnMut(&mut Store) -> Result<T, StoreError>,
    ) -> Result<T, End> {
        let mut pause = PAUSES.0;
        loop {
            let error = match question(&mut self.store.another()) {
                Ok(answer) => {
                    self.is_silent = false;
                    return Ok(answer);
                }
                Err(error) => error,
            };
            // To wait does not help: it is not what it was.
            if let StoreError::Sql { .. }
            | StoreError::Corrupt { .. }
            | StoreError::NotADatabase { .. } = error
            {
                say(&error.to_string());
                return Err(FAILED);
            }
            if !std::mem::replace(&mut self.is_silent, true) {
                say(&format!("cannot note how far the workflow has come yet: {error}"));
            }
            self.stage.pause(pause);
            if self.stage.is_told() {
                return Err(TOLD);
            }
            pause = (pause * 2).min(PAUSES.1);
        }
    }
}
