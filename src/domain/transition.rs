//! A change of status: what is asked for, what guards it, and whether the graph allows it (ADR-0071 D3).

mod dispatch;
mod door;
mod key;
mod refusal;

use serde_json::{Map, Value};

pub use dispatch::{DispatchGuard, DispatchPatch};
pub use door::Checked;
pub use refusal::TransitionRefusal;

use super::dispatch::DispatchStatus;
use super::ending::storable;
use super::event::EventId;
use super::reason::{Reason, ReasonCode};
use super::status::Status;

/// The kinds of principal that may change a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrincipalType {
    /// The scheduler.
    Scheduler,
    /// A person.
    Operator,
    /// The queue itself.
    System,
    /// A webhook.
    Webhook,
    /// An agent.
    Agent,
}

impl PrincipalType {
    const ALL: [PrincipalType; 5] = [
        PrincipalType::Scheduler,
        PrincipalType::Operator,
        PrincipalType::System,
        PrincipalType::Webhook,
        PrincipalType::Agent,
    ];

    /// The word that the `source` column of a fact holds.
    pub const fn as_str(self) -> &'static str {
        match self {
            PrincipalType::Scheduler => "scheduler",
            PrincipalType::Operator => "operator",
            PrincipalType::System => "system",
            PrincipalType::Webhook => "webhook",
            PrincipalType::Agent => "agent",
        }
    }

    /// The type with exactly this name.
    pub fn parse(name: &str) -> Option<PrincipalType> {
        PrincipalType::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// Who changes a status. ADR-0071 calls it `Actor`; that name belongs to the runtime's actors here.
#[doc(alias = "Actor")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// What kind of principal; the fact's `source`.
    pub kind: PrincipalType,
    /// Which one; the fact's `actor`. May be empty.
    pub id: String,
}

impl Principal {
    /// The queue itself, under one of its names.
    pub fn system(id: impl Into<String>) -> Principal {
        Principal { kind: PrincipalType::System, id: id.into() }
    }

    /// A person.
    pub fn operator(id: impl Into<String>) -> Principal {
        Principal { kind: PrincipalType::Operator, id: id.into() }
    }
}

/// Why a status should change, before its code was looked up.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StateReason {
    /// A reason code.
    pub code: String,
    /// One sentence; may be empty.
    pub summary: String,
    /// Objects that point at evidence.
    pub evidence_refs: Vec<Map<String, Value>>,
    /// Anything else, for programs.
    pub metadata: Map<String, Value>,
}

/// A requested change of status, as ADR-0071 D3 shapes it.
#[derive(Debug, Clone, PartialEq)]
pub struct TransitionRequest {
    /// `schedule_run`, or `dispatch`.
    pub entity_type: String,
    /// The run's id.
    pub entity_id: String,
    /// The status the caller has seen; absent takes whatever there is.
    pub from_state: Option<String>,
    /// The status asked for.
    pub to_state: String,
    /// Why.
    pub reason: StateReason,
    /// Who.
    pub actor: Principal,
    /// Required. [`Config::default`](crate::Config) neither stores nor checks it: repeating a request is safe there only
    /// where the status or the guard makes it a conflict. [`Config::daemon`](crate::Config::daemon) takes 1 to 255
    /// visible characters, and answers the same request under the same key with the first result.
    pub idempotency_key: String,
}

/// Lease columns that must hold exactly these values, or the change is a conflict. An absent one is not compared.
///
/// Being a struct, it *is* the allow-list of ADR-0071 D3: no other column can be named.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Guard {
    /// The owner.
    pub leased_by: Option<String>,
    /// The expiry, compared exactly.
    pub lease_expires_at: Option<f64>,
    /// The epoch.
    pub lease_attempts: Option<i32>,
}

impl Guard {
    /// Whether a row with these values passes.
    pub fn admits(&self, leased_by: Option<&str>, expires_at: Option<f64>, attempts: i32) -> bool {
        let owner = self.leased_by.as_deref();
        (owner.is_none() || owner == leased_by)
            && (self.lease_expires_at.is_none() || self.lease_expires_at == expires_at)
            && self.lease_attempts.is_none_or(|epoch| epoch == attempts)
    }
}

/// Lease columns to write with the change. The outer absence leaves a column alone, the inner one clears it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Patch {
    /// The owner.
    pub leased_by: Option<Option<String>>,
    /// The expiry.
    pub lease_expires_at: Option<Option<f64>>,
    /// The epoch.
    pub lease_attempts: Option<i32>,
}

impl Patch {
    /// Clears owner and expiry; the epoch stays.
    pub fn release() -> Patch {
        Patch { leased_by: Some(None), lease_expires_at: Some(None), lease_attempts: None }
    }
}

/// The entities whose status `transition` may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entity {
    /// A run: a row of `schedule_runs`.
    ScheduleRun,
    /// A notice: a row of `dispatch_outbox`.
    Dispatch,
}

impl Entity {
    /// The word that the `entity_type` column of a fact holds.
    pub const fn as_str(self) -> &'static str {
        match self {
            Entity::ScheduleRun => "schedule_run",
            Entity::Dispatch => "dispatch",
        }
    }

    /// The entity with exactly this name.
    fn parse(name: &str) -> Option<Entity> {
        [Entity::ScheduleRun, Entity::Dispatch].into_iter().find(|entity| entity.as_str() == name)
    }

    /// The columns that guard and patch may name.
    const fn columns(self) -> [&'static str; 3] {
        match self {
            Entity::ScheduleRun => ["leased_by", "lease_expires_at", "lease_attempts"],
            Entity::Dispatch => ["attempt", "next_attempt_at", "last_error"],
        }
    }
}

/// A request that passed every check that needs no row: of a run, or as a [`DispatchTransition`] of a notice.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition<S = Status, G = Guard, P = Patch> {
    /// Which one changes; never empty.
    pub id: String,
    /// The status it must have. A word that is no status never matches: such a request is a conflict.
    pub from: Option<String>,
    /// The status it gets.
    pub to: S,
    /// Why.
    pub reason: Reason,
    /// Who.
    pub principal: Principal,
    /// What its columns must be.
    pub guard: G,
    /// What they become.
    pub patch: P,
    /// The request's key, unchecked; what does not come from a request has none.
    pub idempotency_key: Option<String>,
}

/// A change of a notice that passed every check that needs no row.
pub type DispatchTransition = Transition<DispatchStatus, DispatchGuard, DispatchPatch>;

impl TransitionRequest {
    /// Checks all that can be checked of a change of a run before the row is read, in the order of the contract: entity,
    /// reason code, guard and patch values, id, target status.
    ///
    /// # Errors
    /// The first check that fails. Nothing has been read or written then.
    pub fn check(&self, guard: Guard, patch: Patch) -> Result<Transition, TransitionRefusal> {
        match self.entity_and_code()? {
            (Entity::ScheduleRun, code) => self.check_run(code, guard, patch),
            (Entity::Dispatch, _) => Err(self.other_entity()),
        }
    }

    /// The same of a change of a notice.
    ///
    /// # Errors
    /// As [`TransitionRequest::check`].
    pub fn check_dispatch(
        &self,
        guard: DispatchGuard,
        patch: DispatchPatch,
    ) -> Result<DispatchTransition, TransitionRefusal> {
        match self.entity_and_code()? {
            (Entity::Dispatch, code) => self.check_notice(code, guard, patch),
            (Entity::ScheduleRun, _) => Err(self.other_entity()),
        }
    }

    fn other_entity(&self) -> TransitionRefusal {
        TransitionRefusal::OtherEntity { given: self.entity_type.clone() }
    }

    fn entity_and_code(&self) -> Result<(Entity, ReasonCode), TransitionRefusal> {
        let entity = Entity::parse(&self.entity_type).ok_or_else(|| {
            TransitionRefusal::UnsupportedEntity { given: self.entity_type.clone() }
        })?;
        let code = ReasonCode::parse(&self.reason.code)
            .ok_or_else(|| TransitionRefusal::ReasonCode { given: self.reason.code.clone() })?;
        Ok((entity, code))
    }

    fn check_run(
        &self,
        code: ReasonCode,
        guard: Guard,
        patch: Patch,
    ) -> Result<Transition, TransitionRefusal> {
        let times = [guard.lease_expires_at, patch.lease_expires_at.flatten()];
        let owners =
            [guard.leased_by.as_deref(), patch.leased_by.as_ref().and_then(Option::as_deref)];
        self.check_values(code, ("lease_expires_at", times), owners)?;
        let to =
            Status::parse(&self.to_state).ok_or_else(|| self.no_status(Entity::ScheduleRun))?;
        Ok(self.checked(code, to, guard, patch))
    }

    fn check_notice(
        &self,
        code: ReasonCode,
        guard: DispatchGuard,
        patch: DispatchPatch,
    ) -> Result<DispatchTransition, TransitionRefusal> {
        let times = [guard.next_attempt_at, patch.next_attempt_at];
        let errors =
            [guard.last_error.as_deref(), patch.last_error.as_ref().and_then(Option::as_deref)];
        self.check_values(code, ("next_attempt_at", times), errors)?;
        let to = DispatchStatus::parse(&self.to_state)
            .ok_or_else(|| self.no_status(Entity::Dispatch))?;
        Ok(self.checked(code, to, guard, patch))
    }

    fn check_values(
        &self,
        code: ReasonCode,
        (column, times): (&'static str, [Option<f64>; 2]),
        texts: [Option<&str>; 2],
    ) -> Result<(), TransitionRefusal> {
        if times.into_iter().flatten().any(|at| !at.is_finite()) {
            return Err(TransitionRefusal::TimeNotFinite { column });
        }
        if code.is_schedule_definition() {
            return Err(TransitionRefusal::ReasonFamily { given: code.as_str() });
        }
        if self.entity_id.is_empty() {
            return Err(TransitionRefusal::EntityIdEmpty);
        }
        let ids = [Some(self.entity_id.as_str()), Some(self.actor.id.as_str())];
        if ids.into_iter().chain(texts).flatten().any(|id| id.contains('\0')) {
            return Err(TransitionRefusal::Nul);
        }
        Ok(())
    }

    fn no_status(&self, entity: Entity) -> TransitionRefusal {
        let known = match entity {
            Entity::ScheduleRun => "one of the nine statuses, such as \"cancelled\"",
            Entity::Dispatch => "one of the six statuses of a notice, such as \"acked\"",
        };
        TransitionRefusal::ToStatus { given: self.to_state.clone(), known }
    }

    fn checked<S, G, P>(&self, code: ReasonCode, to: S, guard: G, patch: P) -> Transition<S, G, P> {
        Transition {
            id: self.entity_id.clone(),
            from: self.from_state.clone(),
            to,
            reason: Reason {
                code,
                summary: storable(&self.reason.summary),
                evidence_refs: self.reason.evidence_refs.clone(),
                metadata: self.reason.metadata.clone(),
            },
            principal: self.actor.clone(),
            guard,
            patch,
            idempotency_key: Some(self.idempotency_key.clone()),
        }
    }
}

/// What came of a change of status. A conflict is a value, not an error: nothing was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<S = Status> {
    /// The status changed, and one fact says so.
    Applied {
        /// The fact's id: 32 lower-case hex digits.
        transition_id: String,
        /// The place of the change in the feed of events; absent under `Config::default()`, as ADR-0071 has it.
        event_id: Option<EventId>,
        /// The status before.
        previous: S,
        /// The status now.
        current: S,
    },
    /// The status or the guard did not match.
    Conflict {
        /// The status that was found.
        found: S,
    },
}

impl<S> Outcome<S> {
    /// Whether the status changed.
    pub fn is_applied(&self) -> bool {
        matches!(self, Outcome::Applied { .. })
    }
}
