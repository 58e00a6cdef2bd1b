//! Whether work is left, while it moves on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use diesel::connection::{Connection, InstrumentationEvent};
use leasehold::db::{Query, ops};
use leasehold::domain::capability::CapabilityClasses;
use leasehold::domain::claim_plan::Offer;

use crate::kit::{Watched, submit};
use crate::places::{Place, engines};

/// Claimed between two statements it is not running yet for the one, and not queued any more for the other.
#[test]
fn a_run_that_is_claimed_while_it_is_looked_for_is_seen() {
    for engine in engines() {
        let place = Place::new(engine);
        drop(place.queue());
        let mut on = Watched::new(&place);
        on.write(&submit("r"));
        let (mut raw, looks) = (place.raw(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&looks);
        on.conn.set_instrumentation(move |event: InstrumentationEvent<'_>| {
            if let InstrumentationEvent::StartQuery { query, .. } = event
                && query.to_string().contains("schedule_runs")
                && count.fetch_add(1, Ordering::Relaxed) == 1
            {
                raw.run("UPDATE schedule_runs SET status = 'running'");
            }
        });
        let offer = Offer::new(&[], &[], CapabilityClasses::default());
        let is_left = ops::Outstanding { offer }.run(&mut on.conn).unwrap();
        assert!(is_left, "{engine:?}");
        assert!(looks.load(Ordering::Relaxed) >= 2, "nothing has happened meanwhile");
    }
}
