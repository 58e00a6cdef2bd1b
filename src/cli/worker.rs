//! `leasehold worker`.

use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use leasehold::domain::capability::{CapabilityClass, CapabilityClasses};
use leasehold::domain::notation;
use leasehold::execute::LaunchSettings;
use leasehold::launch::LiSearch;
use leasehold::process::Inherit;
use leasehold::process::guardian::{DEFAULT_LOG_CAP, Retention};
use leasehold::runtime::ExitReason;
use leasehold::{Config, Error, Handle, Runtime, RuntimeConfig, Supervision};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::field::display;
use tracing::{info, warn};

use super::adapters::AdapterOption;
use super::allow::AllowOption;
use super::failure::{self, Failure};
use super::kinds;
use super::locks::LockOption;
use super::logs::LogOptions;
use super::notify::SendingOptions;
use super::state::StateOption;
use super::store::{StoreOption, variable};

/// How long one that is told to end waits for its own start.
const UNTIL_STARTED: Duration = Duration::from_secs(2);
/// How often `--until-empty` looks whether anything is left.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How much longer it waits when it could not look.
const LOOK_AGAIN: Duration = Duration::from_millis(900);

const EXAMPLES: &str = "\
Examples:
  leasehold worker --advertise gpu-exclusive --concurrency 4
  leasehold worker --until-empty --allow-command make

The first SIGINT or SIGTERM ends the claims and gives running tasks the time of --drain; what still runs then gets TERM,
five seconds later KILL, and goes back to the queue. A second signal ends them at once.";

/// Run tasks until told to stop
///
/// A worker claims the tasks that it can serve, runs each as a process of its own, renews its leases and stores how it
/// ended. Several workers may share one store. The exit code says how the worker ended, not its tasks: 0, or 70.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Worker {
    /// Make one tick, wait for what it started, and leave
    #[arg(long, conflicts_with = "until_empty")]
    once: bool,
    /// Leave when no task that this worker could serve is queued, waiting or running, whoever owns it; what waits and is
    /// paused does not count
    #[arg(long)]
    until_empty: bool,
    /// How often the whole queue is looked at when nothing happens
    #[arg(long, value_name = "LENGTH", default_value = "30s", value_parser = notation::length)]
    tick: Duration,
    /// How many tasks run at once [default: the number of processors]
    #[arg(long, value_name = "N")]
    concurrency: Option<usize>,
    /// Advertise a capability; may be given more than once
    #[arg(long, value_name = "TOKEN")]
    advertise: Vec<String>,
    /// Serve an execution target; may be given more than once [default: host]
    #[arg(long, value_name = "T")]
    target: Vec<String>,
    /// How long a claim or a renewal owns its task; at least 5s
    #[arg(long, value_name = "LENGTH", default_value = "300s", value_parser = notation::length)]
    lease_ttl: Duration,
    /// How old this worker's heartbeat may be before it claims nothing
    #[arg(long, value_name = "LENGTH", default_value = "90s", value_parser = notation::length)]
    heartbeat_ttl: Duration,
    /// At most so many claims in one pass
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// How long running tasks may take to end after the first signal
    #[arg(long, value_name = "LENGTH", default_value = "30s", value_parser = notation::length)]
    drain: Duration,
    /// How long tasks of a kind may run that were submitted without --timeout; may be given once for each kind
    #[arg(long, value_name = "KIND=LENGTH")]
    timeout: Vec<String>,
    /// How long they have between TERM and KILL when they were submitted without --grace [default: 5s]
    #[arg(long, value_name = "KIND=LENGTH")]
    grace: Vec<String>,
    /// Who owns running tasks: guardians outlive this worker, and the next one on this host takes them over
    #[arg(long, value_name = "WHO", default_value = "guardians")]
    supervision: Owner,
    /// What becomes of running tasks when this worker is told to stop
    #[arg(long, value_name = "WHAT", default_value = "requeue")]
    on_stop: OnStop,
    /// How long the outputs of a task are kept in the state directory after its end
    #[arg(long, value_name = "LENGTH", default_value = "168h", value_parser = notation::length)]
    keep_for: Duration,
    /// How much disk they may take in all, in MiB; the oldest are removed first
    #[arg(long, value_name = "N", default_value_t = 1024)]
    keep_mib: u64,
    /// Let tasks inherit only this variable of the worker, or all that begin so with NAME*; may be given more than once
    ///
    /// Without it tasks inherit all but the worker's own secrets. Most programs need at least PATH and HOME. What a
    /// task was submitted with by --env does not count.
    #[arg(long, value_name = "NAME|NAME*")]
    env_allow: Vec<String>,
    #[command(flatten)]
    sending: SendingOptions,
    #[command(flatten)]
    state: StateOption,
    #[command(flatten)]
    locks: LockOption,
    #[command(flatten)]
    allow: AllowOption,
    #[command(flatten)]
    adapters: AdapterOption,
    #[command(flatten)]
    logs: LogOptions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Owner {
    /// A small process for each task, which also ends the task's whole tree when its lease is lost
    Guardians,
    /// This worker: when it is killed, its tasks run on un-owned until their leases have expired
    Direct,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnStop {
    /// They have the time of --drain, then they are stopped and go back to the queue
    Requeue,
    /// They run on under their guardians, for the next worker: for upgrades
    Detach,
}

impl Worker {
    pub(super) fn run(&self, store: &StoreOption) -> Result<ExitCode, Failure> {
        let config = self.config(store)?;
        self.logs.start()?;
        failure::log_panics();
        let watch = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // Heard before the first claim: a signal that ended this process would leave its runs to their leases.
        let mut signals = watch.block_on(async { Signals::new() })?;
        let lock_dir = config.lock_dir.clone();
        let Some(runtime) = watch.block_on(start(config, &mut signals)) else {
            watch.shutdown_background();
            info!("told to end before the store was open");
            return Ok(ExitCode::SUCCESS);
        };
        let runtime = runtime?;
        let lock_dir = lock_dir.as_ref().map(|dir| display(dir.display()));
        info!(worker = runtime.handle().worker_id(), lock_dir, "ready");
        let done = watch.block_on(self.watch(&runtime.handle(), signals));
        let reason = runtime.join();
        info!(?reason, "the worker has ended");
        match reason {
            ExitReason::Shutdown => done.map(|()| ExitCode::SUCCESS).map_err(Failure::from),
            ExitReason::RestartsSpent { .. } | ExitReason::RootDied => {
                Ok(ExitCode::from(reason.code()))
            }
        }
    }

    fn config(&self, store: &StoreOption) -> Result<RuntimeConfig, Failure> {
        let mut config = RuntimeConfig::new(store.url_for_writing()?);
        config.queue = Config {
            lease_ttl: self.lease_ttl.as_secs_f64(),
            heartbeat_ttl: self.heartbeat_ttl.as_secs_f64(),
            allow_commands: self.allow.list()?,
            ..Config::daemon()
        };
        config.tick = self.tick;
        config.own_ticks = !self.once;
        config.limit = self.limit;
        config.concurrency = self.concurrency.unwrap_or(config.concurrency);
        config.advertise.clone_from(&self.advertise);
        config.targets.clone_from(&self.target);
        config.launch = launch_settings();
        config.launch.adapters = self.adapters.read()?;
        let own: Vec<&str> = config.launch.adapters.kinds().collect();
        config.defaults = kinds::defaults(&self.timeout, &self.grace, &own)?;
        if !self.env_allow.is_empty() {
            config.launch.inherit = Inherit::only(self.env_allow.iter().map(String::as_str))
                .map_err(|error| Failure::Refused(format!("--env-allow: {error}")))?;
        }
        config.notify = self.sending.read()?;
        config.lock_dir = self.lock_dir(&config.queue.classes)?;
        if self.supervision == Owner::Guardians {
            config.supervision = Supervision::Guardians {
                state_dir: self.state.directory()?,
                program: None,
                log_cap: DEFAULT_LOG_CAP,
                retention: Retention {
                    age: self.keep_for,
                    bytes: self.keep_mib.saturating_mul(1 << 20),
                },
            };
        }
        Ok(config)
    }

    /// Where it takes locks; one that no exclusive task is given needs none.
    fn lock_dir(&self, classes: &CapabilityClasses) -> Result<Option<PathBuf>, Failure> {
        let is_exclusive =
            |token: &String| classes.class_of(token) == CapabilityClass::Serialization;
        match self.locks.named()? {
            None if self.advertise.iter().any(is_exclusive) => {
                LockOption::default(&self.state).map(Some)
            }
            named => Ok(named),
        }
    }

    /// Until the worker has ended. What it was to do before it leaves by itself may fail; it ends all the same, and
    /// hears signals to the last.
    async fn watch(&self, handle: &Handle, mut signals: Signals) -> Result<(), Error> {
        let done = tokio::select! {
            done = self.work(handle) => {
                handle.shut_down(self.drain);
                done
            }
            () = signals.next() => {
                self.stop(handle);
                Ok(())
            }
            () = handle.ended() => return Ok(()),
        };
        tokio::select! {
            () = signals.next() => handle.shut_down_now(),
            () = handle.ended() => {}
        }
        done
    }

    fn stop(&self, handle: &Handle) {
        match self.on_stop {
            OnStop::Requeue => handle.shut_down(self.drain),
            OnStop::Detach => handle.detach(),
        }
    }

    /// What there is to do before the worker leaves by itself; most never do.
    async fn work(&self, handle: &Handle) -> Result<(), Error> {
        if self.once {
            let ticked = handle.tick().await;
            // What it could start has its time, whatever came after.
            handle.idle().await?;
            return ticked.map(drop);
        }
        if !self.until_empty {
            std::future::pending::<()>().await;
        }
        while work_may_be_left(handle).await {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }
}

/// Starts it; nothing when it was told to end meanwhile and the store is still not open, which may wait for others that
/// bring it up to date. It has claimed nothing then, and this process may end.
async fn start(config: RuntimeConfig, signals: &mut Signals) -> Option<Result<Runtime, Error>> {
    let mut starting = tokio::task::spawn_blocking(|| Runtime::start(config));
    let started = tokio::select! {
        started = &mut starting => started,
        () = signals.next() => {
            signals.is_one_pending = true;
            tokio::time::timeout(UNTIL_STARTED, starting).await.ok()?
        }
    };
    Some(started.unwrap_or_else(|_panicked| failure::end()))
}

/// While the store does not answer, nobody knows.
async fn work_may_be_left(handle: &Handle) -> bool {
    match handle.is_work_left().await {
        Ok(left) => left,
        Err(error) => {
            warn!(%error, "cannot look whether work is left");
            tokio::time::sleep(LOOK_AGAIN).await;
            true
        }
    }
}

/// Tasks see what this process sees; where `li` is looked for is read here, since the library reads no environment.
pub(super) fn launch_settings() -> LaunchSettings {
    let python = |home| PathBuf::from(home).join("bin/python");
    let is_state_url = |name: &OsStr| name.eq_ignore_ascii_case("LIONAGI_STATE_DB_URL");
    LaunchSettings {
        li: LiSearch {
            path: env::var_os("PATH"),
            interpreter: variable("VIRTUAL_ENV").map(python),
        },
        env: env::vars_os().filter(|(name, _)| is_state_url(name)).collect(),
        ..LaunchSettings::default()
    }
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// One was heard before anybody could act on it.
    is_one_pending: bool,
}

impl Signals {
    fn new() -> Result<Signals, Failure> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            is_one_pending: false,
        })
    }

    async fn next(&mut self) {
        if std::mem::take(&mut self.is_one_pending) {
            return;
        }
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
