//! The store, proved: plans, races, crashes, other people's files. Each test runs on every engine there is.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

mod args;
mod batch;
mod busy;
mod cached;
mod children;
mod disk;
mod edges;
mod events;
mod hot;
mod keys;
mod kill;
mod kit;
mod many;
mod migrations;
mod moments;
mod notices;
mod opening;
mod opening_postgres;
mod original;
mod outstanding;
mod owner;
mod pauses;
mod peer;
#[path = "../support/mod.rs"]
mod places;
mod plans;
mod races;
mod reading;
mod ready;
mod requests;
mod schema;
mod sequences;
mod steps;
mod terminal;
mod whys;
