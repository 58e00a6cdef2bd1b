//! Setting `model` in the YAML text of a flow.
//!
//! The text is edited, not written anew: comments, layout, key order and the spelling of every
//! scalar stay, so a reader of YAML 1.1 (where `on` is a boolean and `0777` octal) sees what the
//! author wrote. Where an edit has to go depends on corners of the grammar, so each edit is a
//! proposal: the result is read back, and it stands if and only if it is the old document with
//! `model` set and nothing else changed.

mod document;

use std::ops::Range;

use document::{Document, ModelEntry};

use super::error::LaunchError;

/// `text` with the top-level key `model` set to `model`. Text that is not one mapping, or cannot be
/// read, is returned unchanged: the program that gets the file reports it.
///
/// # Errors
/// [`LaunchError::FlowYamlModel`] if no edit sets the model and leaves the rest alone.
pub(super) fn with_model(text: &str, model: &str) -> Result<String, LaunchError> {
    let Some(document) = Document::read(text) else { return Ok(text.to_owned()) };
    // Quoted, since a model may be called `on` or `1e3`.
    let value = format!("\"{model}\"");
    let replaced = replacements(text, &document, &value)
        .into_iter()
        .find(|edited| document.is_with_replaced(edited, model));
    let appended = || {
        let mut edits = appendices(text, &document, &value).into_iter();
        edits.find(|edited| document.is_with_appended(edited, model))
    };
    let prefixed = || {
        let edited = prefixed(text, &document, &value);
        document.is_with_prefixed(&edited, model).then_some(edited)
    };
    replaced.or_else(appended).or_else(prefixed).ok_or(LaunchError::FlowYamlModel)
}

/// The value of each `model` key replaced: exactly; or put where there was none; or, for a block
/// whose end the parser does not tell, with everything up to the next key.
fn replacements(text: &str, document: &Document<'_>, value: &str) -> Vec<String> {
    let entries = document.replaceable();
    if entries.is_empty() {
        return Vec::new();
    }
    let replace = |edit: &dyn Fn(&ModelEntry) -> (Range<usize>, String)| {
        let mut edited = text.to_owned();
        for (place, new) in entries.iter().rev().map(edit) {
            edited.replace_range(place, &new);
        }
        edited
    };
    let exact = |entry: &ModelEntry| (entry.value.clone(), value.to_owned());
    let absent = |entry: &ModelEntry| match colon_end(text, entry.key_end) {
        Some(at) => (at..at, format!(" {value}")),
        None => (entry.key_end..entry.key_end, format!(": {value}")),
    };
    let block = |entry: &ModelEntry| {
        let at = colon_end(text, entry.key_end).unwrap_or(entry.key_end);
        let next = if entry.next == text.len() { entry.next } else { line_start(text, entry.next) };
        (at..next.max(at), format!(" {value}\n"))
    };
    vec![replace(&exact), replace(&absent), replace(&block)]
}

/// The place after the colon of a key, if only white space is between.
fn colon_end(text: &str, key_end: usize) -> Option<usize> {
    let rest = &text[key_end..];
    let colon = rest.trim_start().strip_prefix(':')?;
    Some(text.len() - colon.len())
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |line_feed| line_feed + 1)
}

/// One more entry at the end of the mapping. Of two equal keys, YAML 1.1 readers take the last.
fn appendices(text: &str, document: &Document<'_>, value: &str) -> Vec<String> {
    let end = document.end();
    if document.is_flow() {
        return [", ", " ", ""]
            .map(|comma| insert(text, end, &format!("{comma}\"model\": {value}")))
            .into();
    }
    let indent = document.indent(text);
    let entry = format!("{indent}model: {value}\n");
    let line_feed = if text.ends_with('\n') { "" } else { "\n" };
    let at_end = insert(text, text.len(), &format!("{line_feed}{entry}"));
    vec![at_end, insert(text, line_start(text, end), &entry)]
}

/// One more entry at the start of a block mapping, for a text whose last value would change if
/// anything came after it.
fn prefixed(text: &str, document: &Document<'_>, value: &str) -> String {
    let indent = document.indent(text);
    insert(text, document.start(), &format!("model: {value}\n{indent}"))
}

fn insert(text: &str, at: usize, what: &str) -> String {
    let (before, after) = text.split_at(at);
    [before, what, after].concat()
}

#[cfg(test)]
mod tests;
