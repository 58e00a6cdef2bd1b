//! The rules of the kind `engine`.

use serde_json::{Map, Value};

use super::{Own, is_plain_value};
use crate::launch::error::{LaunchError, shown};
use crate::launch::fields::Fields;
use crate::launch::text::is_integer;

const OPTIONS: [&str; 4] = ["export_dir", "max_agents", "max_depth", "test_cmd"];

/// The options of `li engine run`, in the form in which they are passed.
#[derive(Debug, Default)]
pub(in crate::launch) struct EngineOptions<'a> {
    pub(in crate::launch) max_depth: Option<&'a str>,
    pub(in crate::launch) max_agents: Option<&'a str>,
    pub(in crate::launch) test_cmd: Option<&'a str>,
    pub(in crate::launch) export_dir: Option<&'a str>,
}

/// `action_agent` names the engine, `action_prompt` is what it shall do.
pub(super) fn check<'a>(
    fields: Fields<'a>,
    agent: Option<&'a str>,
) -> Result<Own<'a>, LaunchError> {
    let options = match fields.set("action_engine_options") {
        None => EngineOptions::default(),
        Some(Value::Object(options)) => check_options(options)?,
        Some(_) => return refused("must be an object".to_owned()),
    };
    let Some(agent) = agent else { return Err(LaunchError::EngineMissingAgent) };
    if fields.set("action_prompt").is_none() {
        return Err(LaunchError::EngineMissingPrompt);
    }
    let blank = options.test_cmd.is_none_or(|command| command.trim().is_empty());
    if agent == "coding" && blank {
        return Err(LaunchError::EngineCodingNeedsTestCmd);
    }
    Ok(Own::Engine { name: agent, options })
}

fn check_options(options: &Map<String, Value>) -> Result<EngineOptions<'_>, LaunchError> {
    if let Some(unknown) = options.keys().find(|key| !OPTIONS.contains(&key.as_str())) {
        return refused(format!("{} is no option: use {}", shown(unknown), OPTIONS.join(", ")));
    }
    Ok(EngineOptions {
        max_depth: count(options, "max_depth")?,
        max_agents: count(options, "max_agents")?,
        test_cmd: plain_value(options, "test_cmd")?,
        export_dir: plain_value(options, "export_dir")?,
    })
}

/// An integer from 1 to 100. Booleans and floats are none, not even `1.0`.
fn count<'a>(options: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, LaunchError> {
    match options.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(number))
            if is_integer(number) && matches!(number.as_str().parse(), Ok(1..=100_u8)) =>
        {
            Ok(Some(number.as_str()))
        }
        Some(_) => refused(format!("{key} must be an integer from 1 to 100")),
    }
}

fn plain_value<'a>(
    options: &'a Map<String, Value>,
    key: &str,
) -> Result<Option<&'a str>, LaunchError> {
    match options.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if is_plain_value(text) => Ok(Some(text)),
        Some(_) => refused(format!(
            "{key} must be a string of letters, digits and _ . / : @ - + = space, with no leading '-'"
        )),
    }
}

fn refused<T>(problem: String) -> Result<T, LaunchError> {
    Err(LaunchError::EngineOptionsInvalid { problem })
}
