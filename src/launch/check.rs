//! Which task may be launched: every rule that refuses, in the order in which they are tried.
//!
//! The first broken rule names the error, so the order is part of the behaviour: kind, model,
//! identifiers, extra arguments, play, engine options, then what the kind itself demands. The
//! prompt is checked after rendering, since a trigger's value may be what makes it unsafe.

mod command;
mod engine;
mod play;

use serde_json::{Map, Value};

use super::error::{LaunchError, shown};
use super::fields::Fields;
use super::template::render;
use super::text::python_str;
use crate::domain::allow::AllowList;

pub(super) use command::rendered_args;
pub(super) use engine::EngineOptions;
pub(super) use play::option_of;

/// The longest prompt, in Unicode code points.
const MAX_PROMPT_CHARACTERS: usize = 262_144;

/// The kinds that have a launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LaunchKind {
    Agent,
    Flow,
    Fanout,
    Play,
    FlowYaml,
    Engine,
    Command,
}

impl LaunchKind {
    /// Reads a kind exactly; `playbook` is an older name of `play`.
    pub(super) fn parse(kind: &str) -> Result<Self, LaunchError> {
        match kind {
            "agent" => Ok(Self::Agent),
            "flow" => Ok(Self::Flow),
            "fanout" => Ok(Self::Fanout),
            "play" | "playbook" => Ok(Self::Play),
            "flow_yaml" => Ok(Self::FlowYaml),
            "engine" => Ok(Self::Engine),
            "command" => Ok(Self::Command),
            _ => Err(LaunchError::UnknownKind { kind: shown(kind) }),
        }
    }
}

/// What every kind may carry, checked.
#[derive(Debug)]
pub(super) struct Checked<'a> {
    pub(super) model: Option<&'a str>,
    pub(super) agent: Option<&'a str>,
    pub(super) project: Option<&'a str>,
    pub(super) playbook: Option<&'a str>,
    pub(super) extra: Vec<String>,
    pub(super) own: Own<'a>,
}

/// What only the kind itself carries, checked.
#[derive(Debug)]
pub(super) enum Own<'a> {
    Agent,
    Flow,
    Fanout,
    Play { args: Option<&'a Map<String, Value>> },
    FlowYaml,
    Engine { name: &'a str, options: EngineOptions<'a> },
    Command { name: &'a str, args: &'a [Value] },
}

/// Checks all that is stored, before anything is rendered.
pub(super) fn stored_fields<'a>(
    kind: LaunchKind,
    fields: Fields<'a>,
    allowed: &AllowList,
) -> Result<Checked<'a>, LaunchError> {
    let model = model(fields)?;
    let agent = identifier(fields, "action_agent")?;
    let project = identifier(fields, "action_project")?;
    let playbook = identifier(fields, "action_playbook")?;
    if kind == LaunchKind::Play {
        play::check_playbook(playbook)?;
    }
    let extra = extra_args(fields)?;
    let own = match kind {
        LaunchKind::Agent if model.is_none() && !extra.is_empty() => {
            return Err(LaunchError::AgentExtraWithoutModel);
        }
        LaunchKind::FlowYaml if !extra.is_empty() => return Err(LaunchError::FlowYamlExtraArgs),
        LaunchKind::Agent => Own::Agent,
        LaunchKind::Flow => Own::Flow,
        LaunchKind::Fanout => Own::Fanout,
        LaunchKind::FlowYaml => Own::FlowYaml,
        LaunchKind::Play => play::check(fields, playbook, &extra)?,
        LaunchKind::Engine => engine::check(fields, agent)?,
        LaunchKind::Command => command::check(fields, &extra, allowed)?,
    };
    Ok(Checked { model, agent, project, playbook, extra, own })
}

/// The prompt with its placeholders filled, or `""`. A kind that sends no prompt neither renders
/// nor checks it.
pub(super) fn rendered_prompt(
    kind: LaunchKind,
    fields: Fields<'_>,
    trigger: &Map<String, Value>,
) -> Result<String, LaunchError> {
    if !sends_prompt(kind, fields) {
        return Ok(String::new());
    }
    let prompt = render(fields.text("action_prompt")?.unwrap_or_default(), trigger);
    let characters = prompt.chars().count();
    if characters > MAX_PROMPT_CHARACTERS {
        return Err(LaunchError::PromptTooLong { characters });
    }
    if prompt == "--" {
        return Err(LaunchError::PromptSentinel);
    }
    match kind {
        LaunchKind::Play if prompt.starts_with('-') => Err(LaunchError::PlayPromptDash),
        LaunchKind::Engine if prompt.is_empty() => Err(LaunchError::EngineMissingPrompt),
        _ => Ok(prompt),
    }
}

/// A command sends its arguments, a flow file is sent as it is, and a play without a playbook has
/// nothing that could take a prompt.
fn sends_prompt(kind: LaunchKind, fields: Fields<'_>) -> bool {
    match kind {
        LaunchKind::Command | LaunchKind::FlowYaml => false,
        LaunchKind::Play => fields.set("action_playbook").is_some(),
        LaunchKind::Agent | LaunchKind::Flow | LaunchKind::Fanout | LaunchKind::Engine => true,
    }
}

fn model(fields: Fields<'_>) -> Result<Option<&str>, LaunchError> {
    match fields.text("action_model")? {
        Some(model) if !is_identifier(model) => {
            Err(LaunchError::ModelInvalid { value: shown(model) })
        }
        model => Ok(model),
    }
}

fn identifier<'a>(fields: Fields<'a>, field: &'static str) -> Result<Option<&'a str>, LaunchError> {
    match fields.text(field)? {
        Some(value) if !is_identifier(value) => {
            Err(LaunchError::IdentifierInvalid { field, value: shown(value) })
        }
        value => Ok(value),
    }
}

/// Extra arguments as text. What is no list is ignored.
fn extra_args(fields: Fields<'_>) -> Result<Vec<String>, LaunchError> {
    let extra: Vec<String> = fields.list("action_extra_args").iter().map(python_str).collect();
    match extra.iter().find(|word| word.starts_with('-')) {
        Some(flag) => Err(LaunchError::ExtraArgsFlag { value: shown(flag) }),
        None => Ok(extra),
    }
}

fn is_identifier(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_./:@-".contains(&byte);
    !text.starts_with('-') && text.bytes().all(allowed)
}

/// A value that may stand in an argv as it is: letters, digits, `_ . / : @ - + =` and spaces, at
/// least one, no leading `-`. One line feed may end it, as the original's pattern allows.
fn is_plain_value(text: &str) -> bool {
    let line = text.strip_suffix('\n').unwrap_or(text);
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_./:@-+= ".contains(&byte);
    !line.is_empty() && !line.starts_with('-') && line.bytes().all(allowed)
}
