//! What a run starts with beside its arguments, and how long it may take.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::allow::AllowList;
use super::contract::Contract;
use super::json_text;
use super::notice::Notify;
use super::retry::RetryPolicy;
use super::task::SubmitRefusal;

/// The highest limit: the next numbers mean none at all to the kernel or to a store.
const MOST: u64 = i64::MAX.unsigned_abs();

/// The settings of one run. Absent ones leave things as they are.
///
/// ```
/// use leasehold::domain::settings::RunSettings;
/// let settings = RunSettings { timeout: Some(60.0), ..RunSettings::default() };
/// assert!(settings.check().is_ok());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunSettings {
    /// The directory in which it starts; the worker's own otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Variables set for it, over those that it inherits.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// How long it may run, in seconds; it ends `timed_out` then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
    /// How long it has between TERM and KILL when it is stopped, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace: Option<f64>,
    /// When it is tried again after it has failed; absent means never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// When it is to be started. It is stored in columns of its own, and is no part of what makes two tasks the same.
    #[serde(skip)]
    pub when: When,
    /// What each of its processes may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<TaskLimits>,
    /// What it must leave behind to have done its work, besides exit code 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contract: Option<Contract>,
    /// Who is told when it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify: Option<Notify>,
}

/// How long runs of a kind may take that do not say so themselves.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct KindDefaults {
    /// As [`RunSettings::timeout`].
    pub timeout: Option<f64>,
    /// As [`RunSettings::grace`].
    pub grace: Option<f64>,
}

/// When a run is to be started.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct When {
    /// Not before this moment, in seconds since the epoch.
    pub not_before: Option<f64>,
    /// A run that is still queued at this moment is skipped, in seconds since the epoch.
    pub expires: Option<f64>,
    /// From -100 to 100: a run of priority 1 takes its place in the queue as if it had been submitted a minute earlier.
    pub priority: i32,
}

/// What one step of priority is worth, in seconds of waiting.
const PRIORITY_SECONDS: f64 = 60.0;

impl When {
    /// The time under which a run that is submitted `at` stands in the queue, both in seconds since the epoch.
    pub fn place(&self, at: f64) -> f64 {
        at - PRIORITY_SECONDS * f64::from(self.priority)
    }
}

/// What each process of a task may use; absent ones are those of the worker. Only a worker with guardians can set them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TaskLimits {
    /// Open descriptors.
    #[serde(rename = "nofile", skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// Bytes of address space.
    #[serde(rename = "as", skip_serializing_if = "Option::is_none")]
    pub address_space: Option<u64>,
    /// Seconds of processor time.
    #[serde(rename = "cpu", skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<u64>,
}

impl TaskLimits {
    fn each(&self) -> [(&'static str, Option<u64>); 3] {
        [("nofile", self.open_files), ("as", self.address_space), ("cpu", self.cpu_seconds)]
    }
}

/// Why settings are refused. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the setting {setting} cannot be {given}: {rule}")]
pub struct SettingsRefusal {
    /// Which.
    pub setting: &'static str,
    /// Its value.
    pub given: String,
    /// What it must be.
    pub rule: &'static str,
}

impl RunSettings {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == RunSettings::default()
    }

    /// Whether a worker can follow them.
    ///
    /// # Errors
    /// The first one that it cannot.
    pub fn check(&self) -> Result<(), SettingsRefusal> {
        let refused = |setting, given: String, rule| Err(SettingsRefusal { setting, given, rule });
        if let Some(cwd) =
            self.cwd.as_ref().filter(|cwd| !cwd.starts_with('/') || cwd.contains('\0'))
        {
            return refused(
                "cwd",
                format!("{cwd:?}"),
                "give an absolute path, since a worker may run anywhere",
            );
        }
        for (name, value) in &self.env {
            if name.is_empty() || name.contains(['=', '\0']) {
                return refused(
                    "env",
                    format!("{name:?}"),
                    "a variable's name has no '=' and is not empty",
                );
            }
            if value.contains('\0') {
                return refused("env", format!("{name}=…"), "a value without the character U+0000");
            }
        }
        for (setting, length, least) in
            [("timeout", self.timeout, true), ("grace", self.grace, false)]
        {
            let fits =
                |seconds: f64| seconds.is_finite() && seconds >= 0.0 && !(least && seconds == 0.0);
            if let Some(seconds) = length.filter(|seconds| !fits(*seconds)) {
                return refused(setting, format!("{seconds} s"), "give a positive length of time");
            }
        }
        if let Some((setting, given, rule)) = self.retry.as_ref().and_then(RetryPolicy::problem) {
            return refused(setting, given, rule);
        }
        if let Some((setting, given, rule)) = self.notify.as_ref().and_then(Notify::problem) {
            return refused(setting, given, rule);
        }
        let When { not_before, expires, priority } = self.when;
        for (setting, moment) in [("after", not_before), ("expires", expires)] {
            if let Some(moment) = moment.filter(|moment| !moment.is_finite()) {
                return refused(setting, moment.to_string(), "give a moment");
            }
        }
        if expires.zip(not_before).is_some_and(|(expires, start)| expires <= start) {
            return refused("expires", "before its start".into(), "give a moment after --after");
        }
        if !(-100..=100).contains(&priority) {
            return refused("priority", priority.to_string(), "give a number from -100 to 100");
        }
        for (setting, limit) in self.limits.unwrap_or_default().each() {
            if let Some(limit) = limit.filter(|limit| !(1..=MOST).contains(limit)) {
                return refused(setting, limit.to_string(), "give a number from 1 to 2^63-1");
            }
        }
        match self.contract.as_ref().and_then(|contract| contract.problem(self.cwd.is_some())) {
            Some((setting, given, rule)) => refused(setting, given, rule),
            None => Ok(()),
        }
    }

    /// Whether the commands that it names may run, as those of tasks of kind `command`: the one that checks it, and the one
    /// that is told of its end.
    ///
    /// # Errors
    /// [`SubmitRefusal::CommandNotAllowed`].
    pub fn permit(&self, allow: &AllowList) -> Result<(), SubmitRefusal> {
        let checks = self.contract.as_ref().and_then(|contract| contract.check.as_ref());
        let told = self.notify.as_ref().and_then(Notify::command);
        let named = [checks.map(|check| check.program().to_owned()), told];
        match named.into_iter().flatten().find(|name| !allow.allows(name)) {
            Some(name) => Err(SubmitRefusal::command(&name, allow)),
            None => Ok(()),
        }
    }

    /// These settings, and where they say nothing the defaults.
    pub fn or(self, defaults: &KindDefaults) -> RunSettings {
        RunSettings {
            timeout: self.timeout.or(defaults.timeout),
            grace: self.grace.or(defaults.grace),
            ..self
        }
    }

    /// The settings as stored JSON text.
    pub fn text(&self) -> String {
        // Maps of strings and finite numbers always serialize.
        serde_json::to_value(self).map_or_else(|_| "{}".into(), |value| json_text::value(&value))
    }

    /// Settings that were stored.
    ///
    /// # Errors
    /// What is wrong with the text; a later version may have written it.
    pub fn parse(text: &str) -> Result<RunSettings, serde_json::Error> {
        serde_json::from_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_settings_read_back_the_same() {
        let settings = RunSettings {
            cwd: Some("/tmp/é".into()),
            env: [("A".to_string(), "b\n".to_string())].into(),
            timeout: Some(1.5),
            grace: Some(0.0),
            limits: Some(TaskLimits { address_space: Some(MOST), ..TaskLimits::default() }),
            retry: Some(RetryPolicy {
                only: vec![75, -9],
                never: vec![1],
                ..RetryPolicy::default()
            }),
            when: When::default(),
            contract: Some(Contract { no_leftovers: true, ..Contract::default() }),
            notify: Some(Notify { within: Some(60.0), ..Notify::to("https://example.com/hook") }),
        };
        assert_eq!(RunSettings::parse(&settings.text()).unwrap(), settings);
        assert_eq!(RunSettings::default().text(), "{}");
        assert!(RunSettings::parse(r#"{"nice": 5}"#).is_err());
    }

    #[test]
    fn what_no_worker_can_follow_is_refused() {
        let bad = [
            RunSettings { cwd: Some("relative".into()), ..RunSettings::default() },
            RunSettings {
                env: [("A=B".to_string(), String::new())].into(),
                ..RunSettings::default()
            },
            RunSettings {
                env: [("A".to_string(), "\0".to_string())].into(),
                ..RunSettings::default()
            },
            RunSettings { timeout: Some(0.0), ..RunSettings::default() },
            RunSettings { timeout: Some(f64::NAN), ..RunSettings::default() },
            RunSettings { grace: Some(-1.0), ..RunSettings::default() },
            RunSettings {
                limits: Some(TaskLimits { cpu_seconds: Some(0), ..TaskLimits::default() }),
                ..RunSettings::default()
            },
            RunSettings {
                limits: Some(TaskLimits { open_files: Some(MOST + 1), ..TaskLimits::default() }),
                ..RunSettings::default()
            },
            RunSettings {
                notify: Some(Notify::to("gopher://example.com")),
                ..RunSettings::default()
            },
        ];
        for settings in bad {
            assert!(settings.check().is_err(), "{settings:?}");
        }
    }

    #[test]
    fn a_command_that_is_told_must_be_allowed() {
        let settings =
            RunSettings { notify: Some(Notify::to("command:tell")), ..RunSettings::default() };
        assert!(settings.check().is_ok());
        assert!(settings.permit(&AllowList::parse("tell")).is_ok());
        let refusal = settings.permit(&AllowList::parse("other")).unwrap_err();
        assert!(refusal.to_string().contains("tell"), "{refusal}");
        let posted =
            RunSettings { notify: Some(Notify::to("https://h/")), ..RunSettings::default() };
        assert!(posted.permit(&AllowList::default()).is_ok());
    }
}
