//! The rules of the kind `command`: one program the operator has allowed by name.

use serde_json::{Map, Value};

use super::{Own, is_plain_value};
use crate::domain::allow::AllowList;
use crate::launch::error::{LaunchError, shown};
use crate::launch::fields::Fields;
use crate::launch::template::{has_placeholder, render};
use crate::launch::text::python_str;

pub(super) fn check<'a>(
    fields: Fields<'a>,
    extra: &[String],
    allowed: &AllowList,
) -> Result<Own<'a>, LaunchError> {
    let name = match fields.set("action_command") {
        Some(Value::String(name)) if is_program_name(name) => name,
        Some(other) => {
            return Err(LaunchError::CommandInvalid { value: shown(&python_str(other)) });
        }
        None => return Err(LaunchError::CommandInvalid { value: shown("") }),
    };
    if !allowed.allows(name) {
        let allowed = if allowed.is_empty() { "none".to_owned() } else { allowed.to_string() };
        return Err(LaunchError::CommandNotAllowlisted { command: shown(name), allowed });
    }
    if !extra.is_empty() {
        return Err(LaunchError::CommandExtraArgs);
    }
    match fields.set("action_command_args") {
        None => Ok(Own::Command { name, args: &[] }),
        Some(Value::Array(args)) => Ok(Own::Command { name, args }),
        Some(_) => Err(LaunchError::CommandArgsType),
    }
}

/// The arguments with their placeholders filled. One without a placeholder is its author's word and
/// goes as it is, options included; one with a placeholder may carry an outsider's, so what it
/// renders to must be a plain value.
pub(in crate::launch) fn rendered_args(
    args: &[Value],
    trigger: &Map<String, Value>,
) -> Result<Vec<String>, LaunchError> {
    args.iter().map(|arg| rendered_arg(python_str(arg), trigger)).collect()
}

fn rendered_arg(template: String, trigger: &Map<String, Value>) -> Result<String, LaunchError> {
    if !has_placeholder(&template) {
        return Ok(template);
    }
    let rendered = render(&template, trigger);
    match is_plain_value(&rendered) {
        true => Ok(rendered),
        false => Err(LaunchError::CommandArgRenderedInvalid { template: shown(&template) }),
    }
}

/// A name that is looked up on `PATH`, never a path. As in the original's pattern, a line feed may
/// end it; such a name is on no allow-list.
fn is_program_name(name: &str) -> bool {
    let line = name.strip_suffix('\n').unwrap_or(name);
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    !line.is_empty() && !line.starts_with('-') && line.bytes().all(allowed)
}
