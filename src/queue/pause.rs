//! Pausing and resuming.

use std::thread;
use std::time::Duration;

use super::Queue;
use crate::db::ops::{ListPauses, Paused, Resume, StorePause, WritesUnderWay};
use crate::domain::pause::{Pause, Scope};
use crate::domain::transition::Principal;
use crate::error::Error;

/// How often claims under way are looked at,
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(5);
/// and how many times: 5 s in all. A transaction that takes longer is not a claim, or its worker has been stopped.
pub(crate) const LOOKS: usize = 1000;

impl Queue {
    /// Pauses the whole queue, a kind or a target, for every worker on the store: what is queued of it is not claimed
    /// until it is [resumed](Queue::resume). Submits are accepted, and what runs goes on. A pause that there is already
    /// stays as it is.
    ///
    /// When this has answered, nothing of it is started any more: claims that were under way have been waited for. One
    /// whose worker was stopped in the middle of it is waited for no longer than 5 s.
    ///
    /// # Errors
    /// [`Error::Pause`] for words that no store can hold, [`Error::Store`] when the store fails.
    ///
    /// ```
    /// use leasehold::domain::pause::Scope;
    /// use leasehold::domain::transition::Principal;
    /// use leasehold::queue::Paused;
    /// use leasehold::{Config, Queue};
    ///
    /// let dir = tempfile::tempdir().unwrap();
    /// let url = format!("sqlite:{}", dir.path().join("queue.db").display());
    /// let mut queue = Queue::open(&url, Config::default()).unwrap();
    /// let flows = Scope::kind("flow").unwrap();
    /// let ada = Principal::operator("ada");
    /// assert_eq!(queue.pause(flows.clone(), ada, None).unwrap(), Paused::Now);
    /// assert_eq!(queue.pauses().unwrap()[0].scope, flows);
    /// assert!(queue.resume(&flows).unwrap().is_some());
    /// assert!(queue.resume(&flows).unwrap().is_none());
    /// ```
    pub fn pause(
        &mut self,
        scope: Scope,
        by: Principal,
        reason: Option<String>,
    ) -> Result<Paused, Error> {
        let pause = StorePause(Pause::new(scope, self.clock.now(), by, reason)?);
        let paused = self.store.write(&pause)?;
        let mut under_way = self.store.read(&WritesUnderWay)?;
        for _ in 0..LOOKS {
            if under_way.is_empty() {
                break;
            }
            thread::sleep(LOOK_EVERY);
            let now = self.store.read(&WritesUnderWay)?;
            under_way.retain(|transaction| now.contains(transaction));
        }
        Ok(paused)
    }

    /// Lets what was paused go on. Answers the pause that was lifted; nothing when there was none of just this scope.
    /// Others stay: a kind is still held while the whole queue is paused.
    ///
    /// # Errors
    /// [`Error::Store`] when the store fails.
    pub fn resume(&mut self, scope: &Scope) -> Result<Option<Pause>, Error> {
        Ok(self.store.write(&Resume { scope: scope.clone() })?)
    }

    /// What is paused: the whole queue first, then kinds and targets by name.
    ///
    /// # Errors
    /// [`Error::Store`] when the store cannot be read.
    pub fn pauses(&mut self) -> Result<Vec<Pause>, Error> {
        // A store in which there is no room for pauses has none.
        if self.is_complete() { self.read(&ListPauses) } else { Ok(Vec::new()) }
    }
}
