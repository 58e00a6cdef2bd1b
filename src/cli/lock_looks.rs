//! How it stands with the locks of this machine, as findings about tasks.

use std::collections::BTreeMap;

use leasehold::Config;
use leasehold::domain::capability::CapabilityClasses;
use leasehold::domain::why::Finding;
use leasehold::process::machine_lock::{LockDir, LockState};

/// Looks at each lock once.
pub(super) struct LockLooks {
    classes: CapabilityClasses,
    dir: Option<LockDir>,
    seen: BTreeMap<String, LockState>,
}

impl Default for LockLooks {
    fn default() -> LockLooks {
        LockLooks { classes: Config::daemon().classes, dir: None, seen: BTreeMap::new() }
    }
}

impl LockLooks {
    /// Whether a task with these tokens needs any lock.
    pub(super) fn are_needed(&self, needs: &[String]) -> bool {
        !self.classes.serialization_tokens(needs).is_empty()
    }

    /// From now on there are locks to be looked at, if there is a directory of them.
    pub(super) fn look_in(&mut self, dir: Option<LockDir>) {
        self.dir = dir;
    }

    /// The locks that a task with these tokens needs.
    pub(super) fn of(&mut self, needs: &[String]) -> Vec<Finding> {
        let Some(dir) = &self.dir else { return Vec::new() };
        let tokens = self.classes.serialization_tokens(needs).into_iter();
        tokens
            .map(|token| {
                let state =
                    self.seen.entry(token.clone()).or_insert_with(|| dir.look(&token, None));
                Finding {
                    check: "machine lock",
                    blocks: !matches!(state, LockState::Free),
                    what: format!("{token:?}: {state}"),
                    short: format!("waits for lock {token}").into(),
                }
            })
            .collect()
    }
}
