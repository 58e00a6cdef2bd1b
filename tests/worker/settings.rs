//! What a task starts with beside its arguments: from the words of `submit` to what the task itself sees.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use leasehold::db::Run;

use crate::bench::{Bench, Worker, on_engines};

/// The sentence with which `submit` refuses these options.
fn refusal(bench: &Bench, options: &[&str]) -> String {
    let words = [&["submit", "command"], options, &["--", "true"]].concat();
    let output = bench.program(words).output().unwrap();
    assert!(matches!(output.status.code(), Some(1 | 2)), "{options:?}: {output:?}");
    assert_eq!(output.stdout, b"", "{options:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn printed(bench: &Bench, words: &[&str]) -> String {
    let output = bench.program(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn work(bench: &Bench, words: &[&str]) {
    let mut worker = until_empty(bench, words);
    worker.leaves_with(0);
}

fn until_empty(bench: &Bench, words: &[&str]) -> Worker {
    let mut program = bench.program(["worker", "--until-empty"].iter().chain(words));
    program.env("OF_THE_WORKER", "seen").env("OF_THE_OTHERS", "seen").env("LC_ALL", "C");
    Worker::start(program, bench.log_file())
}

fn words_of(run: &Run) -> &str {
    run.error_detail.as_deref().unwrap_or_default()
}

#[test]
fn directory_variables_input_and_limits_reach_the_task() {
    on_engines(|bench| {
        let directory = bench.file("a directory");
        fs::create_dir(&directory).unwrap();
        let input = bench.file("input");
        fs::write(&input, b"a\0b\n").unwrap();
        let cwd = directory.to_str().unwrap();
        let options = ["--cwd", cwd, "--env", "MODE=fast=1", "--env", "EMPTY=", "--stdin"];
        let limits = ["--nofile", "77", "--as", "2G", "--cpu", "300"];
        let options = [&options[..], &[input.to_str().unwrap()], &limits].concat();
        let script = "pwd >seen; echo \"$MODE/${EMPTY-unset}/$OF_THE_WORKER\" >>seen; cat >input; \
                      ulimit -n >>seen; ulimit -v >>seen; ulimit -t >>seen; ulimit -Ht >>seen";
        let id = bench.submit_script(&options, script);
        let shown = printed(bench, &["show", &id]);
        let stored = r#""limits": {"nofile": 77, "as": 2147483648, "cpu": 300}"#;
        assert!(shown.contains(stored), "{shown}");
        assert!(shown.contains("stdin: 4 bytes\n"), "{shown}");

        work(bench, &[]);
        assert_eq!(bench.run(&id).status, "completed", "{:?}", bench.run(&id));
        let seen = fs::read_to_string(directory.join("seen")).unwrap();
        let expected = format!("{cwd}\nfast=1//seen\n77\n2097152\n300\n305\n");
        assert_eq!(seen, expected);
        assert_eq!(fs::read(directory.join("input")).unwrap(), b"a\0b\n");
    });
}

#[test]
fn settings_of_a_later_version_fail_their_task_and_are_shown_to_nobody() {
    on_engines(|bench| {
        let id = bench.submit_script(&["--env", "TOKEN=hush-hush"], "true");
        bench.place.raw().run(
            r#"UPDATE leasehold_runs SET settings = '{"env": {"TOKEN": "hush-hush"}, "later": "hush-hush"}'"#,
        );
        work(bench, &[]);
        let run = bench.run(&id);
        assert_eq!(run.status, "failed", "it is not known what it was to start with");
        assert!(words_of(&run).contains("later version of leasehold"), "{run:?}");
        assert!(!format!("{run:?}").contains("hush"), "{run:?}");
    });
}

#[test]
fn an_allow_list_keeps_the_other_variables_of_the_worker_from_tasks() {
    on_engines(|bench| {
        let id = bench.submit_script(&["--env", "OWN=1"], "env | cut -d= -f1 | sort >names");
        work(
            bench,
            &["--env-allow", "PATH", "--env-allow", "LC_*", "--env-allow", "OF_THE_WORKER"],
        );
        assert_eq!(bench.run(&id).status, "completed");
        let names: Vec<_> = bench.lines("names");
        let shell = ["PWD", "OLDPWD", "SHLVL", "_"];
        let names: Vec<_> = names.iter().filter(|name| !shell.contains(&name.as_str())).collect();
        let ours = ["LEASEHOLD_EPOCH", "LEASEHOLD_RUN_ID", "LEASEHOLD_RUN_MARK"];
        let rest = ["LIONAGI_INVOCATION_ID", "OF_THE_WORKER", "OWN", "PATH"];
        assert_eq!(names, [&["LC_ALL"], &ours[..], &rest].concat());

        // It names what may pass; it gives away nothing that is ours alone.
        let id = bench.submit_script(&[], "echo \"${LEASEHOLD_STORE-none}\" >store");
        work(bench, &["--env-allow", "PATH", "--env-allow", "*"]);
        assert_eq!(bench.run(&id).status, "completed");
        assert_eq!(bench.lines("store"), ["none"]);

        for word in ["", "A=B", "A*B"] {
            let output = bench.program(["worker", "--once", "--env-allow", word]).output().unwrap();
            assert_eq!(output.status.code(), Some(1), "{word:?}");
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(said.contains("--env-allow") && said.contains("give a name"), "{said}");
        }
    });
}

#[test]
fn a_limit_ends_what_goes_beyond_it_and_one_that_cannot_be_set_names_itself() {
    on_engines(|bench| {
        let spinning = bench.submit_script(&["--cpu", "1"], "ulimit -c 0; while :; do :; done");
        // The kernel lets nobody have so many.
        let impossible = bench.submit_script(&["--nofile", "99999999999"], "touch started");
        work(bench, &["--concurrency", "2"]);
        let run = bench.run(&spinning);
        // SIGXCPU, of which the shell does not hear.
        assert_eq!((run.status.as_str(), run.exit_code), ("failed", Some(-24)));
        let run = bench.run(&impossible);
        assert_eq!(run.status, "failed", "{run:?}");
        assert!(words_of(&run).contains("setting its limits"), "{run:?}");
        assert!(!bench.file("started").exists());
    });
}

#[test]
fn a_direct_child_does_not_run_without_the_limits_that_it_was_to_have() {
    on_engines(|bench| {
        let limited = bench.submit_script(&["--nofile", "50"], "touch started");
        let directory = bench.file("of its own");
        fs::create_dir(&directory).unwrap();
        let free = bench.submit_script(&["--cwd", directory.to_str().unwrap()], "touch there");
        work(bench, &["--supervision", "direct"]);
        let run = bench.run(&limited);
        assert_eq!(run.status, "failed");
        assert!(words_of(&run).contains("run it by a worker with guardians"), "{run:?}");
        assert!(!bench.file("started").exists());
        assert_eq!(bench.run(&free).status, "completed");
        assert!(directory.join("there").exists());
    });
}

#[test]
fn settings_that_no_worker_can_follow_are_refused_at_the_door() {
    on_engines(|bench| {
        let closed = bench.file("closed");
        fs::write(&closed, "").unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        let missing = bench.file("missing");
        let cases: [(&[&str], &str); 9] = [
            (&["--cwd", "relative"], "absolute path"),
            (&["--env", "NOVALUE"], "no '='"),
            (&["--env", "A=1", "--env", "A=2"], "twice"),
            (&["--env", "=1"], "not empty"),
            (&["--nofile", "0"], "from 1"),
            (&["--as", "2GiB"], "1G"),
            (&["--cpu", "1.5"], "--cpu"),
            (&["--timeout", "0"], "positive"),
            (&["--stdin", missing.to_str().unwrap()], "cannot read --stdin"),
        ];
        for (options, said) in cases {
            let sentence = refusal(bench, options);
            assert!(sentence.contains(said), "{options:?}: {sentence}");
        }
        assert_eq!(bench.runs(), []);
    });
}

#[test]
fn a_kind_has_a_timeout_for_those_who_bring_none() {
    on_engines(|bench| {
        let patient = bench.submit_script(&["--timeout", "1h"], "sleep 0.5");
        let silent = bench.submit_script(&[], "trap '' TERM; sleep 300");
        work(bench, &["--concurrency", "2", "--timeout", "command=0.2", "--grace", "command=0.1"]);
        assert_eq!(bench.run(&silent).status, "timed_out");
        assert_eq!(bench.run(&patient).status, "completed");
        let output = bench.program(["worker", "--timeout", "command=0"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
    });
}
