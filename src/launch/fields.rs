//! The fields of `action_args` that a launch reads.
//!
//! Tasks may come from a Python peer, so a field counts as *set* if and only if Python calls its
//! value true: null, false, zero, and empty strings, lists and objects are all "not set".

use serde_json::{Map, Value};

use super::error::LaunchError;
use super::text::is_true;

/// `action_args` under the rules of this module.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a Map<String, Value>);

impl<'a> Fields<'a> {
    /// The value under `name`, unless absent or null.
    pub(super) fn present(self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// The value under `name`, if it is set.
    pub(super) fn set(self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| is_true(value))
    }

    /// The text under `name`, or `None` if it is not set.
    ///
    /// # Errors
    /// [`LaunchError::WrongType`] if it is set to anything but a string.
    pub(super) fn text(self, name: &'static str) -> Result<Option<&'a str>, LaunchError> {
        match self.set(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(LaunchError::WrongType { field: name, found: type_name(other) }),
        }
    }

    /// The list under `name`; anything that is no list counts as an empty one.
    pub(super) fn list(self, name: &str) -> &'a [Value] {
        self.0.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
