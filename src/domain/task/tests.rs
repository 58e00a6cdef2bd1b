use serde_json::json;

use super::*;

fn rules(allow: &str) -> SubmitRules {
    SubmitRules {
        idempotency: false,
        key_host: "testhost".into(),
        classes: CapabilityClasses::default(),
        allow_commands: AllowList::parse(allow),
        own_kinds: BTreeSet::new(),
        plans: false,
    }
}

fn refusal(app: &TaskApplication, allow: &str) -> SubmitRefusal {
    TaskSpec::check(app, &rules(allow)).unwrap_err()
}

#[test]
fn the_alias_is_resolved_and_the_application_stays_as_it_was() {
    let app = TaskApplication::new("playbook", "host");
    assert_eq!(TaskSpec::check(&app, &rules("")).unwrap().action_kind, "play");
    assert_eq!(app.action_kind, "playbook");
}

#[test]
fn command_is_an_unknown_kind_until_a_command_is_allowed() {
    let mut app = TaskApplication::new("command", "host");
    let message = refusal(&app, "").to_string();
    assert!(message.contains("unknown action_kind 'command'"), "{message}");
    assert!(!message.contains("'command',"), "not offered: {message}");

    assert_eq!(refusal(&app, "true").check(), "command_not_allowlisted");
    app.args.insert("action_command".into(), json!("rm"));
    let message = refusal(&app, "true,make").to_string();
    assert!(message.contains("'rm'") && message.contains("'make', 'true'"), "{message}");
    app.args.insert("action_command".into(), json!("make"));
    assert_eq!(TaskSpec::check(&app, &rules("true,make")).unwrap().action_kind, "command");
}

#[test]
fn nul_is_accepted_in_arguments_and_refused_elsewhere() {
    let mut app = TaskApplication::new("agent", "host");
    app.args.insert("prompt".into(), json!("a\0b"));
    assert!(TaskSpec::check(&app, &rules("")).is_ok());
    for field in ["required_capabilities", "library_ref", "library_content_hash"] {
        let mut app = app.clone();
        match field {
            "required_capabilities" => app.required_capabilities = vec!["a\0".into()],
            "library_ref" => app.library_ref = Some("\0".into()),
            _ => app.library_content_hash = Some("\0".into()),
        }
        assert_eq!(refusal(&app, ""), SubmitRefusal::Nul { field });
    }
}

#[test]
fn a_number_no_double_holds_is_refused() {
    let text = r#"{"action_kind":"agent","execution_target":"host","args":{"x":[1e400]}}"#;
    let refusal = TaskSpec::from_json_text(text, &rules("")).unwrap_err();
    assert_eq!(refusal.check(), "args_not_json");
}

#[test]
fn messages_stay_on_one_line() {
    let app = TaskApplication::new("a\nb'c", "host");
    let message = refusal(&app, "").to_string();
    assert!(message.contains(r"'a\nb\'c'") && !message.contains('\n'), "{message}");
}

#[test]
fn an_unknown_field_is_refused_by_name() {
    let text = r#"{"action_kind":"agent","execution_target":"host","args":{},"priority":3}"#;
    let refusal = TaskSpec::from_json_text(text, &rules("")).unwrap_err();
    assert_eq!(refusal.check(), "unknown_field");
    assert!(refusal.to_string().contains("'priority'"));
}

#[test]
fn arguments_are_as_deep_as_they_can_be_read_again() {
    let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    let mut app = TaskApplication::new("agent", "host");
    app.args.insert("x".into(), nested(126));
    let spec = TaskSpec::check(&app, &rules("")).unwrap();
    let text = crate::domain::json_text::object(&spec.args);
    assert!(crate::domain::json_text::parse(&text).is_ok());
    app.args.insert("x".into(), nested(127));
    assert_eq!(refusal(&app, ""), SubmitRefusal::TooDeep);
}

#[test]
fn a_kind_of_the_host_s_own_is_accepted_where_it_is_named() {
    let app = TaskApplication::new("thumbnail", "host");
    let mut rules = rules("");
    let refusal = TaskSpec::check(&app, &rules).unwrap_err();
    assert_eq!(refusal.check(), "action_kind");
    rules.own_kinds.insert("thumbnail".into());
    assert_eq!(TaskSpec::check(&app, &rules).unwrap().action_kind, "thumbnail");
    let other = TaskApplication::new("x", "host");
    assert!(TaskSpec::check(&other, &rules).unwrap_err().to_string().contains("'thumbnail'"));
}

#[test]
fn each_step_of_a_workflow_is_checked_as_a_task_where_plans_are() {
    let step = |kind: &str, command: &str| json!({"name": "s", "kind": kind, "args": {"action_command": command}});
    let mut app = TaskApplication::new("workflow", "host");
    let mut refused = |steps: serde_json::Value, checked| {
        app.args.insert("steps".into(), steps);
        let rules = SubmitRules { plans: checked, ..rules("make") };
        TaskSpec::check(&app, &rules).err()
    };
    let good = json!([step("command", "make"), step("agent", "")]);
    assert_eq!(refused(good, true), None);
    for (steps, check, said) in [
        (json!([]), "workflow_plan", "needs a list of steps"),
        (
            json!([step("agent", ""), step("command", "rm")]),
            "command_not_allowlisted",
            "step 2 \"s\": the command 'rm' is not allowed",
        ),
        (json!([step("thumbnail", "")]), "action_kind", "step 1 \"s\": unknown action_kind"),
    ] {
        let refusal = refused(steps.clone(), true).unwrap();
        assert_eq!(refusal.check(), check);
        assert!(refusal.to_string().contains(said), "{refusal}");
        assert_eq!(refused(steps, false), None, "the contract looks at no arguments");
    }
}
