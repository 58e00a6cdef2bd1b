//! Guardians as they are: the real program, real tasks, real signals.
//!
//! Tests that count what this process holds, or that kill a daemon, run that part in a process of its
//! own. Where there is nothing to wait for, a test polls with a deadline.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod cgroups;
mod daemons;
mod endings;
mod forked;
mod leaks;
mod leftovers;
mod locks;
mod logs;
#[path = "../support/processes.rs"]
mod machine;
mod starting;
mod support;
mod task_world;
mod trees;
