//! A YAML text whose content is one mapping, as a list of parser events.

use std::ops::Range;

use serde_saphyr::granit_parser::{
    Event, Options, Parser, ScalarStyle, Span, StructureStyle, Tag, options,
};

/// The content of a YAML text: the events of its only document, from the start of the root mapping
/// to its end.
pub(super) struct Document<'a> {
    nodes: Vec<Node<'a>>,
}

/// An event with its place in the text, in bytes. A tag stands before the place.
struct Node<'a> {
    event: Event<'a>,
    place: Range<usize>,
    tag_start: Option<usize>,
}

/// Where a `model` entry stands in the text, in bytes.
pub(super) struct ModelEntry {
    pub(super) key_end: usize,
    /// The value with its tag. Of an absent value, a place with no meaning.
    pub(super) value: Range<usize>,
    /// Where the next key starts, or the root ends.
    pub(super) next: usize,
}

/// One entry of the root mapping, as indices of events.
struct Entry {
    key: usize,
    value: Range<usize>,
}

impl<'a> Node<'a> {
    fn new(event: Event<'a>, span: &Span) -> Option<Self> {
        let tag_start = span.tag_start().and_then(|tag| tag.byte_offset());
        Some(Self { event, place: span.byte_range()?, tag_start })
    }

    fn has_anchor(&self) -> bool {
        match self.event {
            Event::Scalar(_, _, anchor, _)
            | Event::SequenceStart(_, anchor, _)
            | Event::MappingStart(_, anchor, _) => anchor != 0,
            _ => false,
        }
    }
}

impl<'a> Document<'a> {
    /// Reads the text as the safe loader of a YAML 1.1 reader does. `None` if it would not yield
    /// one mapping: a syntax error, several documents, another root, a tag outside YAML's own, or
    /// a collection as a key.
    pub(super) fn read(text: &'a str) -> Option<Self> {
        if !text.chars().all(is_allowed) {
            return None;
        }
        let mut nodes = Vec::new();
        let mut documents = 0;
        for item in Parser::new_from_str_with_options(text, parser_options()) {
            let (event, span) = item.ok()?;
            match event {
                Event::DocumentStart(..) => documents += 1,
                Event::Alias(_)
                | Event::Scalar(..)
                | Event::SequenceStart(..)
                | Event::SequenceEnd
                | Event::MappingStart(..)
                | Event::MappingEnd => nodes.push(Node::new(event, &span)?),
                _ => {}
            }
        }
        let document = Self { nodes };
        (documents == 1 && document.is_loadable()).then_some(document)
    }

    /// Whether `edited` is this document with the value of each `model` key replaced.
    pub(super) fn is_with_replaced(&self, edited: &str, model: &str) -> bool {
        let mut expected = Vec::new();
        let mut next = 0;
        for entry in self.model_entries() {
            expected.extend(self.events(next..entry.value.start));
            expected.push(quoted(model));
            next = entry.value.end;
        }
        expected.extend(self.events(next..self.nodes.len()));
        reads_as(edited, &expected)
    }

    /// Whether `edited` is this document with one more entry at the end.
    pub(super) fn is_with_appended(&self, edited: &str, model: &str) -> bool {
        let Some(last) = self.nodes.len().checked_sub(1) else { return false };
        let mut expected: Vec<_> = self.events(0..last).collect();
        let key = if self.is_flow() { quoted("model") } else { plain("model") };
        expected.extend([key, quoted(model), Event::MappingEnd]);
        reads_as(edited, &expected)
    }

    /// Whether `edited` is this document with one more entry at the start, and no later key could
    /// be the same.
    pub(super) fn is_with_prefixed(&self, edited: &str, model: &str) -> bool {
        let repeats = |entry: Entry| self.is_model(entry.key) || self.is_alias(entry.key);
        if self.entries().into_iter().any(repeats) {
            return false;
        }
        let mut expected: Vec<_> = self.events(0..1).collect();
        expected.extend([plain("model"), quoted(model)]);
        expected.extend(self.events(1..self.nodes.len()));
        reads_as(edited, &expected)
    }

    /// The `model` entries of the root; none if replacing their values would not do, since an alias
    /// elsewhere may refer to one of them, or a key is an alias itself.
    pub(super) fn replaceable(&self) -> Vec<ModelEntry> {
        let entries = self.entries();
        let anchored = |entry: &Entry| self.nodes[entry.value.clone()].iter().any(Node::has_anchor);
        let in_the_way = |entry: &Entry| {
            self.is_alias(entry.key) || (self.is_model(entry.key) && anchored(entry))
        };
        if entries.iter().any(in_the_way) {
            return Vec::new();
        }
        let models = entries.iter().filter(|entry| self.is_model(entry.key));
        models.map(|entry| self.model_entry(entry)).collect()
    }

    fn model_entry(&self, entry: &Entry) -> ModelEntry {
        let value = &self.nodes[entry.value.clone()];
        let start = value.first().map_or(0, |node| node.tag_start.unwrap_or(node.place.start));
        let end = value.last().map_or(start, |node| node.place.end);
        ModelEntry {
            key_end: self.nodes[entry.key].place.end,
            value: start..end.max(start),
            next: self.nodes.get(entry.value.end).map_or(end, |node| node.place.start),
        }
    }

    /// Whether the root is written in braces.
    pub(super) fn is_flow(&self) -> bool {
        matches!(
            self.nodes.first().map(|node| &node.event),
            Some(Event::MappingStart(StructureStyle::Flow, ..))
        )
    }

    /// Where the root mapping starts.
    pub(super) fn start(&self) -> usize {
        self.nodes.first().map_or(0, |node| node.place.start)
    }

    /// Where the root mapping ends: at its closing brace, or where the next thing starts.
    pub(super) fn end(&self) -> usize {
        self.nodes.last().map_or(0, |node| node.place.start)
    }

    /// The spaces in front of each key of a block mapping.
    pub(super) fn indent<'t>(&self, text: &'t str) -> &'t str {
        let before = &text[..self.start()];
        &before[before.trim_end_matches(' ').len()..]
    }

    fn events(&self, range: Range<usize>) -> impl Iterator<Item = Event<'a>> {
        self.nodes[range].iter().map(|node| node.event.clone())
    }

    fn model_entries(&self) -> Vec<Entry> {
        self.entries().into_iter().filter(|entry| self.is_model(entry.key)).collect()
    }

    fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        let mut key = 1;
        while key + 1 < self.nodes.len() {
            let value = self.node_end(key);
            let next = self.node_end(value);
            entries.push(Entry { key, value: value..next });
            key = next;
        }
        entries
    }

    /// The index after the node that starts at `index`.
    fn node_end(&self, index: usize) -> usize {
        let mut depth = 0_usize;
        for (offset, node) in self.nodes[index..].iter().enumerate() {
            match node.event {
                Event::SequenceStart(..) | Event::MappingStart(..) => depth += 1,
                Event::SequenceEnd | Event::MappingEnd => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                return index + offset + 1;
            }
        }
        self.nodes.len()
    }

    fn is_model(&self, index: usize) -> bool {
        match &self.nodes[index].event {
            Event::Scalar(text, _, _, tag) => {
                text == "model" && tag.as_deref().is_none_or(|tag| is_one_of(tag, &["str"]))
            }
            _ => false,
        }
    }

    fn is_alias(&self, index: usize) -> bool {
        matches!(self.nodes[index].event, Event::Alias(_))
    }

    fn is_loadable(&self) -> bool {
        let root_is_mapping = match self.nodes.first().map(|node| &node.event) {
            Some(Event::MappingStart(_, _, tag)) => {
                tag.as_deref().is_none_or(|tag| is_one_of(tag, &["map"]))
            }
            _ => false,
        };
        root_is_mapping
            && self.nodes.iter().all(|node| has_known_tag(&node.event))
            && self.has_hashable_keys()
    }

    fn has_hashable_keys(&self) -> bool {
        // For each open collection: is a key next? A sequence has none.
        let mut open: Vec<Option<bool>> = Vec::new();
        let mut collections = Vec::new();
        for Node { event, .. } in &self.nodes {
            let (collection, frame) = match event {
                Event::SequenceStart(_, anchor, _) => (Some(*anchor), None),
                Event::MappingStart(_, anchor, _) => (Some(*anchor), Some(true)),
                Event::Alias(anchor) => (collections.contains(anchor).then_some(*anchor), None),
                Event::Scalar(..) => (None, None),
                _ => {
                    open.pop();
                    continue;
                }
            };
            if let Some(Some(key_is_next)) = open.last_mut() {
                if *key_is_next && collection.is_some() {
                    return false;
                }
                *key_is_next = !*key_is_next;
            }
            if matches!(event, Event::SequenceStart(..) | Event::MappingStart(..)) {
                collections.extend(collection.filter(|anchor| *anchor != 0));
                open.push(frame);
            }
        }
        true
    }
}

/// Both settings follow the readers in use, where the grammar's later text differs.
fn parser_options() -> Options {
    let mut options = options! {
        block_scalar_eof_without_line_feed: true,
        bom_inside_document_as_content: true,
    };
    options.set_emit_comments(false);
    options
}

fn reads_as(text: &str, expected: &[Event<'_>]) -> bool {
    Document::read(text).is_some_and(|document| {
        document.nodes.len() == expected.len()
            && document.nodes.iter().zip(expected).all(|(node, wanted)| node.event == *wanted)
    })
}

fn has_known_tag(event: &Event<'_>) -> bool {
    const SCALARS: [&str; 8] =
        ["str", "null", "bool", "int", "float", "binary", "timestamp", "merge"];
    match event {
        Event::Scalar(_, _, _, Some(tag)) => is_one_of(tag, &SCALARS),
        Event::SequenceStart(_, _, Some(tag)) => is_one_of(tag, &["seq", "omap", "pairs"]),
        Event::MappingStart(_, _, Some(tag)) => is_one_of(tag, &["map", "set"]),
        _ => true,
    }
}

/// Whether the tag is one of YAML's own with these names, or the bare `!`, which stands for the
/// plain kind of the node.
fn is_one_of(tag: &Tag, names: &[&str]) -> bool {
    let full = [tag.handle(), tag.suffix()].concat();
    full == "!" || full.strip_prefix("tag:yaml.org,2002:").is_some_and(|name| names.contains(&name))
}

/// Characters a YAML text may contain.
fn is_allowed(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{7e}' | '\u{85}' | '\u{a0}'..='\u{fffd}')
        || c > '\u{ffff}'
}

fn plain(text: &str) -> Event<'_> {
    Event::Scalar(text.into(), ScalarStyle::Plain, 0, None)
}

fn quoted(text: &str) -> Event<'_> {
    Event::Scalar(text.into(), ScalarStyle::DoubleQuoted, 0, None)
}
