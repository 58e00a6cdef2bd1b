//! `leasehold cancel`.

use serde_json::json;

use crate::places::engines;
use crate::program::{Bench, run};

#[test]
fn a_queued_task_is_cancelled_once_in_the_name_of_its_user() {
    for engine in engines() {
        let bench = Bench::new(engine);
        for (variables, actor) in [
            (&[("USER", "ada"), ("LOGNAME", "bob")][..], "ada"),
            (&[("USER", ""), ("LOGNAME", "bob")], "bob"),
            (&[], &*rustix::process::getuid().as_raw().to_string()),
        ] {
            let id = bench.submit(&["agent"]);
            let mut cancel = bench.command(["cancel", &id]);
            cancel.envs(variables.iter().copied());
            assert_eq!(run(&mut cancel).done(), "cancelled\n");
            run(&mut cancel).refused(1, &format!("the task \"{id}\" is cancelled"));
            let history = bench.json(&["history", &id, "--json"]);
            assert_eq!(history.as_array().unwrap().len(), 1);
            assert_eq!(history[0]["source"], json!("operator"));
            assert_eq!(history[0]["actor"], json!(actor));
            assert_eq!(history[0]["reason_code"], json!("run.cancelled.orchestrator"));
        }
    }
}

#[test]
fn a_task_that_waits_for_something_else_is_cancelled_too() {
    for engine in engines() {
        let bench = Bench::new(engine);
        for status in ["retry_wait", "waiting_dependency"] {
            let id = with_status(&bench, status);
            assert_eq!(bench.run(&["cancel", &id]).done(), "cancelled\n");
            assert_eq!(bench.json(&["show", &id, "--json"])["status"], json!("cancelled"));
        }
    }
}

#[test]
fn the_cancel_of_a_running_task_is_a_stored_wish() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let id = with_status(&bench, "running");
        for _ in 0..2 {
            assert!(bench.run(&["cancel", &id]).done().starts_with("requested: "));
        }
        assert_eq!(bench.json(&["show", &id, "--json"])["status"], json!("running"));
    }
}

#[test]
fn a_task_that_has_ended_stays_as_it_is() {
    for engine in engines() {
        let bench = Bench::new(engine);
        for status in ["completed", "failed", "timed_out", "skipped"] {
            let id = with_status(&bench, status);
            let said = bench.run(&["cancel", &id]).refused(1, "has ended cannot be cancelled");
            assert!(said.contains(&format!(" is {status}: ")), "{said}");
            assert_eq!(bench.json(&["show", &id, "--json"])["status"], json!(status));
        }
    }
}

fn with_status(bench: &Bench, status: &str) -> String {
    let id = bench.submit(&["agent"]);
    let sql = format!("UPDATE schedule_runs SET status = '{status}' WHERE id = '{id}'");
    bench.place.raw().run(&sql);
    id
}
