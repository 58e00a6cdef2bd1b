//! The suite `argv`: how a task becomes a command line.

use std::path::Path;

use leasehold::launch::{AllowList, Argument, Argv, LaunchContext, LaunchError, build_argv};
use serde_json::{Map, Value, json};

use crate::support::{Case, Outcome, Report};
use crate::yaml11;

/// Runs `directory/argv.json`.
pub(crate) fn run(directory: &Path) -> Report {
    Report::of(directory, "argv", "pure", outcome)
}

fn outcome(case: &Case) -> Outcome {
    // A kind is text here: none is the empty one, and another type is what JSON writes.
    let kind = match &case.get("input")["action_kind"] {
        Value::Null => String::new(),
        Value::String(kind) => kind.clone(),
        other => other.to_string(),
    };
    let got = launch(case, &kind);
    let expected = case.get("expect");
    let passed = match &got {
        _ if !case.is_normative() => true,
        Err(error) => case.flag("python_dynamic") || is_expected_error(expected, error),
        Ok(argv) => is_expected_argv(expected, argv, case.flag("yaml_dump")),
    };
    match passed {
        true => Outcome::Passed,
        false => Outcome::failed(expected, shown(&got)),
    }
}

fn launch(case: &Case, kind: &str) -> Result<Argv, LaunchError> {
    let empty = Map::new();
    let object = |key: &str| case.get(key).as_object().unwrap_or(&empty);
    let prefix: Vec<String> =
        case.get("executable_prefix").as_array().into_iter().flatten().map(text).collect();
    let allowed = case.get("env")["LIONAGI_SCHEDULER_COMMAND_ALLOWLIST"].as_str();
    let context = LaunchContext {
        executable_prefix: &prefix,
        allow_commands: &AllowList::parse(allowed.unwrap_or_default()),
        trigger: object("context"),
    };
    build_argv(kind, object("input"), &context)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn is_expected_error(expected: &Value, error: &LaunchError) -> bool {
    match expected["error"]["category"].as_str() {
        // The original fails on a type by accident; that it fails is all that counts.
        Some("type_error") => true,
        category => category == Some(error.category()),
    }
}

fn is_expected_argv(expected: &Value, argv: &Argv, yaml_dump: bool) -> bool {
    let same_file = match (expected["tmp_file_contents"].as_str(), argv.yaml_contents()) {
        (Some(wanted), Some(found)) if yaml_dump => {
            matches!((yaml11::read(wanted), yaml11::read(found)), (Ok(a), Ok(b)) if a == b)
        }
        (wanted, found) => wanted == found,
    };
    expected["argv"] == arguments(argv) && same_file
}

fn arguments(argv: &Argv) -> Value {
    let text = |argument: &Argument| match argument {
        Argument::Text(text) => text.clone(),
        Argument::YamlFile(_) => "{TMP}".to_owned(),
    };
    argv.arguments().iter().map(text).collect()
}

fn shown(got: &Result<Argv, LaunchError>) -> Value {
    match got {
        Ok(argv) => json!({"argv": arguments(argv), "tmp_file_contents": argv.yaml_contents()}),
        Err(error) => {
            json!({"error": {"category": error.category(), "message": error.to_string()}})
        }
    }
}
