//! What happens to the tasks of a store, in order.

use super::Queue;
use crate::db::Event;
use crate::db::ops::{Events, NewestEvent, RemoveEvents};
use crate::domain::event::EventId;
use crate::error::Error;

impl Queue {
    /// The events after one that was seen, at most `limit` of them, oldest first: every run that was inserted, and every
    /// change of a status, whoever made it. Who goes on after the last one gets each event once, and those of a task in
    /// the order in which they happened.
    ///
    /// Without `after` it begins with the oldest that is kept. A store of the original has none until the first write
    /// through this project; what was before that is not in the feed.
    ///
    /// # Errors
    /// [`Error::Cursor`] when the reader cannot go on from there: nothing is skipped in silence.
    ///
    /// ```
    /// use leasehold::domain::task::TaskApplication;
    /// use leasehold::{Config, Queue};
    ///
    /// let dir = tempfile::tempdir().unwrap();
    /// let url = format!("sqlite:{}", dir.path().join("queue.db").display());
    /// let mut queue = Queue::open(&url, Config::daemon()).unwrap();
    /// let id = queue.submit_task(&TaskApplication::new("agent", "host")).unwrap();
    /// let events = queue.events(None, 100).unwrap();
    /// assert_eq!((events[0].run_id.as_str(), events[0].status.as_deref()), (id.as_str(), Some("queued")));
    /// assert!(queue.events(Some(events[0].id), 100).unwrap().is_empty());
    /// ```
    pub fn events(&mut self, after: Option<EventId>, limit: u32) -> Result<Vec<Event>, Error> {
        if !self.is_complete() {
            return Ok(Vec::new());
        }
        Ok(self.read(&Events { after, limit })??)
    }

    /// The newest event that can be read, if there is one: who goes on after it gets what happens from now on.
    ///
    /// # Errors
    /// [`Error::Store`] when the store cannot be read.
    pub fn newest_event(&mut self) -> Result<Option<EventId>, Error> {
        if !self.is_complete() {
            return Ok(None);
        }
        self.read(&NewestEvent)
    }

    /// Removes the oldest events, up to the first that is not before this moment (in seconds since the epoch); the newest
    /// stays in any case. Answers how many. A reader that had not come so far is told so. Facts stay.
    ///
    /// # Errors
    /// [`Error::Store`] when the store cannot be written; what was removed by then stays removed.
    pub fn remove_events(&mut self, before: f64) -> Result<usize, Error> {
        let mut removed = 0;
        loop {
            let more = self.store.write(&RemoveEvents { before })?;
            removed += more;
            if !RemoveEvents::is_full(more) {
                return Ok(removed);
            }
        }
    }
}
