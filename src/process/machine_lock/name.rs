//! The name of a lock's file.

use std::fmt::Write;

use crate::process::fnv::fnv;

const ENDING: &str = ".lock";
/// The longest name that a file can have, in bytes.
const LONGEST: usize = 255;
/// How much of a longer one is kept.
const KEPT: usize = 200;

/// See [`LockDir::path_of`](super::LockDir::path_of).
pub(super) fn file_name(token: &str) -> String {
    let mut name = String::with_capacity(token.len() + ENDING.len());
    for byte in token.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            name.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(name, "%{byte:02X}");
        }
    }
    if name.len() + ENDING.len() > LONGEST {
        name.truncate(KEPT);
        // No encoded token has a plus.
        let _ = write!(name, "+{:032x}", fnv(token.as_bytes()));
    }
    name + ENDING
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_percent_encoded() {
        for (token, name) in [
            ("gpu-exclusive", "gpu-exclusive.lock"),
            ("A.b_c~1", "A.b_c~1.lock"),
            ("../etc/passwd", "..%2Fetc%2Fpasswd.lock"),
            ("..", "...lock"),
            ("", ".lock"),
            ("50% + \n", "50%25%20%2B%20%0A.lock"),
            ("gpu%2D", "gpu%252D.lock"),
            ("Größe", "Gr%C3%B6%C3%9Fe.lock"),
        ] {
            assert_eq!(file_name(token), name);
        }
    }

    #[test]
    fn every_token_has_a_name_that_a_file_can_have_and_no_two_have_the_same() {
        let longest = "x".repeat(LONGEST - ENDING.len());
        assert_eq!(file_name(&longest), format!("{longest}.lock"));
        let longer = format!("{longest}x");
        let name = file_name(&longer);
        assert_eq!(name, format!("{}+{:032x}.lock", &longer[..KEPT], fnv(longer.as_bytes())));
        assert_ne!(name, file_name(&format!("{longest}y")));
        for token in ["é".repeat(10_000), "/".repeat(85), "%".repeat(84)] {
            let name = file_name(&token);
            assert!(name.len() <= LONGEST && !name.contains('/'), "{name}");
        }
    }
}
