//! Group commit: whatever happens to one operation of a batch, an answer "done" means stored, any other means not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

mod busy;
mod commits;
mod deadlocks;
mod faults;
mod limits;
mod lost;
mod model;
mod operation;
#[path = "../support/mod.rs"]
mod places;
mod proxy;
mod runtime;
mod small_disk;
mod submits;
mod support;
