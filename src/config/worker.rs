//! The settings of a worker.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use super::{Config, InvalidArgument};
use crate::db::StoreUrl;
use crate::domain::claim_plan::DEFAULT_LIMIT;
use crate::domain::fence::LeaseTimes;
use crate::domain::notice::Backoff;
use crate::domain::restart::RestartLimit;
use crate::domain::settings::{KindDefaults, RunSettings, SettingsRefusal};
use crate::domain::task::SubmitRules;
use crate::execute::LaunchSettings;
use crate::notify::NotifyConfig;
#[cfg(target_os = "linux")]
use crate::process::guardian::{GuardianProgram, Retention};

/// Who owns a running task.
#[derive(Debug, Clone)]
pub enum Supervision {
    /// This process: a task is its direct child. When it is killed, its tasks run on un-owned until their leases have
    /// expired, and are then started again beside themselves; processes that leave the task's group are not ended
    /// with it. Signals that this process ignores, as `nohup` has it ignore one, are ignored by its tasks too.
    Direct,
    /// A guardian each: a small process that outlives this one, ends the whole tree when the lease cannot be kept, and
    /// is taken over by the next worker on this host.
    #[cfg(target_os = "linux")]
    Guardians {
        /// Where runs are kept, one directory per store below it.
        state_dir: PathBuf,
        /// The program that becomes a guardian; absent means this one, whose `main` must begin with
        /// [`guardian_entry`](crate::guardian_entry).
        program: Option<GuardianProgram>,
        /// How many bytes of each output of a task are kept.
        log_cap: u64,
        /// What is kept of runs that have ended.
        retention: Retention,
    },
}

/// Shorter leases, in seconds, leave a renewal no time for a busy store or a busy machine.
const SHORTEST_TTL: f64 = 5.0;

/// How a worker behaves, as plain data.
///
/// ```
/// use leasehold::RuntimeConfig;
/// use leasehold::db::StoreUrl;
/// let mut config = RuntimeConfig::new(StoreUrl::parse("sqlite:queue.db").unwrap());
/// config.advertise.push("gpu-exclusive".into());
/// config.queue.lease_ttl = 60.0;
/// assert!(config.check().is_ok());
/// ```
#[derive(Debug, Clone)]
pub struct RuntimeConfig {
    /// The store.
    pub store: StoreUrl,
    /// The settings of the queue.
    pub queue: Config,
    /// How many tasks run at once; by default as many as the machine has processors.
    pub concurrency: usize,
    /// How often the whole queue is looked at when nothing happens.
    pub tick: Duration,
    /// Whether ticks come by themselves: at the start, by the timer and at every wake-up. Otherwise only
    /// [`Handle::tick`](crate::Handle::tick) makes one.
    pub own_ticks: bool,
    /// How often a change by another process is looked for.
    pub poll: Duration,
    /// Claims per pass, at the most.
    pub limit: usize,
    /// The capabilities that this worker advertises.
    pub advertise: Vec<String>,
    /// The targets it serves; none means `host`.
    pub targets: Vec<String>,
    /// How often actors may die.
    pub restarts: RestartLimit,
    /// How many writes may wait before a submit is refused as overload.
    pub mailbox: usize,
    /// What becomes of running tasks when this process dies.
    pub supervision: Supervision,
    /// How long tasks of a kind may take, unless they say so themselves. None has a timeout by default.
    pub defaults: BTreeMap<String, KindDefaults>,
    /// The directory of the locks of this machine that stand behind serialization tokens; made if it is not there. A run
    /// stays queued as long as another program, or a worker of another store, has a lock that it needs. Absent means
    /// that none are taken: runs with such a token then exclude each other within the store only. The program uses
    /// [`machine_lock::SHARED`](crate::process::machine_lock::SHARED) where it can.
    pub lock_dir: Option<PathBuf>,
    /// How it sends the notices of ended tasks.
    pub notify: NotifyConfig,
    /// How tasks are launched. The allow-list of [`RuntimeConfig::queue`] is the one that counts.
    pub launch: LaunchSettings,
}

impl RuntimeConfig {
    /// The defaults for the store at `url`.
    pub fn new(url: StoreUrl) -> RuntimeConfig {
        RuntimeConfig {
            store: url,
            queue: Config::default(),
            concurrency: thread::available_parallelism().map_or(1, NonZero::get),
            tick: Duration::from_secs(30),
            own_ticks: true,
            // A start within 100 ms of a submit elsewhere, for half a percent of a processor.
            poll: Duration::from_millis(40),
            limit: DEFAULT_LIMIT,
            advertise: Vec::new(),
            targets: Vec::new(),
            restarts: RestartLimit::default(),
            mailbox: 1024,
            supervision: Supervision::Direct,
            defaults: BTreeMap::new(),
            lock_dir: None,
            notify: NotifyConfig::default(),
            launch: LaunchSettings::default(),
        }
    }

    /// Whether a worker can keep its promises with these settings.
    ///
    /// # Errors
    /// An [`InvalidArgument`] that names the first one that it cannot, and the numbers.
    pub fn check(&self) -> Result<(), InvalidArgument> {
        let refused = |what, given: String, rule| Err(InvalidArgument { what, given, rule });
        let queue = &self.queue;
        let times = LeaseTimes::of(queue.lease_ttl);
        if !(queue.lease_ttl.is_finite() && queue.lease_ttl >= SHORTEST_TTL && times.leave_room()) {
            let LeaseTimes { ttl, grace, margin } = times;
            let given = format!(
                "{ttl} s (renewed every {:.2} s, {grace} s grace, {margin} s margin)",
                times.renewal()
            );
            return refused(
                "the lease TTL",
                given,
                "a late renewal would come after the fence; give 5 s or more",
            );
        }
        if !(queue.heartbeat_ttl.is_finite() && queue.heartbeat_ttl > 0.0) {
            return refused(
                "the heartbeat TTL",
                format!("{} s", queue.heartbeat_ttl),
                "give a positive number of seconds",
            );
        }
        if self.concurrency == 0 {
            return refused("the concurrency", "0".into(), "give 1 or more");
        }
        if self.limit == 0 {
            return refused("the limit", "0".into(), "give 1 or more");
        }
        if self.tick.is_zero() || self.poll.is_zero() {
            return refused("the tick", "0 s".into(), "give a positive length");
        }
        for KindDefaults { timeout, grace } in self.defaults.values().copied() {
            let settings = RunSettings { timeout, grace, ..RunSettings::default() };
            if let Err(SettingsRefusal { setting, given, rule }) = settings.check() {
                return refused(setting, given, rule);
            }
        }
        if self.notify.timeout.is_zero() {
            return refused("the timeout of notices", "0 s".into(), "give a positive length");
        }
        let Backoff { base, cap } = self.notify.backoff;
        if let Some(length) = [base, cap].into_iter().find(|s| !(s.is_finite() && *s >= 0.0)) {
            return refused("the backoff of notices", format!("{length} s"), "give a length");
        }
        let texts = self.advertise.iter().chain(&self.targets);
        if let Some(text) = texts.into_iter().find(|text| text.is_empty() || text.contains('\0')) {
            return refused(
                "a capability or target",
                format!("{text:?}"),
                "give a text without the character U+0000",
            );
        }
        Ok(())
    }

    /// What submissions to this worker are checked against: the kinds that it has adapters for are accepted.
    pub fn submit_rules(&self) -> SubmitRules {
        let mut rules = self.queue.submit_rules();
        rules.own_kinds.extend(self.launch.adapters.kinds().map(str::to_owned));
        rules
    }

    pub(crate) fn launch_settings(&self) -> LaunchSettings {
        LaunchSettings { allow_commands: self.queue.allow_commands.clone(), ..self.launch.clone() }
    }
}
