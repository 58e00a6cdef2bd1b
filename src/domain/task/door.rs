//! The JSON door: a task that arrives as JSON, in which every field may have any type.

use serde_json::{Map, Value};

use super::refusal::{literal, type_name};
use super::{SubmitRefusal, SubmitRules, TaskApplication, TaskSpec, canonical_kind, known_target};
use crate::domain::json_text;
use crate::domain::payload::IdempotencyKey;

const FIELDS: &str = "action_kind, args, execution_target, required_capabilities, library_ref, library_content_hash, idempotency_key";

impl TaskApplication {
    /// Reads a task from JSON text.
    ///
    /// The types are checked in the same order as the values are by [`TaskSpec::check`], so that the first broken
    /// rule is the same whichever way a task arrives.
    ///
    /// # Errors
    /// [`SubmitRefusal::NotJson`] for text that is not strict JSON, else the first field with a wrong type or value.
    pub fn from_json_text(text: &str, rules: &SubmitRules) -> Result<Self, SubmitRefusal> {
        let value = json_text::parse(text)
            .map_err(|error| SubmitRefusal::NotJson { problem: error.to_string() })?;
        TaskApplication::from_json(value, rules)
    }

    /// Reads a task from a JSON value.
    ///
    /// # Errors
    /// The first field with a wrong type or value, in the order of [`TaskSpec::check`].
    pub fn from_json(value: Value, rules: &SubmitRules) -> Result<Self, SubmitRefusal> {
        let Value::Object(mut fields) = value else {
            return Err(SubmitRefusal::Args { given: type_name(&value) });
        };
        let idempotency_key = match take(&mut fields, "idempotency_key") {
            Value::Null => None,
            _ if !rules.idempotency => return Err(SubmitRefusal::IdempotencyKey),
            Value::String(key) => Some(IdempotencyKey::check(&key)?.as_str().to_owned()),
            other => {
                let problem = format!("it is {}", type_name(&other));
                return Err(SubmitRefusal::KeyForm { problem });
            }
        };
        let action_kind = match take(&mut fields, "action_kind") {
            Value::String(kind) => kind,
            other => {
                return Err(SubmitRefusal::kind_literal(literal(&other), rules));
            }
        };
        canonical_kind(&action_kind, rules)?;
        let execution_target = match take(&mut fields, "execution_target") {
            Value::String(target) => target,
            other => return Err(SubmitRefusal::target_literal(literal(&other))),
        };
        known_target(&execution_target)?;
        let required_capabilities = match fields.shift_remove("required_capabilities") {
            Some(value) => tokens(value)?,
            None => Vec::new(),
        };
        let args = match take(&mut fields, "args") {
            Value::Object(args) => args,
            other => return Err(SubmitRefusal::Args { given: type_name(&other) }),
        };
        let library_ref = text(&mut fields, "library_ref")?;
        let library_content_hash = text(&mut fields, "library_content_hash")?;
        if let Some(field) = fields.keys().next() {
            let field = literal(&Value::String(field.clone()));
            return Err(SubmitRefusal::UnknownField { field, known: FIELDS });
        }
        Ok(TaskApplication {
            action_kind,
            args,
            execution_target,
            required_capabilities,
            library_ref,
            library_content_hash,
            idempotency_key,
        })
    }
}

fn take(fields: &mut Map<String, Value>, name: &str) -> Value {
    fields.shift_remove(name).unwrap_or(Value::Null)
}

fn tokens(value: Value) -> Result<Vec<String>, SubmitRefusal> {
    let refused = || SubmitRefusal::RequiredCapabilities { given: literal(&value) };
    let items = value.as_array().ok_or_else(refused)?;
    let token = |item: &Value| item.as_str().filter(|t| !t.is_empty()).map(str::to_owned);
    items.iter().map(token).collect::<Option<Vec<_>>>().ok_or_else(refused)
}

fn text(
    fields: &mut Map<String, Value>,
    field: &'static str,
) -> Result<Option<String>, SubmitRefusal> {
    match take(fields, field) {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        other => Err(SubmitRefusal::NotText { field, given: type_name(&other) }),
    }
}

impl TaskSpec {
    /// Reads and checks a task from JSON text in one step.
    ///
    /// # Errors
    /// As [`TaskApplication::from_json_text`] and [`TaskSpec::check`].
    pub fn from_json_text(text: &str, rules: &SubmitRules) -> Result<TaskSpec, SubmitRefusal> {
        TaskSpec::check(&TaskApplication::from_json_text(text, rules)?, rules)
    }
}
