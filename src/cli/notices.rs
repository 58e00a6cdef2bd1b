//! `leasehold notices`.

use std::fmt::Write;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use leasehold::db::ops::{FindNotice, ListNotices, NoticeHistory, NoticeOf, Resent};
use leasehold::db::{Fact, Notice};
use leasehold::domain::dispatch::DispatchStatus;
use leasehold::domain::notice::Destination;
use leasehold::{Config, Queue};

use super::cancel::operator;
use super::failure::Failure;
use super::harmless::harmless;
use super::store::StoreOption;
use super::{out, text};

const EXAMPLES: &str = "\
Examples:
  leasehold notices --status dead_letter
  leasehold notices ID
  leasehold notices retry NOTICE";

/// List the notices of ended tasks, the oldest first; or show one, with its changes
///
/// A task that was submitted with --notify leaves one with its end. Of an address only the host is listed, since the rest
/// may be a secret: a single notice and --json show all of it. Times are UTC.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(super) struct Notices {
    /// One notice, by its own id or by that of its task
    id: Option<String>,
    /// Only notices with this status
    #[arg(long, value_name = "STATUS", value_parser = status(), conflicts_with = "id")]
    status: Option<DispatchStatus>,
    /// At most so many notices
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 100,
        allow_negative_numbers = true,
        conflicts_with = "id"
    )]
    limit: u32,
    /// Print a JSON array of rows, or one object, with the column names of the table dispatch_outbox
    ///
    /// Times are seconds since the epoch there.
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Send a notice again that was given up: a dead letter, or one that has expired
    ///
    /// It is due at once, has all its attempts again and expires no more.
    Retry {
        /// The notice, by its own id or by that of its task
        notice: String,
    },
}

fn status() -> impl TypedValueParser<Value = DispatchStatus> {
    PossibleValuesParser::new(DispatchStatus::ALL.map(DispatchStatus::as_str))
        .try_map(|name| DispatchStatus::parse(&name).ok_or("no such status"))
}

impl Notices {
    pub(super) fn run(&self, store: &StoreOption) -> Result<(), Failure> {
        match (&self.verb, &self.id) {
            (Some(Verb::Retry { notice }), _) => retry(store, notice),
            (None, Some(id)) => self.show(store, id),
            (None, None) => self.list(store),
        }
    }

    fn list(&self, store: &StoreOption) -> Result<(), Failure> {
        let mut queue = store.read()?;
        let query = ListNotices { status: self.status, limit: self.limit };
        // A reader of a store of the original, which this program has never written to.
        let notices = if queue.is_complete() { queue.read(&query)? } else { Vec::new() };
        if self.json {
            return out::print(&text::json_array(&notices)?);
        }
        let rows = notices.into_iter().map(|notice| {
            [
                notice.id,
                text::or_none(notice.schedule_run_id.as_deref()).to_owned(),
                notice.status,
                format!("{}/{}", notice.attempt, notice.max_attempts),
                shown(&notice.deliver_to),
                text::time(notice.created_at),
                text::or_none(notice.last_error.as_deref()).to_owned(),
            ]
        });
        let headings = ["ID", "TASK", "STATUS", "TRIES", "TO", "CREATED", "ERROR"];
        out::print(&text::table(headings, rows))
    }

    fn show(&self, store: &StoreOption, id: &str) -> Result<(), Failure> {
        let mut queue = store.read()?;
        let notice = find(&mut queue, id)?;
        if self.json {
            return out::print(&text::json_object(&notice)?);
        }
        let mut lines = text::columns(&notice)?;
        for fact in queue.read(&NoticeHistory { id: notice.id })? {
            lines += &line(&fact)?;
        }
        out::print(&lines)
    }
}

/// What may be seen of a destination by whoever looks over a shoulder.
pub(super) fn shown(deliver_to: &str) -> String {
    Destination::parse(deliver_to).map_or_else(|_| text::NONE.to_owned(), |to| to.shown())
}

fn line(fact: &Fact) -> Result<String, Failure> {
    let from = text::or_none(fact.previous_status.as_deref());
    let summary = text::or_none(fact.reason_summary.as_deref());
    let at = text::time(fact.created_at);
    let said = format!("{at} {from} -> {} {}: {summary}", fact.status, fact.reason_code);
    let mut line = String::new();
    writeln!(line, "  {}", harmless(&said))?;
    Ok(line)
}

fn find(queue: &mut Queue, id: &str) -> Result<Notice, Failure> {
    let missing = || {
        Failure::Refused(format!(
            "there is no notice {id:?}, and no task of that id has left one: list them with `leasehold notices`"
        ))
    };
    // No store can hold such an id, and PostgreSQL would not even be asked.
    if id.contains('\0') || !queue.is_complete() {
        return Err(missing());
    }
    if let Some(notice) = queue.read(&FindNotice { id: id.to_owned() })? {
        return Ok(notice);
    }
    queue.read(&NoticeOf { run_id: id.to_owned() })?.ok_or_else(missing)
}

fn retry(store: &StoreOption, id: &str) -> Result<(), Failure> {
    // A store that is not there must not be made just to find nothing in it.
    let notice = find(&mut store.read()?, id)?;
    let mut queue = store.write(Config::default())?;
    match queue.retry_notice(&notice.id, &operator())? {
        Resent::Yes => out::print("pending: the next worker that looks sends it\n"),
        Resent::NotGivenUp(status) => Err(Failure::Refused(format!(
            "the notice {:?} is {status}: only a dead_letter or an expired one is sent again",
            notice.id
        ))),
        Resent::NotFound => {
            Err(Failure::Refused(format!("the notice {:?} was removed a moment ago", notice.id)))
        }
    }
}
