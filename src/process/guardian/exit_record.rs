//! How a run ended, as its guardian wrote it.

use std::io;

use serde::Deserialize;

use super::super::guard::wire::{Cause, Outcome, Summary};
use crate::process::{End, Ending, Tail};

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct ExitRecord {
    /// Who ended it. Only the task's own end is a result.
    pub ended_by: EndedBy,
    /// How the leader of the task left.
    pub end: End,
    /// Processor time that the whole tree has used in its own code, in seconds.
    pub user_seconds: f64,
    /// Processor time that the kernel has used for it, in seconds.
    pub system_seconds: f64,
    /// The most memory that one of its processes had, in KiB.
    pub max_rss_kib: u64,
    /// When it was started, in seconds since 1970, by the clock of this machine.
    pub started_at: f64,
    /// When it had ended, in seconds since 1970.
    pub ended_at: f64,
    /// How many processes besides the leader our signals have ended.
    pub leftovers_killed: u64,
    /// Processes that were sent SIGKILL and were still there: at most eight are named. They hold
    /// what they hold, and the run must not be started again.
    pub unkillable: Vec<i32>,
    /// Its standard output.
    pub stdout: StreamRecord,
    /// Its standard error.
    pub stderr: StreamRecord,
}

/// Who ended a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EndedBy {
    /// The task itself.
    Task,
    /// Somebody who cancelled it.
    Cancel,
    /// Its timeout.
    Timeout,
    /// Its fence: the lease was not renewed in time.
    Fence,
    /// Its daemon, for another reason.
    Stop,
}

/// What became of an output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamRecord {
    /// How many of its bytes come first in the log file.
    pub head: u64,
    /// How many bytes were cut out after those.
    pub cut: u64,
    /// How many bytes could not be written to the log: the disk was full.
    pub lost: u64,
    /// Whether the log is one file.
    pub(super) whole: bool,
    /// The last bytes, and how many there were in all.
    pub tail: Tail,
}

impl ExitRecord {
    /// The shape in which a direct child's end is told.
    pub fn ending(&self) -> Ending {
        Ending {
            end: self.end,
            stopped: self.ended_by != EndedBy::Task,
            stdout: self.stdout.tail.clone(),
            stderr: self.stderr.tail.clone(),
            whole_stdout: None,
        }
    }

    pub(super) fn parse(bytes: &[u8]) -> io::Result<Self> {
        let raw: Raw = serde_json::from_slice(bytes)?;
        let end = match (raw.code, raw.signal) {
            (Some(code), _) => End::Exited(code),
            (None, Some(signal)) => End::Signalled { signal, core_dumped: raw.core },
            (None, None) if raw.unkillable.is_empty() => End::Lost,
            (None, None) => End::Unkillable,
        };
        Ok(Self {
            ended_by: raw.ended_by,
            end,
            user_seconds: raw.user_seconds,
            system_seconds: raw.system_seconds,
            max_rss_kib: raw.max_rss_kib,
            started_at: raw.started_at,
            ended_at: raw.ended_at,
            leftovers_killed: raw.leftovers_killed,
            unkillable: raw.unkillable,
            stdout: raw.stdout.into_record()?,
            stderr: raw.stderr.into_record()?,
        })
    }

    /// The record of a run whose guardian could not write it; only the last bytes are missing.
    pub(super) fn of(summary: &Summary) -> Self {
        let value = i32::try_from(summary.value).unwrap_or(i32::MAX);
        let seconds = |micros: u64| std::time::Duration::from_micros(micros).as_secs_f64();
        let stream =
            |total| StreamRecord { tail: Tail::of(Vec::new(), total), ..Default::default() };
        Self {
            ended_by: match Cause::from_number(summary.ended_by) {
                Some(Cause::Task) => EndedBy::Task,
                Some(Cause::Cancel) => EndedBy::Cancel,
                Some(Cause::Timeout) => EndedBy::Timeout,
                Some(Cause::Fence) => EndedBy::Fence,
                Some(Cause::Stop) | None => EndedBy::Stop,
            },
            end: match Outcome::from_number(summary.outcome) {
                Some(Outcome::Exited) => End::Exited(value),
                Some(Outcome::Signalled) => End::Signalled { signal: value, core_dumped: false },
                Some(Outcome::Dumped) => End::Signalled { signal: value, core_dumped: true },
                Some(Outcome::Unkillable) => End::Unkillable,
                Some(Outcome::Lost) | None => End::Lost,
            },
            user_seconds: seconds(summary.user_micros),
            system_seconds: seconds(summary.system_micros),
            max_rss_kib: summary.max_rss_kib,
            started_at: seconds(summary.started_micros),
            ended_at: seconds(summary.ended_micros),
            leftovers_killed: summary.leftovers,
            unkillable: Vec::new(),
            stdout: stream(summary.stdout_bytes),
            stderr: stream(summary.stderr_bytes),
        }
    }
}

#[derive(Deserialize)]
struct Raw {
    ended_by: EndedBy,
    code: Option<i32>,
    signal: Option<i32>,
    #[serde(default)]
    core: bool,
    user_seconds: f64,
    system_seconds: f64,
    started_at: f64,
    ended_at: f64,
    max_rss_kib: u64,
    leftovers_killed: u64,
    unkillable: Vec<i32>,
    stdout: RawStream,
    stderr: RawStream,
}

#[derive(Deserialize)]
struct RawStream {
    bytes: u64,
    head: u64,
    cut: u64,
    lost: u64,
    whole: bool,
    /// Each character stands for the byte of its number.
    tail: String,
}

impl RawStream {
    fn into_record(self) -> io::Result<StreamRecord> {
        let tail: Result<Vec<u8>, _> = self.tail.chars().map(u8::try_from).collect();
        let tail = tail.map_err(|_| io::Error::other("the exit record is damaged"))?;
        Ok(StreamRecord {
            head: self.head,
            cut: self.cut,
            lost: self.lost,
            whole: self.whole,
            tail: Tail::of(tail, self.bytes),
        })
    }
}
