//! A notice: what is sent when a task has ended. To whom, what it says, and what follows when it cannot be sent.
//!
//! It is stored with the end of its task, in one transaction, and delivering it changes nothing but the notice itself.

pub mod address;
mod answer;
mod destination;
mod signature;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

pub use answer::judge;
pub use destination::{Destination, HttpTarget};
pub use signature::{KeyRefusal, SigningKey};

use super::json_text;
use super::reason::ReasonCode;

/// The `kind` of our rows in the outbox, which is also the `type` of what they say. Rows of other kinds are the original's.
pub const KIND: &str = "leasehold.task_ended";

/// The moments of our notices stand so many seconds later in `next_attempt_at`.
///
/// The scheduler of the original takes whatever is due in the outbox, of every kind: it hands it to a program of its own
/// and writes `delivered`. What stands in a far future is due for us alone.
pub const LATER: f64 = 1e10;

/// The moment, in seconds since the epoch, that a `next_attempt_at` of ours stands for. One that an operator has set
/// through the original's own program stands for itself.
pub fn moment(next_attempt_at: f64) -> f64 {
    if next_attempt_at >= LATER { next_attempt_at - LATER } else { next_attempt_at }
}

/// The key under which a task has its one notice.
pub fn dedup_key(run_id: &str) -> String {
    format!("{KIND}:{run_id}")
}

/// Who is told of the end of a task, and how hard that is tried. It is part of the settings of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Notify {
    /// An address (`http://…`, `https://…`), or `command:NAME`.
    pub to: String,
    /// So many attempts are made at the most.
    #[serde(default = "default_attempts")]
    pub attempts: u32,
    /// How long it is tried after the end of the task, in seconds; absent means as long as there are attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<f64>,
}

/// The attempts that are made unless something else is said: with the pauses between them they last some five hours.
pub const DEFAULT_ATTEMPTS: u32 = 12;
/// More would mean "for ever", which nobody should.
const MOST_ATTEMPTS: u32 = 1000;

fn default_attempts() -> u32 {
    DEFAULT_ATTEMPTS
}

impl Notify {
    /// One to this address or command.
    ///
    /// ```
    /// use leasehold::domain::notice::Notify;
    /// assert!(Notify::to("https://example.com/hook").problem().is_none());
    /// assert!(Notify::to("ftp://example.com").problem().is_some());
    /// ```
    pub fn to(to: impl Into<String>) -> Notify {
        Notify { to: to.into(), attempts: DEFAULT_ATTEMPTS, within: None }
    }

    /// The command that is told, if it is one.
    pub fn command(&self) -> Option<String> {
        match Destination::parse(&self.to) {
            Ok(Destination::Command(name)) => Some(name),
            _ => None,
        }
    }

    /// What is wrong with it: a setting, its value, and what it must be.
    pub fn problem(&self) -> Option<(&'static str, String, &'static str)> {
        if let Err(rule) = Destination::parse(&self.to) {
            // What is refused may hold a password.
            let shown: String = self.to.chars().take(12).collect();
            return Some(("notify", format!("{shown:?}…"), rule));
        }
        if !(1..=MOST_ATTEMPTS).contains(&self.attempts) {
            let rule = "give a number from 1 to 1000";
            return Some(("notify_attempts", self.attempts.to_string(), rule));
        }
        let within = self.within.filter(|within| !(within.is_finite() && *within > 0.0))?;
        Some(("notify_within", format!("{within} s"), "give a positive length of time"))
    }
}

/// A task that has ended, as its notice tells of it. Arguments, variables and outputs are none of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EndedTask<'a> {
    /// The task.
    pub run_id: &'a str,
    /// Its kind of action.
    pub kind: &'a str,
    /// Its terminal status.
    pub status: &'a str,
    /// Why it has that.
    pub reason_code: &'a str,
    /// Its exit code, `-N` for signal N; absent when nothing ran to an end.
    pub exit_code: Option<i32>,
    /// How often it was claimed.
    pub attempts: i32,
    /// When it was submitted, in seconds since the epoch.
    pub created_at: f64,
    /// When it ended, in seconds since the epoch.
    pub ended_at: f64,
}

/// What a notice says, as JSON. `event` is the same whenever the notice is sent, so that a receiver can tell that it has
/// it already.
///
/// ```
/// use leasehold::domain::notice::{EndedTask, payload};
/// let task = EndedTask {
///     run_id: "r1", kind: "command", status: "failed", reason_code: "run.failed.exit_nonzero",
///     exit_code: Some(7), attempts: 1, created_at: 1700000000.25, ended_at: 1700000001.5,
/// };
/// assert_eq!(
///     payload("e1", &task),
///     concat!(
///         r#"{"type": "leasehold.task_ended", "event": "e1", "timestamp": "2023-11-14T22:13:21.500Z", "#,
///         r#""data": {"run_id": "r1", "kind": "command", "status": "failed", "#,
///         r#""reason_code": "run.failed.exit_nonzero", "exit_code": 7, "attempts": 1, "#,
///         r#""created_at": 1700000000.25, "ended_at": 1700000001.5}}"#,
///     )
/// );
/// ```
pub fn payload(event: &str, task: &EndedTask<'_>) -> String {
    // The cast saturates, and jiff refuses what lies so far away.
    let timestamp = Timestamp::from_microsecond((task.ended_at * 1e6).round() as i64)
        .map_or_else(|_| task.ended_at.to_string(), |moment| format!("{moment:.3}"));
    json_text::value(&json!({
        "type": KIND,
        "event": event,
        "timestamp": timestamp,
        "data": {
            "run_id": task.run_id,
            "kind": task.kind,
            "status": task.status,
            "reason_code": task.reason_code,
            "exit_code": task.exit_code,
            "attempts": task.attempts,
            "created_at": task.created_at,
            "ended_at": task.ended_at,
        },
    }))
}

/// What an attempt came to that was not successful.
#[derive(Debug, Clone, PartialEq)]
pub struct Failed {
    /// What went wrong, in one sentence.
    pub error: String,
    /// Whether the receiver has said that another attempt would end the same way.
    pub is_final: bool,
    /// How long the receiver asks to be left alone, in seconds.
    pub wait: Option<f64>,
}

impl Failed {
    /// Something that may be better the next time.
    pub fn again(error: impl Into<String>) -> Failed {
        Failed { error: error.into(), is_final: false, wait: None }
    }
}

/// The pauses between attempts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// The longest pause after the first attempt, in seconds. Each one is three times as long as the one before.
    pub base: f64,
    /// No pause is longer, in seconds, whatever the receiver asks for.
    pub cap: f64,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff { base: 2.0, cap: 3600.0 }
    }
}

/// What becomes of a notice after an attempt that was not successful.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AfterFailure {
    /// It is tried again after so many seconds.
    Again(f64),
    /// It is given up, for this reason.
    GiveUp(ReasonCode),
}

impl Backoff {
    /// What follows on failure number `attempt` of `most`. `fraction` is a random number from 0 to 1 for one half of the
    /// pause, so that what failed together is not tried again together.
    ///
    /// ```
    /// use leasehold::domain::notice::{AfterFailure, Backoff, Failed};
    /// let backoff = Backoff { base: 2.0, cap: 100.0 };
    /// let failed = Failed::again("connection refused");
    /// assert_eq!(backoff.after(1, 3, &failed, 1.0), AfterFailure::Again(2.0));
    /// assert_eq!(backoff.after(2, 3, &failed, 0.0), AfterFailure::Again(3.0), "half of six");
    /// assert!(matches!(backoff.after(3, 3, &failed, 1.0), AfterFailure::GiveUp(_)));
    /// ```
    pub fn after(&self, attempt: i32, most: i32, failed: &Failed, fraction: f64) -> AfterFailure {
        if failed.is_final {
            return AfterFailure::GiveUp(ReasonCode::DISPATCH_REFUSED);
        }
        if attempt >= most {
            return AfterFailure::GiveUp(ReasonCode::DISPATCH_MAX_ATTEMPTS);
        }
        let whole = (self.base * 3f64.powi(attempt.saturating_sub(1).clamp(0, 1000))).min(self.cap);
        let pause = whole * (0.5 + 0.5 * fraction.clamp(0.0, 1.0));
        let asked = failed.wait.filter(|wait| wait.is_finite()).unwrap_or(0.0);
        AfterFailure::Again(pause.max(asked.min(self.cap)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_threefold_up_to_the_cap_and_at_least_half_of_each_is_kept() {
        let backoff = Backoff { base: 2.0, cap: 50.0 };
        let pause =
            |attempt, fraction| match backoff.after(attempt, 1000, &Failed::again("x"), fraction) {
                AfterFailure::Again(pause) => pause,
                AfterFailure::GiveUp(code) => panic!("{code}"),
            };
        let longest: Vec<f64> = [1, 2, 3, 4, 5, 999].map(|attempt| pause(attempt, 1.0)).into();
        assert_eq!(longest, [2.0, 6.0, 18.0, 50.0, 50.0, 50.0]);
        assert_eq!(pause(4, 0.0), 25.0);
        let all: f64 = (1..12)
            .map(|attempt| match Backoff::default().after(attempt, 12, &Failed::again("x"), 1.0) {
                AfterFailure::Again(pause) => pause,
                AfterFailure::GiveUp(code) => panic!("{code}"),
            })
            .sum();
        assert!((4.0..6.0).contains(&(all / 3600.0)), "{all}");
    }

    #[test]
    fn what_the_receiver_asks_for_counts_within_the_cap() {
        let backoff = Backoff { base: 2.0, cap: 50.0 };
        let after = |wait| backoff.after(1, 9, &Failed { wait, ..Failed::again("x") }, 1.0);
        assert_eq!(after(Some(30.0)), AfterFailure::Again(30.0));
        assert_eq!(after(Some(0.5)), AfterFailure::Again(2.0));
        for far in [51.0, 1e300, f64::MAX] {
            assert_eq!(after(Some(far)), AfterFailure::Again(50.0));
        }
        assert_eq!(after(Some(f64::NAN)), AfterFailure::Again(2.0));
    }

    #[test]
    fn a_final_answer_ends_it_at_once_and_the_last_attempt_does_too() {
        let last = Failed { is_final: true, ..Failed::again("x") };
        let after = |attempt, failed: &Failed| Backoff::default().after(attempt, 3, failed, 1.0);
        assert_eq!(after(1, &last), AfterFailure::GiveUp(ReasonCode::DISPATCH_REFUSED));
        for attempt in [3, 4, i32::MAX] {
            let given_up = AfterFailure::GiveUp(ReasonCode::DISPATCH_MAX_ATTEMPTS);
            assert_eq!(after(attempt, &Failed::again("x")), given_up);
        }
    }

    #[test]
    fn moments_of_ours_stand_later_and_are_read_back() {
        let at = 1_796_010_153.75;
        assert!((moment(at + LATER) - at).abs() < 1e-5);
        assert_eq!(moment(at), at);
    }

    #[test]
    fn what_cannot_be_is_named_and_no_secret_is_shown() {
        let of = |to: &str, attempts, within| Notify { to: to.into(), attempts, within };
        let bad = [
            (of("http://u:secret@h/", 1, None), "notify"),
            (of("https://h/", 0, None), "notify_attempts"),
            (of("https://h/", 1001, None), "notify_attempts"),
            (of("https://h/", 1, Some(0.0)), "notify_within"),
            (of("https://h/", 1, Some(f64::INFINITY)), "notify_within"),
        ];
        for (notify, setting) in bad {
            let (named, given, _) = notify.problem().unwrap();
            assert_eq!(named, setting, "{notify:?}");
            assert!(!given.contains("secret"), "{given}");
        }
        assert_eq!(of("command:tell", 1000, Some(0.1)).problem(), None);
    }
}
