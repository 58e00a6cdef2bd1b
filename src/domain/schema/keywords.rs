//! Which keywords there are, and what each of them must hold.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::number::Num;
use super::{DEEPEST, MOST_PATTERNS, pattern, resolve};

/// What a keyword must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Schema,
    Schemas,
    SchemaMap,
    PatternMap,
    Number,
    Positive,
    Count,
    Flag,
    Pattern,
    Reference,
    Names,
    NameMap,
    Types,
    List,
    Dialect,
    Anything,
}

const KEYWORDS: [(&str, Form); 51] = [
    ("$schema", Form::Dialect),
    ("$id", Form::Anything),
    ("$comment", Form::Anything),
    ("$defs", Form::SchemaMap),
    ("definitions", Form::SchemaMap),
    ("$ref", Form::Reference),
    ("title", Form::Anything),
    ("description", Form::Anything),
    ("default", Form::Anything),
    ("examples", Form::Anything),
    ("deprecated", Form::Anything),
    ("readOnly", Form::Anything),
    ("writeOnly", Form::Anything),
    ("format", Form::Anything),
    ("contentMediaType", Form::Anything),
    ("contentEncoding", Form::Anything),
    ("type", Form::Types),
    ("enum", Form::List),
    ("const", Form::Anything),
    ("multipleOf", Form::Positive),
    ("maximum", Form::Number),
    ("exclusiveMaximum", Form::Number),
    ("minimum", Form::Number),
    ("exclusiveMinimum", Form::Number),
    ("maxLength", Form::Count),
    ("minLength", Form::Count),
    ("pattern", Form::Pattern),
    ("prefixItems", Form::Schemas),
    ("items", Form::Schema),
    ("contains", Form::Schema),
    ("maxContains", Form::Count),
    ("minContains", Form::Count),
    ("maxItems", Form::Count),
    ("minItems", Form::Count),
    ("uniqueItems", Form::Flag),
    ("properties", Form::SchemaMap),
    ("patternProperties", Form::PatternMap),
    ("additionalProperties", Form::Schema),
    ("propertyNames", Form::Schema),
    ("required", Form::Names),
    ("maxProperties", Form::Count),
    ("minProperties", Form::Count),
    ("dependentRequired", Form::NameMap),
    ("dependentSchemas", Form::SchemaMap),
    ("allOf", Form::Schemas),
    ("anyOf", Form::Schemas),
    ("oneOf", Form::Schemas),
    ("not", Form::Schema),
    ("if", Form::Schema),
    ("then", Form::Schema),
    ("else", Form::Schema),
];

/// The dialects in which the keywords above mean the same.
const DIALECTS: [&str; 3] = ["/draft/2020-12/schema", "/draft/2019-09/schema", "/draft-07/schema"];

const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

/// Why a schema cannot be used.
pub(super) fn refusal(root: &Value) -> Option<String> {
    let mut look = Look { found: BTreeSet::new(), references: Vec::new(), patterns: 0 };
    let refused = look.schema(root, String::new(), 0).err();
    refused.or_else(|| {
        let loose = look.references.iter().find(|(_, target)| {
            resolve(root, target).is_none_or(|target| !look.found.contains(&address(target)))
        });
        loose.map(|(at, target)| {
            format!("{target:?} at {:?} leads to no schema in it: only #, #/$defs/NAME and the like are followed", shown(at))
        })
    })
}

struct Look<'a> {
    /// Where there are schemas.
    found: BTreeSet<usize>,
    /// Places, and what is referred to there.
    references: Vec<(String, &'a str)>,
    patterns: usize,
}

/// Every part of a document has a place of its own.
fn address(value: &Value) -> usize {
    std::ptr::from_ref(value).addr()
}

fn shown(at: &str) -> String {
    format!("#{}", at.chars().take(100).collect::<String>())
}

impl<'a> Look<'a> {
    fn schema(&mut self, schema: &'a Value, at: String, depth: usize) -> Result<(), String> {
        if depth > DEEPEST {
            return Err(format!("its schemas are nested in each other more than {DEEPEST} times"));
        }
        self.found.insert(address(schema));
        match schema {
            Value::Bool(_) => Ok(()),
            Value::Object(members) => members.iter().try_for_each(|(name, value)| {
                self.keyword(name, value, format!("{at}/{name}"), depth)
            }),
            _ => Err(format!(
                "what stands at {:?} is no schema: an object, true or false",
                shown(&at)
            )),
        }
    }

    fn keyword(
        &mut self,
        name: &str,
        value: &'a Value,
        at: String,
        depth: usize,
    ) -> Result<(), String> {
        let place = shown(&at);
        let Some((_, form)) = KEYWORDS.iter().find(|(known, _)| *known == name) else {
            return Err(format!("the keyword at {place:?} is not known here"));
        };
        let must = |what: &str| Err(format!("what stands at {place:?} must be {what}"));
        let each = |look: &mut Self, members: &'a Map<String, Value>| {
            members.iter().try_for_each(|(name, schema)| {
                look.schema(schema, format!("{at}/{name}"), depth + 1)
            })
        };
        match (form, value) {
            (Form::Anything, _) | (Form::Flag, Value::Bool(_)) | (Form::List, Value::Array(_)) => {
                Ok(())
            }
            (Form::Dialect, Value::String(dialect)) => {
                let dialect = dialect.trim_end_matches('#');
                match DIALECTS.iter().any(|known| dialect.ends_with(known)) {
                    true => Ok(()),
                    false => must(
                        "a dialect that is known here, such as https://json-schema.org/draft/2020-12/schema",
                    ),
                }
            }
            (Form::Schema, schema) => self.schema(schema, at, depth + 1),
            (Form::Schemas, Value::Array(all)) if !all.is_empty() => all
                .iter()
                .enumerate()
                .try_for_each(|(i, schema)| self.schema(schema, format!("{at}/{i}"), depth + 1)),
            (Form::SchemaMap, Value::Object(members)) => each(self, members),
            (Form::PatternMap, Value::Object(members)) => {
                self.count_patterns(members.len())?;
                match members.keys().all(|text| pattern(text).is_some()) {
                    true => each(self, members),
                    false => must(
                        "an object whose names are patterns, without look-around and back references",
                    ),
                }
            }
            (Form::Number, Value::Number(_)) => Ok(()),
            (Form::Positive, Value::Number(number))
                if Num::of(number).compare(Num::Whole(0)) == Some(std::cmp::Ordering::Greater) =>
            {
                Ok(())
            }
            (Form::Count, Value::Number(number)) if matches!(Num::of(number), Num::Whole(0..)) => {
                Ok(())
            }
            (Form::Pattern, Value::String(text)) if pattern(text).is_some() => {
                self.count_patterns(1)
            }
            (Form::Reference, Value::String(target)) => {
                self.references.push((at, target));
                Ok(())
            }
            (Form::Names, names) if is_names(names) => Ok(()),
            (Form::NameMap, Value::Object(members)) if members.values().all(is_names) => Ok(()),
            (Form::Types, Value::String(word)) if TYPES.contains(&word.as_str()) => Ok(()),
            (Form::Types, Value::Array(words)) if words.iter().all(is_type) => Ok(()),
            (Form::Schemas, _) => must("an array of schemas that is not empty"),
            (Form::SchemaMap | Form::PatternMap, _) => must("an object of schemas"),
            (Form::Number, _) => must("a number"),
            (Form::Positive, _) => must("a number greater than 0"),
            (Form::Count, _) => must("a whole number, 0 or greater"),
            (Form::Flag, _) => must("true or false"),
            (Form::Pattern, _) => {
                must("a pattern without look-around and back references, and not too large")
            }
            (Form::Reference | Form::Dialect, _) => must("a string"),
            (Form::Names, _) => must("an array of strings"),
            (Form::NameMap, _) => must("an object of arrays of strings"),
            (Form::Types, _) => must("one of the seven types of JSON, or an array of them"),
            (Form::List, _) => must("an array"),
        }
    }
}

impl Look<'_> {
    fn count_patterns(&mut self, more: usize) -> Result<(), String> {
        self.patterns += more;
        match self.patterns > MOST_PATTERNS {
            true => Err(format!("it has more than {MOST_PATTERNS} patterns")),
            false => Ok(()),
        }
    }
}

fn is_names(value: &Value) -> bool {
    value.as_array().is_some_and(|names| names.iter().all(Value::is_string))
}

fn is_type(value: &Value) -> bool {
    value.as_str().is_some_and(|word| TYPES.contains(&word))
}
