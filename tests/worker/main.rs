//! Workers as real processes beside each other, on every engine there is: what they promise, and what went wrong in
//! comparable systems. A number such as #5 in a comment is the report that a test was made from.
//!
//! Nothing sleeps for a guess: tests poll with a deadline that only something broken reaches.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

mod adapters;
#[path = "../support/bench.rs"]
mod bench;
mod clocks;
mod contracts;
mod damage;
mod draining;
mod dying;
mod executing;
mod following;
mod hazards;
mod idling;
mod kernels;
mod keys;
mod leaving;
mod links;
mod logging;
mod looking;
#[path = "../support/machine.rs"]
mod machine;
mod machine_locks;
mod many;
mod notices;
mod outputs;
mod pausing;
#[path = "../support/mod.rs"]
mod places;
#[path = "../support/proxy.rs"]
mod proxy;
mod pruning;
mod reading;
#[path = "../support/receiver.rs"]
mod receiver;
mod settings;
mod shutting;
mod stopping;
mod trying;
mod waiting;
mod waking;
mod workflows;
