//! Why a status changed: the registered reason codes and the reason a fact carries.

use std::fmt;

use serde_json::{Map, Value};

use super::json_text;

/// A registered reason code, such as `run.started.ok`. Only [`ReasonCode::parse`] and the constants make one, so a
/// code that nobody registered cannot reach a fact (ADR-0071 D3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReasonCode(&'static str);

impl ReasonCode {
    /// A worker claimed the run.
    pub const STARTED: ReasonCode = ReasonCode("run.started.ok");
    /// The run's process ended with exit code zero.
    pub const COMPLETED: ReasonCode = ReasonCode("run.completed.ok");
    /// The run's process ended with exit code zero, and has not left what its contract demands.
    pub const CONTRACT_UNMET: ReasonCode = ReasonCode("run.failed.contract_unmet");
    /// The run's process ended with another exit code, a signal, or could not be run at all.
    pub const EXIT_NONZERO: ReasonCode = ReasonCode("run.failed.exit_nonzero");
    /// The run's time was over.
    pub const DEADLINE: ReasonCode = ReasonCode("run.timed_out.deadline");
    /// Somebody had the running run stopped.
    pub const CANCELLED_OPERATOR: ReasonCode = ReasonCode("run.cancelled.operator");
    /// The run's executor died.
    pub const EXCEPTION: ReasonCode = ReasonCode("run.failed.exception");
    /// The run's worker was shut down.
    pub const SHUTDOWN: ReasonCode = ReasonCode("run.queued.shutdown");
    /// The run's guardian was killed.
    pub const GUARDIAN_LOST: ReasonCode = ReasonCode("run.queued.guardian_lost");
    /// Something of the run cannot be killed, so it must not be started again.
    pub const UNKILLABLE: ReasonCode = ReasonCode("run.failed.unkillable");
    /// The run could not be started, through no fault of its own.
    pub const START_FAILED: ReasonCode = ReasonCode("run.queued.start_failed");
    /// The pause after a failure is over.
    pub const RETRY_DUE: ReasonCode = ReasonCode("run.queued.retry_due");
    /// The moment for which the run waited has come.
    pub const DUE: ReasonCode = ReasonCode("run.queued.due");
    /// The run has failed and is tried again after a pause.
    pub const BACKOFF: ReasonCode = ReasonCode("run.retry_wait.backoff");
    /// The run is not to be started before some moment.
    pub const NOT_BEFORE: ReasonCode = ReasonCode("run.waiting_dependency.not_before");
    /// Nobody had started the run by the time it was needed.
    pub const EXPIRED: ReasonCode = ReasonCode("run.skipped.expired");
    /// The lease ran out and the run went back to the queue.
    pub const LEASE_EXPIRED: ReasonCode = ReasonCode("run.queued.lease_expired");
    /// The lease ran out for the last time allowed.
    pub const LEASE_ATTEMPTS_EXHAUSTED: ReasonCode =
        ReasonCode("run.failed.lease_attempts_exhausted");
    /// Somebody sends the notice.
    pub const DISPATCH_ATTEMPT: ReasonCode = ReasonCode("dispatch.delivering.attempt");
    /// The notice was sent.
    pub const DISPATCH_SENT: ReasonCode = ReasonCode("dispatch.delivered.transport_ok");
    /// The notice is sent again later, or because somebody said so.
    pub const DISPATCH_BACKOFF: ReasonCode = ReasonCode("dispatch.pending.retry_backoff");
    /// All attempts of the notice are spent.
    pub const DISPATCH_MAX_ATTEMPTS: ReasonCode = ReasonCode("dispatch.dead_letter.max_attempts");
    /// The receiver does not want the notice.
    pub const DISPATCH_REFUSED: ReasonCode = ReasonCode("dispatch.dead_letter.refused");
    /// The notice was not sent in time.
    pub const DISPATCH_EXPIRED: ReasonCode = ReasonCode("dispatch.expired.deadline");
    /// The submitting side withdrew the run.
    pub const CANCELLED_ORCHESTRATOR: ReasonCode = ReasonCode("run.cancelled.orchestrator");

    /// The registered code that is exactly this text.
    ///
    /// ```
    /// use leasehold::domain::reason::ReasonCode;
    /// assert!(ReasonCode::parse("run.completed.ok").is_some());
    /// assert!(ReasonCode::parse("run.completed.maybe").is_none());
    /// ```
    pub fn parse(code: &str) -> Option<ReasonCode> {
        REGISTERED.iter().chain(OWN).find(|known| **known == code).map(|known| ReasonCode(known))
    }

    /// The code's text.
    pub const fn as_str(self) -> &'static str {
        self.0
    }

    /// Whether the code speaks of schedule definitions, which never give a run's reason.
    pub fn is_schedule_definition(self) -> bool {
        self.0.starts_with("schedule_definition.")
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

/// Why a status changes: a registered code, a sentence for people, and what a program may want to know.
///
/// ```
/// use leasehold::domain::reason::{Reason, ReasonCode};
/// let reason = Reason::new(ReasonCode::STARTED, "claimed by host worker host:0badf00d");
/// assert!(reason.evidence_refs.is_empty());
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Reason {
    /// The registered code.
    pub code: ReasonCode,
    /// One sentence; empty when there is nothing to say.
    pub summary: String,
    /// Objects that point at evidence, such as a log file.
    pub evidence_refs: Vec<Map<String, Value>>,
    /// Anything else, for programs.
    pub metadata: Map<String, Value>,
}

impl Reason {
    /// A reason without evidence and metadata.
    pub fn new(code: ReasonCode, summary: impl Into<String>) -> Reason {
        Reason { code, summary: summary.into(), evidence_refs: Vec::new(), metadata: Map::new() }
    }

    /// The evidence as the stored JSON text, `[]` when there is none.
    pub fn evidence_text(&self) -> String {
        json_text::array(self.evidence_refs.iter().map(json_text::object))
    }
}

/// The codes of the original system, version 0.36.
const REGISTERED: &[&str] = &[
    "run.aborted.user",
    "run.cancelled.force_kill",
    "run.cancelled.manual_kill",
    "run.cancelled.orchestrator",
    "run.cancelled.sigint",
    "run.cancelled.sigterm",
    "run.cancelled.stale_auto",
    "run.cancelled.system",
    "run.completed.finalize_error",
    "run.completed.gate_rejected",
    "run.completed.ok",
    "run.completed.spawn_refused",
    "run.completed_empty.no_evidence",
    "run.failed.artifact_write",
    "run.failed.cwd_inherit_refused",
    "run.failed.escalated",
    "run.failed.exception",
    "run.failed.exit_nonzero",
    "run.failed.lease_attempts_exhausted",
    "run.failed.missing_artifact",
    "run.failed.missing_cwd",
    "run.failed.never_dispatched",
    "run.failed.provider_nonretryable",
    "run.failed.provider_retryable",
    "run.paused.operator",
    "run.queued.lease_expired",
    "run.skipped.duration_exceeds_lease",
    "run.skipped.waiter_cap_exceeded",
    "run.started.ok",
    "run.timed_out.deadline",
    "schedule.budget.exhausted",
    "schedule.deferred.capacity",
    "schedule.fired.due",
    "schedule.queued.created",
    "schedule.skipped.missed_fire",
    "schedule.skipped.overlap",
    "schedule.skipped.precondition",
    "dispatch.acked.consumer",
    "dispatch.dead_letter.ack_timeout",
    "dispatch.dead_letter.max_attempts",
    "dispatch.delivered.transport_ok",
    "dispatch.delivering.attempt",
    "dispatch.expired.deadline",
    "dispatch.pending.enqueued",
    "dispatch.pending.retry_backoff",
    "play.blocked.dep_failed",
    "play.blocked.invalid_deps",
    "play.escalated.gate_twice",
    "play.gate_failed.verdict",
    "play.merged.ok",
    "play.pending.created",
    "play.pending.ready",
    "play.pending.waiting_on_deps",
    "session.orphaned.no_process",
    "session.phantom.missing_artifacts",
    "session.phantom.process_dead",
    "session.reopened.by_resume",
    "session.stale.no_heartbeat",
    "session.zombie.stale_locks",
    "show.aborted.operator",
    "show.active.created",
    "show.blocked.no_ready_plays",
    "show.completed.all_plays_merged",
    "show.completed.final_gate",
    "team.archived.operator",
    "schedule_definition.created.observed",
    "schedule_definition.deleted.observed",
    "schedule_definition.disabled.budget_exhausted",
    "schedule_definition.disabled.declared",
    "schedule_definition.disabled.manual",
    "schedule_definition.disabled.max_runs",
    "schedule_definition.disabled.omitted",
    "schedule_definition.disabled.unspecified",
    "schedule_definition.enabled.observed",
    "legacy.imported",
];

/// The codes that this queue adds.
const OWN: &[&str] = &[
    "run.queued.shutdown",
    "run.queued.guardian_lost",
    "run.queued.start_failed",
    "run.queued.retry_due",
    "run.queued.due",
    "run.failed.spawn_error",
    "run.failed.unkillable",
    "run.failed.contract_unmet",
    "run.retry_wait.backoff",
    "run.waiting_dependency.not_before",
    "run.skipped.expired",
    "run.cancelled.operator",
    "dispatch.dead_letter.refused",
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn seventy_five_codes_of_the_original_and_thirteen_of_our_own_each_once() {
        let all: BTreeSet<_> = REGISTERED.iter().chain(OWN).collect();
        assert_eq!((REGISTERED.len(), OWN.len(), all.len()), (75, 13, 88));
    }

    #[test]
    fn codes_have_three_lower_case_segments_but_for_legacy_imported() {
        for code in REGISTERED.iter().chain(OWN).filter(|code| **code != "legacy.imported") {
            assert_eq!(code.split('.').count(), 3, "{code}");
            assert!(code.chars().all(|c| c.is_ascii_lowercase() || "._".contains(c)), "{code}");
        }
    }

    #[test]
    fn the_constants_are_registered() {
        for code in [
            ReasonCode::STARTED,
            ReasonCode::COMPLETED,
            ReasonCode::EXIT_NONZERO,
            ReasonCode::CONTRACT_UNMET,
            ReasonCode::DEADLINE,
            ReasonCode::CANCELLED_OPERATOR,
            ReasonCode::EXCEPTION,
            ReasonCode::SHUTDOWN,
            ReasonCode::START_FAILED,
            ReasonCode::GUARDIAN_LOST,
            ReasonCode::UNKILLABLE,
            ReasonCode::LEASE_EXPIRED,
            ReasonCode::LEASE_ATTEMPTS_EXHAUSTED,
            ReasonCode::CANCELLED_ORCHESTRATOR,
            ReasonCode::DISPATCH_ATTEMPT,
            ReasonCode::DISPATCH_SENT,
            ReasonCode::DISPATCH_BACKOFF,
            ReasonCode::DISPATCH_MAX_ATTEMPTS,
            ReasonCode::DISPATCH_REFUSED,
            ReasonCode::DISPATCH_EXPIRED,
        ] {
            assert_eq!(ReasonCode::parse(code.as_str()), Some(code));
        }
    }
}
