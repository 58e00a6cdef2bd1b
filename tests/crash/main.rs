//! Crashes of the whole: the real program, real tasks, SIGKILL and SIGSTOP at workers and guardians, on every engine
//! there is. After each test the ledger is one path per run, and no process of it is left: see [`aftermath`].
//!
//! `cargo test --test crash` takes small counts, a minute in all. With `LEASEHOLD_ROUNDS` set to a number it takes
//! those that are named as the full ones, in proportion: 200 is all of them (200 rounds of kills, 100 of stops, 1,000
//! cancels, 50 tasks at once), 20 a tenth, and never less than the small ones. Add `-- --nocapture` for what was seen.
//!
//! Nothing sleeps for a guess: tests poll with a deadline that only something broken reaches, and a time that passes is
//! printed rather than judged.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

mod adopting;
mod aftermath;
#[path = "../support/bench.rs"]
mod bench;
mod beside;
mod cancelling;
mod chance;
mod floods;
mod judging;
#[path = "../support/machine.rs"]
mod machine;
mod numbers;
mod outages;
#[path = "../support/mod.rs"]
mod places;
#[path = "../support/processes.rs"]
mod processes;
#[path = "../support/proxy.rs"]
mod proxy;
mod refusing;
mod starting;
mod stopped;
mod tasks;
mod unattended;

/// How often, or how many: `small`, or with `LEASEHOLD_ROUNDS` its share of `full`.
pub(crate) fn count(small: usize, full: usize) -> usize {
    const ALL: usize = 200;
    let rounds = std::env::var("LEASEHOLD_ROUNDS").ok();
    let rounds = rounds.map_or(0, |text| text.parse().expect("LEASEHOLD_ROUNDS is a number"));
    small.max(full * rounds / ALL)
}
