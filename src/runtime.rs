//! Starts and stops a worker inside a host program.
//!
//! The actor system has a thread of its own; the host keeps its own runtime, if it has any. A [`Handle`] submits,
//! cancels, looks up and listens, and goes on working when an actor behind it was restarted.
//!
//! With `panic = "abort"` a panic ends the host: nothing is restarted, and only the leases recover.

mod events;
mod handle;
mod redrive;
mod submits;
mod supervision;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use actix::{Actor, System};
use tokio::sync::broadcast;
use tracing::warn;

pub use events::EventReader;
pub use handle::Handle;
use supervision::supervise;

use crate::actors::Parts;
pub use crate::actors::exit::ExitReason;
use crate::actors::exit::ExitSlot;
use crate::actors::in_process::InProcessLauncher;
pub use crate::actors::launcher::{
    Fence, LaunchFailure, Launched, Launcher, Orders, Part, Stop, StopOrder, TaskEnd, TaskStart,
};
use crate::actors::reader::Reader;
pub use crate::actors::root::Ended;
use crate::actors::root::Root;
pub use crate::actors::worker::Ticked;
pub use crate::actors::{ActorSeam, CallError};
use crate::clock::{Clock, SystemClock};
use crate::config::{InvalidArgument, RuntimeConfig};
pub use crate::db::ops::Cancelled;
use crate::db::{Mode, Seam, Store};
use crate::domain::claim_plan::Offer;
use crate::domain::fence::LeaseTimes;
use crate::domain::kinds::Kinds;
use crate::error::Error;
use crate::ids::{IdSource, RandomIds};
use crate::notify::Sender;
use crate::process::machine_lock::LockDir;

/// Endings that a slow listener may fall behind.
const ENDINGS_KEPT: usize = 1024;

/// What a runtime is given from outside; tests put their own in.
#[derive(Default)]
pub struct Outside {
    /// The clock; the machine's unless given.
    pub clock: Option<Arc<dyn Clock>>,
    /// The source of ids; random unless given.
    pub ids: Option<Arc<dyn IdSource>>,
    /// What runs the tasks; child processes unless given.
    pub launcher: Option<Arc<dyn Launcher>>,
    /// Called before each write.
    pub seam: Option<Seam>,
    /// Called when an actor begins to handle a message.
    pub actor_seam: Option<ActorSeam>,
}

/// A running worker.
#[derive(Debug)]
pub struct Runtime {
    thread: JoinHandle<()>,
    exit: ExitSlot,
    handle: Handle,
}

impl Runtime {
    /// Opens the store and starts the actor system on a thread of its own.
    ///
    /// # Errors
    /// [`Error::Argument`] for settings that cannot work, [`Error::Store`] when the store cannot be used.
    ///
    /// ```
    /// use std::time::Duration;
    /// use leasehold::db::StoreUrl;
    /// use leasehold::{Runtime, RuntimeConfig};
    ///
    /// let dir = tempfile::tempdir().unwrap();
    /// let url = StoreUrl::Sqlite(dir.path().join("queue.db"));
    /// let runtime = Runtime::start(RuntimeConfig::new(url)).unwrap();
    /// runtime.handle().shut_down(Duration::ZERO);
    /// assert_eq!(runtime.join().code(), 0);
    /// ```
    pub fn start(config: RuntimeConfig) -> Result<Runtime, Error> {
        Runtime::start_with(config, Outside::default())
    }

    /// As [`Runtime::start`], with a clock, ids, a launcher or a seam of the caller's own.
    ///
    /// # Errors
    /// As [`Runtime::start`].
    pub fn start_with(mut config: RuntimeConfig, outside: Outside) -> Result<Runtime, Error> {
        config.check()?;
        #[cfg(target_os = "linux")]
        supervision::check_kernel(&config.supervision)?;
        if cfg!(panic = "abort") {
            warn!("built with panic = \"abort\": no actor is restarted, only leases recover");
        }
        let locks = config.lock_dir.as_deref().map(open_locks).transpose()?;
        let clock = outside.clock.unwrap_or_else(|| Arc::new(SystemClock));
        let ids = outside.ids.unwrap_or_else(|| Arc::new(RandomIds));
        let mut store = Store::open(&config.store, Mode::Write, &*clock, &*ids)?;
        if let Some(seam) = outside.seam {
            store.set_seam(seam);
        }
        let reader = Reader::start(Store::open(&config.store, Mode::Read, &*clock, &*ids)?)
            .map_err(|_| out_of_threads())?;
        let supervised = supervise(&config, &mut store, &ids)?;
        let adapters = config.launch.adapters.clone();
        config.queue.own_kinds.extend(adapters.kinds().map(str::to_owned));
        let mut offer =
            Offer::new(&config.advertise, &config.targets, config.queue.classes.clone());
        let slot = supervised.slot();
        offer.kinds = Kinds::of(supervised.kinds.into_iter().chain(adapters.kinds()));
        let launcher = outside.launcher.unwrap_or(supervised.launcher);
        let launcher = Arc::new(InProcessLauncher::new(adapters.clone(), launcher, slot));
        let launch = config.launch_settings();
        let parts = Arc::new(Parts {
            sender: Sender::new(config.notify.clone(), launch.allow_commands, launch.inherit),
            worker_id: supervised.worker_id,
            guards: supervised.guards,
            launcher,
            offer,
            times: LeaseTimes::of(config.queue.lease_ttl),
            locks,
            config,
            clock,
            ids,
            seam: outside.actor_seam,
        });
        Runtime::spawn(parts, store, reader)
    }

    fn spawn(parts: Arc<Parts>, store: Store, reader: Reader) -> Result<Runtime, Error> {
        let (endings, _) = broadcast::channel(ENDINGS_KEPT);
        let exit = ExitSlot::default();
        let (send_root, root) = mpsc::channel();
        let system = {
            let (parts, endings, exit) = (Arc::clone(&parts), endings.clone(), exit.clone());
            move || {
                let system = System::new();
                system.block_on(async {
                    let reopen = Box::new(move || store.another());
                    let root = Root::new(parts, reopen, reader, endings, exit.clone()).start();
                    exit.attach(System::current());
                    let _ = send_root.send(root);
                });
                // The code is in the exit slot, with its reason.
                let _ = system.run_with_code();
            }
        };
        let thread = thread::Builder::new().name("leasehold".into()).spawn(system);
        let started = thread.ok().and_then(|thread| Some((thread, root.recv().ok()?)));
        let Some((thread, root)) = started else {
            return Err(out_of_threads());
        };
        let handle = Handle::new(root, parts, endings);
        Ok(Runtime { thread, exit, handle })
    }

    /// A handle to it; there may be many.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Waits for the end, and says why it came.
    pub fn join(self) -> ExitReason {
        let Runtime { thread, exit, handle } = self;
        drop(handle);
        match thread.join() {
            Ok(()) => exit.reason(),
            Err(_) => ExitReason::RootDied,
        }
    }
}

fn open_locks(path: &Path) -> Result<LockDir, Error> {
    let unusable = |error| InvalidArgument {
        what: "the lock directory",
        given: format!("{} ({error})", path.display()),
        rule: "give one in which this user may make files, on a local file system",
    };
    Ok(LockDir::open(path).map_err(unusable)?)
}

fn out_of_threads() -> Error {
    InvalidArgument {
        what: "this machine",
        given: "out of threads".into(),
        rule: "the runtime needs three of its own",
    }
    .into()
}
