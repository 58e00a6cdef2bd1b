//! What makes two submissions the same: an idempotency key, and the hash of everything that makes up the task.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::settings::RunSettings;
use super::task::{SubmitRefusal, TaskSpec};

/// The most characters of a key.
pub const LONGEST_KEY: usize = 255;
/// Of the canonical form. Another one makes another hash, and a key would refuse what it has accepted.
const VERSION: u32 = 1;

/// A key of 1 to 255 visible characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// Checks a key.
    ///
    /// # Errors
    /// [`SubmitRefusal::KeyForm`].
    ///
    /// ```
    /// use leasehold::domain::payload::IdempotencyKey;
    /// assert!(IdempotencyKey::check("schedule:7:1700000000").is_ok());
    /// assert!(IdempotencyKey::check("").is_err());
    /// assert!(IdempotencyKey::check("two words").is_err());
    /// ```
    pub fn check(text: &str) -> Result<IdempotencyKey, SubmitRefusal> {
        IdempotencyKey::parse(text).map_err(|problem| SubmitRefusal::KeyForm { problem })
    }

    /// The same; an error is what is wrong with it, in a few words.
    pub(super) fn parse(text: &str) -> Result<IdempotencyKey, String> {
        let problem = match text.chars().count() {
            0 => Some("it is empty".to_owned()),
            length if length > LONGEST_KEY => Some(format!("it has {length}")),
            _ => text
                .chars()
                .find(|character| is_invisible(*character))
                .map(|character| format!("it holds U+{:04X}", u32::from(character))),
        };
        match problem {
            None => Ok(IdempotencyKey(text.to_owned())),
            Some(problem) => Err(problem),
        }
    }

    /// The key.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Two keys that look the same should be the same.
fn is_invisible(character: char) -> bool {
    character.is_whitespace()
        || character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// The hash of a task, as stored beside its key. It is the same whatever the order of keys and the white space of the
/// JSON that the task came as, and another one after any other change: `1` is not `1.0`.
pub fn hash(spec: &TaskSpec, settings: &RunSettings, stdin: Option<&[u8]>) -> String {
    let settings: Value = serde_json::from_str(&settings.text()).unwrap_or_default();
    canonical_hash(json!({
        "version": VERSION,
        "kind": spec.action_kind,
        "args": spec.args,
        "target": spec.execution_target,
        "needs": spec.required_capabilities,
        "library_ref": spec.library_ref,
        "library_hash": spec.library_content_hash,
        "settings": settings,
        "stdin": stdin.map(|bytes| hex(&Sha256::digest(bytes))),
    }))
}

/// The hash of a value, whatever the order of names in its objects.
pub(super) fn canonical_hash(value: Value) -> String {
    hex(&Sha256::digest(sorted(value).to_string().as_bytes()))
}

/// The hash of a task that is submitted again from the ended one with this id. It is no other task's, so a key that stands
/// for the ended one, or for a retry of another, does not stand for this.
pub fn hash_of_retry(task: &str, ended_id: &str) -> String {
    hex(&Sha256::digest(
        json!({ "version": VERSION, "task": task, "retry_of": ended_id }).to_string(),
    ))
}

/// The same value with the members of every object in the order of their names. Each number keeps its own text.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> =
                members.into_iter().map(|(name, value)| (name, sorted(value))).collect();
            members.sort_by(|(one, _), (other, _)| one.cmp(other));
            Value::Object(Map::from_iter(members))
        }
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        other => other,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
