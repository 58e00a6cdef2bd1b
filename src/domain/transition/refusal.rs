//! Why a change of status is refused.

use thiserror::Error;

use crate::domain::dispatch::DispatchStatus;
use crate::domain::payload::LONGEST_KEY;
use crate::domain::status::Status;

/// The rule of ADR-0071 D3 that a request breaks. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TransitionRefusal {
    /// The request itself has a wrong shape.
    #[error("the transition request cannot be read: {problem}")]
    RequestInvalid {
        /// What is wrong.
        problem: String,
    },
    /// The entity is none whose status can be changed here.
    #[error("unsupported entity_type {given:?}: use \"schedule_run\" or \"dispatch\"")]
    UnsupportedEntity {
        /// The entity type.
        given: String,
    },
    /// The entity is another one than the call is for.
    #[error("the entity_type {given:?} is not what this call changes: use the call for it")]
    OtherEntity {
        /// The entity type.
        given: String,
    },
    /// The reason code is not registered.
    #[error(
        "unregistered reason code {given:?}: use one of the registered codes, such as \"run.cancelled.operator\""
    )]
    ReasonCode {
        /// The code.
        given: String,
    },
    /// A guard column was given without a value.
    #[error("the guard on {column} has no value: leave the column out to leave it unguarded")]
    GuardNone {
        /// The column.
        column: String,
    },
    /// A guard names columns outside the allow-list.
    #[error("guard columns not allowed: {columns}; only {allowed} are")]
    GuardColumn {
        /// The columns, sorted.
        columns: String,
        /// Those that are.
        allowed: String,
    },
    /// A patch names columns outside the allow-list.
    #[error("patch columns not allowed: {columns}; only {allowed} are")]
    PatchColumn {
        /// The columns, sorted.
        columns: String,
        /// Those that are.
        allowed: String,
    },
    /// A guard or patch value has the wrong type for its column.
    #[error("{column} cannot hold {given}: give {expected}")]
    ColumnValue {
        /// The column.
        column: &'static str,
        /// The value.
        given: String,
        /// What fits.
        expected: &'static str,
    },
    /// A time is NaN or infinite: such a moment would never come.
    #[error("{column} must be a finite number of seconds")]
    TimeNotFinite {
        /// The column.
        column: &'static str,
    },
    /// The code gives reasons for schedule definitions only.
    #[error(
        "the reason code {given:?} is for schedule definitions, not for runs: use a \"run.\" code"
    )]
    ReasonFamily {
        /// The code.
        given: &'static str,
    },
    /// No entity is named.
    #[error("entity_id is empty: name the run to change")]
    EntityIdEmpty,
    /// An id holds U+0000.
    #[error("an id holds the character U+0000, which no store can keep: leave it out")]
    Nul,
    /// The idempotency key is none.
    #[error(
        "an idempotency key has 1 to {LONGEST_KEY} visible characters and no spaces: {problem}"
    )]
    KeyForm {
        /// What is wrong with it.
        problem: String,
    },
    /// The target is no status.
    #[error("unknown to_state {given:?}: use {known}")]
    ToStatus {
        /// The word.
        given: String,
        /// What there is.
        known: &'static str,
    },
    /// The graph has no such edge.
    #[error("{from} -> {to} is not in the declared transition vocabulary: {hint}")]
    UndeclaredEdge {
        /// The status the entity has.
        from: &'static str,
        /// The status asked for.
        to: &'static str,
        /// What is possible instead.
        hint: String,
    },
    /// The edge is there, and asks for more than was given.
    #[error("{from} -> {to} takes {needs}")]
    EdgeRequirement {
        /// The status the entity has.
        from: &'static str,
        /// The status asked for.
        to: &'static str,
        /// What is missing.
        needs: &'static str,
    },
    /// The notice asks for no acknowledgement.
    #[error("the notice asks for no acknowledgement: only one with ack_required can be acked")]
    AckNotRequired,
}

/// A status of either entity.
pub(crate) trait State: Copy + Sized + 'static {
    /// The word that the `status` column holds.
    fn word(self) -> &'static str;
    /// Where edges lead from it.
    fn edges(self) -> &'static [Self];
}

impl State for Status {
    fn word(self) -> &'static str {
        self.as_str()
    }

    fn edges(self) -> &'static [Status] {
        self.next()
    }
}

impl State for DispatchStatus {
    fn word(self) -> &'static str {
        self.as_str()
    }

    fn edges(self) -> &'static [DispatchStatus] {
        self.next()
    }
}

impl TransitionRefusal {
    /// The refusal for an edge that the graph does not declare.
    pub(crate) fn undeclared<S: State>(from: S, to: S) -> TransitionRefusal {
        let next: Vec<_> = from.edges().iter().map(|status| status.word()).collect();
        let (from, to) = (from.word(), to.word());
        let hint = match next.is_empty() {
            true => format!("{from} is terminal, so it never changes"),
            false => format!("from {from} go to {}", next.join(", ")),
        };
        TransitionRefusal::UndeclaredEdge { from, to, hint }
    }

    /// The refusal for an edge that asks for more.
    pub(crate) fn edge_unmet<S: State>(from: S, to: S, needs: &'static str) -> TransitionRefusal {
        TransitionRefusal::EdgeRequirement { from: from.word(), to: to.word(), needs }
    }

    /// A stable name of the broken rule, for programs.
    pub fn category(&self) -> &'static str {
        match self {
            TransitionRefusal::RequestInvalid { .. } => "request_model_invalid",
            TransitionRefusal::UnsupportedEntity { .. } => "unsupported_entity",
            TransitionRefusal::OtherEntity { .. } => "other_entity",
            TransitionRefusal::ReasonCode { .. } => "invalid_reason_code",
            TransitionRefusal::GuardNone { .. } => "guard_none",
            TransitionRefusal::GuardColumn { .. } => "guard_column_not_allowed",
            TransitionRefusal::PatchColumn { .. } => "patch_column_not_allowed",
            TransitionRefusal::ColumnValue { .. } => "column_value_invalid",
            TransitionRefusal::TimeNotFinite { .. } => "lease_time_not_finite",
            TransitionRefusal::ReasonFamily { .. } => "reason_wrong_family",
            TransitionRefusal::EntityIdEmpty => "entity_id_empty",
            TransitionRefusal::Nul => "nul",
            TransitionRefusal::KeyForm { .. } => "idempotency_key",
            TransitionRefusal::ToStatus { .. } => "to_status_invalid",
            TransitionRefusal::UndeclaredEdge { .. } => "undeclared_edge",
            TransitionRefusal::EdgeRequirement { .. } => "edge_requirement",
            TransitionRefusal::AckNotRequired => "ack_not_required",
        }
    }
}
