//! What `submit` refuses, with a reason on one line and before anything is written.

use leasehold::domain::task::{TaskApplication, TaskSpec};

use crate::places::{Place, engines};
use crate::program::{Bench, run};

#[test]
fn bad_input_gets_its_reason_and_makes_no_store() {
    let kinds = "use one of 'agent', 'engine', 'fanout', 'flow', 'flow_yaml', 'play', 'playbook', 'workflow'";
    let nan = "Out of range float values are not JSON compliant";
    let cases: &[(&[&str], &str)] = &[
        (&["zz"], kinds),
        (&["Agent"], kinds),
        (&[""], kinds),
        (&["zz", "--target", "zz", "--needs", ""], kinds),
        (&["agent", "--target", "moon"], "use one of 'daytona', 'host'"),
        (&["agent", "--target", ""], "unknown execution_target ''"),
        (&["agent", "--needs", "a", "--needs", ""], "a list of non-empty strings, not"),
        (&["agent", "--args", "[1]"], "args must be a dict (a JSON object), not an array"),
        (&["agent", "--args", "null", "--arg", "a=b"], "not null"),
        (&["agent", "--args", ""], "args are not valid JSON"),
        (&["agent", "--args", "{\"a\": NaN}"], nan),
        (&["agent", "--args", "{\"a\": -Infinity}"], nan),
        (&["agent", "--args", "{\"a\": 1e400}"], "the number 1e+400"),
        (&["agent", "--arg", "a:=NaN"], nan),
        (&["agent", "--arg", "a:=word"], "--arg \"a\": args are not valid JSON"),
        (&["agent", "--arg", "a:="], "--arg \"a\""),
        (&["agent", "--args", "{\"a\": \"\\ud800\"}"], "args are not valid JSON"),
        (&["agent", "--arg", "=v"], "has no key"),
        (&["agent", "--arg", ":=1"], "has no key"),
        (&["agent", "--arg", "word"], "has no '='"),
        (&["agent", "--arg", "a=1", "--arg", "a:=1"], "the argument \"a\" is given twice"),
        (&["agent", "--args", "{\"a\": 1}", "--arg", "a=1"], "given twice"),
        (&["agent", "--args", "@missing.json"], "No such file"),
        (&["agent", "--args", "@."], "Is a directory"),
        (&["agent", "--args", "@"], "cannot read --args from the file \"\""),
        (&["agent", "--args", "@/dev/zero"], "more than 64 MiB"),
        (&["agent", "--arg", "action_prompt:=\"a\\u0000b\""], "contains a NUL byte"),
        (&["command", "--", "true"], "a command needs --allow-command"),
        (&["command", "--allow-command", "true", "--", "./x"], "use one of 'true'"),
        (&["command", "--allow-command", "./x", "--", "./x"], "is not a program name"),
        (&["command", "--allow-command=-x", "--", "-x"], "is not a program name"),
        (&["command", "--allow-command", "true"], "the command '' is not allowed"),
        (
            &["command", "--allow-command", "a", "--arg", "action_command=a", "--", "a"],
            "\"action_command\" is given twice",
        ),
        (
            &["command", "--allow-command", "a", "--arg", "action_extra_args:=[1]", "--", "a"],
            "a command task takes no action_extra_args",
        ),
        (&["a\u{1b}]52;c;eA==\u{7}\r\nb\u{202e}"], "'a\\u{1b}]52;c;eA==\\u{7}\\r\\nb\\u{202e}'"),
        (&["agent", "--arg", "\u{9b}2J"], "\\u{9b}2J"),
    ];
    for engine in engines() {
        let bench = Bench::new(engine);
        for (words, reason) in cases {
            let words: Vec<&str> = ["submit"].iter().chain(*words).copied().collect();
            bench.run(&words).refused(1, reason);
        }
        let nested = format!("{{\"a\": {}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        bench
            .run_reading(&["submit", "agent", "--args", "-"], nested.as_bytes())
            .refused(1, "recursion limit");
        bench
            .run_reading(&["submit", "agent", "--args", "-"], b"{\"a\": \"\xff\"}")
            .refused(1, "cannot read --args from standard input: it is not valid UTF-8");
        assert!(bench.is_untouched(), "{engine:?}");
    }
}

#[test]
fn a_prompt_that_no_program_could_be_given_is_refused() {
    for engine in engines() {
        let bench = Bench::new(engine);
        for (kind, bytes) in [("agent", 200_000), ("flow", 200_000), ("fanout", 300_000)] {
            let args = format!("{{\"action_prompt\": \"{}\"}}", "x".repeat(bytes));
            let answer = bench.run_reading(&["submit", kind, "--args", "-"], args.as_bytes());
            answer.refused(1, "no worker could start this task: ");
        }
        // A flow file goes by its path: there is no argument to be too long.
        let step = |kind: &str, key: &str| {
            format!(r#"{{"kind": "{kind}", "args": {{"{key}": "{}"}}}}"#, "x".repeat(200_000))
        };
        let yaml = format!(r#"{{"action_flow_yaml": "{}"}}"#, "x".repeat(200_000));
        bench.run_reading(&["submit", "flow_yaml", "--args", "-"], yaml.as_bytes()).done();
        let plan = format!(r#"{{"steps": [{}]}}"#, step("flow_yaml", "action_flow_yaml"));
        bench.run_reading(&["submit", "workflow", "--args", "-"], plan.as_bytes()).done();
        let plan = format!(r#"{{"steps": [{}]}}"#, step("agent", "action_prompt"));
        let answer = bench.run_reading(&["submit", "workflow", "--args", "-"], plan.as_bytes());
        answer.refused(1, "step 1: no worker could start this task: ");
    }
}

#[test]
fn a_workflow_that_could_never_run_is_refused_and_makes_no_store() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let step = r#"{"name": "b", "kind": "command", "args": {"action_command": "rm"}}"#;
        for (args, said) in [
            ("{}".to_owned(), "a workflow needs a list of steps: give "),
            (r#"{"steps": [{"kind": "workflow"}]}"#.into(), "step 1 is a workflow itself"),
            (
                r#"{"steps": [{"kind": "nonsense"}]}"#.into(),
                "step 1: unknown action_kind 'nonsense'",
            ),
            (
                format!(r#"{{"steps": [{{"kind": "agent"}}, {step}]}}"#),
                "step 2 \"b\": the command 'rm' is not allowed",
            ),
        ] {
            let words = ["submit", "workflow", "--allow-command", "make", "--args", "-"];
            bench.run_reading(&words, args.as_bytes()).refused(1, said);
        }
        bench.run(&["list"]).refused(1, "");
    }
}

#[test]
fn an_allow_list_that_is_no_text_is_refused() {
    use std::os::unix::ffi::OsStrExt;
    let bench = Bench::new(crate::places::Engine::Sqlite);
    let mut command = bench.command(["submit", "command", "--", "true"]);
    command.env("LEASEHOLD_ALLOW_COMMANDS", std::ffi::OsStr::from_bytes(b"true,\xff"));
    run(&mut command).refused(1, "LEASEHOLD_ALLOW_COMMANDS is not valid UTF-8");
}

/// Neither can be said on a command line: a word holds no NUL, and there is no option for a key.
#[test]
fn nul_and_idempotency_keys_are_refused_by_the_library() {
    for engine in engines() {
        let place = Place::new(engine);
        let rules = place.queue().config().submit_rules();
        let nul: [fn(&mut TaskApplication); 3] = [
            |app| app.required_capabilities = vec!["a\0".into()],
            |app| app.library_ref = Some("\0".into()),
            |app| app.library_content_hash = Some("\0".into()),
        ];
        for spoil in nul {
            let mut app = TaskApplication::new("agent", "host");
            spoil(&mut app);
            assert_eq!(TaskSpec::check(&app, &rules).unwrap_err().check(), "nul");
            assert!(place.queue().submit_task(&app).unwrap_err().is_invalid());
        }
        let mut app = TaskApplication::new("agent", "host");
        app.idempotency_key = Some("k".into());
        let error = place.queue().submit_task(&app).unwrap_err();
        assert!(error.to_string().contains("leave the key out"), "{error}");
    }
}
