//! The locks of this machine that keep runs from being claimed.
//!
//! A lock is *awaited* if and only if a run could not have it in the latest round of claiming, and it has not been seen
//! free since. Nobody tells when another program lets go of a lock, so awaited ones are looked at every second; while
//! there are none, nothing is. Who holds one is said at the first look, and again when that changes. A run that another
//! worker of the store has claimed meanwhile is met by no further round, so of such a race nothing is said.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::rc::Rc;
use std::time::Duration;

use tracing::{debug, info, warn};

use crate::process::machine_lock::{Holder, LockDir, LockState};

/// How long a lock that was freed may stay unnoticed.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The awaited locks of one start of the loops.
#[derive(Debug, Clone, Default)]
pub(super) struct Awaited(Rc<RefCell<BTreeMap<String, Wait>>>);

#[derive(Debug)]
struct Wait {
    /// A run that waits for it.
    run_id: String,
    /// What was said last; nothing before the first look.
    said: Option<LockState>,
    /// Whether the latest round has met it.
    met: bool,
}

impl Awaited {
    /// The queue is looked at again. What was said is remembered a little longer: a round may end before it has met
    /// everything, since there is no more room for tasks.
    pub fn begin_round(&self) {
        let mut waits = self.0.borrow_mut();
        waits.retain(|_, wait| wait.met);
        waits.values_mut().for_each(|wait| wait.met = false);
    }

    /// This lock could not be had for this run.
    pub fn meet(&self, token: &str, run_id: &str) {
        match self.0.borrow_mut().entry(token.to_owned()) {
            Entry::Occupied(known) => {
                let wait = known.into_mut();
                wait.met = true;
                wait.run_id.replace_range(.., run_id);
            }
            Entry::Vacant(new) => {
                new.insert(Wait { run_id: run_id.to_owned(), said: None, met: true });
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        !self.0.borrow().values().any(|wait| wait.met)
    }

    /// Looks at all of them, and answers whether one is free: then the queue is worth a look.
    pub async fn look(&self, dir: &LockDir) -> bool {
        let mut any_free = false;
        for (token, known) in self.awaited() {
            let state = look(dir, token.clone(), known).await;
            if state == LockState::Free {
                debug!(token, "a lock of this machine is free");
                self.0.borrow_mut().remove(&token);
                any_free = true;
            } else {
                self.say(dir, &token, state);
            }
        }
        any_free
    }

    fn awaited(&self) -> Vec<(String, Option<Holder>)> {
        let waits = self.0.borrow();
        let selected = waits.iter().filter(|(_, wait)| wait.met);
        let holder = |wait: &Wait| wait.said.as_ref().and_then(LockState::holder).cloned();
        selected.map(|(token, wait)| (token.clone(), holder(wait))).collect()
    }

    fn say(&self, dir: &LockDir, token: &str, state: LockState) {
        let mut waits = self.0.borrow_mut();
        let Some(wait) = waits.get_mut(token) else { return };
        let (run_id, lock) = (&wait.run_id, dir.path_of(token));
        let lock = lock.display();
        if wait.said.as_ref() == Some(&state) {
            debug!(%run_id, %lock, "still waits for a lock of this machine");
            return;
        }
        match &state {
            LockState::Free => return,
            LockState::Held(_) => {
                info!(%run_id, %lock, "waits for a lock of this machine, {state}")
            }
            LockState::Unusable(error) => {
                warn!(%run_id, %lock, %error, "cannot take a lock of this machine; what needs it stays queued");
            }
        }
        wait.said = Some(state);
    }
}

/// On a thread that may block: all processes may have to be looked at.
async fn look(dir: &LockDir, token: String, known: Option<Holder>) -> LockState {
    let dir = dir.clone();
    let looked = tokio::task::spawn_blocking(move || dir.look(&token, known.as_ref()));
    looked.await.unwrap_or(LockState::Held(None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_awaited_while_rounds_meet_it() {
        let awaited = Awaited::default();
        let tokens = || awaited.awaited().into_iter().map(|(token, _)| token).collect::<Vec<_>>();
        awaited.meet("a", "r1");
        awaited.meet("b", "r2");
        assert_eq!(tokens(), ["a", "b"]);
        awaited.begin_round();
        assert!(awaited.is_empty());
        awaited.meet("b", "r3");
        assert_eq!(tokens(), ["b"]);
        assert_eq!(awaited.0.borrow().len(), 2, "what was said of the other is remembered");
        awaited.begin_round();
        awaited.meet("b", "r3");
        assert_eq!(awaited.0.borrow().keys().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn one_that_is_seen_free_is_awaited_no_more_and_worth_a_round() {
        let place = tempfile::TempDir::new().unwrap();
        let dir = LockDir::open(place.path()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let awaited = Awaited::default();
        let held = dir.take(&["a".to_owned()].into()).unwrap();
        awaited.meet("a", "r1");
        assert!(!runtime.block_on(awaited.look(&dir)));
        let said = |awaited: &Awaited| awaited.0.borrow()["a"].said.clone();
        assert!(said(&awaited).is_some_and(|state| state.holder().is_some()));
        drop(held);
        // A process that another test is just starting may have a copy for a moment.
        while !runtime.block_on(awaited.look(&dir)) {}
        assert!(awaited.is_empty());
    }
}
