//! Whether a guardian is forked or executed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::debug;

use crate::process::guardian::{ForkServer, GuardianProgram};

/// Starts that follow each other faster than this are worth a fork server, which is kept as long after the last one.
const LINGER: Duration = Duration::from_secs(1);

/// A fork server that is there while many guardians are started.
#[derive(Debug, Clone)]
pub(super) struct Forks {
    program: GuardianProgram,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
enum State {
    /// There is none. When a guardian was executed last.
    None(Option<Instant>),
    Starting,
    /// There is one, and whether it was asked for since somebody looked.
    Ready(Arc<ForkServer>, bool),
    /// There can be none; it is not tried again.
    Impossible,
}

impl Forks {
    pub(super) fn new(program: GuardianProgram) -> Forks {
        Forks { program, state: Arc::new(Mutex::new(State::None(None))) }
    }

    /// The fork server, if there is one: to be held until the guardian has left, which is its child. Nobody waits for one
    /// that has yet to be started.
    pub(super) fn server(&self) -> Option<Arc<ForkServer>> {
        let mut state = self.lock();
        match &mut *state {
            State::Ready(server, asked_for) if !server.is_gone() => {
                *asked_for = true;
                return Some(Arc::clone(server));
            }
            State::None(Some(last)) if last.elapsed() < LINGER => {
                *state = State::Starting;
                actix::spawn(self.clone().start_and_end());
            }
            State::None(_) | State::Ready(..) => *state = State::None(Some(Instant::now())),
            State::Starting | State::Impossible => {}
        }
        None
    }

    async fn start_and_end(self) {
        // Should the runtime end meanwhile, this ends with it.
        let mut ends = Ends { forks: &self, server: None };
        match ForkServer::start(&self.program).await {
            Ok(server) => ends.server = Some(Arc::new(server)),
            Err(error) => {
                debug!(%error, "guardians cannot be forked");
                if !error.is_resource_exhausted() {
                    *self.lock() = State::Impossible;
                }
                return;
            }
        }
        let Some(server) = &ends.server else { return };
        *self.lock() = State::Ready(Arc::clone(server), true);
        loop {
            tokio::time::sleep(LINGER).await;
            match &mut *self.lock() {
                // One is held here and one in the state; the others belong to guardians.
                State::Ready(current, asked_for)
                    if Arc::ptr_eq(current, server)
                        && (*asked_for || Arc::strong_count(server) > 2) =>
                {
                    *asked_for = false;
                }
                _ => return,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A fork server from its start to its end.
struct Ends<'a> {
    forks: &'a Forks,
    server: Option<Arc<ForkServer>>,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        let mut state = self.forks.lock();
        let is_ours = match (&*state, &self.server) {
            (State::Starting, None) => true,
            (State::Ready(current, _), Some(server)) => Arc::ptr_eq(current, server),
            _ => false,
        };
        if is_ours {
            *state = State::None(None);
        }
    }
}
