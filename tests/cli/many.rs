//! `submit --from`: the tasks of a file, one per line.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::places::{Engine, engines};
use crate::program::{Answer, Bench, run};

fn agent(prompt: &str) -> String {
    format!(r#"{{"action_kind": "agent", "args": {{"action_prompt": "{prompt}"}}}}"#)
}

fn keyed(key: &str) -> String {
    format!(r#"{{"action_kind": "agent", "args": {{}}, "idempotency_key": "{key}"}}"#)
}

fn from_stdin(bench: &Bench, words: &[&str], input: impl AsRef<[u8]>) -> Answer {
    bench.run_reading(&[&["submit", "--from", "-"], words].concat(), input.as_ref())
}

fn count(bench: &Bench) -> usize {
    let sql = "SELECT CAST(count(*) AS TEXT) AS value FROM schedule_runs";
    bench.place.raw().texts(sql)[0].as_ref().unwrap().parse().unwrap()
}

fn prompts(bench: &Bench, ids: &str) -> Vec<String> {
    let prompt = |id| bench.stored_args(id)["action_prompt"].as_str().unwrap().to_owned();
    ids.lines().map(prompt).collect()
}

#[test]
fn each_line_is_a_task_and_the_ids_are_printed_in_their_order() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let file = format!(
            "\u{feff}{}\r\n\n  \t\r\n  {}  \n{}",
            agent("one"),
            agent("two"),
            agent("the last, without an end")
        );
        std::fs::write(bench.place.dir.path().join("tasks.jsonl"), &file).unwrap();
        let ids = bench.run(&["submit", "--from", "tasks.jsonl"]).done();
        assert_eq!(prompts(&bench, &ids), ["one", "two", "the last, without an end"]);
        let ids = from_stdin(&bench, &["--json"], &file).done();
        let lines: Vec<Value> =
            ids.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let numbers: Vec<_> = lines.iter().map(|line| line["line"].clone()).collect();
        assert_eq!(numbers, [1, 4, 5]);
        assert!(lines.iter().all(|line| line["id"].as_str().unwrap().len() == 36), "{ids}");
        assert_eq!(count(&bench), 6);
    }
}

#[test]
fn a_line_says_the_same_as_the_options() {
    let words = [
        "submit",
        "playbook",
        "--key",
        "k",
        "--args",
        r#"{"n": 1.0, "big": 18446744073709551616}"#,
        "--target",
        "process",
        "--needs",
        "a",
        "--needs",
        "b",
        "--library-ref",
        "r",
        "--library-hash",
        "h",
        "--timeout",
        "2h",
        "--grace",
        "1.5",
        "--cwd",
        "/tmp",
        "--env",
        "A=b",
        "--max-failures",
        "3",
        "--backoff",
        "2s",
        "--backoff-cap",
        "1m",
        "--retry-on",
        "75",
        "--retry-on",
        "SIGKILL",
        "--final",
        "TERM",
        "--nofile",
        "64",
        "--as",
        "4G",
        "--cpu",
        "600",
        "--stdin",
        "-",
        "--expect-filled",
        "out",
        "--expect-json",
        "stdout",
        "--check",
        r#"["true", "-x"]"#,
        "--check-timeout",
        "5s",
        "--expect-no-leftovers",
        "--allow-command",
        "true",
    ];
    let line = r#"{"contract": {"no_leftovers": true, "check": {"timeout": 5.0, "argv": ["true", "-x"]}, "json": {"schema": true},
        "files": [{"path": "out", "not_empty": true}]}, "stdin": "input\n", "cpu": 600, "as": "4G", "nofile": 64, "final": ["TERM"],
        "retry_on": [75, "SIGKILL"], "backoff_cap": 60, "backoff": "2s", "max_failures": 3, "env": {"A": "b"},
        "cwd": "/tmp", "grace": 1.5, "timeout": "2h", "library_content_hash": "h", "library_ref": "r",
        "required_capabilities": ["a", "b"], "execution_target": "process", "idempotency_key": "k",
        "args": {"big": 18446744073709551616, "n": 1.0}, "action_kind": "playbook"}"#;
    let line = line.replace('\n', " ");
    for engine in engines() {
        let bench = Bench::new(engine);
        // The key stands for all of it: what differed anywhere would be refused.
        let id = bench.run_reading(&words, b"input\n").done();
        let allowed = ["--allow-command", "true"];
        assert_eq!(from_stdin(&bench, &allowed, &line).done(), id);
        let said = from_stdin(&bench, &[], &line).err;
        assert!(said.contains("line 1: ") && said.contains("--allow-command"), "{said}");
        let other = line.replace("600", "601");
        let said = from_stdin(&bench, &allowed, other).err;
        assert!(said.contains("line 1: the key \"k\" stands for the task"), "{said}");

        // When it is to be started is no part of that.
        let line = r#"{"action_kind": "agent", "after": "1h", "expires": "2100-01-01T00:00:00Z", "priority": 2}"#;
        let id = from_stdin(&bench, &[], line).done();
        let row = bench.json(&["show", id.trim(), "--json"]);
        assert_eq!(row["status"], "waiting_dependency");
        let (created, queued) = (row["created_at"].as_f64(), row["queued_at"].as_f64());
        assert_eq!(created.unwrap() - queued.unwrap(), 120.0);
        let times = "SELECT CAST(wake_at AS TEXT) AS value FROM leasehold_runs WHERE expires_at = 4102444800";
        let wakes: Vec<f64> = bench
            .place
            .raw()
            .texts(times)
            .into_iter()
            .flatten()
            .map(|t| t.parse().unwrap())
            .collect();
        assert!((wakes[0] - created.unwrap() - 3600.0).abs() < 60.0, "{wakes:?}");
    }
}

#[test]
fn a_bad_line_is_named_and_keeps_no_other_from_being_stored() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let good = bench.submit(&["agent", "--key", "taken", "--arg", "n=1"]);
        let bad: [(&[u8], &str, &str); 13] = [
            (b"{\"action_kind\": \"poem\"}", "unknown action_kind 'poem'", "action_kind"),
            (b"{\"action_kind\": \"agent\"} {}", "trailing characters at byte 26", "not_json"),
            (
                b"{\"action_kind\": \"agent\", \"action_kind\": \"flow\"}",
                "is there twice",
                "not_json",
            ),
            (b"{\"action_kind\": \"agent\"", "EOF while parsing", "not_json"),
            (b"\xff\xfe{}", "not valid UTF-8 at byte 1", "unreadable"),
            (b"{\"action_kind\": \"a\0\"}", "a NUL byte, at byte 19", "unreadable"),
            (b"[]", "a task is a JSON object, not an array", "not_an_object"),
            (b"{\"action_kind\": \"agent\", \"nice\": 1}", "unknown field 'nice'", "unknown_field"),
            (
                b"{\"action_kind\": \"agent\", \"timeout\": \"x\"}",
                "timeout cannot be 'x'",
                "timeout",
            ),
            (
                b"{\"action_kind\": \"agent\", \"args\": {\"a\": 1e400}}",
                "the number 1e+400",
                "args_not_json",
            ),
            (
                b"{\"action_kind\": \"command\", \"args\": {}}",
                "needs --allow-command",
                "action_kind",
            ),
            (
                b"{\"action_kind\": \"agent\", \"args\": {\"action_prompt\": \"\\u0000\"}}",
                "no worker could start this task",
                "never_starts",
            ),
            (
                b"{\"action_kind\": \"agent\", \"idempotency_key\": \"taken\"}",
                &good,
                "idempotency_conflict",
            ),
        ];
        let mut file = Vec::new();
        for (line, _, _) in &bad {
            file.extend_from_slice(agent("good").as_bytes());
            file.push(b'\n');
            file.extend_from_slice(line);
            file.push(b'\n');
        }
        let answer = from_stdin(&bench, &["--json"], &file);
        assert_eq!(answer.code, Some(1));
        let said: Vec<&str> = answer.err.lines().collect();
        let lines: Vec<Value> =
            answer.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((said.len(), lines.len()), (bad.len() + 1, 2 * bad.len()), "{said:?}");
        for (place, (_, reason, code)) in bad.iter().enumerate() {
            let number = 2 * place + 2;
            assert!(said[place].starts_with(&format!("leasehold: line {number}: ")), "{said:?}");
            assert!(said[place].contains(reason), "{} does not say {reason}", said[place]);
            let (good, bad) = (&lines[number - 2], &lines[number - 1]);
            assert_eq!(good["line"], number - 1);
            assert_eq!(bench.stored_args(good["id"].as_str().unwrap())["action_prompt"], "good");
            assert_eq!((&bad["line"], &bad["code"]), (&json!(number), &json!(code)));
            assert!(said[place].ends_with(bad["error"].as_str().unwrap()), "{bad}");
        }
        let last = said.last().unwrap();
        assert_eq!(*last, "leasehold: tasks are refused: 13 of 26; the others are stored");
        assert_eq!(count(&bench), 1 + bad.len());
        // Without --json nothing stands there for a line that is refused.
        let answer = from_stdin(&bench, &[], &file);
        assert_eq!((answer.code, answer.out.lines().count()), (Some(1), bad.len()));
    }
}

#[test]
fn a_store_is_made_for_a_task_only() {
    for engine in engines() {
        let bench = Bench::new(engine);
        for empty in ["", "\n\n", "\u{feff}", "  \r\n"] {
            assert_eq!(from_stdin(&bench, &[], empty).done(), "");
            assert_eq!(from_stdin(&bench, &["--atomic"], empty).done(), "");
        }
        assert_eq!(from_stdin(&bench, &[], "{}\n[]\n").code, Some(1));
        bench.run(&["submit", "--from", "no-such-file"]).refused(1, "cannot read --from");
        bench.run(&["submit", "--from", "."]).refused(1, "Is a directory");
        for words in [&["--from"][..], &["--atomic"], &["--json"], &["agent", "--atomic"]] {
            bench.run(&[&["submit"], words].concat()).wrong_usage("");
        }
        assert!(bench.is_untouched());
    }
}

#[test]
fn all_or_none_is_stored_as_asked() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let atomic = |lines: &[String]| from_stdin(&bench, &["--atomic"], lines.join("\n"));
        let refused = |lines: &[String], words: &str| {
            let answer = atomic(lines);
            assert_eq!((answer.code, answer.out.as_str()), (Some(1), ""), "{}", answer.err);
            assert!(answer.err.contains(words), "{}\ndoes not say: {words}", answer.err);
            assert!(
                answer.err.ends_with("so none is stored, as --atomic asks\n"),
                "{}",
                answer.err
            );
        };
        let (a, b) = (keyed("a"), keyed("b"));
        refused(&[a.clone(), String::new(), "{}".into()], "line 3: unknown action_kind");
        assert!(bench.is_untouched(), "what is wrong by itself is seen before");
        let other_b = b.replace("{}", "{\"n\": 1}");
        let twice = "line 3: the key \"b\" stands for line 2, which is another task";
        refused(&[a.clone(), b.clone(), other_b.clone()], twice);

        let ids = atomic(&[a.clone(), b.clone(), a.clone()]).done();
        let ids: Vec<&str> = ids.lines().collect();
        assert_eq!((ids.len(), ids[0]), (3, ids[2]));
        assert_eq!(count(&bench), 2);
        // A key that is taken refuses all, and those of the others are free again.
        refused(
            &[keyed("c"), other_b.clone(), keyed("d")],
            &format!("stands for the task {}", ids[1]),
        );
        assert_eq!(count(&bench), 2);
        let next = atomic(&[keyed("c"), b.clone()]).done();
        assert_eq!(next.lines().nth(1), Some(ids[1]));
        assert_eq!(count(&bench), 3);

        let said =
            from_stdin(&bench, &["--atomic", "--json"], [keyed("e"), other_b].join("\n")).out;
        let said: Vec<Value> =
            said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let codes: Vec<_> = said.iter().map(|line| line["code"].as_str().unwrap()).collect();
        assert_eq!(codes, ["batch_refused", "idempotency_conflict"]);
        assert_eq!(count(&bench), 3);
    }
}

#[test]
fn all_or_none_has_a_bound() {
    let bench = Bench::new(Engine::Sqlite);
    let most = "{\"action_kind\": \"agent\"}\n".repeat(10_000);
    let more = format!("{most}{{\"action_kind\": \"agent\"}}\n");
    from_stdin(&bench, &["--atomic"], more).refused(1, "has more than 10000 tasks");
    assert!(bench.is_untouched());
    assert_eq!(from_stdin(&bench, &["--atomic"], most).done().lines().count(), 10_000);
    assert_eq!(count(&bench), 10_000);
}

#[test]
fn what_has_come_is_stored_before_more_comes() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let mut command = bench.command(["submit", "--from", "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut ids = BufReader::new(output).lines();
        for number in 1..=3 {
            // The beginning of the next line holds nothing back.
            input.write_all(format!("{}\n{{\"action", agent("x")).as_bytes()).unwrap();
            let id = ids.next().unwrap().unwrap();
            bench.run(&["show", &id]).done();
            input.write_all(b"_kind\": \"flow\"}\n").unwrap();
            ids.next().unwrap().unwrap();
            assert_eq!(count(&bench), 2 * number);
        }
        drop(input);
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn who_is_killed_and_runs_again_stores_every_keyed_task_once() {
    const TASKS: usize = 3000;
    for engine in engines() {
        let bench = Bench::new(engine);
        bench.submit(&["flow"]);
        let file: String = (0..TASKS).map(|n| keyed(&format!("k{n}")) + "\n").collect();
        std::fs::write(bench.place.dir.path().join("tasks.jsonl"), file).unwrap();
        let mut printed: Vec<String> = Vec::new();
        let mut longest = 0;
        for round in 1..=12 {
            let mut submit = bench.command(["submit", "--from", "tasks.jsonl"]);
            let mut child = submit.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(round * 12));
            child.kill().unwrap();
            let mut out = String::new();
            child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
            child.wait().unwrap();
            let whole = out.rfind('\n').map_or("", |end| &out[..end]);
            let ids: Vec<String> = whole.lines().map(str::to_owned).collect();
            let both = ids.len().min(printed.len());
            assert_eq!(ids[..both], printed[..both], "the same tasks have the same ids");
            longest = longest.max(ids.len());
            if ids.len() > printed.len() {
                printed = ids;
            }
        }
        let ids = bench.run(&["submit", "--from", "tasks.jsonl"]).done();
        let ids: Vec<&str> = ids.lines().collect();
        assert_eq!(ids.len(), TASKS);
        assert_eq!(ids[..printed.len()], printed);
        assert_eq!(count(&bench), 1 + TASKS);
        println!("{}: {longest} of {TASKS} ids were printed before a kill", engine.name());
    }
}

#[test]
fn neither_an_endless_line_nor_an_endless_file_is_held() {
    let bench = Bench::new(Engine::Sqlite);
    let program = env!("CARGO_BIN_EXE_leasehold");
    // 60 MB of one line, and 40 MB of lines that are tasks, where the program has 30 MB beside its own.
    let filler = "x".repeat(100_000);
    let task = format!(
        r#"{{"action_kind": "flow_yaml", "args": {{"action_flow_yaml": "{filler}"}}, "idempotency_key": "k"}}"#
    );
    std::fs::write(bench.place.dir.path().join("task"), task).unwrap();
    let script = format!(
        r#"{{ head -c 60000000 /dev/zero | tr '\0' x; echo; yes "$(cat task)" | head -n 400; }} |
           {{ ulimit -v 64000; exec {program} submit --from - 2>err; }} | sort -u"#
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).env("LEASEHOLD_STORE", &bench.place.url);
    let answer = run(shell.current_dir(bench.place.dir.path()));
    let said = std::fs::read_to_string(bench.place.dir.path().join("err")).unwrap();
    assert_eq!(
        said,
        "leasehold: line 1: it has more than 16 MiB: make it shorter\n\
         leasehold: tasks are refused: 1 of 401; the others are stored\n"
    );
    assert_eq!(answer.out.lines().count(), 1, "{answer:?}");
    assert_eq!(count(&bench), 1);
}
