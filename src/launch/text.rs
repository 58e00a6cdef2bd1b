//! JSON values as text, the way Python's `str()` writes them.
//!
//! A task's arguments mean the same whichever peer launches it, so a number or a boolean in
//! `action_args` becomes the word a Python peer would put on the command line.

use serde_json::{Number, Value};

/// `str(value)`: `True`, `None`, `1e+16`, `2.0`, `-0.0`, a string as it is, lists and objects as
/// Python literals. A float is written with the fewest digits that read back as the same float, in
/// exponent form if its decimal exponent is below -4 or above 15.
///
/// ```
/// use leasehold::launch::text::python_str;
/// use serde_json::json;
///
/// assert_eq!(python_str(&json!(true)), "True");
/// assert_eq!(python_str(&json!(1e16)), "1e+16");
/// assert_eq!(python_str(&json!(["x", 1])), "['x', 1]");
/// ```
pub fn python_str(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => {
            let mut out = String::new();
            write_repr(&mut out, other);
            out
        }
    }
}

/// Whether Python calls the value true: anything but null, false, zero, and empty strings, lists
/// and objects.
pub fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(truth) => *truth,
        Value::Number(number) if is_integer(number) => number.as_str().contains(nonzero_digit),
        Value::Number(number) => float_of(number) != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(entries) => !entries.is_empty(),
    }
}

/// Whether the number is written as an integer: `1` is one, `1.0` and `1e3` are floats.
pub fn is_integer(number: &Number) -> bool {
    let text = number.as_str();
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn nonzero_digit(c: char) -> bool {
    c.is_ascii_digit() && c != '0'
}

fn float_of(number: &Number) -> Option<f64> {
    number.as_str().parse().ok()
}

fn number_text(number: &Number) -> String {
    match float_of(number) {
        Some(float) if !is_integer(number) => float_text(float),
        _ if number.as_str() == "-0" => "0".to_owned(),
        _ => number.as_str().to_owned(),
    }
}

fn float_text(float: f64) -> String {
    if float.is_nan() {
        return "nan".to_owned();
    }
    if float.is_infinite() {
        return if float > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = shortest(float);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        return plain(mantissa, exponent);
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

/// The fewest digits that read back as the float, in the form `-1.25e-7`. Of two such numbers that
/// are equally near to it, Python takes the one with an even last digit; `{:e}` takes the greater,
/// and `{:.Ne}` rounds to even.
fn shortest(float: f64) -> String {
    let up = format!("{float:e}");
    let (mantissa, _) = up.split_once('e').unwrap_or((&up, ""));
    let decimals = mantissa.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let even = format!("{float:.decimals$e}");
    if even.parse() == Ok(float) { even } else { up }
}

/// `1.25` and an exponent of 2 as `125.0`, of -2 as `0.0125`.
fn plain(mantissa: &str, exponent: i32) -> String {
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(mantissa) => ("-", mantissa),
        None => ("", mantissa),
    };
    let digits = mantissa.replace('.', "");
    let shift = usize::try_from(exponent.unsigned_abs()).unwrap_or(0);
    if exponent < 0 {
        return format!("{sign}0.{}{digits}", "0".repeat(shift - 1));
    }
    let digits = format!("{digits:0<width$}", width = shift + 2);
    let (whole, fraction) = digits.split_at(shift + 1);
    format!("{sign}{whole}.{fraction}")
}

fn write_repr(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("None"),
        Value::Bool(true) => out.push_str("True"),
        Value::Bool(false) => out.push_str("False"),
        Value::Number(number) => out.push_str(&number_text(number)),
        Value::String(text) => write_string_repr(out, text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                write_repr(out, item);
            }
            out.push(']');
        }
        Value::Object(entries) => {
            out.push('{');
            for (index, (key, item)) in entries.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                write_string_repr(out, key);
                out.push_str(": ");
                write_repr(out, item);
            }
            out.push('}');
        }
    }
}

fn write_string_repr(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if c == quote => out.extend(['\\', c]),
            _ if is_printable(c) => out.push(c),
            _ => match u32::from(c) {
                code @ ..=0xff => out.push_str(&format!("\\x{code:02x}")),
                code @ ..=0xffff => out.push_str(&format!("\\u{code:04x}")),
                code => out.push_str(&format!("\\U{code:08x}")),
            },
        }
    }
    out.push(quote);
}

/// The standard library escapes what Python calls not printable, except for a combining mark at the
/// very start of a string: hence the letter in front.
fn is_printable(c: char) -> bool {
    matches!(c, '\'' | '"') || String::from_iter(['a', c]).escape_debug().count() == 2
}

#[cfg(test)]
mod tests {

    use super::*;

    fn str_of(json: &str) -> String {
        python_str(&serde_json::from_str(json).unwrap())
    }

    #[test]
    fn floats_are_written_as_python_writes_them() {
        let cases = [
            ("1.0", "1.0"),
            ("-0.0", "-0.0"),
            ("1e3", "1000.0"),
            ("1e15", "1000000000000000.0"),
            ("9999999999999998.0", "9999999999999998.0"),
            ("1e16", "1e+16"),
            ("1.5e300", "1.5e+300"),
            ("0.0001", "0.0001"),
            ("0.00001", "1e-05"),
            ("1e-7", "1e-07"),
            ("5e-324", "5e-324"),
            ("0.1", "0.1"),
            ("1.10", "1.1"),
            ("1978424944372472.25", "1978424944372472.2"),
            ("-1978424944372472.75", "-1978424944372472.8"),
            ("-0.00125", "-0.00125"),
            ("1e999", "inf"),
            ("-1e999", "-inf"),
        ];
        for (json, expected) in cases {
            assert_eq!(str_of(json), expected, "{json}");
        }
        assert_eq!(float_text(f64::NAN), "nan");
    }

    #[test]
    fn integers_keep_their_digits() {
        assert_eq!(str_of("123456789012345678901234567890"), "123456789012345678901234567890");
        assert_eq!(str_of("-5"), "-5");
        assert_eq!(str_of("-0"), "0");
    }

    #[test]
    fn lists_and_objects_are_python_literals() {
        let json = r#"{"a": [null, true, 1.0, "it's"], "b": {}, "c\n": "\"'"}"#;
        assert_eq!(str_of(json), r#"{'a': [None, True, 1.0, "it's"], 'b': {}, 'c\n': '"\''}"#);
    }

    #[test]
    fn unprintable_characters_are_escaped_inside_lists_only() {
        let json = r#"["\u0000\u007f\u00a0\u00ad\u2028\ue000\ud83d\ude80e\u0301\u0301"]"#;
        let expected = "['\\x00\\x7f\\xa0\\xad\\u2028\\ue000\u{1f680}e\u{301}\u{301}']";
        assert_eq!(str_of(json), expected);
        assert_eq!(str_of(r#""\u0000""#), "\0");
        assert_eq!(str_of(r#"["\u0301"]"#), "['\u{301}']");
    }

    #[test]
    fn truth_is_pythons() {
        for json in ["null", "false", "0", "-0", "0.0", "-0.0", "0e5", "1e-400", "\"\"", "[]", "{}"]
        {
            assert!(!is_true(&serde_json::from_str(json).unwrap()), "{json}");
        }
        for json in ["true", "10", "-1", "0.1", "1e-300", "\" \"", "[0]", "{\"\": 0}"] {
            assert!(is_true(&serde_json::from_str(json).unwrap()), "{json}");
        }
    }
}
