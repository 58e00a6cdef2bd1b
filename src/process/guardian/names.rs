//! The name of a run's directory.

use std::fmt::Write;

use crate::process::fnv::fnv;

/// Longer ids than this are not written out.
const LONGEST: usize = 100;

/// `<run id>.<epoch>`. An id that is not hex digits and hyphens is written in hex after an `x`, and
/// a long one is `h` and a hash: neither letter begins an id that is written as it is. Two ids with
/// the same hash do not share a directory: the second one cannot be made.
pub(super) fn directory_name(run_id: &str, epoch: i64) -> String {
    let plain = !run_id.is_empty()
        && run_id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
        && run_id.len() <= LONGEST;
    let id = if plain {
        run_id.to_owned()
    } else if run_id.len() <= LONGEST {
        format!("x{}", hex(run_id.as_bytes()))
    } else {
        format!("h{:032x}", fnv(run_id.as_bytes()))
    };
    format!("{id}.{epoch}")
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(super) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_short_and_different() {
        assert_eq!(directory_name("01ab-CD", 3), "01ab-CD.3");
        assert_eq!(directory_name("../x", 3), "x2e2e2f78.3");
        assert_eq!(directory_name("", 1), "x.1");
        let long = "é/".repeat(500);
        let name = directory_name(&long, i64::MAX);
        assert!(name.starts_with('h') && name.len() < 60, "{name}");
        assert_ne!(name, directory_name(&long[2..], i64::MAX));
    }

    #[test]
    fn hex_goes_both_ways() {
        assert_eq!(from_hex(&hex(&[0, 255, 16])), Some([0, 255, 16]));
        assert_eq!(from_hex::<2>("0g00"), None);
        assert_eq!(from_hex::<2>("é00"), None);
    }
}
