//! The rules of the kind `play`.
//!
//! `li play NAME --key value PROMPT` has no `--`, so no word of it may look like an option, and a
//! playbook's own options must not be those `li` has already.

use serde_json::Value;

use super::Own;
use crate::launch::error::{LaunchError, shown};
use crate::launch::fields::Fields;
use crate::launch::text::python_str;

/// Words that `li play` reads as its own subcommands.
const SUBCOMMANDS: [&str; 3] = ["list", "check", "status"];

/// The options of `li o flow`, without their dashes: `li play` rewrites itself to that command, so
/// a playbook argument of the same name would change how the run is started.
const FLOW_OPTIONS: &str = "agent allow-degraded-context background bare bypass cwd dry-run \
    effort fast file help invocation max-agents max-concurrent max-ops mcp-config no-mcp-config \
    notify output pack playbook project reactive resume resume-on-timeout retry-failed save \
    show-graph team-attach team-max-rounds team-mode theme timeout verbose with-synthesis workers \
    yolo";

pub(super) fn check_playbook(playbook: Option<&str>) -> Result<(), LaunchError> {
    playbook.map_or(Ok(()), check_first_word)
}

pub(super) fn check<'a>(
    fields: Fields<'a>,
    playbook: Option<&str>,
    extra: &[String],
) -> Result<Own<'a>, LaunchError> {
    let args = match stored_args(fields) {
        None => None,
        Some(Value::Object(args)) => Some(args),
        Some(_) => return refused("must be an object of argument names and values"),
    };
    for (key, value) in args.into_iter().flatten() {
        check_arg(key, value)?;
    }
    let prompt = fields.set("action_prompt").filter(|_| playbook.is_some());
    if prompt.is_some_and(|prompt| python_str(prompt).starts_with('-')) {
        return Err(LaunchError::PlayPromptDash);
    }
    if let (None, Some(word)) = (playbook, extra.first()) {
        check_first_word(word)?;
    }
    Ok(Own::Play { args })
}

/// The option a playbook argument is passed as.
pub(in crate::launch) fn option_of(key: &str) -> String {
    format!("--{}", key.replace('_', "-"))
}

/// The first word after `li play`.
fn check_first_word(word: &str) -> Result<(), LaunchError> {
    match SUBCOMMANDS.contains(&word) {
        true => Err(LaunchError::PlaySubcommand { word: word.to_owned() }),
        false => Ok(()),
    }
}

/// A task carries its playbook arguments itself; a row that came from a schedule carries them in
/// the snapshot of the target it resolved.
fn stored_args(fields: Fields<'_>) -> Option<&Value> {
    let own = fields.present("action_playbook_args");
    own.filter(|args| args.as_object().is_none_or(|args| !args.is_empty())).or_else(|| {
        let target = fields.present("resolved_target")?.as_object()?.get("target")?.as_object()?;
        let is_playbook = target.get("kind").and_then(Value::as_str) == Some("playbook");
        target.get("args").filter(|args| is_playbook && !args.is_null())
    })
}

fn check_arg(key: &str, value: &Value) -> Result<(), LaunchError> {
    let name = shown(key);
    if !is_arg_name(key) {
        return refused(&format!(
            "{name} is not an argument name: use letters, digits, _ and -, beginning with a letter or _"
        ));
    }
    let option = option_of(key);
    if FLOW_OPTIONS.split_ascii_whitespace().any(|reserved| option[2..] == *reserved) {
        return refused(&format!(
            "{name} would set li's own option {option}: give the playbook's argument another name"
        ));
    }
    match value {
        Value::Null | Value::Array(_) | Value::Object(_) => {
            refused(&format!("{name} must be a string, a number or a boolean"))
        }
        Value::String(text) if text.starts_with('-') => refused(&format!(
            "the value of {name} starts with '-' and would be read as an option: begin it with another character"
        )),
        Value::String(_) | Value::Number(_) | Value::Bool(_) => Ok(()),
    }
}

fn is_arg_name(key: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && key.bytes().all(allowed)
}

fn refused<T>(problem: &str) -> Result<T, LaunchError> {
    Err(LaunchError::PlaybookArgsInvalid { problem: problem.to_owned() })
}
