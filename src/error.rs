//! The one error of the public API.

use thiserror::Error;

use crate::actors::CallError;
use crate::config::InvalidArgument;
use crate::db::ops::{Rejected, Retried, Retry, Submit, Submitted};
use crate::db::{HostFault, HostRefusal, StoreError};
use crate::domain::event::CursorRefusal;
use crate::domain::pause::PauseRefusal;
use crate::domain::payload::IdempotencyKey;
use crate::domain::pruning::PruneRefusal;
use crate::domain::redrive::RedriveRefusal;
use crate::domain::settings::SettingsRefusal;
use crate::domain::task::SubmitRefusal;
use crate::domain::transition::{Entity, Outcome, TransitionRefusal};

/// Why a call did not do what it was asked to. A conflict is no error: it is an
/// [`Outcome`].
#[derive(Debug, Error)]
pub enum Error {
    /// The task breaks a rule; nothing was written.
    #[error(transparent)]
    Submit(#[from] SubmitRefusal),
    /// The settings of the run cannot be followed; nothing was written.
    #[error(transparent)]
    Settings(#[from] SettingsRefusal),
    /// The pause makes no sense; nothing was written.
    #[error(transparent)]
    Pause(#[from] PauseRefusal),
    /// The change breaks a rule; nothing was written.
    #[error(transparent)]
    Transition(#[from] TransitionRefusal),
    /// A setting or an argument makes no sense; nothing was written.
    #[error(transparent)]
    Argument(#[from] InvalidArgument),
    /// The idempotency key stands for another task; nothing was written.
    #[error(
        "the key {key:?} stands for the task {existing}, which is another one: submit it under a key of its own, or leave the key out"
    )]
    KeyTaken {
        /// The key.
        key: String,
        /// The id of the task that has it.
        existing: String,
    },
    /// The task cannot be submitted again; nothing was written.
    #[error(transparent)]
    Retry(#[from] RedriveRefusal),
    /// What is asked to be removed makes no sense; nothing was removed.
    #[error(transparent)]
    Prune(#[from] PruneRefusal),
    /// The facts of some tasks could not be put into the archive, so those tasks and all later ones are still there.
    #[error("the facts cannot be archived, so their tasks stay where they are: {source}")]
    Archive {
        /// Why.
        source: std::io::Error,
    },
    /// The idempotency key stands for another task of the same batch; nothing was written.
    #[error(
        "the key {key:?} stands for number {} of the same batch, which is another task: submit it under a key of its own",
        first + 1
    )]
    KeyTwice {
        /// The key.
        key: String,
        /// Which task has it, counted from 0.
        first: usize,
    },
    /// Tasks that were to be stored together or not at all; nothing was written.
    #[error("{} of {of} tasks are refused, so none is stored; number {}: {}",
        refused.len(), first_of(refused).0, first_of(refused).1)]
    Batch {
        /// Each task that is refused, counted from 0, and why.
        refused: Vec<(usize, Error)>,
        /// How many tasks there were.
        of: usize,
    },
    /// Nothing can be submitted on this connection; nothing was written.
    #[error(transparent)]
    Host(#[from] HostRefusal),
    /// The idempotency key stands for another change of the same run or notice; nothing was written.
    #[error(
        "the key {key:?} stands for the transition {existing} of the {entity} {id}, which is another one: ask for it under a key of its own"
    )]
    TransitionKeyTaken {
        /// The key.
        key: String,
        /// What the key belongs to: `schedule_run` or `dispatch`.
        entity: &'static str,
        /// Its id.
        id: String,
        /// The id of the transition that has the key.
        existing: String,
    },
    /// A reader of events cannot go on from where it was.
    #[error(transparent)]
    Cursor(#[from] CursorRefusal),
    /// There is no such row.
    #[error("there is no {entity} with the id {id:?}: list the ids with `leasehold list`")]
    NotFound {
        /// What was looked for.
        entity: &'static str,
        /// Its id.
        id: String,
    },
    /// The store could not be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A running worker gave no answer.
    #[error(transparent)]
    Runtime(#[from] CallError),
}

impl From<HostFault> for Error {
    fn from(fault: HostFault) -> Error {
        match fault {
            HostFault::Refused(refusal) => refusal.into(),
            HostFault::Store(error) => error.into(),
        }
    }
}

impl Error {
    /// The id that a submit answers.
    pub(crate) fn or_id(submitted: Submitted, submit: &Submit) -> Result<String, Error> {
        match submitted {
            Submitted::New => Ok(submit.id.clone()),
            Submitted::Again(existing) => Ok(existing),
            Submitted::Taken(existing) => {
                let key = submit.spec.idempotency_key.as_ref();
                let key = key.map(|key| key.as_str().to_owned()).unwrap_or_default();
                Err(Error::KeyTaken { key, existing })
            }
        }
    }

    /// The id that a retry answers.
    pub(crate) fn or_new_id(retried: Retried, retry: &Retry) -> Result<String, Error> {
        let Retry { ended_id, submit } = retry;
        let id = ended_id.clone();
        match retried {
            Retried::Submitted(submitted) => Error::or_id(submitted, submit),
            Retried::NotEnded(status) => {
                Err(RedriveRefusal::NotEnded { id, status: status.as_str().into() }.into())
            }
            Retried::NotFound => Err(Error::NotFound { entity: "task", id }),
        }
    }

    /// What a change of the row with this id answers.
    pub(crate) fn or_outcome<S>(
        changed: Result<Outcome<S>, Rejected>,
        (entity, id): (Entity, String),
        key: Option<&IdempotencyKey>,
    ) -> Result<Outcome<S>, Error> {
        changed.map_err(|rejected| match rejected {
            Rejected::Refused(refusal) => refusal.into(),
            Rejected::NotFound => Error::NotFound { entity: entity.as_str(), id },
            Rejected::KeyTaken(existing) => {
                let key = key.map(|key| key.as_str().to_owned()).unwrap_or_default();
                Error::TransitionKeyTaken { key, entity: entity.as_str(), id, existing }
            }
        })
    }

    /// Whether the caller asked for something that can never be done.
    pub fn is_invalid(&self) -> bool {
        match self {
            Error::Submit(_)
            | Error::Settings(_)
            | Error::Pause(_)
            | Error::Transition(_)
            | Error::Argument(_)
            | Error::Prune(_) => true,
            Error::Batch { refused, .. } => refused.iter().any(|(_, error)| error.is_invalid()),
            _ => false,
        }
    }

    /// Whether what was named does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::NotFound { .. })
    }

    /// Whether the same call may succeed a little later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Store(error) | Error::Runtime(CallError::Store(error)) => error.is_retryable(),
            Error::Runtime(CallError::Gone | CallError::Overloaded) => true,
            _ => false,
        }
    }

    /// A stable name, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Submit(refusal) => refusal.check(),
            Error::Settings(refusal) => refusal.setting,
            Error::Pause(_) => "pause",
            Error::Transition(refusal) => refusal.category(),
            Error::Argument(_) => "argument",
            Error::KeyTaken { .. } | Error::KeyTwice { .. } | Error::TransitionKeyTaken { .. } => {
                "idempotency_conflict"
            }
            Error::Batch { .. } => "batch_refused",
            Error::Host(HostRefusal::NoTransaction) => "no_transaction",
            Error::Host(HostRefusal::OtherStore { .. }) => "other_store",
            Error::Retry(refusal) => refusal.code(),
            Error::Prune(refusal) => refusal.code(),
            Error::Archive { .. } => "archive",
            Error::Cursor(refusal) => refusal.check(),
            Error::NotFound { .. } => "not_found",
            Error::Store(error) | Error::Runtime(CallError::Store(error)) => error.code(),
            Error::Runtime(CallError::Gone) => "runtime_restarted",
            Error::Runtime(CallError::Overloaded) => "overloaded",
        }
    }
}

/// The number of the first refused task, counted from 1, and why. There always is one.
fn first_of(refused: &[(usize, Error)]) -> (usize, String) {
    let first = refused.first();
    first.map_or_else(Default::default, |(place, error)| (place + 1, error.to_string()))
}
