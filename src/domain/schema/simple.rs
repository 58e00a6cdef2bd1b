//! What can be said of a value without looking into it.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::fit::Verdict;
use super::number::Num;
use super::place::Place;

pub(super) fn number_fits(members: &Map<String, Value>, number: Num, at: &Place<'_>) -> Verdict {
    let bounds: [(&str, &[Ordering], &str); 4] = [
        ("maximum", &[Ordering::Greater], "is greater than its maximum"),
        ("exclusiveMaximum", &[Ordering::Greater, Ordering::Equal], "is not below its bound"),
        ("minimum", &[Ordering::Less], "is less than its minimum"),
        ("exclusiveMinimum", &[Ordering::Less, Ordering::Equal], "is not above its bound"),
    ];
    for (name, wrong, why) in bounds {
        if let Some(Value::Number(bound)) = members.get(name)
            && number.compare(Num::of(bound)).is_none_or(|order| wrong.contains(&order))
        {
            return at.differs(why);
        }
    }
    match members.get("multipleOf") {
        Some(Value::Number(of)) if !number.is_multiple_of(Num::of(of)) => {
            at.differs("is no multiple of what it must be")
        }
        _ => Ok(()),
    }
}

pub(super) fn counted(
    members: &Map<String, Value>,
    (least, most): (&str, &str),
    count: usize,
    what: &str,
    at: &Place<'_>,
) -> Verdict {
    let bound = |name: &str| match members.get(name) {
        Some(Value::Number(number)) => Some(Num::of(number)),
        _ => None,
    };
    let count_is = |order, bound: Option<Num>| {
        let whole = Num::Whole(i128::try_from(count).unwrap_or(i128::MAX));
        bound.is_some_and(|bound| whole.compare(bound) == Some(order))
    };
    if count_is(Ordering::Less, bound(least)) {
        return at.differs(&format!("has too few {what}: {count}"));
    }
    if count_is(Ordering::Greater, bound(most)) {
        return at.differs(&format!("has too many {what}: {count}"));
    }
    Ok(())
}

pub(super) fn list_of<'a>(members: &'a Map<String, Value>, name: &str) -> &'a [Value] {
    members.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(super) fn map_of<'a>(
    members: &'a Map<String, Value>,
    name: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    members.get(name).and_then(Value::as_object).into_iter().flatten()
}

pub(super) fn is_of_type(value: &Value, word: &str) -> bool {
    match (value, word) {
        (Value::Number(number), "integer") => Num::of(number).is_whole(),
        (Value::Number(_), "number") => true,
        (other, word) => type_of(other) == word,
    }
}

pub(super) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
