//! Tasks that must leave more behind than exit code 0.

use std::fs;

use rustix::process::Signal;

use crate::bench::{Bench, on_engines, until};

/// How tasks are run.
const BOTH: [&[&str]; 2] = [&[], &["--supervision", "direct"]];

fn submit(bench: &Bench, options: &[&str], script: &str) -> String {
    let cwd = bench.place.dir.path().to_str().unwrap();
    bench.submit_script(&[&["--cwd", cwd], options].concat(), script)
}

fn work(bench: &Bench, words: &[&str]) {
    bench.work(&[&["--until-empty"], words].concat());
}

/// How it ended, in one line.
#[track_caller]
fn ended(bench: &Bench, id: &str) -> String {
    let run = bench.run(id);
    assert_eq!(run.exit_code, Some(0), "{run:?}");
    let code = run.status_reason_code.unwrap();
    format!("{} {code}: {}", run.status, run.status_reason_summary.unwrap())
}

fn unmet(why: &str) -> String {
    format!("failed run.failed.contract_unmet: exit code 0, but the contract is not met: {why}")
}

const MET: &str = "completed run.completed.ok: task execution completed";

#[test]
fn a_file_must_be_there_regular_new_and_filled() {
    on_engines(|bench| {
        for (round, supervision) in BOTH.into_iter().enumerate() {
            let name = |name: &str| format!("{name}{round}");
            let old = name("old");
            fs::write(bench.file(&old), "x").unwrap();
            let before = bench.file(&old).metadata().unwrap().modified().unwrap();
            // Its time is past any tick of the clock of files.
            until(|| match before.elapsed().unwrap().as_millis() {
                100.. => Ok(()),
                passed => Err(passed.to_string()),
            });
            let made = name("made");
            let absolute = bench.file(&made).to_str().unwrap().to_owned();
            let cases: [(&[&str], String, String); 11] = [
                (
                    &["--expect-file", &made, "--expect-filled", &absolute],
                    format!("echo x >{made}"),
                    MET.into(),
                ),
                (
                    &["--expect-file", "nothing"],
                    "true".into(),
                    unmet("the file \"nothing\" is not there"),
                ),
                (
                    &["--expect-file", &old],
                    "true".into(),
                    unmet(&format!(
                        "the file \"{old}\" was there before the task was started, and is unchanged"
                    )),
                ),
                (&["--expect-file", &old, "--expect-old"], "true".into(), MET.into()),
                (
                    &["--expect-filled", "empty"],
                    ">empty".into(),
                    unmet("the file \"empty\" is empty"),
                ),
                (
                    &["--expect-file", "dir"],
                    "mkdir -p dir".into(),
                    unmet("the file \"dir\" is a directory, and no regular file"),
                ),
                (
                    &["--expect-file", "fifo"],
                    "mkfifo fifo || true".into(),
                    unmet("the file \"fifo\" is a pipe, a socket or a device, and no regular file"),
                ),
                (
                    &["--expect-json", "fifo"],
                    "mkfifo fifo || true".into(),
                    unmet("the file \"fifo\" is a pipe, a socket or a device, and no regular file"),
                ),
                (
                    &["--expect-file", "link"],
                    "echo x >target; ln -sf target link".into(),
                    MET.into(),
                ),
                (
                    &["--expect-file", "dangling"],
                    "ln -sf nowhere dangling".into(),
                    unmet("the file \"dangling\" is not there"),
                ),
                // With the times of another one, as it is unpacked or copied.
                (&["--expect-file", "copy"], format!("cp -p {old} copy"), MET.into()),
            ];
            let ids: Vec<_> =
                cases.iter().map(|(options, script, _)| submit(bench, options, script)).collect();
            work(bench, supervision);
            for (id, (options, _, expected)) in ids.iter().zip(&cases) {
                assert_eq!(&ended(bench, id), expected, "{options:?} {supervision:?}");
            }
        }
    });
}

#[test]
fn a_result_must_fit_its_schema_wherever_it_is_written() {
    on_engines(|bench| {
        let schema =
            r#"{"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}"#;
        fs::write(bench.file("schema.json"), schema).unwrap();
        let at = bench.file("schema.json").to_str().unwrap().to_owned();
        let by_file = format!("@{at}");
        for supervision in BOTH {
            let filled = "head -c 900000 /dev/zero | tr '\\0' ' '";
            let cases: [(&[&str], String, String); 8] = [
                (
                    &["--expect-json", "stdout", "--schema", schema],
                    "echo '{\"n\": 1}'; echo warning >&2".into(),
                    MET.into(),
                ),
                (
                    &["--expect-json", "r.json", "--schema", &by_file],
                    "echo '{\"n\": 1}' >r.json".into(),
                    MET.into(),
                ),
                // Far more than the tail that is kept of a failure.
                (
                    &["--expect-json", "stdout", "--schema", schema],
                    format!("echo '{{\"n\": 1}}'; {filled}"),
                    MET.into(),
                ),
                (
                    &["--expect-json", "stdout", "--schema", schema],
                    "echo '{\"n\": \"secret\"}'".into(),
                    unmet(
                        "its standard output does not fit its schema: what stands at \"/n\" is string, and must be integer",
                    ),
                ),
                (
                    &["--expect-json", "stdout"],
                    "echo '{\"n\": 1} and more'".into(),
                    unmet(
                        "its standard output is no JSON document: trailing characters at line 1 column 10",
                    ),
                ),
                (
                    &["--expect-json", "stdout"],
                    format!("{filled}; {filled}; echo 1"),
                    unmet("its standard output cannot be read: it has more than 1048576 bytes"),
                ),
                (
                    &["--expect-json", "big.json"],
                    format!("({filled}; {filled}) >big.json"),
                    unmet("the file \"big.json\" has more than 1048576 bytes"),
                ),
                (
                    &["--expect-json", "none.json"],
                    "true".into(),
                    unmet("the file \"none.json\" is not there"),
                ),
            ];
            let ids: Vec<_> =
                cases.iter().map(|(options, script, _)| submit(bench, options, script)).collect();
            work(bench, supervision);
            for (id, (options, script, expected)) in ids.iter().zip(&cases) {
                assert_eq!(&ended(bench, id), expected, "{options:?} {script} {supervision:?}");
            }
        }
    });
}

#[test]
fn a_check_runs_as_the_task_ran_and_must_succeed() {
    on_engines(|bench| {
        for supervision in BOTH {
            let check = |script: &str| format!("[\"sh\", \"-c\", {}]", serde_json::json!(script));
            let seen = check(
                "echo $OWN $LEASEHOLD_RUN_ID $LEASEHOLD_EPOCH >seen; pwd >>seen; cat >>seen; cat made",
            );
            let (refuses, slow) =
                (check("echo no good >&2; exit 3"), check("sleep 300 & sleep 300"));
            let killed = check("kill -KILL $$");
            let met = submit(bench, &["--env", "OWN=1", "--check", &seen], "echo x >made");
            let cases = [
                (met.clone(), MET.to_owned()),
                (
                    submit(bench, &["--check", &refuses], "true"),
                    unmet("the check \"sh\" ended with exit code 3"),
                ),
                (
                    submit(bench, &["--check", &killed], "true"),
                    unmet("the check \"sh\" ended by signal 9"),
                ),
                (
                    submit(
                        bench,
                        &["--check", &slow, "--check-timeout", "0.3", "--grace", "0.2"],
                        "true",
                    ),
                    unmet("the check \"sh\" took longer than its 0.3 s and was stopped"),
                ),
                (submit(bench, &["--check", "[\"no-such-program\"]"], "true"), String::new()),
                // What does not hold before it keeps it from being run.
                (
                    submit(
                        bench,
                        &["--expect-file", "nothing", "--check", &check("touch checked")],
                        "true",
                    ),
                    unmet("the file \"nothing\" is not there"),
                ),
            ];
            let fails = submit(bench, &["--check", &check("touch checked")], "exit 7");
            work(bench, supervision);
            for (id, expected) in cases.iter().filter(|(_, expected)| !expected.is_empty()) {
                assert_eq!(&ended(bench, id), expected, "{supervision:?}");
            }
            let words = ended(bench, &cases[4].0);
            assert!(words.contains("the check \"no-such-program\" cannot be run"), "{words}");
            let dir = bench.place.dir.path().to_str().unwrap();
            assert_eq!(bench.lines("seen"), [format!("1 {met} 1"), dir.to_owned()]);
            let detail = bench.run(&cases[1].0).error_detail.unwrap();
            assert!(detail.ends_with("exit code 3\nno good\n"), "{detail}");
            assert_eq!(bench.run(&fails).exit_code, Some(7));
            assert!(!bench.file("checked").exists());
        }
    });
}

#[test]
fn a_contract_that_is_not_met_is_a_failure_to_a_policy_of_retries() {
    on_engines(|bench| {
        let options = ["--max-failures", "3", "--backoff", "0.05", "--expect-file", "third"];
        let third = "echo x >>tries; [ $(wc -l <tries) -lt 3 ] || echo x >third";
        let works = submit(bench, &options, third);
        let never = submit(
            bench,
            &["--max-failures", "2", "--backoff", "0.05", "--expect-file", "no"],
            "true",
        );
        work(bench, &[]);
        let run = bench.run(&works);
        assert_eq!((run.status.as_str(), run.lease_attempts), ("completed", 3), "{run:?}");
        let waits =
            bench.facts(&works).into_iter().find(|fact| fact.status == "retry_wait").unwrap();
        let said = waits.reason_summary.unwrap();
        assert!(
            said.starts_with("failure 1 of 3 (exit code 0, but the contract is not met: the file"),
            "{said}"
        );
        assert_eq!(bench.run(&never).lease_attempts, 2);
        assert_eq!(ended(bench, &never), unmet("the file \"no\" is not there"));
    });
}

#[test]
fn exit_code_0_with_living_descendants_is_told_apart() {
    on_engines(|bench| {
        let leaves = "setsid sleep 300 & sleep 300 & true";
        let plain = submit(bench, &[], leaves);
        let strict = submit(bench, &["--expect-no-leftovers"], leaves);
        let clean = submit(bench, &["--expect-no-leftovers"], "true & wait");
        work(bench, &[]);
        let words = "2 processes of it were still running and were killed";
        assert_eq!(
            ended(bench, &plain),
            format!("completed run.completed.ok: exit code 0, but {words}")
        );
        assert_eq!(ended(bench, &strict), unmet(words));
        assert_eq!(ended(bench, &clean), MET);
        let shown = |verb: &str, id: &str| {
            String::from_utf8(bench.program([verb, id]).output().unwrap().stdout).unwrap()
        };
        assert!(shown("history", &plain).contains(words), "{}", shown("history", &plain));
        let attempt = format!("exit code 0, but {words}, ended by task");
        assert!(shown("show", &plain).contains(&attempt), "{}", shown("show", &plain));
        assert!(shown("show", &clean).contains("exit code 0, ended by task"));

        // Nobody counts the processes of a direct child.
        let direct = submit(bench, &["--expect-no-leftovers"], "touch started");
        work(bench, &["--supervision", "direct"]);
        let run = bench.run(&direct);
        let detail = run.error_detail.unwrap();
        assert!(run.status == "failed" && detail.contains("worker with guardians"), "{detail}");
        assert!(!bench.file("started").exists());
    });
}

#[test]
fn a_cancel_during_the_check_ends_it_and_the_timeout_of_the_task_does_not() {
    on_engines(|bench| {
        for supervision in BOTH {
            let check = "[\"sh\", \"-c\", \"echo $$ >checking; exec sleep 300\"]";
            let cancelled = submit(bench, &["--check", check, "--check-timeout", "5m"], "true");
            let mut worker = bench.worker(supervision);
            until(|| match bench.lines("checking") {
                lines if lines.len() == 1 => Ok(()),
                lines => Err(format!("{lines:?} {:?}", bench.run(&cancelled))),
            });
            assert_eq!(bench.run(&cancelled).status, "running", "not ended before it is judged");
            assert!(bench.program(["cancel", &cancelled]).output().unwrap().status.success());
            bench.until_status(&cancelled, "cancelled");
            fs::remove_file(bench.file("checking")).unwrap();
            worker.signal(Signal::TERM);
            worker.leaves_with(0);

            let longer = "[\"sh\", \"-c\", \"touch judged; sleep 0.7\"]";
            let id = until(|| {
                let id = submit(bench, &["--timeout", "0.4", "--check", longer], "true");
                work(bench, supervision);
                // A machine that is slow may have stopped the task itself: then nothing is judged.
                if bench.file("judged").exists() { Ok(id) } else { Err(bench.run(&id).status) }
            });
            assert_eq!(ended(bench, &id), MET, "{supervision:?}");
            fs::remove_file(bench.file("judged")).unwrap();
        }
        // Nothing of the checks is left where the runs are.
        let state = bench.file(".local/state/leasehold");
        let left = walk(&state).into_iter().filter(|path| path.contains("/checks/runs/"));
        assert_eq!(left.collect::<Vec<_>>(), [""; 0]);
    });
}

fn walk(directory: &std::path::Path) -> Vec<String> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        paths.push(entry.path().display().to_string());
        if entry.path().is_dir() {
            paths.extend(walk(&entry.path()));
        }
    }
    paths
}

#[test]
fn a_contract_that_nobody_could_judge_is_refused_at_the_door() {
    on_engines(|bench| {
        let cases: [(&[&str], i32, &str); 12] = [
            (&["--expect-file", "relative"], 1, "with --cwd"),
            (&["--expect-file", "/a/../b"], 1, "without \"..\""),
            (&["--expect-json", "r.json"], 1, "with --cwd"),
            (&["--expect-json", "stdout", "--schema", "{"], 1, "--schema is no JSON"),
            (&["--expect-json", "stdout", "--schema", "@missing"], 1, "cannot read --schema"),
            (&["--expect-json", "stdout", "--schema", "{\"bogus\": 1}"], 1, "#/bogus"),
            (&["--schema", "{}"], 2, "--expect-json"),
            (&["--check", "true"], 1, "array of strings"),
            (&["--check", "[]"], 1, "give a program"),
            (&["--check", "[\"rm\"]"], 1, "'rm' is not allowed"),
            (&["--check", "[\"true\"]", "--check-timeout", "0"], 1, "positive"),
            (&["--expect-old"], 2, "--expect-file"),
        ];
        for (options, code, said) in cases {
            let words = [&["submit", "command"], options, &["--", "true"]].concat();
            let output = bench.program(words).output().unwrap();
            let err = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(code), "{options:?}: {err}");
            assert!(err.contains(said), "{options:?}: {err}");
        }
        assert_eq!(bench.runs(), []);
        // A worker asks again.
        let id = submit(bench, &["--check", "[\"true\"]"], "true");
        let mut program = bench.program(["worker", "--until-empty"]);
        program.env("LEASEHOLD_ALLOW_COMMANDS", "sh");
        crate::bench::Worker::start(program, bench.log_file()).leaves_with(0);
        assert!(
            ended(bench, &id).contains("the check \"true\" cannot be run"),
            "{}",
            ended(bench, &id)
        );
    });
}

/// Its steps are attempted apart: what an earlier attempt has made counts, and what is not enough is made again.
#[test]
fn a_workflow_is_held_to_what_all_of_its_attempts_have_made() {
    on_engines(|bench| {
        let steps = |scripts: [&str; 2]| {
            let step = |script: &str| serde_json::json!({"kind": "command", "args": {"action_command": "sh", "action_command_args": ["-c", script]}});
            serde_json::json!({"steps": scripts.map(step)}).to_string()
        };
        let submit = |args: &str, file: &str| {
            let cwd = bench.place.dir.path().to_str().unwrap().to_owned();
            let options = ["--max-failures", "3", "--backoff", "0.05", "--expect-file", file];
            let words =
                [&["submit", "workflow", "--args", args, "--cwd", &cwd], &options[..]].concat();
            let output = bench.program(words).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        // The second step fails once, some time after the first has made the file.
        let goes_on = submit(
            &steps(["echo x >made; sleep 0.2", "[ -e again ] || { touch again; exit 1; }"]),
            "made",
        );
        let starts_over = submit(
            &steps(["echo x >>firsts; [ $(wc -l <firsts) -lt 2 ] || touch late", "true"]),
            "late",
        );
        work(bench, &[]);
        for id in [&goes_on, &starts_over] {
            assert_eq!(ended(bench, id), MET);
            assert_eq!(bench.run(id).lease_attempts, 2);
        }
        assert_eq!(bench.lines("firsts").len(), 2, "from its first step");
    });
}
