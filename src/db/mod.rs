//! The store: the only room that knows Diesel.
//!
//! One code serves SQLite and PostgreSQL. A write is an [`Operation`]: data that knows how to run on a connection. It
//! opens no transaction itself and can be run again, so [`Store::write`] decides where a transaction begins and what
//! happens when one is lost.

mod batch;
mod columns;
mod engine;
mod error;
mod fragments;
mod host;
mod inspect;
mod ledger;
mod migrate;
mod moment;
pub mod ops;
#[cfg(feature = "postgres")]
mod restored;
mod rows;
mod schema;
mod store;
mod url;
mod words;

#[cfg(test)]
pub(crate) mod tests;

/// The Diesel whose connections a [`HostConnection`] is: a host needs one of the same major version, which Cargo then
/// makes the same one.
pub use diesel;

pub use batch::{Job, Pending};
pub use columns::JsonText;
pub use engine::{AnyConn, Evidence, Operation, Query};
pub use error::StoreError;
pub(crate) use host::{Home, HostFault, write_in};
pub use host::{HostConnection, HostRefusal};
pub use moment::Moment;
pub use rows::{Attempt, Event, Fact, Notice, Run, StepRow, Worker};
pub use store::{Mode, Seam, Store};
pub use url::StoreUrl;
