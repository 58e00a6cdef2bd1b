//! The lease protocol, checked as a model: within small bounds every history there can be.
//!
//! The model has one row, guardians that outlive their daemon, adoption by the next incarnation, cancel,
//! drain and detach, a reaper, and a second daemon on another host; with crashes, pauses, lost answers and
//! killed guardians. In one mode the task has a contract, and a check judges what it has left. The protocol as chosen breaks no promise and reaches whatever must be possible. Each
//! mutant flips one decision ([`flaws::Flaw`]) and has to break a promise, named in [`table`]: that is the
//! proof that the promise can be broken, and that the decision is needed.
//!
//! `cargo test --test model` searches within small bounds, in seconds. With `LEASEHOLD_ROUNDS` set, to
//! whatever value, it searches within the full ones; add `--release`, and `-- --nocapture` for the table.
//!
//! What the steps abstract:
//! * Time is a small integer. Grace and kill latency are 0, so the fence is request time + TTL - margin,
//!   and a tree dies within the instant in which its fence falls due.
//! * A daemon waits for at most one answer at a time. Reading the row is atomic with the decision it leads
//!   to; every write is a compare-and-set, decided when it is applied. With SQLite in the process fewer
//!   things can happen.
//! * Messages between a daemon and a guardian on one host are immediate. That the daemon dies between the
//!   takeover and the EXTEND is a crash between `Apply` and `Deliver`.
//! * The bound of attempts counts epochs, as the contract has it.
//!
//! Not modelled: a stopped guardian, the time that grace and kill take, a task's `timeout`, two rows, two
//! state directories on one host, jumps of the wall clock.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

mod actions;
mod answers;
mod bounds;
mod daemon;
mod database;
mod flaws;
mod guardian;
mod judging;
mod properties;
mod protocol;
mod requests;
mod search;
mod steps;
mod table;
mod world;

use bounds::{Bounds, small};
use properties::promises;
use protocol::Protocol;
use search::{Findings, Until, first_word, search, search_all};
use table::{Expected, Mode, chosen, modes};

#[test]
fn the_chosen_protocol_breaks_no_promise_and_reaches_what_must_be_possible() {
    for mode in modes() {
        if let Expected::Clean { small } = &mode.expected {
            let findings = if full() {
                search(mode.protocol, Until::AnyBroken)
            } else {
                search_all(mode.protocol, small)
            };
            let unreached = findings.unreached(mode.protocol);
            print(&mode, &findings, &unreached);
            let name = mode.decision;
            assert!(findings.broken.is_empty(), "{name}: {}", findings.counterexamples());
            assert!(unreached.is_empty(), "{name}: never reached: {unreached:?}");
        }
    }
}

#[test]
fn each_flipped_decision_breaks_its_promise() {
    for mode in modes() {
        if let Expected::Broken { promises, small } = mode.expected {
            let findings = search(within(&mode, small), Until::Found(promises));
            print(&mode, &findings, &[]);
            for promise in promises {
                assert!(findings.has_broken(promise), "{}: {promise} is kept", mode.decision);
            }
        }
    }
}

#[test]
fn without_extend_or_beside_an_inherited_lock_nothing_is_adopted_for_long() {
    for mode in modes() {
        if let Expected::Unreached { possibilities, small } = mode.expected {
            let protocol = within(&mode, small);
            let findings = search(protocol, Until::AnyBroken);
            let unreached = findings.unreached(protocol);
            print(&mode, &findings, &unreached);
            let name = mode.decision;
            assert!(findings.broken.is_empty(), "{name}: {}", findings.counterexamples());
            if full() {
                let words: Vec<&str> = unreached.iter().map(|name| first_word(name)).collect();
                assert_eq!(words, possibilities, "{name}");
            }

            let control = search(chosen(protocol.bounds), Until::Found(possibilities));
            for possibility in possibilities {
                assert!(!findings.has_reached(possibility), "{name}: {possibility} is reached");
                assert!(control.has_reached(possibility), "{name}: {possibility} is out of bounds");
            }
        }
    }
}

#[test]
fn every_promise_is_broken_by_some_mutant() {
    let modes = modes();
    for promise in promises() {
        let broken = |mode: &Mode| match mode.expected {
            Expected::Broken { promises, .. } => promises.contains(&first_word(promise.name)),
            _ => false,
        };
        assert!(modes.iter().any(broken), "{}: no mutant breaks it", promise.name);
    }
}

#[test]
fn each_mutant_is_caught_where_the_chosen_protocol_was_searched() {
    for mode in modes() {
        if let Expected::Broken { small: narrow, .. } | Expected::Unreached { small: narrow, .. } =
            &mode.expected
        {
            let searched = small().iter().any(|wide| wide.contains(narrow));
            assert!(searched, "{}: {narrow:?}", mode.decision);
        }
    }
}

/// Whether to search within the full bounds.
fn full() -> bool {
    std::env::var_os("LEASEHOLD_ROUNDS").is_some()
}

fn within(mode: &Mode, small: Bounds) -> Protocol {
    let bounds = if full() { mode.protocol.bounds } else { small };
    Protocol { bounds, ..mode.protocol }
}

/// A line of the table. After an early end it says nothing that something was not reached.
fn print(mode: &Mode, findings: &Findings, unreached: &[&str]) {
    let violations = findings.violations();
    let result = match unreached {
        _ if !violations.is_empty() => violations,
        [] => "none".to_owned(),
        _ => format!("never reached: {}", unreached.join("; ")),
    };
    let Findings { states, seconds, .. } = findings;
    println!("{:>4}  {:<46} {states:>9} {seconds:>6.1}s  {result}", mode.number, mode.decision);
}
