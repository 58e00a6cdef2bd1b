//! Sends the notices of ended tasks that are due.
//!
//! Each is sent at least once: it is taken for a time by a compare-and-swap, sent, and what came of it is stored. Who dies
//! in between leaves it to whoever looks after that time. Nothing here touches a task, and nothing waits for it here but
//! the end of the runtime.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use actix::{
    Actor, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message, SpawnHandle, WrapFuture,
};
use tracing::{Instrument, Span, info, warn};

use super::db::{Lane, Writer};
use super::reader::Reader;
use super::root::{Leave, LookForNotices, Root};
use super::supervise::{DeathWatch, halts};
use super::{CallError, Parts};
use crate::db::ops::{
    DueNotice, DueNotices, NextNotice, NoticeToSend, SettleNotice, TakeNotice, Taken,
};
use crate::domain::dispatch::DispatchStatus;
use crate::domain::notice::{Destination, Failed, moment};

/// So many notices are sent at once,
const MOST: usize = 8;
/// and so many to one receiver: a slow one holds up only itself.
const MOST_TO_ONE: usize = 2;
/// So many pages of what is due are read to find some for another receiver than the busy ones.
const MOST_PAGES: usize = 50;
/// How soon what the store does not take for due yet is looked for again: clocks of hosts differ.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// How soon after an error of the store.
const AFTER_ERROR: Duration = Duration::from_secs(1);

/// Something may be due. The runtime does not end while this is being looked at, and what is found sent.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Look(pub Arc<()>);

/// Sends notices.
pub(crate) struct DispatchActor {
    parts: Arc<Parts>,
    root: Addr<Root>,
    db: Writer,
    reader: Reader,
    /// What is being sent, and to whom.
    underway: HashMap<String, String>,
    /// Whether it is looking, and whether it is to look once more.
    looking: Option<bool>,
    leave: Option<Leave>,
    timer: Option<SpawnHandle>,
    span: Span,
    _watch: DeathWatch,
}

impl DispatchActor {
    pub fn new(
        parts: Arc<Parts>,
        root: Addr<Root>,
        db: Writer,
        reader: Reader,
        watch: DeathWatch,
    ) -> Self {
        DispatchActor {
            parts,
            root,
            db,
            reader,
            underway: HashMap::new(),
            looking: None,
            leave: None,
            timer: None,
            span: tracing::info_span!("runtime", actor = "dispatch"),
            _watch: watch,
        }
    }

    fn look(&mut self, ctx: &mut Context<Self>) {
        if let Some(again) = &mut self.looking {
            *again = true;
            return;
        }
        if self.underway.len() >= MOST {
            return;
        }
        self.looking = Some(false);
        let choice = Choice { underway: self.underway.clone(), chosen: Vec::new() };
        let looked = look(choice, Arc::clone(&self.parts), self.reader.clone());
        let done = looked.instrument(self.span.clone()).into_actor(self);
        ctx.spawn(done.map(|looked, actor, ctx| actor.end_look(looked, ctx)));
    }

    fn end_look(&mut self, looked: Result<Looked, CallError>, ctx: &mut Context<Self>) {
        let _in = self.parts.enter("dispatch", &self.span);
        let again = self.looking.take().unwrap_or_default();
        match looked {
            Ok(Looked { due, next }) => {
                for notice in due {
                    self.deliver(notice, ctx);
                }
                self.set_timer(next, ctx);
            }
            Err(error) => {
                warn!(%error, "cannot look for notices");
                self.set_timer(Some(AFTER_ERROR), ctx);
            }
        }
        if again {
            self.look(ctx);
        }
        self.rest();
    }

    fn set_timer(&mut self, next: Option<Duration>, ctx: &mut Context<Self>) {
        if let Some(timer) = self.timer.take() {
            ctx.cancel_future(timer);
        }
        // Farther away than a tick it is looked for again anyhow.
        if let Some(length) = next.filter(|length| *length < self.parts.config.tick) {
            let look = |actor: &mut Self, _: &mut Context<Self>| actor.root.do_send(LookForNotices);
            self.timer = Some(ctx.run_later(length, look));
        }
    }

    fn deliver(&mut self, notice: DueNotice, ctx: &mut Context<Self>) {
        let id = notice.id.clone();
        self.underway.insert(id.clone(), receiver(&notice.deliver_to));
        let sent = deliver(notice, Arc::clone(&self.parts), self.db.clone());
        let done = sent.instrument(self.span.clone()).into_actor(self);
        ctx.spawn(done.map(move |(), actor, ctx| {
            actor.underway.remove(&id);
            // There is room for another one.
            actor.look(ctx);
        }));
    }

    /// Lets the runtime end if there is nothing to do.
    fn rest(&mut self) {
        if self.looking.is_none() && self.underway.is_empty() {
            self.leave = None;
        }
    }
}

halts!(DispatchActor);

impl Actor for DispatchActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.root.do_send(LookForNotices);
        if self.parts.config.own_ticks {
            ctx.run_interval(self.parts.config.tick, |actor, _| {
                actor.root.do_send(LookForNotices);
            });
        }
    }
}

impl Handler<Look> for DispatchActor {
    type Result = ();

    fn handle(&mut self, Look(out): Look, ctx: &mut Self::Context) {
        let _in = self.parts.enter("dispatch", &self.span);
        if self.leave.is_none() {
            self.leave = Some(Leave::new(&out, self.root.clone()));
        }
        self.look(ctx);
    }
}

/// Whom a notice goes to, as far as being slow goes.
fn receiver(deliver_to: &str) -> String {
    Destination::parse(deliver_to).map_or_else(|_| String::new(), |to| to.shown())
}

struct Looked {
    due: Vec<DueNotice>,
    /// How soon something may be due.
    next: Option<Duration>,
}

/// What is sent, and what is to be sent beside it.
struct Choice {
    underway: HashMap<String, String>,
    chosen: Vec<DueNotice>,
}

impl Choice {
    fn is_full(&self) -> bool {
        self.underway.len() >= MOST
    }

    fn offer(&mut self, notice: DueNotice) {
        let to = receiver(&notice.deliver_to);
        let busy = self.underway.values().filter(|other| **other == to).count();
        // Its own lease may have run out while it is still being sent here.
        let is_here = self.underway.contains_key(&notice.id);
        if !is_here && busy < MOST_TO_ONE && !self.is_full() {
            self.underway.insert(notice.id.clone(), to);
            self.chosen.push(notice);
        }
    }
}

async fn look(mut choice: Choice, parts: Arc<Parts>, reader: Reader) -> Result<Looked, CallError> {
    let left = |at: f64| moment(at) - parts.clock.now();
    let nothing = Looked { due: Vec::new(), next: None };
    // As a rule there is none, and that is one read.
    let Some(first) = reader.read(NextNotice { now: None }).await? else { return Ok(nothing) };
    if left(first) > 0.0 {
        return Ok(Looked { next: length(left(first)), ..nothing });
    }
    let now = parts.lease_now();
    let mut next = Some(DueNotices { now, after: None });
    let mut pages = 0;
    while let Some(query) = next.take_if(|_| pages < MOST_PAGES && !choice.is_full()) {
        let page = reader.read(query.clone()).await?;
        pages += 1;
        next = query.next(&page);
        page.into_iter().for_each(|notice| choice.offer(notice));
    }
    let later = reader.read(NextNotice { now: Some(now) }).await?;
    Ok(Looked { due: choice.chosen, next: later.and_then(|at| length(left(at))) })
}

/// What is due by this host's clock and was left alone is not due yet by the store's.
fn length(left: f64) -> Option<Duration> {
    if left > 0.0 { Duration::try_from_secs_f64(left).ok() } else { Some(LOOK_AGAIN) }
}

/// Makes one attempt.
async fn deliver(due: DueNotice, parts: Arc<Parts>, db: Writer) {
    let Some(notice) = take(due, &parts, &db).await else { return };
    let result = parts.sender.send(&notice, parts.clock.now()).await;
    settle(notice, result, &parts, &db).await;
}

async fn take(due: DueNotice, parts: &Parts, db: &Writer) -> Option<NoticeToSend> {
    let take = TakeNotice {
        from: DispatchStatus::parse(&due.status)?,
        attempt: due.attempt,
        worker_id: parts.worker_id.clone(),
        lease: parts.config.notify.lease(),
        at: parts.clock.now(),
        fact_id: parts.ids.fact_id(),
        id: due.id,
    };
    let (id, to) = (take.id.clone(), receiver(&due.deliver_to));
    match db.write(take, Lane::Second).await {
        Ok(Taken::Won(notice)) => Some(notice),
        Ok(Taken::Settled(status)) => {
            warn!(notice = %id, to, %status, "a notice was given up");
            None
        }
        Ok(Taken::Lost) => None,
        Err(error) => {
            warn!(notice = %id, to, %error, "cannot take a notice");
            None
        }
    }
}

/// Until it is stored, or the notice is this worker's no more.
async fn settle(notice: NoticeToSend, result: Result<(), Failed>, parts: &Parts, db: &Writer) {
    let to = receiver(&notice.deliver_to);
    let (id, attempt) = (notice.id, notice.attempt);
    let error = result.as_ref().err().map(|failed| failed.error.clone());
    let settle = SettleNotice {
        id: id.clone(),
        attempt,
        worker_id: parts.worker_id.clone(),
        result,
        backoff: parts.config.notify.backoff,
        at: parts.clock.now(),
        fact_id: parts.ids.fact_id(),
    };
    let until = parts.clock.now() + parts.config.notify.lease();
    loop {
        match db.write(settle.clone(), Lane::Second).await {
            Ok(Some(DispatchStatus::Delivered)) => {
                info!(notice = %id, to, attempt, "a notice was sent");
                return;
            }
            Ok(Some(status)) => {
                warn!(notice = %id, to, attempt, %status, error, "a notice could not be sent");
                return;
            }
            Ok(None) => {
                warn!(notice = %id, to, attempt, "a notice was sent too slowly: it is sent again");
                return;
            }
            Err(problem) if parts.clock.now() < until => {
                warn!(notice = %id, to, error = %problem, "cannot store what became of a notice");
                tokio::time::sleep(AFTER_ERROR).await;
            }
            Err(problem) => {
                warn!(notice = %id, to, error = %problem, "a notice is sent once more");
                return;
            }
        }
    }
}
