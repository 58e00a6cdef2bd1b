//! Reads beside the writer, on a connection and a thread of their own.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;

use tokio::sync::oneshot;

use super::CallError;
use crate::db::{Query, Store};

type Job = Box<dyn FnOnce(&mut Store) + Send>;

/// A connection that only reads. Cloning shares it.
#[derive(Debug, Clone)]
pub(crate) struct Reader(mpsc::Sender<Job>);

impl Reader {
    /// Starts the thread. It ends with the last clone.
    ///
    /// It is no thread of a pool, since the end of a pool waits for all of them, and a server that has fallen silent
    /// may never answer: the runtime must be able to end all the same.
    ///
    /// # Errors
    /// The machine has no thread left.
    pub fn start(store: Store) -> io::Result<Reader> {
        let (jobs, waiting) = mpsc::channel();
        thread::Builder::new()
            .name("leasehold-reader".into())
            .spawn(move || serve(store, waiting))?;
        Ok(Reader(jobs))
    }

    /// Runs `query` where waiting for the database holds up nobody else.
    pub async fn read<Q>(&self, query: Q) -> Result<Q::Output, CallError>
    where
        Q: Query + Send + 'static,
        Q::Output: Send,
    {
        let (sender, answer) = oneshot::channel();
        let job: Job = Box::new(move |store| drop(sender.send(store.read(&query))));
        self.0.send(job).map_err(|_| CallError::Gone)?;
        Ok(answer.await.map_err(|_| CallError::Gone)??)
    }
}

fn serve(mut store: Store, waiting: mpsc::Receiver<Job>) {
    for job in waiting {
        // A query that panicked took the connection with it; the store opens another.
        let _: Result<(), Box<dyn Any + Send>> = catch_unwind(AssertUnwindSafe(|| job(&mut store)));
    }
}
