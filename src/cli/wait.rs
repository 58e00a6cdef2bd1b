//! Waiting for the end of a task.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use leasehold::Queue;
use leasehold::db::Run;
use leasehold::domain::status::Status;

use super::failure::{self, Failure};

/// How often the store is asked.
const LOOK_EVERY: Duration = Duration::from_millis(50);

const CANCELLED: u8 = 3;
const NOT_FINISHED: u8 = 4;

/// Waits until the task has ended, and answers with its exit code.
pub(super) fn for_end(queue: &mut Queue, id: &str) -> Result<ExitCode, Failure> {
    loop {
        let run = queue.run(id)?;
        match Status::parse(&run.status) {
            Some(status) if status.is_terminal() => {
                if status != Status::Completed {
                    let reason = run.status_reason_summary.as_deref().unwrap_or_default();
                    failure::say(&format!("the task {id} is {status}: {reason}"));
                }
                return Ok(ExitCode::from(code(status, &run)));
            }
            _ => thread::sleep(LOOK_EVERY),
        }
    }
}

fn code(status: Status, run: &Run) -> u8 {
    match (status, run.exit_code) {
        (Status::Completed, _) => 0,
        (Status::Cancelled, _) => CANCELLED,
        (Status::TimedOut | Status::Skipped, _) => NOT_FINISHED,
        // As a shell says it; the row has the signal itself.
        (_, Some(signal)) if signal < 0 => u8::try_from(128 - signal).unwrap_or(u8::MAX),
        // A failure never looks like a success.
        (_, exit_code) => exit_code
            .and_then(|code| u8::try_from(code).ok())
            .filter(|code| *code != 0)
            .unwrap_or(1),
    }
}
