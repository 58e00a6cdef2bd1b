//! Answers as text: harmless whatever is stored, for people or for programs.

use std::fmt::Write;

use comfy_table::Table;
use comfy_table::presets::NOTHING;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::failure::Failure;
use super::harmless::{harmless, harmless_json};

/// What stands where nothing is stored.
pub(super) const NONE: &str = "-";
/// A table shows so many characters of a value; `show` and `--json` have all of them.
const CELL: usize = 100;

/// A moment, in seconds since the epoch, as RFC 3339 in UTC; the bare number where no calendar has it.
pub(super) fn time(seconds: f64) -> String {
    let micros = (seconds * 1e6).round();
    // The cast saturates, and jiff refuses what lies so far away.
    match Timestamp::from_microsecond(micros as i64) {
        Ok(moment) if micros.is_finite() => format!("{moment:.3}"),
        _ => seconds.to_string(),
    }
}

/// A value, or the mark for none.
pub(super) fn or_none(value: Option<&str>) -> &str {
    value.unwrap_or(NONE)
}

/// Rows under their headings, in columns that nothing wraps, so that a pipe sees one row per line.
pub(super) fn table<const N: usize>(
    headings: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).force_no_tty().set_header(headings);
    for row in rows {
        table.add_row(row.map(|value| cell(&value)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt() + "\n"
}

/// Cut before it is escaped, so that no escape is cut in two.
fn cell(value: &str) -> String {
    match value.char_indices().nth(CELL) {
        Some((end, _)) => harmless(&value[..end]) + "…",
        None => harmless(value),
    }
}

/// The columns of one row, each on a line.
pub(super) fn columns<T: Serialize>(row: &T) -> Result<String, Failure> {
    let mut lines = String::new();
    if let Value::Object(columns) = serde_json::to_value(row)? {
        for (name, value) in &columns {
            writeln!(lines, "{name}: {}", column(name, value))?;
        }
    }
    Ok(lines)
}

fn column(name: &str, value: &Value) -> String {
    match value {
        Value::Null => NONE.to_owned(),
        Value::String(text) => harmless(text),
        Value::Number(number) if name.ends_with("_at") => match number.as_f64() {
            Some(seconds) => time(seconds),
            None => number.to_string(),
        },
        other => harmless(&other.to_string()),
    }
}

/// One row as a JSON object, with the names of its columns.
pub(super) fn json_object<T: Serialize>(row: &T) -> Result<String, Failure> {
    Ok(json(row)? + "\n")
}

/// Rows as a JSON array, one row per line.
pub(super) fn json_array<T: Serialize>(rows: &[T]) -> Result<String, Failure> {
    let rows = rows.iter().map(json).collect::<Result<Vec<_>, _>>()?;
    Ok(format!("[{}]\n", rows.join(",\n ")))
}

fn json<T: Serialize>(value: &T) -> Result<String, Failure> {
    Ok(harmless_json(&serde_json::to_string(value)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_stored_reaches_the_terminal_as_a_control() {
        let text = "a\u{1b}]52;c;x\u{7}\r\n\t\u{9b}2J\u{202e}b\u{2066}\u{200f}\u{7f}é日\u{feff}";
        assert_eq!(
            harmless(text),
            r"a\u{1b}]52;c;x\u{7}\r\n\t\u{9b}2J\u{202e}b\u{2066}\u{200f}\u{7f}é日\u{feff}"
        );
    }

    #[test]
    fn json_says_the_same_with_its_own_escapes() {
        let text = "\u{1b}\u{9b}\u{7f}\u{202e}\u{e0041}é\"";
        let out = json(&text).unwrap();
        assert_eq!(out, r#""\u001b\u009b\u007f\u202e\udb40\udc41é\"""#);
        assert_eq!(serde_json::from_str::<String>(&out).unwrap(), text);
    }

    #[test]
    fn times_are_utc_with_milliseconds() {
        assert_eq!(time(1_700_000_000.25), "2023-11-14T22:13:20.250Z");
        assert_eq!(time(-1.0), "1969-12-31T23:59:59.000Z");
        for odd in [1e300, f64::INFINITY, f64::NAN] {
            assert_eq!(time(odd), odd.to_string());
        }
    }

    #[test]
    fn a_row_stays_one_line_however_long_and_wide_its_values() {
        let rows = [["x".repeat(200_000), "two\nlines".into()], ["日本".into(), "b".into()]];
        let shown = table(["A", "B"], rows.into_iter());
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 3, "{shown}");
        assert_eq!(lines[1], format!("{}…  two\\nlines", "x".repeat(CELL)));
        assert!(lines.iter().all(|line| line.trim_end() == *line));
        assert_eq!(table(["A", "B"], std::iter::empty()), "A  B\n");
    }
}
