//! `leasehold logs`.

use std::io::{self, ErrorKind, IsTerminal};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use leasehold::db::ops::StoreId;
use leasehold::process::guardian::{LogPiece, LogReader, LogStream, RunDir};
use leasehold::process::slot::Slot;

use super::failure::{self, Failure};
use super::harmless::Terminal;
use super::out;
use super::state::StateOption;
use super::store::StoreOption;

/// How often more is looked for.
const AGAIN: Duration = Duration::from_millis(100);

/// Print what a task has written, while it runs and afterwards
///
/// The bytes are as the task wrote them, except that a terminal gets no control characters of it. Of a long output the
/// middle is not kept: a line on standard error says where. Outputs are kept on the host on which the task ran, for as
/// long as --keep-for and --keep-mib of its worker say; a worker with --supervision direct keeps none.
#[derive(Debug, clap::Args)]
pub(super) struct Outputs {
    /// The task's id, as `submit` printed it
    id: String,
    /// Print what it wrote to standard error
    #[arg(long)]
    stderr: bool,
    /// Which attempt, counted from 1 [default: the latest]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    attempt: Option<i64>,
    /// Go on until the attempt has ended
    #[arg(long, short)]
    follow: bool,
    #[command(flatten)]
    state: StateOption,
}

impl Outputs {
    pub(super) fn run(&self, store: &StoreOption) -> Result<(), Failure> {
        let mut queue = store.read()?;
        let run = queue.run(&self.id)?;
        let attempt = self.attempt.unwrap_or(run.lease_attempts.into());
        if attempt == 0 {
            return Err(Failure::Refused(format!("the task {:?} was not started yet", self.id)));
        }
        let store_id = queue.read(&StoreId)?;
        drop(queue);
        let runs = Runs {
            slots: Slot::paths(&self.state.directory()?, &store_id)?,
            id: &self.id,
            attempt,
        };
        let dir = runs.find()?.ok_or_else(|| runs.missing())?;
        let stream = if self.stderr { LogStream::Stderr } else { LogStream::Stdout };
        self.copy(dir.log(stream), &runs)
    }

    fn copy(&self, mut log: LogReader, runs: &Runs) -> Result<(), Failure> {
        let mut terminal = io::stdout().is_terminal().then(Terminal::default);
        let mut buffer = vec![0; 1 << 16];
        loop {
            match log.read(&mut buffer) {
                Ok(LogPiece::Bytes(length)) => {
                    let bytes = &buffer[..length];
                    let gone = match &mut terminal {
                        Some(terminal) => out::copy(terminal.harmless(bytes).as_bytes()),
                        None => out::copy(bytes),
                    }?;
                    if gone {
                        return Ok(());
                    }
                }
                Ok(LogPiece::Cut(bytes)) => failure::say(&format!("{bytes} bytes are not kept")),
                Ok(LogPiece::Nothing) if self.follow => sleep(AGAIN),
                Ok(LogPiece::Nothing | LogPiece::End) => return Ok(()),
                // Its end was stored meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    log = log.moved_to(runs.find()?.ok_or_else(|| runs.missing())?);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Where the outputs of an attempt may be.
struct Runs<'a> {
    slots: Vec<PathBuf>,
    id: &'a str,
    attempt: i64,
}

impl Runs<'_> {
    fn find(&self) -> io::Result<Option<RunDir>> {
        // In this order a run that is being moved is found.
        for slot in &self.slots {
            for found in [
                RunDir::find(slot, self.id, self.attempt)?,
                RunDir::find_kept(slot, self.id, self.attempt)?,
            ] {
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
        Ok(None)
    }

    fn missing(&self) -> Failure {
        Failure::Refused(format!(
            "nothing is kept here of attempt {} of the task {:?}: it ran on another host or with another \
             --state-dir, without a guardian or not at all, or was removed; `leasehold show` tells its worker and its \
             last words",
            self.attempt, self.id
        ))
    }
}
