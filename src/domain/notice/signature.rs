//! The signature of a notice, by the convention of Standard Webhooks: HMAC-SHA256 over the id, the time and the body.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use thiserror::Error;

/// The prefix of a key that is written in base64.
const PREFIX: &str = "whsec_";
/// A shorter key could be guessed.
const SHORTEST: usize = 16;

/// A key that sender and receiver share. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey(Vec<u8>);

/// Why a text is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum KeyRefusal {
    /// What follows the prefix cannot be read.
    #[error("what follows whsec_ is no base64: copy the whole key")]
    NotBase64,
    /// It is too short.
    #[error("it has fewer than 16 bytes: make one with `openssl rand -base64 32`")]
    TooShort,
}

impl SigningKey {
    /// Reads a key: `whsec_` and base64, or any other text for its own bytes. White space around it does not count.
    ///
    /// # Errors
    /// It is too short, or no base64.
    pub fn parse(text: &[u8]) -> Result<SigningKey, KeyRefusal> {
        let text = text.trim_ascii();
        let key = match text.strip_prefix(PREFIX.as_bytes()) {
            Some(encoded) => STANDARD.decode(encoded).map_err(|_| KeyRefusal::NotBase64)?,
            None => text.to_vec(),
        };
        if key.len() < SHORTEST { Err(KeyRefusal::TooShort) } else { Ok(SigningKey(key)) }
    }

    /// The value of the header `webhook-signature` for a message with this id that is sent at this time, in whole seconds
    /// since the epoch.
    ///
    /// ```
    /// use leasehold::domain::notice::SigningKey;
    /// let key = SigningKey::parse(b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    /// assert_eq!(
    ///     key.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, br#"{"test": 2432232314}"#),
    ///     "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    /// );
    /// ```
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        // A key of any length will do.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else { return String::new() };
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hmac_is_the_one_of_rfc_4231() {
        // Test case 2 has a key that is too short for us, so case 6: a key longer than a block.
        let mut mac = Hmac::<Sha256>::new_from_slice(&[0xaa; 131]).unwrap();
        mac.update(b"Test Using Larger Than Block-Size Key - Hash Key First");
        let sum: String =
            mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(sum, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    }

    #[test]
    fn id_time_body_and_key_all_count() {
        let key = SigningKey::parse(b"0123456789abcdef\n").unwrap();
        let signed = key.sign("e", 1, b"{}");
        let other = SigningKey::parse(b"0123456789abcdeg").unwrap();
        for another in [
            key.sign("f", 1, b"{}"),
            key.sign("e", 2, b"{}"),
            key.sign("e", 1, b"[]"),
            other.sign("e", 1, b"{}"),
        ] {
            assert_ne!(signed, another);
        }
        assert_eq!(key, SigningKey::parse(b" 0123456789abcdef ").unwrap());
    }

    #[test]
    fn what_is_no_key_is_refused_and_one_is_never_shown() {
        assert_eq!(SigningKey::parse(b"short"), Err(KeyRefusal::TooShort));
        assert_eq!(SigningKey::parse(b"whsec_"), Err(KeyRefusal::TooShort));
        assert_eq!(SigningKey::parse(b"whsec_***"), Err(KeyRefusal::NotBase64));
        let key = SigningKey::parse(b"0123456789abcdef").unwrap();
        assert!(!format!("{key:?}").contains("0123"));
    }
}
