//! The cases of `tests/vectors`, each produced by running the original, against this project.
//!
//! `LEASEHOLD_VECTORS` names another directory of cases. The store suites run on every engine there is.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

mod argv;
mod capabilities;
mod claim;
#[path = "../support/mod.rs"]
mod places;
mod reaper;
mod store_support;
mod submit;
mod support;
mod transitions;
mod yaml11;

use places::engines;

#[test]
fn argv() {
    argv::run(&support::directory()).assert_passed();
}

#[test]
fn capabilities() {
    capabilities::run().assert_passed();
}

#[test]
fn submit() {
    for engine in engines() {
        submit::run(engine).assert_passed();
        submit::typed_door_agrees(engine);
    }
}

#[test]
fn transitions() {
    for engine in engines() {
        transitions::run(engine).assert_passed();
    }
}

#[test]
fn reaper() {
    for engine in engines() {
        reaper::run(engine).assert_passed();
    }
}

#[test]
fn claim() {
    for engine in engines() {
        claim::run(engine).assert_passed();
    }
}
