//! What the answer of a receiver means.

use jiff::fmt::rfc2822;

use super::Failed;

/// Whether an answer with this status means that the receiver has the notice. `retry_after` is its header of that name,
/// `now` is in seconds since the epoch.
///
/// 2xx is success. 3xx is final, since redirects are not followed; 4xx is final as well, but for 408 (too slow), 425 (too
/// early) and 429 (too many). Everything else may be better the next time.
///
/// # Errors
/// What is wrong, and whether it stays so.
///
/// ```
/// use leasehold::domain::notice::judge;
/// assert!(judge(204, None, 0.0).is_ok());
/// assert!(judge(410, None, 0.0).unwrap_err().is_final);
/// assert_eq!(judge(503, Some("120"), 0.0).unwrap_err().wait, Some(120.0));
/// ```
pub fn judge(status: u16, retry_after: Option<&str>, now: f64) -> Result<(), Failed> {
    let failed = |error, is_final| Err(Failed { error, is_final, wait: None });
    match status {
        200..=299 => Ok(()),
        300..=399 => failed(
            format!(
                "it answered {status}, and redirects are not followed: give the address behind it"
            ),
            true,
        ),
        408 | 425 | 429 | 500..=599 => Err(Failed {
            error: format!("it answered {status}"),
            is_final: false,
            wait: retry_after.and_then(|text| wait(text, now)),
        }),
        400..=499 => failed(format!("it answered {status}"), true),
        _ => failed(format!("it answered {status}"), false),
    }
}

/// A number of seconds, or a date.
fn wait(text: &str, now: f64) -> Option<f64> {
    let text = text.trim();
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok();
    }
    let until = rfc2822::parse(text).ok()?.timestamp().as_second();
    Some((until as f64 - now).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        let finality = |status| judge(status, None, 0.0).err().map(|failed| failed.is_final);
        for status in [200, 201, 202, 204, 299] {
            assert_eq!(finality(status), None, "{status}");
        }
        for status in [301, 302, 307, 308, 400, 401, 403, 404, 410, 422] {
            assert_eq!(finality(status), Some(true), "{status}");
        }
        for status in [101, 408, 425, 429, 500, 502, 503, 504, 599, 600, 999] {
            assert_eq!(finality(status), Some(false), "{status}");
        }
    }

    #[test]
    fn a_wait_is_seconds_or_a_date() {
        let wait = |text| judge(429, Some(text), 1_445_412_400.0).unwrap_err().wait;
        assert_eq!(wait(" 7 "), Some(7.0));
        assert_eq!(wait("Wed, 21 Oct 2015 07:28:00 GMT"), Some(80.0));
        assert_eq!(wait("Wed, 21 Oct 2015 07:26:00 GMT"), Some(0.0), "it has passed");
        for nonsense in ["soon", "-1", "1e3", "Wed, 99 Oct 2015 07:28:00 GMT"] {
            assert_eq!(wait(nonsense), None, "{nonsense}");
        }
        // So long that no number holds it: the cap is applied later.
        assert_eq!(wait(&"9".repeat(400)), Some(f64::INFINITY));
        assert_eq!(judge(500, Some("5"), 0.0).unwrap_err().wait, Some(5.0));
        assert_eq!(judge(404, Some("5"), 0.0).unwrap_err().wait, None);
    }
}
