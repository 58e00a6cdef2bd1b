//! `leasehold events`.

use std::thread;
use std::time::Duration;

use leasehold::db::Event;
use leasehold::domain::event::EventId;

use super::failure::Failure;
use super::harmless::harmless;
use super::store::StoreOption;
use super::{out, text};

/// How often the store is asked: as often as a worker asks.
const LOOK_EVERY: Duration = Duration::from_millis(40);
/// Events that are read at a time.
const PAGE: u32 = 256;

/// List what happened to tasks, in order, and go on with --follow
///
/// One line for each task that was submitted and each change of a status, whoever made it: the event's id, the time
/// (UTC), the task, the statuses, the reason, who. Give the last id that was seen to --after, and each event comes once.
/// Those of one task come in the order in which they happened. What was before the store had events is only in `history`.
#[derive(Debug, clap::Args)]
pub(super) struct Events {
    /// Begin after this event; `newest` begins with what happens from now on
    ///
    /// Without it the list begins with the oldest event that is kept.
    #[arg(long, value_name = "ID", value_parser = after)]
    after: Option<After>,
    /// End after so many [default: 100, and none with --follow]
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
    /// Wait for more, until interrupted
    #[arg(long)]
    follow: bool,
    /// Print a JSON array of events; with --follow one JSON object per line
    ///
    /// Times are seconds since the epoch there. An event without a transition_id is a task that was submitted.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy)]
enum After {
    Newest,
    Event(EventId),
}

fn after(word: &str) -> Result<After, String> {
    match word {
        "newest" => Ok(After::Newest),
        id => id.parse().map(After::Event).map_err(|error| format!("{error}")),
    }
}

impl Events {
    pub(super) fn run(&self, store: &StoreOption) -> Result<(), Failure> {
        let mut queue = store.read()?;
        let mut after = match self.after {
            None => None,
            Some(After::Event(id)) => Some(id),
            Some(After::Newest) => queue.newest_event()?,
        };
        if !self.follow {
            let events = queue.events(after, self.limit.unwrap_or(100))?;
            return match self.json {
                true => out::print(&text::json_array(&events)?),
                false => out::print(&events.iter().map(line).collect::<String>()),
            };
        }
        let mut left = self.limit;
        while left != Some(0) {
            // A store of the original gets its events when somebody writes to it through this project.
            if !queue.is_complete() {
                queue = store.read()?;
            }
            let page = left.map_or(PAGE, |left| left.min(PAGE));
            let events = queue.events(after, page)?;
            let Some(last) = events.last() else {
                thread::sleep(LOOK_EVERY);
                continue;
            };
            after = Some(last.id);
            left =
                left.map(|left| left.saturating_sub(u32::try_from(events.len()).unwrap_or(left)));
            let lines: Vec<String> = match self.json {
                true => events.iter().map(text::json_object).collect::<Result<_, _>>()?,
                false => events.iter().map(line).collect(),
            };
            if out::copy(lines.concat().as_bytes())? {
                break;
            }
        }
        Ok(())
    }
}

fn line(event: &Event) -> String {
    let who = match (event.source.as_deref(), event.actor.as_deref()) {
        (Some(source), Some(actor)) if !actor.is_empty() => format!("{source} {actor}"),
        (source, _) => text::or_none(source).to_owned(),
    };
    let words = [
        &event.id.to_string(),
        &text::time(event.created_at),
        event.run_id.as_str(),
        text::or_none(event.previous_status.as_deref()),
        ">",
        text::or_none(event.status.as_deref()),
        text::or_none(event.reason_code.as_deref()),
        &who,
    ];
    harmless(&words.join(" ")) + "\n"
}
