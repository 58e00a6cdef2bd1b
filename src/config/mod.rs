//! Settings, as plain data. The library reads no environment and no file.

mod worker;

use std::collections::BTreeSet;

use thiserror::Error;

pub use worker::{RuntimeConfig, Supervision};

use crate::domain::allow::AllowList;
use crate::domain::capability::CapabilityClasses;
use crate::domain::lease;
use crate::domain::task::SubmitRules;

/// How a queue behaves. The default is the contract of ADR-0071.
///
/// ```
/// use leasehold::Config;
/// let config = Config::default();
/// assert_eq!((config.lease_ttl, config.heartbeat_ttl, config.max_lease_attempts), (300.0, 90.0, 3));
/// assert!(config.allow_commands.is_empty());
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// How long a claim owns its run, in seconds.
    pub lease_ttl: f64,
    /// How old a worker's heartbeat may be before it claims nothing, in seconds.
    pub heartbeat_ttl: f64,
    /// How many times a lease may run out before the run fails.
    pub max_lease_attempts: i32,
    /// The host named in concurrency keys; absent means this machine's host name, as in the original.
    pub key_host: Option<String>,
    /// What each capability token means.
    pub classes: CapabilityClasses,
    /// The commands that tasks of kind `command` may run; empty refuses that kind.
    pub allow_commands: AllowList,
    /// Whether tasks may have an idempotency key, whether that of a request for a change counts, and whether the answer to
    /// one names its event.
    pub idempotency: bool,
    /// Kinds of the host's own that are accepted at a submit, beside those of ADR-0071. A worker in the same host also
    /// accepts those that it has adapters for.
    pub own_kinds: BTreeSet<String>,
    /// Whether the plan of a workflow is checked at its submit. Otherwise one that is none fails when it is launched.
    pub check_plans: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            lease_ttl: lease::DEFAULT_LEASE_TTL,
            heartbeat_ttl: lease::DEFAULT_HEARTBEAT_TTL,
            max_lease_attempts: lease::MAX_LEASE_ATTEMPTS,
            key_host: None,
            classes: CapabilityClasses::default(),
            allow_commands: AllowList::default(),
            idempotency: false,
            own_kinds: BTreeSet::new(),
            check_plans: false,
        }
    }
}

impl Config {
    /// What ADR-0071 leaves out as well: tasks may have an idempotency key, requests for changes are made once per key, and
    /// a workflow that could never run is refused.
    pub fn daemon() -> Config {
        Config { idempotency: true, check_plans: true, ..Config::default() }
    }

    /// What submissions are checked against.
    pub fn submit_rules(&self) -> SubmitRules {
        SubmitRules {
            key_host: self.key_host.clone().unwrap_or_else(host_name),
            classes: self.classes.clone(),
            allow_commands: self.allow_commands.clone(),
            idempotency: self.idempotency,
            own_kinds: self.own_kinds.clone(),
            plans: self.check_plans,
        }
    }
}

/// This machine's host name, as the kernel has it.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A setting or an argument that makes no sense. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what} cannot be {given}: {rule}")]
pub struct InvalidArgument {
    /// The setting's or argument's name.
    pub what: &'static str,
    /// Its value.
    pub given: String,
    /// What it must be.
    pub rule: &'static str,
}
