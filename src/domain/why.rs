//! Why a run stands where it stands.

mod view;

pub use view::{Key, SeenWorker, Surroundings, View};

use super::capability::CapabilityClass;
use super::pause::Pause;
use super::status::Status;

/// One thing that decides about a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Its name.
    pub check: &'static str,
    /// Whether it keeps the run from being started, or from ending well.
    pub blocks: bool,
    /// The numbers.
    pub what: String,
    /// The same in a few words, for a column of a table.
    pub short: Short,
}

/// A few words, and the moment that they end with, if there is one: in seconds since the epoch, since how it is written
/// is not decided here.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Short {
    /// The words, such as `not before`.
    pub words: String,
    /// The moment.
    pub at: Option<f64>,
}

impl From<&str> for Short {
    fn from(words: &str) -> Short {
        Short { words: words.into(), at: None }
    }
}

impl From<String> for Short {
    fn from(words: String) -> Short {
        Short { words, at: None }
    }
}

/// Why a run does not run, in a few words: the first finding that blocks it, or else its place in the queue. Nothing
/// for one that runs or has ended as it should.
pub fn short(found: &[Finding]) -> Option<&Short> {
    let first = found.iter().find(|finding| finding.blocks);
    first.or_else(|| found.iter().find(|finding| finding.check == PLACE)).map(|it| &it.short)
}

/// The check that tells a run's place in the queue.
const PLACE: &str = "place";

/// Everything that decides about the run.
pub fn explain(view: &View, around: &Surroundings) -> Vec<Finding> {
    let mut found = Findings::default();
    match view.status {
        Status::Queued => found.queued(view, around),
        Status::WaitingDependency | Status::RetryWait => found.waiting(view, around),
        Status::Running => found.running(view, around),
        _ => found.ended(view),
    }
    if let Some(progress) = &view.progress {
        found.say("step", progress.words(around.now));
    }
    found.0
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn say(&mut self, check: &'static str, what: String) {
        self.0.push(Finding { check, blocks: false, what, short: Short::default() });
    }

    fn block(&mut self, check: &'static str, what: String, short: impl Into<Short>) {
        self.0.push(Finding { check, blocks: true, what, short: short.into() });
    }

    fn block_if(
        &mut self,
        blocks: bool,
        check: &'static str,
        what: String,
        short: impl Into<Short>,
    ) {
        if blocks { self.block(check, what, short) } else { self.say(check, what) }
    }

    fn queued(&mut self, view: &View, around: &Surroundings) {
        self.pauses(view, around);
        if view.is_scheduled {
            let what = "it belongs to a schedule, which starts it itself";
            self.block("schedule", what.into(), "its schedule starts it");
        }
        if let Some(at) = view.wake_at.filter(|at| *at > around.now) {
            let what = format!("it goes to the queue {}", moment(at, around.now));
            self.block("not before", what, Short { words: "not before".into(), at: Some(at) });
        }
        if !self.workers(view, around) {
            return;
        }
        if let Some(key) = &view.key {
            self.key(key, around.now);
        }
        // One of a schedule has no place among those that workers start.
        if !view.is_scheduled {
            self.place(view.ahead);
        }
        if let Some(at) = view.expires_at {
            let what = format!("it is skipped if it is not started {}", moment(at, around.now));
            self.block_if(at <= around.now, "expiry", what, "expired");
        }
        if view.is_cancel_requested {
            self.block("cancel", "somebody wants it stopped".into(), "to be stopped");
        }
    }

    fn place(&mut self, ahead: usize) {
        let what = format!("{ahead} are before it in the queue");
        let short = match ahead {
            0 => "next".into(),
            ahead => format!("next ({})", ordinal(ahead + 1)),
        };
        self.0.push(Finding { check: PLACE, blocks: false, what, short: short.into() });
    }

    fn pauses(&mut self, view: &View, around: &Surroundings) {
        let holds = |pause: &&Pause| pause.scope.has(&view.kind, &view.target);
        for Pause { scope, since, by, reason } in around.pauses.iter().filter(holds) {
            let since = (around.now - since).max(0.0);
            let (kind, id) = (by.kind.as_str(), &by.id);
            let reason = reason.as_deref().map_or(String::new(), |reason| format!(": {reason}"));
            let what = format!("paused since {since:.0} s by {kind} {id}: {scope}{reason}");
            self.block("pause", what, "paused");
        }
    }

    /// Who can serve it. Answers whether its requirement can be read at all.
    fn workers(&mut self, view: &View, around: &Surroundings) -> bool {
        let is_live = |worker: &&SeenWorker| around.now - worker.seen_at <= around.stale;
        let (live, dead): (Vec<_>, Vec<_>) = around.workers.iter().partition(is_live);
        let of = |count: usize| {
            let stale = if dead.is_empty() {
                String::new()
            } else {
                format!(" ({} are stale)", dead.len())
            };
            format!("{count} of {} live workers{stale}", live.len())
        };
        let nobody = |short: String| if live.is_empty() { "no live worker".into() } else { short };
        let has_adapter = |worker: &&&SeenWorker| worker.has_adapter(&view.kind);
        let count = live.iter().filter(has_adapter).count();
        let what = format!("an adapter for the kind {:?} is on {}", view.kind, of(count));
        self.block_if(count == 0, "adapter", what, nobody("no adapter".into()));
        let Some(needs) = &view.needs else {
            let what = "its stored requirement cannot be read: nobody serves it";
            self.block("capabilities", what.into(), "unreadable requirement");
            return false;
        };
        let mut tokens: Vec<&String> = needs.iter().collect();
        tokens.dedup();
        for token in tokens {
            let count = live.iter().filter(|worker| worker.capabilities.contains(token)).count();
            let is_wish = around.classes.class_of(token) == CapabilityClass::Affinity;
            let what = format!("{token:?} is advertised by {}", of(count));
            let what = if is_wish { format!("{what}; it is a preference") } else { what };
            let short = nobody(format!("no worker has {token}"));
            self.block_if(count == 0 && !is_wish, "capability", what, short);
        }
        let serves_target =
            |worker: &&&SeenWorker| view.target.is_empty() || worker.targets.contains(&view.target);
        let count = live.iter().filter(serves_target).count();
        let what = format!("the target {:?} is served by {}", view.target, of(count));
        let short = nobody(format!("no worker serves {}", view.target));
        self.block_if(count == 0, "target", what, short);
        let can_serve =
            |worker: &&&SeenWorker| around.classes.can_serve(needs, &worker.capabilities);
        let able: Vec<_> =
            live.iter().filter(has_adapter).filter(serves_target).filter(can_serve).collect();
        let mut what = format!("all of it together is served by {}", of(able.len()));
        for (index, worker) in able.iter().take(NAMED).enumerate() {
            what += if index == 0 { ": " } else { ", " };
            what += &format!("{} (runs {})", worker.id, worker.running);
        }
        if able.len() > NAMED {
            what += &format!(" and {} more", able.len() - NAMED);
        }
        self.block_if(able.is_empty(), "worker", what, nobody("no worker has all it needs".into()));
        true
    }

    fn key(&mut self, key: &Key, now: f64) {
        match &key.held_by {
            None => self.say("key", format!("nothing runs under its key {:?}", key.key)),
            Some((run, owner, since)) => {
                let owner = owner.as_deref().unwrap_or("nobody");
                let since =
                    since.map_or(String::new(), |since| format!(", since {:.0} s", now - since));
                let what = format!("its key {:?} is held by {run} of {owner}{since}", key.key);
                let id: String = run.chars().take(8).collect();
                self.block("key", what, format!("waits for key {} held by {id}", key.key));
            }
        }
    }

    fn waiting(&mut self, view: &View, around: &Surroundings) {
        let word = match (view.status, view.wake_at) {
            (_, None) => "waits",
            (Status::RetryWait, _) => "retry at",
            _ => "not before",
        };
        let short = Short { words: word.into(), at: view.wake_at };
        self.block("status", format!("it is {}: {}", view.status, view.words()), short.clone());
        match view.wake_at {
            Some(at) => {
                let what = format!("it goes back to the queue {}", moment(at, around.now));
                self.block_if(at > around.now, "not before", what, short);
            }
            None => self.block("not before", "nothing here says when it goes on".into(), short),
        }
        self.pauses(view, around);
    }

    fn running(&mut self, view: &View, around: &Surroundings) {
        let now = around.now;
        let owner = view.owner.as_deref().unwrap_or("nobody");
        let owned = |worker: &&SeenWorker| worker.id == owner;
        let seen = around.workers.iter().find(owned).map(|worker| now - worker.seen_at);
        let (gone, seen) = match seen {
            Some(age) => (age > around.stale, format!("seen {age:.0} s ago")),
            None => (true, "which has sent no heartbeat".into()),
        };
        let what = format!("it runs under {owner}, {seen}");
        self.block_if(gone, "owner", what, "its worker is gone");
        match view.lease_expires_at {
            Some(at) if at < now => {
                let what = format!(
                    "its lease ran out {:.0} s ago: the next tick of any worker takes it back",
                    now - at
                );
                self.block("lease", what, "its lease ran out");
            }
            Some(at) => {
                let when = moment(at, now);
                self.say("lease", format!("its lease runs out {when}, unless it is renewed"));
            }
            None => self.say("lease", "it has no lease: nothing here takes it back".into()),
        }
        if view.is_cancel_requested {
            let what = "somebody wants it stopped; its worker, or who takes it back, does so";
            self.block("cancel", what.into(), "to be stopped");
        }
    }

    /// What a task has said itself is not repeated: it may have said its arguments.
    fn ended(&mut self, view: &View) {
        let what = match view.exit_code {
            Some(code) if view.status == Status::Failed => {
                format!("it is failed: exit code {code}; `leasehold show` has what it said")
            }
            _ => format!("it is {}: {}", view.status, view.words()),
        };
        self.say("ended", what);
    }
}

/// Whether a task that is not submitted yet could be claimed at once, by whom, or what it would wait for, given all that
/// decides about it.
pub fn start(found: &[Finding]) -> Finding {
    let named = |finding: &Finding| format!("{}: {}", finding.check, finding.what);
    let first = found.iter().find(|finding| finding.blocks);
    let what = match first {
        Some(finding) => format!("it would wait; {}", named(finding)),
        None => {
            let by: Vec<String> = found
                .iter()
                .filter(|finding| ["worker", PLACE].contains(&finding.check))
                .map(|finding| finding.what.clone())
                .collect();
            format!("it could be claimed now; {}", by.join("; "))
        }
    };
    let short = first.map_or_else(Short::default, |finding| finding.short.clone());
    Finding { check: "start", blocks: first.is_some(), what, short }
}

/// So many workers are named.
const NAMED: usize = 5;

impl View {
    fn words(&self) -> &str {
        self.reason.as_deref().unwrap_or("no reason is stored")
    }
}

fn moment(at: f64, now: f64) -> String {
    if at > now { format!("in {:.0} s", at - now) } else { "now".into() }
}

/// `1st`, `2nd`, `3rd`, `4th`.
fn ordinal(number: usize) -> String {
    let ending = match (number % 10, number % 100) {
        (1, rest) if rest != 11 => "st",
        (2, rest) if rest != 12 => "nd",
        (3, rest) if rest != 13 => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

#[cfg(test)]
mod tests;
