//! What `submit` stores.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use crate::places::{Engine, engines};
use crate::program::{Bench, leasehold, run};

#[test]
fn only_the_id_is_printed_and_the_task_is_there() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let id = bench.submit(&["agent", "--arg", "action_prompt=say hi"]);
        let row = bench.json(&["show", &id, "--json"]);
        assert_eq!(row["id"], json!(id));
        assert_eq!(row["status"], json!("queued"));
        assert_eq!(row["execution_target"], json!("host"));
        assert_eq!(row["required_capabilities"], json!([]));
        assert_eq!(row["action_args"], json!({"action_prompt": "say hi"}));
    }
}

#[test]
fn every_option_reaches_its_column() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let id = bench.submit(&[
            "playbook",
            "--target",
            "local_worktree",
            "--needs",
            "repo_write",
            "--needs",
            "gpu",
            "--needs",
            "gpu",
            "--library-ref",
            "lib@1",
            "--library-hash",
            "sha256:00",
        ]);
        let row = bench.json(&["show", &id, "--json"]);
        assert_eq!(row["action_kind"], json!("play"));
        assert_eq!(row["execution_target"], json!("local_worktree"));
        assert_eq!(row["required_capabilities"], json!(["repo_write", "gpu", "gpu"]));
        assert_eq!(row["library_ref"], json!("lib@1"));
        assert_eq!(row["library_content_hash"], json!("sha256:00"));
    }
}

#[test]
fn arguments_come_from_a_text_a_file_standard_input_and_single_keys() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let text = r#"{"z": 1.50, "a": [18446744073709551616, null], "s": "é\u0000"}"#;
        std::fs::write(bench.place.dir.path().join("task.json"), text).unwrap();
        let more = ["--arg", "b=c=d", "--arg", "n:={\"x\": 1e2}", "--arg", "u:v=:=w"];
        let from_text = bench.submit(&[&["flow", "--args", text], &more[..]].concat());
        let from_file = bench.submit(&[&["flow", "--args", "@task.json"], &more[..]].concat());
        let words = [&["submit", "flow", "--args", "-"], &more[..]].concat();
        let from_stdin = bench.run_reading(&words, text.as_bytes()).done();
        for id in [&from_text, &from_file, from_stdin.trim_end()] {
            let shown = bench.run(&["show", id, "--json"]).done();
            let expected = r#""action_args":{"z":1.50,"a":[18446744073709551616,null],"s":"é\u0000","b":"c=d","n":{"x":1e+2},"u:v":":=w"}"#;
            assert!(shown.contains(expected), "{shown}");
        }
    }
}

#[test]
fn a_command_is_stored_once_a_list_allows_it() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let echo = ["submit", "command", "--", "echo", "-n", "--", "a b", ""];
        let refused = bench.run(&echo).refused(1, "unknown action_kind 'command'");
        assert!(refused.ends_with("a command needs --allow-command NAME"), "{refused}");
        assert!(bench.is_untouched());

        let by_flag = ["submit", "command", "--allow-command", "ls,echo", "--", "echo"];
        let id = bench.run(&by_flag).done();
        let expected = json!({"action_command": "echo", "action_command_args": []});
        assert_eq!(bench.stored_args(id.trim_end()), expected);

        for name in ["LEASEHOLD_ALLOW_COMMANDS", "LIONAGI_SCHEDULER_COMMAND_ALLOWLIST"] {
            let id = run(bench.command(echo).env(name, "git, echo")).done();
            let args = bench.stored_args(id.trim_end());
            assert_eq!(args["action_command_args"], json!(["-n", "--", "a b", ""]));
        }
    }
}

#[test]
fn the_lists_of_allowed_commands_are_united() {
    let bench = Bench::new(Engine::Sqlite);
    for name in ["one", "two", "three", "four"] {
        let mut command = bench.command(["submit", "command", "--allow-command", "one"]);
        command.args(["--allow-command", "two", "--", name]);
        command.env("LEASEHOLD_ALLOW_COMMANDS", "three");
        command.env("LIONAGI_SCHEDULER_COMMAND_ALLOWLIST", "four");
        run(&mut command).done();
    }
}

#[test]
fn a_task_that_will_fail_is_queued_all_the_same() {
    for engine in engines() {
        let bench = Bench::new(engine);
        for words in [
            &["agent"][..],
            &["engine"],
            &["workflow", "--arg", r#"steps:=[{"kind": "agent"}]"#],
            &["agent", "--arg", "action_model=-m"],
            &["flow_yaml", "--arg", "action_extra_args:=[1]"],
            &["agent", "--args", "{\"unused\": \"\\u0000\"}"],
        ] {
            bench.submit(words);
        }
    }
}

#[test]
fn the_longest_argument_that_a_program_takes_is_accepted() {
    let bench = Bench::new(Engine::Sqlite);
    let prompt = |bytes| format!("{{\"action_prompt\": \"{}\"}}", "x".repeat(bytes)).into_bytes();
    let words = ["submit", "agent", "--args", "-"];
    bench.run_reading(&words, &prompt(131_071)).done();
    bench.run_reading(&words, &prompt(131_072)).refused(1, "has 131072 bytes");
}

#[test]
fn the_default_store_is_private() {
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    for xdg in [true, false] {
        let home = tempfile::tempdir().unwrap();
        let state = home.path().join(if xdg { "a/state" } else { ".local/state" });
        let program = |words: &[&str]| {
            let mut command = leasehold();
            command.args(words).env("HOME", home.path());
            if xdg {
                command.env("XDG_STATE_HOME", &state);
            } else {
                // Neither says anything: one is empty, and a relative path is invalid.
                command.env("XDG_STATE_HOME", "relative").env("LEASEHOLD_STORE", "");
            }
            run(&mut command)
        };
        program(&["list"]).refused(1, "there is no store");
        assert_eq!(home.path().read_dir().unwrap().count(), 0, "a reader made something");
        program(&["submit", "agent"]).done();
        let directory = state.join("leasehold");
        assert_eq!(mode(&directory), 0o700);
        assert_eq!(mode(&directory.join("queue.db")), 0o600);
        assert_eq!(program(&["list"]).done().lines().count(), 2);
    }
}

#[test]
fn a_named_store_is_private_and_its_directory_is_not_made() {
    let bench = Bench::new(Engine::Sqlite);
    bench.submit(&["agent", "--store", "sqlite:named.db"]);
    let made = bench.place.dir.path().join("named.db").metadata().unwrap();
    assert_eq!(made.permissions().mode() & 0o777, 0o600);
    let refused = bench.run(&["submit", "agent", "--store", "sqlite:no/such/queue.db"]);
    refused.refused(1, "check that the directory exists");
}
