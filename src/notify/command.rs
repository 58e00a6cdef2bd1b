//! Hands a notice to a program, on its standard input.

use std::time::Duration;

use tokio::time::timeout;

use super::Sender;
use crate::db::ops::NoticeToSend;
use crate::domain::notice::Failed;
use crate::process::direct::Running;
use crate::process::{End, RunIdentity, TaskCommand};

/// What a program that is out of time has between TERM and KILL.
const GRACE: Duration = Duration::from_secs(1);

/// Runs the program to its end. Nothing of its process group outlives that.
///
/// # Errors
/// It may not be run here, could not be, was too slow, or its exit code is not 0.
pub(super) async fn tell(name: &str, notice: &NoticeToSend, sender: &Sender) -> Result<(), Failed> {
    // Another worker may be allowed to.
    if !sender.allow_commands.allows(name) {
        return Err(Failed::again(format!(
            "the command {name} is not allowed at this worker: allow it with --allow-command {name}"
        )));
    }
    let identity = RunIdentity {
        run_id: notice.run_id.clone().unwrap_or_default(),
        epoch: i64::from(notice.attempt),
        invocation_id: notice.id.chars().take(12).collect(),
    };
    let mut command = TaskCommand::new([name], identity);
    command.inherit = sender.inherit.clone();
    command.stdin = Some(notice.payload.clone().into_bytes());
    command.env =
        [("LEASEHOLD_EVENT", notice.id.clone()), ("LEASEHOLD_ATTEMPT", notice.attempt.to_string())]
            .map(|(name, value)| (name.into(), value.into()))
            .into();
    let mut running = Running::spawn(&command).map_err(|error| Failed::again(error.to_string()))?;
    let Ok(ending) = timeout(sender.config.timeout, running.wait()).await else {
        running.stopper().terminate(GRACE);
        running.wait().await;
        return Err(sender.too_slow());
    };
    let how = match ending.end {
        End::Exited(0) => return Ok(()),
        End::Exited(code) => format!("exit code {code}"),
        End::Signalled { signal, .. } => format!("signal {signal}"),
        End::Unkillable | End::Lost => "no exit code".to_owned(),
    };
    let said = ending.stderr.text();
    let last = said.trim_end().lines().last().unwrap_or_default();
    Err(Failed::again(if last.is_empty() { how } else { format!("{how}: {last}") }))
}
