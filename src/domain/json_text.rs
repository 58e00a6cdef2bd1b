//! JSON as the stores hold it: Python's `json.dumps` with its defaults.
//!
//! A store may be shared with the Python system, so text written here has its separators (`", "` and `": "`) and
//! escapes everything outside ASCII. Numbers keep the digits in which they were given, however many; only an exponent
//! is brought into Python's form (`1E5` becomes `1e+5`).

mod unrepeated;

use std::io;

use serde::Serialize;
use serde_json::ser::{CharEscape, Formatter, Serializer};
use serde_json::{Map, Value};
use unrepeated::Unrepeated;

/// The text of any JSON value.
///
/// ```
/// use leasehold::domain::json_text;
/// let value: serde_json::Value = serde_json::from_str(r#"{"b":[1.50,"é"],"a":null}"#).unwrap();
/// assert_eq!(json_text::value(&value), r#"{"b": [1.50, "\u00e9"], "a": null}"#);
/// ```
pub fn value(value: &Value) -> String {
    dump(value)
}

/// The text of an object.
pub fn object(map: &Map<String, Value>) -> String {
    dump(map)
}

/// The text of a list of strings.
pub fn strings(list: &[String]) -> String {
    dump(list)
}

/// The text of an array whose elements are JSON texts already.
pub fn array(texts: impl Iterator<Item = String>) -> String {
    format!("[{}]", texts.collect::<Vec<_>>().join(", "))
}

/// Parses JSON text that a peer may have written.
///
/// # Errors
/// The parser's own error, for malformed text.
pub fn parse(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(text)
}

/// Refuses JSON text in which an object, however deep, has two members of one name: readers disagree about which of
/// them counts, and [`parse`] would drop one in silence.
///
/// # Errors
/// The parser's own error, for malformed text too.
///
/// ```
/// use leasehold::domain::json_text::refuse_repeated_members;
/// assert!(refuse_repeated_members(r#"{"a": {"b": 1}, "b": 1}"#).is_ok());
/// assert!(refuse_repeated_members(r#"{"a": {"b": 1, "\u0062": 1}}"#).is_err());
/// ```
pub fn refuse_repeated_members(text: &str) -> Result<(), serde_json::Error> {
    serde_json::from_str::<Unrepeated>(text).map(drop)
}

/// The first number in `value` that is no finite double, such as `1e400`: the Python side would read it as infinity,
/// which it refuses. Integers of any size are fine.
pub fn number_out_of_range(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => {
            let text = number.to_string();
            let integer = text.trim_start_matches('-').bytes().all(|digit| digit.is_ascii_digit());
            let finite = text.parse::<f64>().is_ok_and(f64::is_finite);
            (!integer && !finite).then_some(text)
        }
        Value::Array(items) => items.iter().find_map(number_out_of_range),
        Value::Object(map) => number_out_of_range_in(map),
        Value::Null | Value::Bool(_) | Value::String(_) => None,
    }
}

/// The same, for the members of an object.
pub fn number_out_of_range_in(map: &Map<String, Value>) -> Option<String> {
    map.values().find_map(number_out_of_range)
}

/// Levels of nesting that a reader of stored text takes, the parser of this crate among them.
pub const MAX_DEPTH: usize = 127;

/// Whether arrays and objects nest deeper in `map` than anybody could read again, the map itself being the first level.
pub fn too_deep(map: &Map<String, Value>) -> bool {
    fn deeper(value: &Value, left: usize) -> bool {
        let mut inner: Box<dyn Iterator<Item = &Value>> = match value {
            Value::Array(items) => Box::new(items.iter()),
            Value::Object(members) => Box::new(members.values()),
            _ => return false,
        };
        left == 0 || inner.any(|value| deeper(value, left - 1))
    }
    map.values().any(|value| deeper(value, MAX_DEPTH - 1))
}

fn dump<T: Serialize + ?Sized>(value: &T) -> String {
    let mut out = Vec::new();
    let written = value.serialize(&mut Serializer::with_formatter(&mut out, PythonStyle));
    debug_assert!(written.is_ok(), "JSON values always serialize into memory");
    // The formatter writes ASCII only, so nothing is lost here.
    String::from_utf8_lossy(&out).into_owned()
}

struct PythonStyle;

impl Formatter for PythonStyle {
    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, w: &mut W) -> io::Result<()> {
        w.write_all(b": ")
    }

    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        w: &mut W,
        text: &str,
    ) -> io::Result<()> {
        let mut units = [0u16; 2];
        for c in text.chars() {
            // Python escapes DEL, too.
            if c.is_ascii() && c != '\u{7f}' {
                w.write_all(&[c as u8])?;
                continue;
            }
            for unit in c.encode_utf16(&mut units) {
                write!(w, "\\u{unit:04x}")?;
            }
        }
        Ok(())
    }

    fn write_char_escape<W: ?Sized + io::Write>(
        &mut self,
        w: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        match escape {
            CharEscape::Quote => w.write_all(b"\\\""),
            CharEscape::ReverseSolidus => w.write_all(b"\\\\"),
            CharEscape::Solidus => w.write_all(b"/"),
            CharEscape::Backspace => w.write_all(b"\\b"),
            CharEscape::FormFeed => w.write_all(b"\\f"),
            CharEscape::LineFeed => w.write_all(b"\\n"),
            CharEscape::CarriageReturn => w.write_all(b"\\r"),
            CharEscape::Tab => w.write_all(b"\\t"),
            CharEscape::AsciiControl(byte) => write!(w, "\\u{byte:04x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_what_python_writes() {
        let given = r#"{"z":1.0,"s":"a\"b\\c/d\n\t\u0001\u007f\u2028é日🚀","n":1180591620717411303424,"e":[],"o":{},"f":-0.0,"t":true}"#;
        let expected = r#"{"z": 1.0, "s": "a\"b\\c/d\n\t\u0001\u007f\u2028\u00e9\u65e5\ud83d\ude80", "n": 1180591620717411303424, "e": [], "o": {}, "f": -0.0, "t": true}"#;
        assert_eq!(value(&parse(given).unwrap()), expected);
    }

    #[test]
    fn numbers_keep_their_spelling() {
        for number in ["1e+16", "1.50", "1e-07", "5e-324", "-9223372036854775809", "-0.0"] {
            assert_eq!(value(&parse(number).unwrap()), number);
        }
        assert_eq!(value(&parse("1E5").unwrap()), "1e+5");
    }

    #[test]
    fn only_floats_that_overflow_are_out_of_range() {
        let value = parse(r#"{"a":[1e308,{"b":1e400}]}"#).unwrap();
        assert_eq!(number_out_of_range(&value).as_deref(), Some("1e+400"));
        let digits = "9".repeat(400);
        assert_eq!(number_out_of_range(&parse(&digits).unwrap()), None);
    }
}
