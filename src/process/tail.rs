//! The last bytes of a stream, in bounded memory.

/// How many bytes of each stream are kept.
pub const TAIL_BYTES: usize = 2048;

/// The last [`TAIL_BYTES`] bytes of a stream, and how many there were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    kept: Vec<u8>,
    total: u64,
}

impl Tail {
    /// The bytes that were kept, oldest first, untouched.
    pub fn bytes(&self) -> &[u8] {
        &self.kept
    }

    /// How many bytes were written in all.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The kept bytes as text: what is not UTF-8, a character cut by the window included, becomes
    /// U+FFFD, and so does U+0000, which stores refuse.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.kept).replace('\0', "\u{fffd}")
    }

    /// The tail of a stream that somebody else has read.
    #[cfg(target_os = "linux")]
    pub(super) fn of(kept: Vec<u8>, total: u64) -> Self {
        Self { kept, total }
    }

    pub(super) fn push(&mut self, chunk: &[u8]) {
        self.total = self.total.saturating_add(chunk.len() as u64);
        let chunk = &chunk[chunk.len().saturating_sub(TAIL_BYTES)..];
        let overflow = (self.kept.len() + chunk.len()).saturating_sub(TAIL_BYTES);
        self.kept.drain(..overflow);
        self.kept.extend_from_slice(chunk);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keeps_the_end_whatever_the_chunks(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3000), 0..8)
        ) {
            let mut tail = Tail::default();
            for chunk in &chunks {
                tail.push(chunk);
                prop_assert!(tail.kept.capacity() <= 2 * TAIL_BYTES);
            }
            let all = chunks.concat();
            prop_assert_eq!(tail.bytes(), &all[all.len().saturating_sub(TAIL_BYTES)..]);
            prop_assert_eq!(tail.total(), all.len() as u64);
        }
    }

    #[test]
    fn text_replaces_a_cut_character_and_nul() {
        let mut tail = Tail::default();
        tail.push("é".repeat(1024).as_bytes());
        tail.push(b"\0");
        let text = tail.text();
        assert!(text.starts_with("\u{fffd}é"), "{text:?}");
        assert!(text.ends_with("é\u{fffd}"), "{text:?}");
        assert_eq!(text.chars().count(), 1025);
    }
}
