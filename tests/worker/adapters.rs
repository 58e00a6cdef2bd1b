//! Kinds of tasks, and who can run them.

use leasehold::domain::settings::RunSettings;
use leasehold::domain::task::TaskApplication;
use leasehold::{Config, Queue};
use serde_json::json;

use crate::bench::{Bench, on_engines, sh};

/// Rows of a kind that nobody here knows, as a later version may have stored them.
fn strange(bench: &Bench, count: usize) -> Vec<String> {
    let ids: Vec<_> = (0..count).map(|_| bench.submit(&sh("touch ran"))).collect();
    bench
        .place
        .raw()
        .run("UPDATE schedule_runs SET action_kind = 'strange' WHERE status = 'queued'");
    ids
}

#[test]
fn a_kind_without_an_adapter_stays_queued_says_so_and_hides_nothing() {
    on_engines(|bench| {
        // More than a page of them.
        let ids = strange(bench, 60);
        let behind = bench.submit(&sh("touch behind"));
        // It leaves: what it could not serve does not count.
        bench.work(&["--until-empty"]);
        assert_eq!(bench.run(&behind).status, "completed");
        for id in &ids {
            let run = bench.run(id);
            assert_eq!((run.status.as_str(), run.lease_attempts), ("queued", 0));
        }
        assert!(!bench.file("ran").exists(), "it was run as another kind");
        let why = bench.program(["why", &ids[0]]).output().unwrap();
        let why = String::from_utf8(why.stdout).unwrap();
        let line = "! adapter: an adapter for the kind \"strange\" is on 0 of 1 live workers\n";
        assert!(why.contains(line), "{why}");
    });
}

/// A task of a kind of our own.
fn own(args: &serde_json::Value) -> TaskApplication {
    let mut app = TaskApplication::new("own", "host");
    app.args = args.as_object().unwrap().clone();
    app
}

const ADAPTER: [&str; 2] = [
    "--adapter",
    r#"own:=["sh","-c","cat >>got; echo $0 $LEASEHOLD_RUN_ID $LEASEHOLD_STEP >>saw; exit 3","word"]"#,
];

#[test]
fn a_kind_of_the_user_s_own_is_run_by_its_program_which_reads_the_arguments() {
    on_engines(|bench| {
        // By default nobody accepts it.
        let words = ["submit", "own", "--arg", "a=é"];
        let refused = bench.program(words).output().unwrap();
        assert_eq!(refused.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&refused.stderr).contains("unknown action_kind 'own'"));
        let accepted =
            bench.program(words.iter().chain(&["--accept-kind", "own"])).output().unwrap();
        assert_eq!(accepted.status.code(), Some(0), "{accepted:?}");
        let id = String::from_utf8(accepted.stdout).unwrap().trim().to_owned();

        bench.work(&["--until-empty"]);
        assert_eq!(bench.run(&id).status, "queued", "this worker has no adapter for it");
        bench.work(&[&["--until-empty"][..], &ADAPTER].concat());
        let run = bench.run(&id);
        assert_eq!((run.status.as_str(), run.exit_code), ("failed", Some(3)), "{run:?}");
        assert_eq!(bench.lines("got"), [r#"{"a": "\u00e9"}"#]);
        assert_eq!(bench.lines("saw"), [format!("word {id}")]);
    });
}

#[test]
fn a_program_of_the_user_s_own_may_be_a_step_and_reads_nothing_but_its_arguments() {
    on_engines(|bench| {
        let own_kinds = ["own".to_owned()].into();
        let config = Config { own_kinds, ..Config::daemon() };
        let mut queue = Queue::open(&bench.place.url, config).unwrap();
        let mut workflow = TaskApplication::new("workflow", "host");
        workflow.args.insert("steps".into(), json!([{"kind": "own", "args": {"n": 5}}]));
        let input = Some(b"input".to_vec());
        let settings = RunSettings::default;
        let id = queue.submit_task_with(&workflow, settings(), input.clone()).unwrap();
        let two = queue.submit_task_with(&own(&json!({})), settings(), input).unwrap();
        bench.work(&[&["--until-empty"][..], &ADAPTER].concat());
        assert_eq!(bench.run(&id).exit_code, Some(3), "{:?}", bench.run(&id));
        assert_eq!(bench.lines("got"), [r#"{"n": 5}"#]);
        assert_eq!(bench.lines("saw"), [format!("word {id} 1")]);
        let detail = bench.run(&two).error_detail.unwrap();
        assert!(detail.starts_with("TwoInputs: "), "{detail}");
    });
}
