//! `leasehold pause` and `leasehold resume`.

use leasehold::Config;
use leasehold::domain::pause::{Pause as Stored, Scope};
use leasehold::queue::Paused;
use serde_json::{Value, json};

use super::adapters::KindOption;
use super::cancel::operator;
use super::failure::Failure;
use super::harmless::harmless;
use super::store::StoreOption;
use super::{out, text};

const EXAMPLES: &str = "\
Examples:
  leasehold pause --reason 'the model is being replaced'
  leasehold pause --kind play
  leasehold pause --list
  leasehold resume --kind play";

/// Keep tasks from being started: all of them, those of a kind, or those for a target
///
/// It holds for every worker on the store until `resume`. Tasks are accepted meanwhile and wait in their places; what is
/// running goes on. When this has answered, nothing of it is started any more. What is paused already stays so. Without
/// any option the whole queue is paused.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Pause {
    #[command(flatten)]
    scope: ScopeOptions,
    /// Why, for those who ask: `why` and --list show it
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Pause nothing, and list what is paused
    #[arg(long, conflicts_with_all = ["all", "kind", "target", "reason"])]
    list: bool,
    /// Print that list as a JSON array of rows, with the column names of the table leasehold_pauses
    ///
    /// Times are seconds since the epoch there.
    #[arg(long, requires = "list")]
    json: bool,
}

/// Let tasks be started again that were paused
///
/// Each pause is lifted by itself: what is paused as a kind stays so when the whole queue goes on. The answer names what
/// is still paused. Workers notice within 100 ms or so.
#[derive(Debug, clap::Args)]
pub(super) struct Resume {
    #[command(flatten)]
    scope: ScopeOptions,
}

#[derive(Debug, clap::Args)]
struct ScopeOptions {
    #[command(flatten)]
    which: WhichOptions,
    #[command(flatten)]
    kinds: KindOption,
}

#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct WhichOptions {
    /// The whole queue, which is meant without any option as well
    #[arg(long)]
    all: bool,
    /// The tasks of this kind; one of your own must be accepted by name, see --accept-kind
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// The tasks for this execution target
    #[arg(long, value_name = "T")]
    target: Option<String>,
}

impl ScopeOptions {
    fn read(&self) -> Result<Scope, Failure> {
        Ok(match (&self.which.kind, &self.which.target) {
            (Some(kind), _) => Scope::kind_or_own(kind, &self.kinds.read()?)?,
            (None, Some(target)) => Scope::target(target)?,
            (None, None) => Scope::Queue,
        })
    }
}

impl Pause {
    pub(super) fn run(&self, store: &StoreOption) -> Result<(), Failure> {
        if self.list {
            return self.list(store);
        }
        let scope = self.scope.read()?;
        let mut queue = store.write_existing(Config::default())?;
        let answer = match queue.pause(scope.clone(), operator(), self.reason.clone())? {
            Paused::Now => format!("paused: {scope}"),
            Paused::Before(pause) => format!("paused before: {}", told(&pause)),
        };
        out::print(&(harmless(&answer) + "\n"))
    }

    fn list(&self, store: &StoreOption) -> Result<(), Failure> {
        let pauses = store.read()?.pauses()?;
        if self.json {
            let rows: Vec<Value> = pauses.iter().map(row).collect();
            return out::print(&text::json_array(&rows)?);
        }
        let rows = pauses.into_iter().map(|pause| {
            [
                pause.scope.word().to_owned(),
                text::or_none(Some(pause.scope.value()).filter(|value| !value.is_empty())).into(),
                text::time(pause.since),
                format!("{} {}", pause.by.kind.as_str(), pause.by.id),
                text::or_none(pause.reason.as_deref()).to_owned(),
            ]
        });
        out::print(&text::table(["SCOPE", "VALUE", "SINCE", "BY", "REASON"], rows))
    }
}

impl Resume {
    pub(super) fn run(&self, store: &StoreOption) -> Result<(), Failure> {
        let scope = self.scope.read()?;
        let mut queue = store.write_existing(Config::default())?;
        let mut answer = match queue.resume(&scope)? {
            Some(pause) => format!("resumed: {}", told(&pause)),
            None => format!("not paused: {scope}"),
        };
        let left: Vec<String> =
            queue.pauses()?.iter().map(|pause| pause.scope.to_string()).collect();
        if !left.is_empty() {
            answer += &format!("; still paused: {}", left.join(", "));
        }
        out::print(&(harmless(&answer) + "\n"))
    }
}

fn told(Stored { scope, since, by, reason }: &Stored) -> String {
    let reason = reason.as_deref().map_or(String::new(), |reason| format!(": {reason}"));
    let since = text::time(*since);
    format!("{scope}, since {since} by {} {}{reason}", by.kind.as_str(), by.id)
}

fn row(Stored { scope, since, by, reason }: &Stored) -> Value {
    json!({
        "scope": scope.word(), "value": scope.value(), "since": since,
        "source": by.kind.as_str(), "actor": by.id, "reason": reason,
    })
}
