//! How people write lengths of time, moments, amounts of memory and ends of a task: on a command line, and in JSON.
//!
//! What is wrong with a text is said as what to give instead.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// Reads `30s`, `1m30s`, `500ms`, or a plain number of seconds.
///
/// # Errors
/// What to give instead.
///
/// ```
/// use leasehold::domain::notation;
/// assert_eq!(notation::length("1m30s").unwrap().as_secs(), 90);
/// ```
pub fn length(text: &str) -> Result<Duration, String> {
    let seconds =
        text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let written =
        || text.parse::<SignedDuration>().ok().and_then(|length| Duration::try_from(length).ok());
    seconds.or_else(written).ok_or_else(|| "give a length such as 30s, 5m or 500ms".into())
}

/// Reads a moment, in seconds since the epoch: a time such as `2026-12-01T08:00:00Z`, or a length after `now`.
///
/// # Errors
/// What to give instead.
///
/// ```
/// use leasehold::domain::notation;
/// assert_eq!(notation::moment("1970-01-01T00:01:00Z", 0.0), Ok(60.0));
/// assert_eq!(notation::moment("10m", 1000.0), Ok(1600.0));
/// ```
pub fn moment(text: &str, now: f64) -> Result<f64, String> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time.as_duration().as_secs_f64());
    }
    let length = length(text).map_err(|_| {
        "give a length such as 10m, or a time such as 2026-12-01T08:00:00Z".to_owned()
    })?;
    Ok(now + length.as_secs_f64())
}

/// Reads a number of bytes, or of `K`, `M`, `G` or `T` of them, which are powers of 1024.
///
/// # Errors
/// What to give instead.
///
/// ```
/// use leasehold::domain::notation;
/// assert_eq!(notation::bytes("4G"), Ok(4 << 30));
/// ```
pub fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || "give a number of bytes such as 1073741824 or 1G".to_owned();
    let unit = text.chars().last().and_then(|last| "KMGT".find(last.to_ascii_uppercase()));
    let (digits, power) = match unit {
        Some(index) => (&text[..text.len() - 1], 10 * (index + 1)),
        None => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << power).ok_or_else(wrong)
}

const SIGNALS: [(&str, i32); 14] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("PIPE", 13),
    ("TERM", 15),
    ("XCPU", 24),
];

/// Reads how a task ended: an exit code, or the name of a signal, which is `-N` for signal N as it is stored.
///
/// # Errors
/// What to give instead.
///
/// ```
/// use leasehold::domain::notation;
/// assert_eq!((notation::end("75"), notation::end("SIGKILL")), (Ok(75), Ok(-9)));
/// ```
pub fn end(text: &str) -> Result<i32, String> {
    let name = text.strip_prefix("SIG").unwrap_or(text);
    if let Some((_, number)) = SIGNALS.iter().find(|(known, _)| *known == name) {
        return Ok(-number);
    }
    text.parse().ok().filter(|code| (1..=255).contains(code)).ok_or_else(|| {
        "give an exit code from 1 to 255, or the name of a signal such as SIGKILL".into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_units_or_are_seconds() {
        for (text, millis) in [
            ("30s", 30_000),
            ("5m", 300_000),
            ("1m30s", 90_000),
            ("500ms", 500),
            ("2.5", 2500),
            ("0", 0),
        ] {
            assert_eq!(length(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "-1", "-5s", "soon", "inf", "NaN", "1 parsec"] {
            assert!(length(text).is_err(), "{text}");
        }
    }

    #[test]
    fn moments_are_times_or_lengths() {
        assert_eq!(moment("1970-01-01T00:01:00Z", 7.0), Ok(60.0));
        assert_eq!(moment("1970-01-01T01:00:00+01:00", 7.0), Ok(0.0));
        assert_eq!(moment("10m", 7.0), Ok(607.0));
        for text in ["", "tomorrow", "2026-13-01T00:00:00Z", "-5m"] {
            assert!(moment(text, 0.0).unwrap_err().contains("2026-12-01T08:00:00Z"), "{text}");
        }
    }

    #[test]
    fn bytes_have_units_of_1024() {
        for (text, count) in
            [("1", 1), ("2k", 2048), ("3G", 3 << 30), ("16777215T", 16_777_215 << 40)]
        {
            assert_eq!(bytes(text), Ok(count), "{text}");
        }
        for text in ["", "G", "-1", "1.5G", "1GiB", "16777216T", "é", "1é"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ends_are_codes_or_signals() {
        for (text, stored) in [("75", 75), ("SIGKILL", -9), ("TERM", -15)] {
            assert_eq!(end(text), Ok(stored), "{text}");
        }
        for text in ["0", "256", "-9", "SIGNAL", "kill"] {
            assert!(end(text).is_err(), "{text}");
        }
    }
}
