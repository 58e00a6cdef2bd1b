use proptest::prelude::*;

use super::*;
use crate::config::Config;
use crate::domain::contract::{Check, Contract, ExpectedFile};
use crate::domain::notice::Notify;
use crate::domain::retry::RetryPolicy;
use crate::domain::settings::{TaskLimits, When};

const NOW: f64 = 1000.0;

fn read(text: &str) -> Result<Submission, SubmissionRefusal> {
    Submission::from_json_text(text, &Config::daemon().submit_rules(), NOW)
}

/// A task with these members beside its kind.
fn with(members: &str) -> Result<Submission, SubmissionRefusal> {
    read(&format!(r#"{{"action_kind": "agent", {members}}}"#))
}

#[test]
fn a_task_may_say_all_that_an_option_says() {
    let task = read(
        r#"{"action_kind": "playbook", "args": {"n": 1.0}, "execution_target": "process",
            "required_capabilities": ["a"], "library_ref": "r", "library_content_hash": "h", "idempotency_key": "k",
            "timeout": "2h", "grace": 2.5, "cwd": "/tmp", "env": {"A": "b"}, "stdin": "é\n",
            "after": "10m", "expires": "2026-12-01T08:00:00Z", "priority": -7,
            "max_failures": 3, "backoff": 0, "backoff_cap": "1m", "retry_on": [75, "SIGKILL"], "final": ["TERM"],
            "nofile": 64, "as": "4G", "cpu": 600,
            "notify": "https://h/", "notify_attempts": 3, "notify_within": "1h",
            "contract": {"files": [{"path": "report.md", "not_empty": true}], "check": {"argv": ["test", "x"], "timeout": 5}}}"#,
    )
    .unwrap();
    let app = TaskApplication {
        action_kind: "playbook".into(),
        args: serde_json::from_str(r#"{"n": 1.0}"#).unwrap(),
        execution_target: "process".into(),
        required_capabilities: vec!["a".into()],
        library_ref: Some("r".into()),
        library_content_hash: Some("h".into()),
        idempotency_key: Some("k".into()),
    };
    let settings = RunSettings {
        cwd: Some("/tmp".into()),
        env: [("A".to_string(), "b".to_string())].into(),
        timeout: Some(7200.0),
        grace: Some(2.5),
        retry: Some(RetryPolicy {
            max_failures: 3,
            base: 0.0,
            cap: 60.0,
            only: vec![75, -9],
            never: vec![-15],
        }),
        when: When { not_before: Some(1600.0), expires: Some(1_796_112_000.0), priority: -7 },
        limits: Some(TaskLimits {
            open_files: Some(64),
            address_space: Some(4 << 30),
            cpu_seconds: Some(600),
        }),
        contract: Some(Contract {
            files: vec![ExpectedFile { path: "report.md".into(), not_empty: true }],
            check: Some(Check { argv: vec!["test".into(), "x".into()], timeout: 5.0 }),
            ..Contract::default()
        }),
        notify: Some(Notify { attempts: 3, within: Some(3600.0), ..Notify::to("https://h/") }),
    };
    assert_eq!(task, Submission { app, settings, stdin: Some("é\n".into()) });
}

#[test]
fn what_is_left_out_or_null_is_the_default() {
    let plain = Submission::from(TaskApplication::new("agent", "host"));
    assert_eq!(read(r#"{"action_kind": "agent"}"#).unwrap(), plain);
    let nulls = "timeout grace cwd env stdin after expires priority max_failures backoff backoff_cap retry_on final \
                 nofile as cpu contract notify notify_attempts notify_within library_ref library_content_hash idempotency_key";
    for name in nulls.split_whitespace() {
        assert_eq!(with(&format!("\"{name}\": null")).unwrap(), plain, "{name}");
    }
}

#[test]
fn what_is_wrong_is_named_with_what_to_give() {
    let cases = [
        ("", "not valid JSON: EOF while parsing a value at byte 0"),
        ("{\"action_kind\": \"agent\"} x", "trailing characters at byte 26"),
        ("{\"action_kind\": \"agent\"}{}", "trailing characters"),
        ("[]", "a task is a JSON object, not an array"),
        ("\"x\"", "not a string"),
        ("{\"action_kind\": NaN}", "not valid JSON"),
        ("{}", "unknown action_kind None"),
        (
            "{\"action_kind\": \"a\", \"action_kind\": \"agent\"}",
            "\"action_kind\" is there twice at byte 34",
        ),
    ];
    for (text, words) in cases {
        let said = read(text).unwrap_err().to_string();
        assert!(said.contains(words), "{text}: {said}");
    }
    let cases = [
        (r#""x": 1"#, "unknown field 'x'", "unknown_field"),
        (r#""arg": {}"#, "retry_on, final, nofile", "unknown_field"),
        (r#""args": null"#, "args must be a dict", "args"),
        (
            r#""args": {"a": {"b": 1, "c": [{"d": 1, "\u0064": 2}]}}"#,
            "\"d\" is there twice",
            "not_json",
        ),
        (r#""execution_target": null"#, "unknown execution_target None", "execution_target"),
        (r#""execution_target": "moon"#, "EOF while parsing a string", "not_json"),
        (r#""idempotency_key": "a b""#, "visible characters", "idempotency_key"),
        (r#""idempotency_key": "\u0000""#, "visible characters", "idempotency_key"),
        (r#""timeout": true"#, "timeout cannot be a boolean: give a length", "timeout"),
        (r#""timeout": "soon""#, "timeout cannot be 'soon'", "timeout"),
        (r#""timeout": -1"#, "timeout cannot be -1", "timeout"),
        (r#""timeout": 0"#, "timeout cannot be 0 s", "timeout"),
        (r#""notify": "ftp://h/""#, "command:NAME", "notify"),
        (r#""notify": "https://h/", "notify_attempts": 0"#, "from 1 to 1000", "notify_attempts"),
        (r#""notify_within": "1h""#, "give notify too", "notify_within"),
        (r#""notify_attempts": 3"#, "give notify too", "notify_attempts"),
        (r#""grace": 1e400"#, "grace cannot be 1e+400", "grace"),
        (r#""after": 10"#, "after cannot be 10: give a text", "after"),
        (r#""after": "1h", "expires": "1m""#, "give a moment after", "expires"),
        (r#""expires": "tomorrow""#, "2026-12-01T08:00:00Z", "expires"),
        (r#""priority": 101"#, "from -100 to 100", "priority"),
        (r#""priority": 1.5"#, "from -100 to 100", "priority"),
        (r#""priority": 4294967296"#, "from -100 to 100", "priority"),
        (r#""cwd": "x""#, "an absolute path", "cwd"),
        (r#""cwd": 1"#, "give a string", "cwd"),
        (r#""env": ["A=b"]"#, "an object of strings", "env"),
        (r#""env": {"A": 1}"#, "env cannot be A=…", "env"),
        (r#""stdin": ["x"]"#, "stdin cannot be an array: give a string", "stdin"),
        (r#""contract": []"#, "contract cannot be an array", "contract"),
        (r#""contract": {"file": []}"#, "unknown field `file`", "contract"),
        (r#""stdin": 12345"#, "stdin cannot be a number", "stdin"),
        (r#""max_failures": 1001"#, "from 1 to 1000", "max_failures"),
        (r#""max_failures": 4294967297"#, "from 1 to 1000", "max_failures"),
        (r#""max_failures": 0"#, "from 1 to 1000", "max_failures"),
        (r#""backoff": "1s""#, "backoff cannot be alone: give max_failures too", "backoff"),
        (r#""final": [1]"#, "give max_failures too", "final"),
        (r#""max_failures": 2, "retry_on": 75"#, "a list of exit codes", "retry_on"),
        (r#""max_failures": 2, "retry_on": [0]"#, "retry_on cannot be 0", "retry_on"),
        (r#""max_failures": 2, "retry_on": [1.0]"#, "retry_on cannot be 1.0", "retry_on"),
        (r#""max_failures": 2, "final": ["kill"]"#, "final cannot be 'kill'", "final"),
        (r#""nofile": 0"#, "a number from 1", "nofile"),
        (r#""nofile": "64""#, "a whole number", "nofile"),
        (r#""as": "4 GB""#, "such as 1073741824 or 1G", "as"),
        (r#""cpu": -1"#, "a whole number", "cpu"),
    ];
    for (members, words, code) in cases {
        let refusal = with(members).unwrap_err();
        assert!(refusal.to_string().contains(words), "{members}: {refusal}");
        assert_eq!(refusal.code(), code, "{members}");
    }
}

#[test]
fn a_value_that_may_be_a_secret_is_not_said_again() {
    for members in [r#""env": {"A": ["hush"]}"#, r#""env": "hush""#, r#""stdin": ["hush"]"#] {
        let said = with(members).unwrap_err().to_string();
        assert!(!said.contains("hush"), "{said}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic_and_what_is_read_reads_the_same_again(text in ".{0,80}") {
        let _ = read(&text);
        let _ = with(&text);
    }

    #[test]
    fn a_member_that_is_there_twice_is_refused_wherever_it_is(
        name in "[a-z]{1,3}", depth in 0usize..5, first in 0i64..3, between in prop::collection::vec("[a-z]{4}", 0..3)
    ) {
        let others: String = between.iter().enumerate().map(|(n, other)| format!("\"{other}{n}\": {n}, ")).collect();
        let twice = format!(r#"{{"{name}": {first}, {others}"{name}": 1}}"#);
        let once = format!(r#"{{{others}"{name}": 1}}"#);
        let nested = |inner: &str| {
            let args = (0..depth).fold(inner.to_owned(), |inner, _| format!(r#"{{"x": [0, {inner}]}}"#));
            with(&format!(r#""args": {args}"#))
        };
        let said = nested(&twice).unwrap_err().to_string();
        prop_assert!(said.contains("is there twice"), "{}", said);
        prop_assert!(nested(&once).is_ok());
    }
}
