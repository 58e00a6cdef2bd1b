//! How far into the queue a worker need not look again.
//!
//! What a run requires never changes, so a run that this worker may not serve stays so. The *frontier* is the end of
//! the unbroken row of such runs at the head of the queue: a wake-up begins there, and a head of a million runs for
//! somebody else costs nothing. It is a short cut, not the truth: a run can come back to an old place, so a full round
//! from the head stands behind it.
//!
//! Between those runs there may be some of this worker's that were held by a pause. So it is good only as long as all
//! that was paused when it was reached still is.

use super::pause::Pauses;

/// A place in the queue's order: when a run was queued, and its id.
pub type Place = (f64, String);

/// Runs younger than this are looked at again, in seconds: one that was queued a moment earlier may be committed, or
/// may come from a host whose clock is behind.
const OVERLAP: f64 = 10.0;

/// How far the frontier reaches.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Frontier {
    reached: Option<Place>,
    under: Pauses,
}

impl Frontier {
    /// The place after which a wake-up looks; nothing when it has to begin at the head.
    pub fn place(&self) -> Option<&Place> {
        self.reached.as_ref()
    }

    /// Begins at the head again.
    pub fn reset(&mut self) {
        self.reached = None;
    }

    /// Begins at the head again if something goes on that was paused, now that `pauses` are all there are.
    pub fn look_at(&mut self, pauses: &Pauses) {
        if !pauses.cover(&self.under) {
            self.reset();
            self.under = Pauses::default();
        }
    }

    /// Moves on past `skipped`, the runs that a pass under `pauses` found not to be this worker's before it met the
    /// first that is. The pass began at the head or at the frontier.
    pub fn advance<'a>(
        &mut self,
        skipped: impl IntoIterator<Item = &'a Place>,
        pauses: &Pauses,
        now: f64,
    ) {
        let old_enough = |place: &&Place| place.0 < now - OVERLAP;
        if let Some(last) = skipped.into_iter().take_while(old_enough).last() {
            self.reached = Some(last.clone());
            self.under = pauses.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pause::Scope;
    use super::*;

    fn place(at: f64) -> Place {
        (at, format!("r{at}"))
    }

    #[test]
    fn the_frontier_stops_before_what_is_too_young() {
        let (mut frontier, none) = (Frontier::default(), Pauses::default());
        frontier.advance(&[place(1.0), place(2.0), place(95.0)], &none, 100.0);
        assert_eq!(frontier.place(), Some(&place(2.0)));
        frontier.advance(&[], &none, 100.0);
        assert_eq!(frontier.place(), Some(&place(2.0)));
        frontier.reset();
        assert_eq!(frontier.place(), None);
    }

    #[test]
    fn what_goes_on_again_is_before_the_frontier_only_if_it_was_paused_when_that_was_reached() {
        let pauses = |kinds: &[&str]| -> Pauses {
            kinds.iter().map(|kind| Scope::kind(kind).unwrap()).collect()
        };
        let mut frontier = Frontier::default();
        frontier.advance(&[place(1.0)], &pauses(&["flow"]), 100.0);
        for more in
            [pauses(&["flow"]), pauses(&["flow", "agent"]), [Scope::Queue].into_iter().collect()]
        {
            frontier.look_at(&more);
            assert_eq!(frontier.place(), Some(&place(1.0)), "{more}");
        }
        // Agents were not paused when it was reached.
        frontier.look_at(&pauses(&["flow"]));
        assert_eq!(frontier.place(), Some(&place(1.0)));
        frontier.look_at(&pauses(&["agent"]));
        assert_eq!(frontier.place(), None);
        frontier.advance(&[place(2.0)], &pauses(&[]), 100.0);
        frontier.look_at(&pauses(&[]));
        assert_eq!(frontier.place(), Some(&place(2.0)));
    }
}
