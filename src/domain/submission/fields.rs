//! The members of a JSON task, taken one by one.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::SubmissionRefusal;
use crate::domain::contract::Contract;
use crate::domain::notation;
use crate::domain::notice::Notify;
use crate::domain::retry::RetryPolicy;
use crate::domain::settings::{RunSettings, TaskLimits, When};
use crate::domain::task::{SubmitRefusal, literal, type_name};

/// Every member that a task may have.
const KNOWN: &str = "action_kind, args, execution_target, required_capabilities, library_ref, library_content_hash, \
                     idempotency_key, timeout, grace, cwd, env, stdin, after, expires, priority, max_failures, backoff, \
                     backoff_cap, retry_on, final, nofile, as, cpu, contract, notify, notify_attempts, notify_within";
/// What only says how a task is tried again, which it is not without `max_failures`.
const OF_RETRIES: [&str; 4] = ["backoff", "backoff_cap", "retry_on", "final"];

pub(super) struct Fields(Map<String, Value>);

type Taken<T> = Result<T, SubmissionRefusal>;

impl Fields {
    /// Refuses a member that no task has, before anything else is said of it.
    pub(super) fn new(members: Map<String, Value>) -> Taken<Fields> {
        let is_known = |name: &str| KNOWN.split(", ").any(|known| known == name);
        match members.keys().find(|name| !is_known(name)) {
            Some(name) => {
                let field = literal(&Value::String(name.clone()));
                Err(SubmitRefusal::UnknownField { field, known: KNOWN }.into())
            }
            None => Ok(Fields(members)),
        }
    }

    /// What was not taken.
    pub(super) fn rest(self) -> Map<String, Value> {
        self.0
    }

    pub(super) fn settings(&mut self, now: f64) -> Taken<RunSettings> {
        Ok(RunSettings {
            cwd: self.text("cwd")?,
            env: self.variables()?,
            timeout: self.length("timeout")?,
            grace: self.length("grace")?,
            retry: self.retry()?,
            when: When {
                not_before: self.moment("after", now)?,
                expires: self.moment("expires", now)?,
                priority: self.priority()?,
            },
            limits: self.limits()?,
            contract: self.contract()?,
            notify: self.notify()?,
        })
    }

    pub(super) fn text(&mut self, name: &'static str) -> Taken<Option<String>> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(name, &other, "give a string")),
        }
    }

    /// A member that is null is not there.
    fn take(&mut self, name: &str) -> Option<Value> {
        self.0.shift_remove(name).filter(|value| !value.is_null())
    }

    fn variables(&mut self) -> Taken<BTreeMap<String, String>> {
        const RULE: &str = "give an object of strings";
        let members = match self.take("env") {
            None => return Ok(BTreeMap::new()),
            Some(Value::Object(members)) => members,
            Some(other) => return Err(wrong("env", &other, RULE)),
        };
        let variable = |(name, value)| match value {
            Value::String(value) => Ok((name, value)),
            // Its value may be a secret.
            _ => Err(refused("env", format!("{name}=…"), RULE)),
        };
        members.into_iter().map(variable).collect()
    }

    /// In seconds.
    fn length(&mut self, name: &'static str) -> Taken<Option<f64>> {
        const RULE: &str = "give a length such as 30s, 5m or 500ms, or a number of seconds";
        let Some(value) = self.take(name) else { return Ok(None) };
        let length = match &value {
            Value::String(text) => notation::length(text).ok(),
            Value::Number(number) => {
                number.as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            }
            _ => None,
        };
        match length {
            Some(length) => Ok(Some(length.as_secs_f64())),
            None => Err(wrong(name, &value, RULE)),
        }
    }

    fn moment(&mut self, name: &'static str, now: f64) -> Taken<Option<f64>> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => match notation::moment(&text, now) {
                Ok(moment) => Ok(Some(moment)),
                Err(rule) => Err(wrong(name, &Value::String(text), &rule)),
            },
            // As a number it might be meant either way.
            Some(other) => Err(wrong(
                name,
                &other,
                "give a text: a length such as 10m, or a time such as 2026-12-01T08:00:00Z",
            )),
        }
    }

    fn priority(&mut self) -> Taken<i32> {
        let Some(value) = self.take("priority") else { return Ok(0) };
        let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
        number.ok_or_else(|| wrong("priority", &value, "give a number from -100 to 100"))
    }

    fn number(&mut self, name: &'static str) -> Taken<Option<u64>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match value.as_u64() {
            Some(number) => Ok(Some(number)),
            None => Err(wrong(name, &value, "give a whole number")),
        }
    }

    fn limits(&mut self) -> Taken<Option<TaskLimits>> {
        let address_space = match self.0.get("as") {
            Some(Value::String(text)) => match notation::bytes(text) {
                Ok(bytes) => {
                    self.take("as");
                    Some(bytes)
                }
                Err(rule) => return Err(wrong("as", &Value::String(text.clone()), &rule)),
            },
            _ => self.number("as")?,
        };
        let limits = TaskLimits {
            open_files: self.number("nofile")?,
            address_space,
            cpu_seconds: self.number("cpu")?,
        };
        Ok((limits != TaskLimits::default()).then_some(limits))
    }

    fn contract(&mut self) -> Taken<Option<Contract>> {
        const RULE: &str = "give an object with its parts, as `leasehold show` has them";
        let members = match self.take("contract") {
            None => return Ok(None),
            Some(Value::Object(members)) => members,
            Some(other) => return Err(wrong("contract", &other, RULE)),
        };
        let contract = Contract::deserialize(members)
            .map_err(|error| refused("contract", error.to_string(), RULE))?;
        Ok((contract != Contract::default()).then_some(contract))
    }

    fn notify(&mut self) -> Taken<Option<Notify>> {
        let to = self.text("notify")?;
        let (attempts, within) = (self.number("notify_attempts")?, self.length("notify_within")?);
        let alone = |name| Err(refused(name, "alone".into(), "give notify too"));
        match (to, attempts, within) {
            (None, None, None) => Ok(None),
            (None, Some(_), _) => alone("notify_attempts"),
            (None, None, Some(_)) => alone("notify_within"),
            (Some(to), attempts, within) => {
                let notify = Notify::to(to);
                // Too many stay too many.
                let attempts = attempts.map(|count| u32::try_from(count).unwrap_or(u32::MAX));
                Ok(Some(Notify { attempts: attempts.unwrap_or(notify.attempts), within, ..notify }))
            }
        }
    }

    fn retry(&mut self) -> Taken<Option<RetryPolicy>> {
        let max_failures = self.number("max_failures")?;
        let default = RetryPolicy::default();
        let given =
            OF_RETRIES.into_iter().find(|name| self.0.get(*name).is_some_and(|v| !v.is_null()));
        let policy = RetryPolicy {
            // Too many stay too many.
            max_failures: u32::try_from(max_failures.unwrap_or(1)).unwrap_or(u32::MAX),
            base: self.length("backoff")?.unwrap_or(default.base),
            cap: self.length("backoff_cap")?.unwrap_or(default.cap),
            only: self.ends("retry_on")?,
            never: self.ends("final")?,
        };
        match (max_failures, given) {
            (None, None) => Ok(None),
            (None, Some(name)) => Err(refused(name, "alone".into(), "give max_failures too")),
            (Some(_), _) => Ok(Some(policy)),
        }
    }

    fn ends(&mut self, name: &'static str) -> Taken<Vec<i32>> {
        const RULE: &str =
            "give a list of exit codes from 1 to 255, and names of signals such as \"SIGKILL\"";
        let items = match self.take(name) {
            None => return Ok(Vec::new()),
            Some(Value::Array(items)) => items,
            Some(other) => return Err(wrong(name, &other, RULE)),
        };
        let end = |item: &Value| {
            let end = match item {
                Value::String(text) => notation::end(text).ok(),
                // Only the plain spelling of a whole number is one.
                Value::Number(number) => notation::end(&number.to_string()).ok(),
                _ => None,
            };
            end.ok_or_else(|| wrong(name, item, RULE))
        };
        items.iter().map(end).collect()
    }
}

/// A short value is shown, unless it may be a secret; any other is named by its type.
fn wrong(field: &'static str, value: &Value, rule: &str) -> SubmissionRefusal {
    let given = match value {
        Value::String(_) | Value::Number(_) if !matches!(field, "env" | "stdin" | "notify") => {
            literal(value)
        }
        other => type_name(other).into(),
    };
    refused(field, given, rule)
}

fn refused(field: &'static str, given: String, rule: &str) -> SubmissionRefusal {
    SubmissionRefusal::Field { field, given, rule: rule.into() }
}
