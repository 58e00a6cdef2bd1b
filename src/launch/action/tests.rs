use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::launch::Argument;

fn launch(kind: &str, args: &Value, trigger: &Value) -> Result<Argv, LaunchError> {
    let context = LaunchContext {
        executable_prefix: &["/opt/li".to_owned()],
        allow_commands: &AllowList::parse("echo, git"),
        trigger: trigger.as_object().unwrap(),
    };
    build_argv(kind, args.as_object().unwrap(), &context)
}

fn words(kind: &str, args: Value) -> Vec<String> {
    let argv = launch(kind, &args, &json!({})).unwrap();
    let texts = argv.arguments().iter().map(|argument| match argument {
        Argument::Text(text) => text.clone(),
        Argument::YamlFile(_) => "FILE".to_owned(),
    });
    texts.collect()
}

fn category(kind: &str, args: Value) -> &'static str {
    launch(kind, &args, &json!({})).unwrap_err().category()
}

#[test]
fn the_runs_own_kind_wins() {
    let args = json!({"action_kind": "command", "action_command": "echo", "action_prompt": "p"});
    assert_eq!(words("agent", args), ["/opt/li", "agent", "--", "p"]);
}

#[test]
fn playbook_is_play() {
    let args = json!({"action_playbook": "pb"});
    assert_eq!(words("playbook", args.clone()), words("play", args));
}

#[test]
fn workflow_has_no_launcher() {
    assert_eq!(category("workflow", json!({})), "unknown_kind");
}

#[test]
fn a_command_is_started_by_itself() {
    assert!(!needs_li("command"));
    let args = json!({"action_command": "git", "action_command_args": ["--version", 1.0]});
    let context = LaunchContext {
        executable_prefix: &[],
        allow_commands: &AllowList::parse("git"),
        trigger: &Map::new(),
    };
    let argv = build_argv("command", args.as_object().unwrap(), &context);
    assert_eq!(argv, Ok(Argv::from_iter(["git", "--version", "1.0"])));
    let refused = build_argv("agent", &Map::new(), &context);
    assert_eq!(refused, Err(LaunchError::ExecutableMissing));
}

#[test]
fn a_flow_file_carries_its_contents_and_the_model() {
    let args = json!({"action_flow_yaml": "a: 1\n", "action_model": "m", "action_project": "p"});
    let argv = launch("flow_yaml", &args, &json!({})).unwrap();
    assert_eq!(argv.yaml_contents(), Some("a: 1\nmodel: \"m\"\n"));
    assert_eq!(
        words("flow_yaml", args),
        ["/opt/li", "o", "flow", "-f", "FILE", "--project", "p", "--"]
    );
}

#[test]
fn playbook_arguments_of_a_schedule_come_from_its_target() {
    let target = |kind| json!({"target": {"kind": kind, "args": {"top_k": 3, "dry": true}}});
    let args = |kind| json!({"action_playbook": "pb", "resolved_target": target(kind)});
    let expected = ["/opt/li", "play", "pb", "--top-k", "3", "--dry"];
    assert_eq!(words("play", args("playbook")), expected);
    assert_eq!(words("play", args("agent")), ["/opt/li", "play", "pb"]);
}

#[test]
fn a_long_prompt_is_counted_in_characters() {
    let args = |length| json!({"action_prompt": "é".repeat(length)});
    assert!(launch("agent", &args(262_144), &json!({})).is_ok());
    assert_eq!(category("agent", args(262_145)), "prompt_too_long");
}

#[test]
fn the_first_broken_rule_names_the_error() {
    let mut args = json!({
        "action_model": "-", "action_agent": "-", "action_project": "-", "action_playbook": "list",
        "action_extra_args": ["-"], "action_playbook_args": [], "action_prompt": "-"
    });
    let expected = [
        ("action_model", "model_invalid"),
        ("action_agent", "identifier_invalid"),
        ("action_project", "identifier_invalid"),
        ("action_playbook", "play_subcommand"),
        ("action_extra_args", "extra_args_flag"),
        ("action_playbook_args", "playbook_args_invalid"),
    ];
    assert_eq!(category("nope", args.clone()), "unknown_kind");
    for (field, wanted) in expected {
        assert_eq!(category("play", args.clone()), wanted);
        args[field] = if field == "action_playbook" { json!("pb") } else { json!(null) };
    }
    assert_eq!(category("play", args), "play_prompt_dash");
}

#[test]
fn one_line_feed_may_end_a_value_where_the_pattern_lets_it() {
    let engine = |test_cmd: &str| {
        let options = json!({"test_cmd": test_cmd});
        json!({"action_agent": "a", "action_prompt": "p", "action_engine_options": options})
    };
    assert_eq!(words("engine", engine("x\n"))[4], "x\n");
    for test_cmd in ["", "\n", "x\n\n", "x\ny"] {
        assert_eq!(category("engine", engine(test_cmd)), "engine_options_invalid");
    }
    assert_eq!(category("command", json!({"action_command": "git\n"})), "command_not_allowlisted");
    assert_eq!(category("command", json!({"action_command": "git\n\n"})), "command_invalid");
    assert_eq!(category("agent", json!({"action_model": "m\n"})), "model_invalid");
}

#[test]
fn counts_are_integers_from_1_to_100() {
    let engine = |depth: Value| {
        let options = json!({"max_depth": depth});
        json!({"action_agent": "a", "action_prompt": "p", "action_engine_options": options})
    };
    let big: Value = serde_json::from_str("10000000000000000000000001").unwrap();
    for depth in [json!(0), json!(101), json!(-1), json!(1.0), json!(true), json!("5"), big] {
        assert_eq!(category("engine", engine(depth.clone())), "engine_options_invalid", "{depth}");
    }
    assert_eq!(words("engine", engine(json!(100)))[4], "100");
}

#[test]
fn the_engine_coding_needs_a_command_that_is_not_blank() {
    let args = |options: Value| json!({"action_agent": "coding", "action_prompt": "p", "action_engine_options": options});
    for options in [json!(null), json!({}), json!({"test_cmd": " "}), json!({"test_cmd": " \n"})] {
        assert_eq!(category("engine", args(options)), "engine_coding_needs_test_cmd");
    }
}

#[test]
fn a_triggers_value_is_not_in_the_message() {
    let args = json!({"action_command": "echo", "action_command_args": ["{{title}}"]});
    let error = launch("command", &args, &json!({"title": "$(secret)"})).unwrap_err();
    assert_eq!(error.category(), "command_arg_rendered_invalid");
    assert!(!error.to_string().contains("secret"));
}

/// Any JSON value, rich in what the rules look at.
fn any_value() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        "[-a-z./ {}\n\"']{0,6}",
        Just("{{title}}".to_owned()),
        Just("list".to_owned()),
        Just("--bypass".to_owned()),
    ];
    let scalar = prop_oneof![
        4 => word.prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        1 => Just(json!(null)),
        1 => any::<bool>().prop_map(Value::from),
    ];
    scalar.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::hash_map("[-a-z_]{0,5}", inner, 0..3)
                .prop_map(|entries| entries.into_iter().collect()),
        ]
    })
}

const KINDS: [&str; 7] = ["agent", "flow", "fanout", "play", "flow_yaml", "engine", "command"];

const FIELDS: [&str; 11] = [
    "action_model",
    "action_prompt",
    "action_agent",
    "action_project",
    "action_playbook",
    "action_playbook_args",
    "action_extra_args",
    "action_engine_options",
    "action_flow_yaml",
    "action_command",
    "action_command_args",
];

proptest! {
    /// What stands in front of `--`, apart from the options a launch writes itself, never looks
    /// like an option; nor does any word of a play but the options of its playbook.
    #[test]
    fn no_value_becomes_an_option(
        kind in prop::sample::select(&KINDS[..6]),
        args in prop::collection::hash_map(prop::sample::select(&FIELDS[..]), any_value(), 0..6),
        title in any_value(),
    ) {
        let args = args.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let Ok(argv) = launch(kind, &args, &json!({"title": title})) else { return Ok(()) };
        let texts: Vec<&str> = argv.arguments().iter().map(|argument| match argument {
            Argument::Text(text) => text.as_str(),
            Argument::YamlFile(_) => "FILE",
        }).collect();
        let own = ["--agent", "--project", "--model", "--max-depth", "--max-agents", "--test-cmd", "--export-dir", "-f"];
        let options = texts.iter().take_while(|text| **text != "--");
        let options: Vec<_> = options.filter(|text| text.starts_with('-') && !own.contains(text)).collect();
        if kind == "play" {
            let keys = args["action_playbook_args"].as_object().map_or(0, Map::len);
            let numbers = |text: &&&str| text.parse::<f64>().is_ok();
            prop_assert!(options.iter().filter(|text| !numbers(text)).count() <= keys, "{texts:?}");
        } else {
            prop_assert!(options.is_empty(), "{texts:?}");
            prop_assert!(texts.contains(&"--"));
        }
    }

    /// A message is one line, and short, whatever the task holds.
    #[test]
    fn a_refusal_is_one_short_line(
        kind in prop::sample::select(&KINDS[..]),
        args in prop::collection::hash_map(prop::sample::select(&FIELDS[..]), any_value(), 0..6),
    ) {
        let args = args.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        if let Err(error) = launch(kind, &args, &json!({})) {
            let message = error.to_string();
            prop_assert!(message.lines().count() == 1 && message.len() < 500, "{message}");
        }
    }
}
