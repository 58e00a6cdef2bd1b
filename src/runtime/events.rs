//! Following the feed of events beside a running worker.

use std::collections::VecDeque;

use super::Handle;
use crate::db::Event;
use crate::db::ops::{Events, NewestEvent};
use crate::domain::event::EventId;
use crate::error::Error;

/// Events that are read at a time.
const PAGE: u32 = 256;

/// A reader of the events of a store, wherever they come from. It has a place of its own: nothing is lost and nothing
/// repeated, however slow it is.
#[derive(Debug)]
pub struct EventReader {
    handle: Handle,
    after: Option<EventId>,
    read: VecDeque<Event>,
}

impl Handle {
    /// The events of the store after one that was seen, oldest first, as [`Queue::events`](crate::Queue::events) says.
    ///
    /// # Errors
    /// [`Error::Cursor`] when the reader cannot go on from there, [`Error::Runtime`] when the store cannot be read.
    pub async fn events(&self, after: Option<EventId>, limit: u32) -> Result<Vec<Event>, Error> {
        Ok(self.read(Events { after, limit }).await??)
    }

    /// Follows the events after one that was seen; without one, from the oldest that is kept. Unlike
    /// [`Handle::endings`] it has those of other workers and hosts too, and misses none.
    ///
    /// ```
    /// # use leasehold::db::StoreUrl;
    /// # use leasehold::domain::task::TaskApplication;
    /// # use leasehold::{Error, Runtime, RuntimeConfig};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let config = RuntimeConfig::new(StoreUrl::Sqlite(dir.path().join("queue.db")));
    /// # let runtime = Runtime::start(config).unwrap();
    /// # let handle = runtime.handle();
    /// # let waiting = async {
    /// let mut events = handle.follow(handle.newest_event().await?);
    /// let id = handle.submit(&TaskApplication::new("workflow", "host")).await?;
    /// assert_eq!(events.next().await?.run_id, id);
    /// # Ok::<(), Error>(())
    /// # };
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(waiting).unwrap();
    /// # handle.shut_down_now();
    /// # runtime.join();
    /// ```
    pub fn follow(&self, after: Option<EventId>) -> EventReader {
        EventReader { handle: self.clone(), after, read: VecDeque::new() }
    }

    /// The newest event that can be read, if there is one.
    ///
    /// # Errors
    /// [`Error::Runtime`] when the store cannot be read.
    pub async fn newest_event(&self) -> Result<Option<EventId>, Error> {
        self.read(NewestEvent).await
    }
}

impl EventReader {
    /// The next event; waits until there is one. It is noticed as soon as a change by another process is
    /// ([`poll`](crate::RuntimeConfig::poll)). A future that is dropped has taken no event.
    ///
    /// # Errors
    /// [`Error::Cursor`] when the reader cannot go on, [`Error::Runtime`] when the store cannot be read: the same call
    /// may be made again.
    pub async fn next(&mut self) -> Result<Event, Error> {
        loop {
            if let Some(event) = self.read.pop_front() {
                self.after = Some(event.id);
                return Ok(event);
            }
            self.read = self.handle.events(self.after, PAGE).await?.into();
            if self.read.is_empty() {
                self.handle.wait_for_changes().await?;
            }
        }
    }

    /// The last event that was taken: the place at which another reader goes on.
    pub fn place(&self) -> Option<EventId> {
        self.after
    }
}
