//! A durable queue for agent tasks.
//!
//! A task is submitted and becomes a row; a worker that can serve it claims it with one compare-and-swap under a
//! lease, runs it as a subprocess, and writes how it ended together with one fact of history. Workers may die at any
//! moment: the row tells the truth.
//!
//! * [`Queue`] has the functions of ADR-0071, one call at a time.
//! * [`Runtime`] is a worker inside a host program: an actor system on a thread of its own, and a [`Handle`] to it.
//! * [`Submitter`] submits inside of transactions of a host that keeps its own data in the same database.
//! * [`domain`] says what a task, a lease, a capability and a transition are.
//! * [`launch`] turns a task into an argv, [`process`] runs one, and [`execute`] puts the two together.
//! * [`notify`] sends the notices of ended tasks.
//! * [`db`] is the store, on SQLite and PostgreSQL.
#![warn(missing_docs)]

mod actors;
pub mod clock;
pub mod config;
pub mod db;
pub mod domain;
mod entry;
pub mod error;
pub mod execute;
pub mod ids;
pub mod launch;
pub mod notify;
pub mod process;
pub mod queue;
pub mod runtime;
pub mod submit;

pub use config::{Config, RuntimeConfig, Supervision};
pub use entry::guardian_entry;
pub use error::Error;
pub use queue::Queue;
pub use runtime::{Handle, Runtime};
pub use submit::Submitter;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
