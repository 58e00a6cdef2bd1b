//! Removes what is kept of old runs, in every slot of the store: some of their workers never come back.

use std::time::{Duration, UNIX_EPOCH};

use actix::{AsyncContext, Context};
use tracing::{info, warn};

use super::Root;

/// How often what is kept of runs is looked through.
const REMOVAL: Duration = Duration::from_secs(600);

impl Root {
    pub(super) fn remove_old_runs_again_and_again(&self, ctx: &mut Context<Self>) {
        self.remove_old_runs();
        ctx.run_interval(REMOVAL, |root, _| root.remove_old_runs());
    }

    /// Nobody waits for it: what is not removed now is removed the next time.
    fn remove_old_runs(&self) {
        let Some(guards) = self.parts.guards.clone() else { return };
        let span = self.span.clone();
        let now = UNIX_EPOCH + Duration::from_secs_f64(self.parts.clock.now().max(0.0));
        tokio::task::spawn_blocking(move || {
            let _in = span.entered();
            let Some(slot) = guards.slots.first() else { return };
            match slot.siblings().and_then(|slots| guards.retention.apply(&slots, now)) {
                Ok(0) => {}
                Ok(removed) => info!(removed, "removed what was kept of old runs"),
                Err(error) => warn!(%error, "cannot look at what is kept of old runs"),
            }
        });
    }
}
