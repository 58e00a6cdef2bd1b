//! Says that this worker is alive, and renews the leases of what it executes.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message, ResponseFuture, WrapFuture};
use tracing::{Instrument, Span, debug, warn};

use super::db::{Lane, Writer};
use super::root::{LeasesRenewed, Root, RunningRuns};
use super::supervise::{DeathWatch, halts};
use super::{CallError, Parts};
use crate::db::ops::{ForgetWorkers, Heartbeat, Renew};
use crate::domain::kinds::Kinds;
use crate::process::BootTime;

/// Workers that were not seen for so long are forgotten, in seconds: a week.
const FORGOTTEN_AFTER: f64 = 7.0 * 24.0 * 3600.0;
/// How often they are looked for.
const FORGET_EVERY: Duration = Duration::from_secs(3600);
/// A renewal that failed is tried again this soon.
const RENEW_AGAIN: Duration = Duration::from_millis(250);

/// Writes the heartbeat, unless the last one is young enough.
#[derive(Debug, Message)]
#[rtype(result = "Result<Beaten, CallError>")]
pub(crate) struct Beat;

/// The heartbeat is young enough now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Beaten {
    /// Whether it had to be written.
    pub written: bool,
}

/// Renews the leases of all running runs.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct RenewLeases;

/// The heartbeat that was written, at the worker's own time.
#[derive(Message)]
#[rtype(result = "()")]
struct Wrote(f64);

/// Keeps this worker and its leases alive.
pub(crate) struct HeartbeatActor {
    parts: Arc<Parts>,
    root: Addr<Root>,
    db: Writer,
    last: Option<f64>,
    span: Span,
    _watch: DeathWatch,
}

impl HeartbeatActor {
    pub fn new(parts: Arc<Parts>, root: Addr<Root>, db: Writer, watch: DeathWatch) -> Self {
        let span = tracing::info_span!("runtime", actor = "heartbeat");
        HeartbeatActor { parts, root, db, last: None, span, _watch: watch }
    }

    fn is_due(&self, now: f64) -> bool {
        let third = self.parts.config.queue.heartbeat_ttl / 3.0;
        // A clock that was set back makes it due as well.
        self.last.is_none_or(|last| now - last >= third || now < last)
    }
}

halts!(HeartbeatActor);

impl Actor for HeartbeatActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let third = |seconds: f64| Duration::from_secs_f64(seconds / 3.0);
        ctx.run_interval(third(self.parts.config.queue.heartbeat_ttl), |_, ctx| ctx.notify(Beat));
        ctx.run_interval(Duration::from_secs_f64(self.parts.times.renewal()), |_, ctx| {
            ctx.notify(RenewLeases);
        });
        ctx.notify(Forget);
        ctx.run_interval(FORGET_EVERY, |_, ctx| ctx.notify(Forget));
    }
}

impl Handler<Beat> for HeartbeatActor {
    type Result = ResponseFuture<Result<Beaten, CallError>>;

    fn handle(&mut self, _: Beat, ctx: &mut Self::Context) -> Self::Result {
        let _in = self.parts.enter("heartbeat", &self.span);
        let at = self.parts.clock.now();
        if !self.is_due(at) {
            return Box::pin(async { Ok(Beaten { written: false }) });
        }
        let config = &self.parts.config;
        let heartbeat = Heartbeat {
            worker_id: self.parts.worker_id.clone(),
            capabilities: config.advertise.clone(),
            targets: config.targets.clone(),
            kinds: match &self.parts.offer.kinds {
                Kinds::Any => None,
                Kinds::Only(kinds) => Some(kinds.iter().cloned().collect()),
            },
            at,
        };
        let (db, address) = (self.db.clone(), ctx.address());
        let written = async move {
            db.write(heartbeat, Lane::First)
                .await
                .inspect_err(|error| warn!(%error, "no heartbeat"))?;
            address.do_send(Wrote(at));
            Ok(Beaten { written: true })
        };
        Box::pin(written.instrument(self.span.clone()))
    }
}

impl Handler<Wrote> for HeartbeatActor {
    type Result = ();

    fn handle(&mut self, Wrote(at): Wrote, _: &mut Self::Context) {
        self.last = Some(at);
    }
}

impl Handler<RenewLeases> for HeartbeatActor {
    type Result = ();

    fn handle(&mut self, _: RenewLeases, ctx: &mut Self::Context) {
        let (root, db, parts) = (self.root.clone(), self.db.clone(), Arc::clone(&self.parts));
        let address = ctx.address();
        let renewed = async move {
            if let Err(error) = renew(&root, &db, &parts).await {
                // Unknown, not lost: each task goes on until its fence.
                warn!(%error, "leases not renewed, trying again");
                tokio::time::sleep(RENEW_AGAIN).await;
                address.do_send(RenewLeases);
            }
        };
        ctx.spawn(renewed.instrument(self.span.clone()).into_actor(self));
    }
}

async fn renew(root: &Addr<Root>, db: &Writer, parts: &Parts) -> Result<(), CallError> {
    let runs = root.send(RunningRuns).await?;
    if runs.is_empty() {
        return Ok(());
    }
    let requested = BootTime::now();
    let renewal = Renew {
        owner: parts.worker_id.clone(),
        runs: runs.clone(),
        lease_expires_at: parts.lease_end(),
    };
    let kept = db.write(renewal, Lane::First).await?;
    debug!(asked = runs.len(), renewed = kept.len(), "renewed");
    root.do_send(LeasesRenewed { requested, asked: runs, kept });
    Ok(())
}

/// Removes workers that nobody has seen for long.
#[derive(Message)]
#[rtype(result = "()")]
struct Forget;

impl Handler<Forget> for HeartbeatActor {
    type Result = ();

    fn handle(&mut self, _: Forget, ctx: &mut Self::Context) {
        let forget = ForgetWorkers { unseen_since: self.parts.clock.now() - FORGOTTEN_AFTER };
        let db = self.db.clone();
        let done = async move {
            match db.write(forget, Lane::Second).await {
                Ok(0) => {}
                Ok(count) => debug!(count, "forgot workers"),
                Err(error) => debug!(%error, "cannot forget workers"),
            }
        };
        ctx.spawn(done.instrument(self.span.clone()).into_actor(self));
    }
}
