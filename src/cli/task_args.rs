//! The arguments of a submitted task, put together from the command line.

use std::fs::File;
use std::io::{self, Read};

use leasehold::domain::json_text;
use leasehold::domain::task::SubmitRefusal;
use serde_json::{Map, Value};

use super::failure::Failure;

/// More than any argv can carry, and less than any store refuses.
const MOST_BYTES: u64 = 64 << 20;

/// The object of `--args`, with each `--arg` and the words of a command set in it. What is no object is handed on as
/// it is: the library refuses it in its turn.
pub(super) fn combined(
    object: Option<&str>,
    pairs: &[String],
    words: &[String],
) -> Result<Value, Failure> {
    let mut args = match object {
        Some(source) => parse(&read("--args", source)?)?,
        None => Value::Object(Map::new()),
    };
    let Value::Object(map) = &mut args else { return Ok(args) };
    for pair in pairs {
        let (key, value) = key_and_value(pair)?;
        set(map, key, value)?;
    }
    if let [program, rest @ ..] = words {
        set(map, "action_command", program.clone().into())?;
        set(map, "action_command_args", rest.into())?;
    }
    Ok(args)
}

fn set(map: &mut Map<String, Value>, key: &str, value: Value) -> Result<(), Failure> {
    match map.insert(key.to_owned(), value) {
        None => Ok(()),
        Some(_) => {
            Err(Failure::Refused(format!("the argument {key:?} is given twice: give it once")))
        }
    }
}

/// `K=V` or `K:=JSON`, split at the first `=`.
fn key_and_value(pair: &str) -> Result<(&str, Value), Failure> {
    let Some((key, text)) = pair.split_once('=') else {
        return Err(Failure::Refused(format!("--arg {pair:?} has no '=': write K=V or K:=JSON")));
    };
    let (key, is_json) = match key.strip_suffix(':') {
        Some(key) => (key, true),
        None => (key, false),
    };
    if key.is_empty() {
        return Err(Failure::Refused(format!("--arg {pair:?} has no key: write K=V or K:=JSON")));
    }
    if !is_json {
        return Ok((key, text.into()));
    }
    match parse(text) {
        Ok(value) => Ok((key, value)),
        Err(refusal) => Err(Failure::Refused(format!("--arg {key:?}: {refusal}"))),
    }
}

fn parse(text: &str) -> Result<Value, SubmitRefusal> {
    json_text::parse(text).map_err(|error| SubmitRefusal::NotJson { problem: error.to_string() })
}

/// A JSON value that is given as text, or as `@FILE`.
pub(super) fn json_of(option: &str, source: &str) -> Result<Value, Failure> {
    let text = match source.strip_prefix('@') {
        Some(_) => read(option, source)?,
        None => source.to_owned(),
    };
    json_text::parse(&text)
        .map_err(|error| Failure::Refused(format!("{option} is no JSON document: {error}")))
}

fn read(option: &str, source: &str) -> Result<String, Failure> {
    let read_all = |input: &mut dyn Read, place: &str| read_all(option, input, place);
    let unreadable = |place: &str, problem: &io::Error| unreadable(option, place, problem);
    match (source, source.strip_prefix('@')) {
        ("-", _) => read_all(&mut io::stdin(), "standard input"),
        (_, Some(name)) => {
            let place = format!("the file {name:?}");
            let mut file = File::open(name).map_err(|error| unreadable(&place, &error))?;
            read_all(&mut file, &place)
        }
        (text, None) => Ok(text.to_owned()),
    }
}

fn read_all(option: &str, source: &mut dyn Read, place: &str) -> Result<String, Failure> {
    let unreadable =
        |place: &str, problem: &dyn std::fmt::Display| unreadable(option, place, problem);
    let mut bytes = Vec::new();
    source
        .take(MOST_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(place, &error))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(unreadable(place, &"it has more than 64 MiB"));
    }
    String::from_utf8(bytes).map_err(|_| unreadable(place, &"it is not valid UTF-8"))
}

fn unreadable(option: &str, place: &str, problem: &dyn std::fmt::Display) -> Failure {
    Failure::Refused(format!("cannot read {option} from {place}: {problem}"))
}
