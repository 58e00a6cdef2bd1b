//! Holds a document against a schema, and counts every step.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::atomic::{self, AtomicBool};

use regex_lite::Regex;
use serde_json::{Map, Value};

use super::number::Num;
use super::place::Place;
use super::simple::{counted, is_of_type, list_of, map_of, number_fits, type_of};
use super::{DEEPEST, Misfit, pattern, resolve};

/// Longer texts are not matched against a pattern.
const LONGEST_MATCHED: usize = 64 << 10;
/// What a pattern costs at the least for each byte that it is matched against, and its own length more.
const PATTERN_STEPS: u64 = 8;

/// What one schema costs: a look for each of its keywords.
const SCHEMA_STEPS: u64 = 10;

pub(super) type Verdict = Result<(), Misfit>;

pub(super) struct Judgement<'a> {
    root: &'a Value,
    steps: u64,
    stop: &'a AtomicBool,
    patterns: HashMap<&'a str, Option<Regex>>,
}

impl<'a> Judgement<'a> {
    pub fn new(root: &'a Value, steps: u64, stop: &'a AtomicBool) -> Judgement<'a> {
        Judgement { root, steps, stop, patterns: HashMap::new() }
    }

    pub fn judge(mut self, document: &Value) -> Verdict {
        self.visit(self.root, document, &Place::TOP, 0)
    }

    fn spend(&mut self, steps: u64) -> Verdict {
        if self.stop.load(atomic::Ordering::Relaxed) {
            return Err(Misfit::Undecided("the judgement took too long"));
        }
        self.steps = self
            .steps
            .checked_sub(steps)
            .ok_or(Misfit::Undecided("to hold it against the schema takes too many steps"))?;
        Ok(())
    }

    fn visit(&mut self, schema: &'a Value, value: &Value, at: &Place<'_>, depth: usize) -> Verdict {
        self.spend(SCHEMA_STEPS)?;
        if depth > DEEPEST {
            return Err(Misfit::Undecided("the schemas lead into each other too often"));
        }
        let members = match schema {
            Value::Bool(true) => return Ok(()),
            Value::Object(members) => members,
            _ => return at.differs("is not wanted"),
        };
        if let Some(target) = members.get("$ref").and_then(Value::as_str) {
            let target = resolve(self.root, target)
                .ok_or(Misfit::Undecided("the schema refers to what is not in it"))?;
            self.visit(target, value, at, depth + 1)?;
        }
        self.general(members, value, at)?;
        match value {
            Value::Number(number) => number_fits(members, Num::of(number), at)?,
            Value::String(text) => self.text(members, text, at)?,
            Value::Array(items) => self.array(members, items, at, depth)?,
            Value::Object(_) => self.object(members, value, at, depth)?,
            Value::Null | Value::Bool(_) => {}
        }
        self.combined(members, value, at, depth)
    }

    /// Whether it fits, where that is no end of the judgement.
    fn does_fit(
        &mut self,
        schema: &'a Value,
        value: &Value,
        at: &Place<'_>,
        depth: usize,
    ) -> Result<bool, Misfit> {
        match self.visit(schema, value, at, depth + 1) {
            Ok(()) => Ok(true),
            Err(Misfit::Differs(_)) => Ok(false),
            Err(undecided) => Err(undecided),
        }
    }

    fn general(
        &mut self,
        members: &'a Map<String, Value>,
        value: &Value,
        at: &Place<'_>,
    ) -> Verdict {
        let is = |word: &Value| word.as_str().is_some_and(|word| is_of_type(value, word));
        match members.get("type") {
            Some(Value::Array(words)) if !words.iter().any(is) => {
                return at.differs(&format!("is {}, which is none of its types", type_of(value)));
            }
            Some(word @ Value::String(name)) if !is(word) => {
                return at.differs(&format!("is {}, and must be {name}", type_of(value)));
            }
            _ => {}
        }
        if let Some(Value::Array(all)) = members.get("enum") {
            let mut found = false;
            for one in all {
                found = found || self.equal(one, value)?;
            }
            if !found {
                return at.differs("is none of the values that are allowed");
            }
        }
        match members.get("const") {
            Some(one) if !self.equal(one, value)? => at.differs("is not the value that it must be"),
            _ => Ok(()),
        }
    }

    fn text(&mut self, members: &'a Map<String, Value>, text: &str, at: &Place<'_>) -> Verdict {
        self.spend(text.len() as u64 / 64)?;
        let length = text.chars().count();
        counted(members, ("minLength", "maxLength"), length, "characters", at)?;
        match members.get("pattern").and_then(Value::as_str) {
            Some(pattern) if !self.matches(pattern, text)? => {
                at.differs("does not match its pattern")
            }
            _ => Ok(()),
        }
    }

    fn matches(&mut self, text: &'a str, of: &str) -> Result<bool, Misfit> {
        if of.len() > LONGEST_MATCHED {
            return Err(Misfit::Undecided("a text is too long for a pattern"));
        }
        self.spend((1 + of.len() as u64) * (PATTERN_STEPS + text.len() as u64))?;
        let known = self.patterns.entry(text).or_insert_with(|| pattern(text));
        match known {
            Some(regex) => Ok(regex.is_match(of)),
            None => Err(Misfit::Undecided("a pattern of the schema cannot be used")),
        }
    }

    fn array(
        &mut self,
        members: &'a Map<String, Value>,
        items: &[Value],
        at: &Place<'_>,
        depth: usize,
    ) -> Verdict {
        counted(members, ("minItems", "maxItems"), items.len(), "items", at)?;
        let first = match members.get("prefixItems") {
            Some(Value::Array(schemas)) => schemas.as_slice(),
            _ => &[],
        };
        for (index, (schema, item)) in first.iter().zip(items).enumerate() {
            self.visit(schema, item, &at.item(index), depth + 1)?;
        }
        if let Some(schema) = members.get("items") {
            for (index, item) in items.iter().enumerate().skip(first.len()) {
                self.visit(schema, item, &at.item(index), depth + 1)?;
            }
        }
        if let Some(schema) = members.get("contains") {
            let mut count = 0;
            for (index, item) in items.iter().enumerate() {
                count += usize::from(self.does_fit(schema, item, &at.item(index), depth)?);
            }
            let least = if members.contains_key("minContains") { 0 } else { 1 };
            if count < least {
                return at.differs("holds nothing of what it must contain");
            }
            counted(
                members,
                ("minContains", "maxContains"),
                count,
                "items that it must contain",
                at,
            )?;
        }
        if members.get("uniqueItems") == Some(&Value::Bool(true)) {
            for (index, item) in items.iter().enumerate() {
                for other in &items[..index] {
                    if self.equal(item, other)? {
                        return at.item(index).differs("is there twice");
                    }
                }
            }
        }
        Ok(())
    }

    fn object(
        &mut self,
        members: &'a Map<String, Value>,
        whole: &Value,
        at: &Place<'_>,
        depth: usize,
    ) -> Verdict {
        let Value::Object(object) = whole else { return Ok(()) };
        counted(members, ("minProperties", "maxProperties"), object.len(), "members", at)?;
        let required = |names: &Value| {
            let names = names.as_array().into_iter().flatten().filter_map(Value::as_str);
            names.into_iter().find(|name| !object.contains_key(*name)).map(str::to_owned)
        };
        let names = members.get("required").and_then(Value::as_array);
        self.spend(names.map_or(0, Vec::len) as u64)?;
        if let Some(missing) = members.get("required").and_then(required) {
            return at.differs(&format!("has no member {missing:?}"));
        }
        for (name, schema) in map_of(members, "dependentRequired") {
            if object.contains_key(name)
                && let Some(missing) = required(schema)
            {
                return at.differs(&format!("has a member {name:?} and no member {missing:?}"));
            }
        }
        for (name, schema) in map_of(members, "dependentSchemas") {
            if object.contains_key(name) {
                self.visit(schema, whole, at, depth + 1)?;
            }
        }
        for (name, value) in object {
            self.spend(1 + name.len() as u64 / 64)?;
            let place = at.member(name);
            if let Some(schema) = members.get("propertyNames") {
                self.visit(schema, &Value::String(name.clone()), &place, depth + 1)?;
            }
            let mut is_named = false;
            if let Some(schema) = members.get("properties").and_then(|all| all.get(name)) {
                is_named = true;
                self.visit(schema, value, &place, depth + 1)?;
            }
            for (pattern, schema) in map_of(members, "patternProperties") {
                if self.matches(pattern, name)? {
                    is_named = true;
                    self.visit(schema, value, &place, depth + 1)?;
                }
            }
            if let Some(schema) = members.get("additionalProperties").filter(|_| !is_named) {
                self.visit(schema, value, &place, depth + 1)?;
            }
        }
        Ok(())
    }

    fn combined(
        &mut self,
        members: &'a Map<String, Value>,
        value: &Value,
        at: &Place<'_>,
        depth: usize,
    ) -> Verdict {
        for schema in list_of(members, "allOf") {
            self.visit(schema, value, at, depth + 1)?;
        }
        for (name, most) in [("anyOf", usize::MAX), ("oneOf", 1)] {
            if !members.contains_key(name) {
                continue;
            }
            let mut fitting = 0;
            for schema in list_of(members, name) {
                fitting += usize::from(self.does_fit(schema, value, at, depth)?);
                if name == "anyOf" && fitting > 0 {
                    break;
                }
            }
            match fitting {
                0 => return at.differs(&format!("fits none of its {name}")),
                count if count > most => return at.differs("fits more than one of its oneOf"),
                _ => {}
            }
        }
        if let Some(schema) = members.get("not")
            && self.does_fit(schema, value, at, depth)?
        {
            return at.differs("fits what it must not");
        }
        if let Some(schema) = members.get("if") {
            let way = if self.does_fit(schema, value, at, depth)? { "then" } else { "else" };
            if let Some(schema) = members.get(way) {
                self.visit(schema, value, at, depth + 1)?;
            }
        }
        Ok(())
    }

    /// As a schema has it: 1 and 1.0 are equal, and the order of members means nothing.
    fn equal(&mut self, one: &Value, other: &Value) -> Result<bool, Misfit> {
        self.spend(1)?;
        match (one, other) {
            (Value::Number(one), Value::Number(other)) => {
                Ok(Num::of(one).compare(Num::of(other)) == Some(Ordering::Equal))
            }
            (Value::String(one), Value::String(other)) => {
                self.spend(one.len().min(other.len()) as u64 / 64)?;
                Ok(one == other)
            }
            (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
                for (one, other) in one.iter().zip(other) {
                    if !self.equal(one, other)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Value::Object(one), Value::Object(other)) if one.len() == other.len() => {
                for (name, one) in one {
                    let Some(other) = other.get(name) else { return Ok(false) };
                    if !self.equal(one, other)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (one, other) => Ok(one == other),
        }
    }
}
