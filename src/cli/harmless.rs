//! Text that does nothing to a terminal but stand there.

use std::fmt::Write;

/// `text` on one line, with every character escaped that could move the cursor, hide text or turn it around.
pub(super) fn harmless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_harmful(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// Bytes on their way to a terminal: lines and tabs stay, all else that is harmful is escaped.
#[derive(Debug, Default)]
pub(super) struct Terminal {
    /// The beginning of a character whose end has not come yet.
    begun: Vec<u8>,
}

impl Terminal {
    /// What the terminal is to be given of the next bytes.
    pub(super) fn harmless(&mut self, bytes: &[u8]) -> String {
        self.begun.extend_from_slice(bytes);
        let bytes = std::mem::take(&mut self.begun);
        let mut out = String::with_capacity(bytes.len());
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            for c in chunk.valid().chars() {
                if is_harmful(c) && !matches!(c, '\n' | '\t') {
                    out.extend(c.escape_default());
                } else {
                    out.push(c);
                }
            }
            let rest = chunk.invalid();
            let unfinished = str::from_utf8(rest).is_err_and(|error| error.error_len().is_none());
            if chunks.peek().is_none() && unfinished {
                self.begun = rest.to_vec();
            } else if !rest.is_empty() {
                out.push(char::REPLACEMENT_CHARACTER);
            }
        }
        out
    }
}

/// The nine bidirectional controls, what has no width, the separators of lines, and tags, beside the controls proper.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// As [`harmless`], for JSON on one line. What is harmful can only stand inside a string there, where JSON has an
/// escape for it.
pub(super) fn harmless_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_harmful(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_lines_and_tabs_and_no_controls_however_the_bytes_are_cut() {
        let bytes = "a\tb\u{1b}[2J\r\nä€😀\u{202e}x".as_bytes();
        let expected = "a\tb\\u{1b}[2J\\r\nä€😀\\u{202e}x";
        for size in 1..=bytes.len() {
            let mut terminal = Terminal::default();
            let seen: String = bytes.chunks(size).map(|piece| terminal.harmless(piece)).collect();
            assert_eq!(seen, expected, "in pieces of {size}");
        }
        let mut terminal = Terminal::default();
        assert_eq!(terminal.harmless(b"a\xffb\xe2\x82"), "a\u{fffd}b");
        assert_eq!(terminal.harmless(b"c"), "\u{fffd}c");
    }
}
