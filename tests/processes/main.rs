//! Tasks as real processes of this machine: nothing here is a mock.
//!
//! No test sleeps for a guess; where there is nothing to wait for, it polls with a deadline. Tests
//! that count what this process holds, or change what it is, run in a process of their own
//! ([`support::alone`]).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod endings;
mod environment;
mod leaks;
#[path = "../support/processes.rs"]
mod machine;
mod output;
mod spawn_errors;
mod stopping;
mod support;
