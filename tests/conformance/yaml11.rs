//! YAML text as a YAML 1.1 reader sees it, for comparing texts that are written differently.
//!
//! Timestamps are compared as text. Of equal keys the last one counts, and keys have no order.

use std::collections::{BTreeMap, HashMap};

use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, Tag, options};

/// A value. Floats are kept as their bits, so that values can be keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Yaml {
    Null,
    Bool(bool),
    Int(i128),
    Float(u64),
    Text(String),
    List(Vec<Yaml>),
    Map(BTreeMap<Yaml, Yaml>),
}

/// Reads one document; an empty text is null.
pub(crate) fn read(text: &str) -> Result<Yaml, String> {
    let options = options! { block_scalar_eof_without_line_feed: true };
    let events: Result<Vec<_>, _> = Parser::new_from_str_with_options(text, options).collect();
    let events = events.map_err(|error| error.to_string())?.into_iter().map(|(event, _)| event);
    let content = events.filter(|event| {
        !matches!(
            event,
            Event::StreamStart | Event::StreamEnd | Event::DocumentStart(..) | Event::DocumentEnd
        )
    });
    let mut reader = Reader { events: content.peekable(), anchors: HashMap::new() };
    if reader.events.peek().is_none() {
        return Ok(Yaml::Null);
    }
    let value = reader.node()?;
    match reader.events.next() {
        None => Ok(value),
        Some(_) => Err("more than one document".to_owned()),
    }
}

struct Reader<'a, I: Iterator<Item = Event<'a>>> {
    events: std::iter::Peekable<I>,
    anchors: HashMap<usize, Yaml>,
}

impl<'a, I: Iterator<Item = Event<'a>>> Reader<'a, I> {
    fn node(&mut self) -> Result<Yaml, String> {
        let (anchor, value) = match self.events.next().ok_or("the events end early")? {
            Event::Alias(anchor) => {
                return self.anchors.get(&anchor).cloned().ok_or("unknown alias".to_owned());
            }
            Event::Scalar(text, style, anchor, tag) => {
                (anchor, scalar(&text, style, tag.as_deref()))
            }
            Event::SequenceStart(_, anchor, _) => {
                let mut items = Vec::new();
                while !self.at(&Event::SequenceEnd) {
                    items.push(self.node()?);
                }
                (anchor, Yaml::List(items))
            }
            Event::MappingStart(_, anchor, _) => (anchor, self.mapping()?),
            other => return Err(format!("unexpected {other:?}")),
        };
        if anchor != 0 {
            self.anchors.insert(anchor, value.clone());
        }
        Ok(value)
    }

    fn mapping(&mut self) -> Result<Yaml, String> {
        let mut own = BTreeMap::new();
        let mut merged = Vec::new();
        while !self.at(&Event::MappingEnd) {
            let plain_merge = matches!(
                self.events.peek(),
                Some(Event::Scalar(text, ScalarStyle::Plain, ..)) if text == "<<"
            );
            let key = self.node()?;
            let value = self.node()?;
            match value {
                Yaml::Map(base) if plain_merge => merged.push(base),
                Yaml::List(bases) if plain_merge => {
                    merged.extend(bases.into_iter().filter_map(|base| match base {
                        Yaml::Map(base) => Some(base),
                        _ => None,
                    }));
                }
                value => drop(own.insert(key, value)),
            }
        }
        for (key, value) in merged.into_iter().flatten() {
            own.entry(key).or_insert(value);
        }
        Ok(Yaml::Map(own))
    }

    fn at(&mut self, end: &Event<'_>) -> bool {
        self.events.next_if(|event| event == end).is_some()
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Yaml {
    match tag.map(Tag::suffix) {
        None if style == ScalarStyle::Plain => resolve(text),
        Some("null") => Yaml::Null,
        Some("int" | "bool") => resolve(text),
        Some("float") => text.parse().map_or_else(|_| resolve(text), float),
        Some("binary") => Yaml::Text(text.split_whitespace().collect()),
        _ => Yaml::Text(text.to_owned()),
    }
}

fn resolve(text: &str) -> Yaml {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Yaml::Null,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Yaml::Bool(true),
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Yaml::Bool(false)
        }
        ".nan" | ".NaN" | ".NAN" => float(f64::NAN),
        _ => number(text).unwrap_or_else(|| Yaml::Text(text.to_owned())),
    }
}

fn number(text: &str) -> Option<Yaml> {
    let negative = text.starts_with('-');
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") {
        return Some(float(if negative { f64::NEG_INFINITY } else { f64::INFINITY }));
    }
    let digits = unsigned.replace('_', "");
    let sign = if negative { -1 } else { 1 };
    if let Some(value) = integer(unsigned, &digits) {
        return Some(Yaml::Int(value * i128::from(sign)));
    }
    let value = real(unsigned, text.len() != unsigned.len(), &digits)?;
    Some(float(value * f64::from(sign)))
}

fn integer(unsigned: &str, digits: &str) -> Option<i128> {
    if unsigned.starts_with('_') {
        return None;
    }
    let radix = |prefix: &str, radix| {
        let rest = digits.strip_prefix(prefix).filter(|rest| !rest.starts_with(['+', '-']))?;
        i128::from_str_radix(rest, radix).ok()
    };
    let decimal = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    match digits {
        "0" => Some(0),
        _ if digits.starts_with("0b") => radix("0b", 2),
        _ if digits.starts_with("0x") => radix("0x", 16),
        _ if digits.starts_with('0') => radix("0", 8),
        _ if decimal => digits.parse().ok(),
        _ => sexagesimal(digits),
    }
}

/// `1:30` is ninety.
fn sexagesimal(digits: &str) -> Option<i128> {
    let mut parts = digits.split(':');
    let mut total: i128 = parts.next()?.parse().ok()?;
    let mut count = 0;
    for part in parts {
        let value: i128 = part.parse().ok().filter(|value| *value < 60 && part.len() <= 2)?;
        total = total.checked_mul(60)?.checked_add(value)?;
        count += 1;
    }
    (count > 0).then_some(total)
}

/// A float has a point; an exponent needs a sign, and a leading point allows none in front.
fn real(unsigned: &str, signed: bool, digits: &str) -> Option<f64> {
    let (mantissa, exponent) = match digits.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent),
        None => (digits, "+0"),
    };
    let (whole, fraction) = mantissa.split_once('.')?;
    let numeric = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let well_formed = numeric(whole) && numeric(fraction) && exponent.starts_with(['+', '-']);
    let starts_well = match whole.is_empty() {
        true => !signed && !fraction.is_empty() && !unsigned.starts_with("._"),
        false => !unsigned.starts_with('_'),
    };
    let zero = if fraction.is_empty() { "0" } else { "" };
    (well_formed && starts_well)
        .then(|| format!("0{whole}.{fraction}{zero}e{exponent}").parse().ok())
        .flatten()
}

fn float(value: f64) -> Yaml {
    Yaml::Float(if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() })
}

#[test]
fn scalars_are_those_of_yaml_1_1() {
    let same = [
        ("on: 0x1F", "true: 31"),
        ("a: 0777", "a: 511"),
        ("a: 1:30", "a: 90"),
        ("a: 1_000", "a: 1000"),
        ("a: ~", "a: null"),
        ("a: 1.50", "a: +1.5"),
        ("a: 1.5e+3", "a: 1500.0"),
        ("b: 1\na: 2\na: 3", "{a: 3, b: 1}"),
        ("x: &x {a: 1, b: 2}\ny: {<<: *x, a: 3}", "{x: {b: 2, a: 1}, y: {a: 3, b: 2}}"),
    ];
    for (left, right) in same {
        assert_eq!(read(left), read(right), "{left} | {right}");
    }
    for (left, right) in [("a: 1", "a: 1.0"), ("a: '1'", "a: 1"), ("a: 1e3", "a: 1000.0")] {
        assert_ne!(read(left), read(right), "{left} | {right}");
    }
}
