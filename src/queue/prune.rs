//! Removing tasks that have ended.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::Queue;
use crate::db::Fact;
use crate::db::ops::{EndedPage, FactsOf, Prune, Pruned, SettledNotices};
use crate::domain::pruning::Pruning;
use crate::error::Error;

/// The longest pause after a transaction.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// What becomes of the facts of tasks that are removed.
pub enum FactsFate<'a> {
    /// They stay: a history without a task.
    Keep,
    /// They go with their tasks.
    Drop,
    /// They are handed to this function, which returns once they are kept for good, and go with their tasks then. What it
    /// was given comes again if the process dies before the tasks are gone; the facts have ids.
    Archive(&'a mut dyn FnMut(&[Fact]) -> io::Result<()>),
}

impl Queue {
    /// Removes tasks that ended long enough ago, a few hundred in each transaction, with as long a pause after it as it
    /// took, so that workers are not held up. Whatever ends it half way, the same call goes on where it was.
    ///
    /// What was kept beside a task goes with it: its settings, its attempts, its notice unless that is still to
    /// be sent. Its idempotency key stays taken. Tasks that
    /// were made from it lose their parent. Tasks of schedules are their scheduler's, and stay.
    ///
    /// # Errors
    /// [`Error::Prune`] for a choice that makes no sense: nothing was removed. [`Error::Archive`] and [`Error::Store`]:
    /// what was removed before stays removed.
    ///
    /// ```
    /// use leasehold::domain::pruning::Pruning;
    /// use leasehold::queue::FactsFate;
    /// use leasehold::{Config, Queue};
    ///
    /// let dir = tempfile::tempdir().unwrap();
    /// let url = format!("sqlite:{}", dir.path().join("queue.db").display());
    /// let mut queue = Queue::open(&url, Config::default()).unwrap();
    /// let month = Pruning { older_than: 30.0 * 86_400.0, statuses: vec![], keep_failed: false };
    /// assert_eq!(queue.prune(&month, FactsFate::Keep).unwrap().runs, 0);
    /// ```
    pub fn prune(&mut self, pruning: &Pruning, mut facts: FactsFate<'_>) -> Result<Pruned, Error> {
        let mut removed = Pruned::default();
        let mut page = Some(self.first_page(pruning)?);
        while let Some(at) = page {
            let found = self.read(&at)?;
            page = at.next(&found);
            let run_ids: Vec<String> = found.into_iter().map(|(_, id)| id).collect();
            if run_ids.is_empty() {
                break;
            }
            let notice_ids = self.store.read(&SettledNotices { run_ids: run_ids.clone() })?;
            let with_facts = match &mut facts {
                FactsFate::Keep => false,
                FactsFate::Drop => true,
                FactsFate::Archive(archive) => {
                    let (run_ids, notice_ids) = (run_ids.clone(), notice_ids.clone());
                    let facts = self.store.read(&FactsOf { run_ids, notice_ids })?;
                    archive(&facts).map_err(|source| Error::Archive { source })?;
                    true
                }
            };
            let began = Instant::now();
            let step = self.store.write(&Prune { run_ids, notice_ids, with_facts })?;
            removed.runs += step.runs;
            removed.facts += step.facts;
            if page.is_some() {
                // SQLite hands its lock to whoever asks first, and that would be this loop.
                thread::sleep(began.elapsed().min(LONGEST_PAUSE));
            }
        }
        Ok(removed)
    }

    /// How many tasks [`Queue::prune`] would remove now.
    ///
    /// # Errors
    /// As there.
    pub fn count_prunable(&mut self, pruning: &Pruning) -> Result<usize, Error> {
        let (mut count, mut page) = (0, Some(self.first_page(pruning)?));
        while let Some(at) = page {
            let found = self.read(&at)?;
            count += found.len();
            page = at.next(&found);
        }
        Ok(count)
    }

    fn first_page(&self, pruning: &Pruning) -> Result<EndedPage, Error> {
        let statuses = pruning.chosen()?;
        let before = self.clock.now() - pruning.older_than;
        Ok(EndedPage { statuses, since: f64::NEG_INFINITY, before, childless: false, after: None })
    }
}
