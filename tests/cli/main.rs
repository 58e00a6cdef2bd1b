//! The program itself, run as its users run it, on every engine there is.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

mod addresses;
mod cancelling;
mod doctoring;
mod events;
mod keys;
mod killing;
mod many;
mod many_bytes;
mod noticing;
mod pausing;
#[path = "../support/mod.rs"]
mod places;
mod program;
mod pruning;
mod reading;
mod reasons;
mod refusals;
mod retrying;
mod secrets;
mod service;
mod strangers;
mod submitting;
mod supposing;
mod usage;
mod verifying;
