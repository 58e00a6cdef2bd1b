//! Why a task cannot be launched.

/// Why no argv was built. Each variant is one category; a message is one line that says what is
/// wrong and what to do, and never holds a value taken from a trigger.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The kind has no launcher; `workflow` has an adapter instead.
    #[error(
        "unknown action kind {kind}: use agent, command, engine, fanout, flow, flow_yaml or play"
    )]
    UnknownKind {
        /// The kind as given, shortened.
        kind: String,
    },
    /// `action_model` could be read as an option or is no model name.
    #[error(
        "action_model {value} is not a model name: use only letters, digits and _ . / : @ -, with no leading '-'"
    )]
    ModelInvalid {
        /// The value, shortened.
        value: String,
    },
    /// `action_agent`, `action_project` or `action_playbook` is no identifier.
    #[error(
        "{field} {value} is not an identifier: use only letters, digits and _ . / : @ -, with no leading '-'"
    )]
    IdentifierInvalid {
        /// The field's key in `action_args`.
        field: &'static str,
        /// The value, shortened.
        value: String,
    },
    /// `li play` would read the word as one of its own subcommands.
    #[error(
        "{word} is a subcommand of `li play`, not a playbook: name a playbook in action_playbook"
    )]
    PlaySubcommand {
        /// `list`, `check` or `status`.
        word: String,
    },
    /// An element of `action_extra_args` would be read as an option.
    #[error(
        "action_extra_args element {value} starts with '-' and would be read as an option: pass positional words only"
    )]
    ExtraArgsFlag {
        /// The element as text, shortened.
        value: String,
    },
    /// `action_playbook_args` cannot be passed as options of the playbook.
    #[error("action_playbook_args: {problem}")]
    PlaybookArgsInvalid {
        /// What is wrong and what to do.
        problem: String,
    },
    /// A play prompt would be read as an option, since `li play` has no `--`.
    #[error(
        "action_prompt of a play starts with '-' and would be read as an option: begin it with another character"
    )]
    PlayPromptDash,
    /// `action_engine_options` holds something other than the four options.
    #[error("action_engine_options: {problem}")]
    EngineOptionsInvalid {
        /// What is wrong and what to do.
        problem: String,
    },
    /// Without a model the prompt would be taken for one.
    #[error(
        "action_extra_args without action_model would make the prompt the model: set action_model, or drop the extra words"
    )]
    AgentExtraWithoutModel,
    /// A flow file carries everything itself.
    #[error("a flow_yaml task takes no action_extra_args: put them into the YAML text")]
    FlowYamlExtraArgs,
    /// An engine task names no engine.
    #[error("an engine task needs action_agent: name the engine, for example research")]
    EngineMissingAgent,
    /// An engine task has no specification, or one that renders to nothing.
    #[error("an engine task needs action_prompt: give the engine its specification")]
    EngineMissingPrompt,
    /// The engine `coding` has no test command.
    #[error(
        "the engine coding needs a test command: set action_engine_options.test_cmd to a non-blank command"
    )]
    EngineCodingNeedsTestCmd,
    /// `action_command` is no bare program name.
    #[error(
        "action_command {value} is not a program name: use only letters, digits and _ . -, no path and no leading '-'"
    )]
    CommandInvalid {
        /// The value, shortened.
        value: String,
    },
    /// The operator has not allowed the command.
    #[error(
        "action_command {command} is not allowed here (allowed: {allowed}): add it to the allow-list of the process that launches tasks"
    )]
    CommandNotAllowlisted {
        /// The command, shortened.
        command: String,
        /// The names that are allowed, or `none`.
        allowed: String,
    },
    /// A command gets its arguments from `action_command_args`.
    #[error("a command task takes no action_extra_args: use action_command_args")]
    CommandExtraArgs,
    /// `action_command_args` is no list.
    #[error("action_command_args must be a list of strings")]
    CommandArgsType,
    /// A command argument with a placeholder rendered to something unsafe. The value is left out:
    /// it may carry what an outsider wrote.
    #[error(
        "action_command_args element {template} rendered to a value that starts with '-', is empty or leaves letters, digits and _ . / : @ - + = space: check the trigger's value"
    )]
    CommandArgRenderedInvalid {
        /// The element before rendering, shortened.
        template: String,
    },
    /// The rendered prompt is longer than 262,144 characters.
    #[error("the prompt has {characters} characters, at most 262144 are allowed: shorten it")]
    PromptTooLong {
        /// Its length in Unicode code points.
        characters: usize,
    },
    /// The rendered prompt is exactly `--`.
    #[error(
        "the prompt '--' would be taken for the end of the options: use any other text as action_prompt"
    )]
    PromptSentinel,
    /// A field has a type no rule speaks of.
    #[error("{field} must be a string, not {found}")]
    WrongType {
        /// The field's key in `action_args`.
        field: &'static str,
        /// The JSON type found.
        found: &'static str,
    },
    /// The flow file is a mapping, but `model` cannot be set without changing the rest of it.
    #[error(
        "action_model cannot be set in this YAML text: put `model` into action_flow_yaml and leave action_model out"
    )]
    FlowYamlModel,
    /// The kind runs `li`, and the context names no program.
    #[error("no executable for `li` was given: find it first, or name it in the configuration")]
    ExecutableMissing,
    /// An argument is longer than the kernel takes.
    #[error("argument {index} has {bytes} bytes, at most 131071 can be passed: shorten it")]
    ArgTooLong {
        /// Its index, the program being 0.
        index: usize,
        /// Its length.
        bytes: usize,
    },
    /// An argument holds a NUL byte.
    #[error("argument {index} contains a NUL byte and cannot be passed: remove it")]
    ArgHasNul {
        /// Its index, the program being 0.
        index: usize,
    },
}

impl LaunchError {
    /// The category: a stable word for programs, such as `model_invalid`.
    pub fn category(&self) -> &'static str {
        match self {
            Self::UnknownKind { .. } => "unknown_kind",
            Self::ModelInvalid { .. } => "model_invalid",
            Self::IdentifierInvalid { .. } => "identifier_invalid",
            Self::PlaySubcommand { .. } => "play_subcommand",
            Self::ExtraArgsFlag { .. } => "extra_args_flag",
            Self::PlaybookArgsInvalid { .. } => "playbook_args_invalid",
            Self::PlayPromptDash => "play_prompt_dash",
            Self::EngineOptionsInvalid { .. } => "engine_options_invalid",
            Self::AgentExtraWithoutModel => "agent_extra_without_model",
            Self::FlowYamlExtraArgs => "flow_yaml_extra_args",
            Self::EngineMissingAgent => "engine_missing_agent",
            Self::EngineMissingPrompt => "engine_missing_prompt",
            Self::EngineCodingNeedsTestCmd => "engine_coding_needs_test_cmd",
            Self::CommandInvalid { .. } => "command_invalid",
            Self::CommandNotAllowlisted { .. } => "command_not_allowlisted",
            Self::CommandExtraArgs => "command_extra_args",
            Self::CommandArgsType => "command_args_type",
            Self::CommandArgRenderedInvalid { .. } => "command_arg_rendered_invalid",
            Self::PromptTooLong { .. } => "prompt_too_long",
            Self::PromptSentinel => "prompt_sentinel",
            Self::WrongType { .. } => "type_error",
            Self::FlowYamlModel => "flow_yaml_model",
            Self::ExecutableMissing => "executable_missing",
            Self::ArgTooLong { .. } => "arg_too_long",
            Self::ArgHasNul { .. } => "arg_has_nul",
        }
    }
}

/// A value for a message: quoted, on one line, and cut after 80 characters.
pub(super) fn shown(value: &str) -> String {
    const LIMIT: usize = 80;
    match value.char_indices().nth(LIMIT) {
        Some((cut, _)) => format!("{:?}…", &value[..cut]),
        None => format!("{value:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_value_is_quoted_on_one_line_and_short() {
        assert_eq!(shown("a\nb"), r#""a\nb""#);
        assert_eq!(shown(&"é".repeat(80)), format!("\"{}\"", "é".repeat(80)));
        assert_eq!(shown(&"é".repeat(81)), format!("\"{}\"…", "é".repeat(80)));
    }
}
