//! Words in columns that have a CHECK on every store: another one is a damaged row.

use diesel::result::{Error, QueryResult};

use crate::domain::dispatch::DispatchStatus;
use crate::domain::status::Status;

/// The status of a run.
pub(super) fn known_status(word: &str) -> QueryResult<Status> {
    Status::parse(word)
        .ok_or_else(|| unknown(format!("the stored status {word:?} is none of the nine")))
}

/// The status of a notice.
pub(super) fn known_dispatch_status(word: &str) -> QueryResult<DispatchStatus> {
    DispatchStatus::parse(word).ok_or_else(|| {
        unknown(format!("the stored status {word:?} of a notice is none of the six"))
    })
}

fn unknown(message: String) -> Error {
    Error::DeserializationError(message.into())
}
