//! What a task was given is shown by `show`, and by nothing else.

use serde_json::json;

use crate::places::engines;
use crate::program::{Bench, run};

const SECRET: &str = "hunter2-is-a-secret";

#[test]
fn no_secret_of_a_task_is_in_why_list_runs_or_doctor() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let env = format!("TOKEN={SECRET}");
        let steps = json!([{ "kind": "agent", "args": { "action_prompt": SECRET } }]);
        let steps = format!("steps:={steps}");
        std::fs::write(bench.place.dir.path().join("input"), SECRET).unwrap();
        let given = ["--env", &env, "--stdin", "input"];
        let task = ["workflow", "--arg", &steps];
        let command = ["command", "--allow-command", "sh"];
        let script = format!("echo {SECRET}; cat >&2; exit 3");
        let words = ["--", "sh", "-c", &script];
        let workflow = bench.submit(&[&task[..], &given].concat());
        let fails = bench.submit(&[&command[..], &given, &words].concat());
        let later = bench.submit(&[&command[..], &given, &["--after", "1h"], &words].concat());

        let mut outputs = Vec::new();
        let mut look = |when: &str| {
            let mut verbs: Vec<Vec<&str>> =
                [&workflow, &fails, &later].iter().map(|id| vec!["why", id.as_str()]).collect();
            verbs.push(vec!["steps", &workflow]);
            verbs.push([&["why", "--what-if"], &task[..], &given].concat());
            verbs.push([&["why", "--what-if"], &command[..], &given, &words].concat());
            verbs.extend([vec!["list"], vec!["workers"], vec!["pause", "--list"]]);
            verbs.extend([vec!["runs"], vec!["doctor"], vec!["verify"]]);
            for verb in verbs {
                outputs.push((
                    when.to_owned(),
                    format!("{verb:?}"),
                    run(&mut bench.command(&verb)),
                ));
                let mut json = verb.clone();
                json.insert(1, "--json");
                outputs.push((
                    when.to_owned(),
                    format!("{json:?}"),
                    run(&mut bench.command(&json)),
                ));
            }
        };
        look("before");
        let mut worker =
            bench.command(["worker", "--once", "--log", "trace", "--allow-command", "sh"]);
        worker.env("PATH", std::env::var_os("PATH").unwrap());
        let worker = run(&mut worker);
        assert_eq!(worker.code, Some(0), "{}", worker.err);
        assert!(worker.err.contains("ended"), "{}", worker.err);
        assert_eq!(bench.json(&["show", &fails, "--json"])["exit_code"], 3);
        look("after");
        outputs.push(("meanwhile".into(), "the log of the worker".into(), worker));
        for (when, what, answer) in outputs {
            // What is wrong with the machine is the doctor's to say, and no failure.
            assert!(matches!(answer.code, Some(0 | 1)), "{what} {when}: {}", answer.err);
            let words = answer.out.len() + answer.err.len();
            assert!(words > 1, "{what} {when} says nothing");
            for text in [answer.out, answer.err] {
                assert!(!text.contains(SECRET), "{what} {when}: {text}");
            }
        }
        // It is not hidden from who asks for it.
        assert!(bench.run(&["show", &workflow]).done().contains(SECRET));
    }
}
