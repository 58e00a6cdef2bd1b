//! JSON Schema (2020-12) as far as it can be decided in bounded time: whether a schema can be used, and whether a
//! document fits it.
//!
//! Both may come from a stranger. So every step of a judgement is counted, a reference leads nowhere but into the schema
//! itself, patterns are matched in linear time, and a keyword that is not known is refused instead of ignored: a contract
//! that checks less than it says is none. `format` and what else only describes is allowed, and decides nothing, as the
//! specification has it.

mod fit;
mod keywords;
mod number;
mod place;
mod simple;

use std::sync::atomic::AtomicBool;

use regex_lite::{Regex, RegexBuilder};
use serde_json::Value;

/// The longest schema, in bytes of its text.
pub const LONGEST_SCHEMA: usize = 64 << 10;
/// The longest document, in bytes of its text.
pub const LONGEST_JSON: usize = 1 << 20;
/// Steps of a judgement: some for each schema that a value is held against, and for what is compared. They take a few
/// seconds at the most.
const MOST_STEPS: u64 = 20_000_000;
/// Schemas within each other, those that are referred to among them.
const DEEPEST: usize = 100;
/// Patterns of a schema.
const MOST_PATTERNS: usize = 100;
/// What a pattern may become, in bytes.
const LARGEST_PATTERN: usize = 64 << 10;

/// Why a document does not fit, or cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Misfit {
    /// It does not: where, and why. No value of it is told.
    Differs(String),
    /// Nobody can say within bounds.
    Undecided(&'static str),
}

/// Why a schema cannot be used; nothing if it can.
///
/// ```
/// use leasehold::domain::schema::refusal;
/// use serde_json::json;
/// assert_eq!(refusal(&json!({ "type": "object", "required": ["n"] })), None);
/// let why = refusal(&json!({ "requires": ["n"] })).unwrap();
/// assert!(why.contains("requires"), "{why}");
/// ```
pub fn refusal(schema: &Value) -> Option<String> {
    let length = schema.to_string().len();
    if length > LONGEST_SCHEMA {
        return Some(format!("it has {length} bytes, and {LONGEST_SCHEMA} are the most"));
    }
    keywords::refusal(schema)
}

/// Whether a document fits a schema that can be used. `stop` ends the judgement early.
///
/// # Errors
/// The first thing that does not fit.
///
/// ```
/// use std::sync::atomic::AtomicBool;
/// use leasehold::domain::schema::fits;
/// use serde_json::json;
/// let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
/// let never = AtomicBool::new(false);
/// assert!(fits(&schema, &json!({ "n": 3 }), &never).is_ok());
/// assert!(fits(&schema, &json!({ "n": "3" }), &never).is_err());
/// ```
pub fn fits(schema: &Value, document: &Value, stop: &AtomicBool) -> Result<(), Misfit> {
    fits_within(MOST_STEPS, schema, document, stop)
}

fn fits_within(
    steps: u64,
    schema: &Value,
    document: &Value,
    stop: &AtomicBool,
) -> Result<(), Misfit> {
    fit::Judgement::new(schema, steps, stop).judge(document)
}

/// A pattern that is matched in time linear in the text: without back references and look-around.
fn pattern(text: &str) -> Option<Regex> {
    RegexBuilder::new(text).size_limit(LARGEST_PATTERN).nest_limit(50).build().ok()
}

/// The part of `root` that `reference` (`#`, or `#` and a JSON pointer) leads to.
fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    root.pointer(&unescaped(reference.strip_prefix('#')?)?)
}

/// A fragment without its percent signs.
fn unescaped(fragment: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = fragment.as_bytes();
    while let [first, tail @ ..] = rest {
        (rest, bytes) = match (first, tail) {
            (b'%', [high, low, tail @ ..]) => {
                let digits = [*high, *low];
                let code = u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?;
                bytes.push(code);
                (tail, bytes)
            }
            (b'%', _) => return None,
            (byte, tail) => {
                bytes.push(*byte);
                (tail, bytes)
            }
        };
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests;
