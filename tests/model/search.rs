//! One search, and what came of it.

use std::fmt::Write as _;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use super::actions::Action;
use super::bounds::Bounds;
use super::protocol::Protocol;

/// When a search may end before it has seen everything.
pub enum Until {
    /// As soon as a promise is broken: there should be none.
    AnyBroken,
    /// When each of these was found, by the first word of its name.
    Found(&'static [&'static str]),
}

pub struct Findings {
    pub states: usize,
    pub seconds: f32,
    /// Name of what was found, and the steps that lead to it.
    pub broken: Vec<(&'static str, Vec<Action>)>,
    pub reached: Vec<&'static str>,
}

/// Explores breadth first. A search for something given runs in one thread, and comes out the same each
/// time; the way that it finds is short, if not always a shortest.
pub fn search(protocol: Protocol, until: Until) -> Findings {
    let names: Vec<&'static str> = protocol.properties().iter().map(|p| p.name).collect();
    let (threads, until) = match until {
        Until::AnyBroken => {
            let cores = std::thread::available_parallelism().map_or(2, |n| n.get());
            (cores, HasDiscoveries::AnyFailures)
        }
        Until::Found(words) => {
            let wanted = words.iter().map(|word| {
                let name = names.iter().find(|name| first_word(name) == *word);
                *name.expect("the table names properties that there are")
            });
            (1, HasDiscoveries::AllOf(wanted.collect()))
        }
    };
    let started = Instant::now();
    let checker = protocol.checker().threads(threads).finish_when(until).spawn_bfs().join();
    let seconds = started.elapsed().as_secs_f32();

    let mut found = checker.discoveries();
    let mut findings =
        Findings { states: checker.unique_state_count(), seconds, broken: vec![], reached: vec![] };
    for name in names {
        match found.remove(name) {
            Some(path) if is_promise(name) => findings.broken.push((name, path.into_actions())),
            Some(_) => findings.reached.push(name),
            None => {}
        }
    }
    findings
}

impl Findings {
    /// Several searches of one protocol, taken together.
    pub fn joined(mut self, other: Findings) -> Findings {
        self.states += other.states;
        self.seconds += other.seconds;
        self.broken.extend(other.broken);
        self.reached.extend(other.reached);
        self
    }

    pub fn has_broken(&self, word: &str) -> bool {
        self.broken.iter().any(|(name, _)| first_word(name) == word)
    }

    pub fn has_reached(&self, word: &str) -> bool {
        self.reached.iter().any(|name| first_word(name) == word)
    }

    /// Of all that must be possible, what was not reached.
    pub fn unreached(&self, protocol: Protocol) -> Vec<&'static str> {
        let names = protocol.properties().into_iter().map(|p| p.name);
        names.filter(|name| !is_promise(name) && !self.reached.contains(name)).collect()
    }

    /// Each broken promise, and how.
    pub fn counterexamples(&self) -> String {
        let mut text = String::new();
        for (name, steps) in &self.broken {
            let _ = write!(text, "\n{name}");
            for (n, step) in steps.iter().enumerate() {
                let _ = write!(text, "\n  {:>2} {step:?}", n + 1);
            }
        }
        text
    }

    /// The promises that were broken, with the number of steps that it takes.
    pub fn violations(&self) -> String {
        let broken = self.broken.iter().map(|(name, steps)| format!("{name} ({})", steps.len()));
        broken.collect::<Vec<_>>().join("; ")
    }
}

/// The searches of one protocol within each of these bounds.
pub fn search_all(protocol: Protocol, bounds: &[Bounds]) -> Findings {
    let searches =
        bounds.iter().map(|&b| search(Protocol { bounds: b, ..protocol }, Until::AnyBroken));
    searches.reduce(Findings::joined).expect("there are bounds")
}

/// "P1" of "P1 at most one live tree per row".
pub fn first_word(name: &str) -> &str {
    name.split(' ').next().unwrap_or(name)
}

fn is_promise(name: &str) -> bool {
    name.starts_with('P')
}
