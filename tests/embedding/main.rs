//! The example `studio`: a host program with a worker inside, run as its users run it, on every engine there is.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

mod adapters;
#[path = "../support/mod.rs"]
mod places;
mod studio;
mod transactions;

use std::thread;
use std::time::{Duration, Instant};

use leasehold::db::ops::ListRuns;
use leasehold::domain::status::Status;
use places::{Place, engines};
use serde_json::{Value, json};
use studio::Studio;

#[test]
fn a_host_takes_tasks_by_http_runs_them_and_leaves_nothing_running() {
    for engine in engines() {
        let place = Place::new(engine);
        let studio = Studio::start(&place.url, "echo,sh");

        let id = studio.submit(&command("echo", &["hello"]));
        let run = studio.wait_for(&id, "completed");
        assert_eq!(
            (&run["exit_code"], &run["lease_attempts"], &run["action_kind"]),
            (&json!(0), &json!(1), &json!("command"))
        );
        let (status, health) = studio.get("/health");
        assert_eq!((status, &health["busy"]), (200, &json!(false)));
        assert_eq!(studio.get("/tasks/nobody").0, 404);
        let greet =
            |args| json!({"action_kind": "greet", "execution_target": "host", "args": args});
        studio.wait_for(&studio.submit(&greet(json!({"name": "Ada"}))), "completed");
        let run = studio.wait_for(&studio.submit(&greet(json!({}))), "failed");
        assert_eq!(run["error_detail"], "NoName: whom? give a name");

        // In the middle of a task: the host lets it end.
        let go = place.dir.path().join("go");
        let wait = format!("until [ -e {} ]; do sleep 0.05; done", go.display());
        let id = studio.submit(&command("sh", &["-c", &wait]));
        studio.wait_for(&id, "running");
        studio.interrupt();
        studio.until_deaf();
        std::fs::write(go, "").unwrap();
        assert_eq!(studio.exit_code(), Some(0));

        let mut queue = place.queue();
        assert_eq!(queue.run(&id).unwrap().status, "completed");
        let running = ListRuns { statuses: vec![Status::Running], limit: 10 };
        assert_eq!(queue.read(&running).unwrap(), []);
    }
}

#[test]
fn a_bad_task_is_refused_with_its_reason_and_stores_nothing() {
    let place = Place::new(places::Engine::Sqlite);
    let studio = Studio::start(&place.url, "echo");
    for (body, reason) in [
        (json!({"action_kind": "poem", "execution_target": "host", "args": {}}), "use one of"),
        (command("rm", &["-r", "x"]), "the command 'rm' is not allowed"),
        (json!({"action_kind": "agent", "execution_target": "moon", "args": {}}), "use one of"),
        (json!([]), "must be a dict"),
    ] {
        let (status, answer) = studio.post(&body.to_string());
        assert_eq!(status, 400, "{body}: {answer}");
        assert!(answer["error"].as_str().unwrap().contains(reason), "{body}: {answer}");
    }
    let (status, answer) = studio.post("{");
    assert_eq!((status, &answer["code"]), (400, &json!("args_not_json")));

    studio.interrupt();
    assert_eq!(studio.exit_code(), Some(0));
    let all = ListRuns { statuses: vec![], limit: 10 };
    assert_eq!(place.queue().read(&all).unwrap(), []);
}

#[test]
fn a_page_of_a_stranger_cannot_submit() {
    let place = Place::new(places::Engine::Sqlite);
    let studio = Studio::start(&place.url, "echo");
    let body = command("echo", &[]).to_string();
    let here = "Host: 127.0.0.1\r\n";
    for (headers, status) in [
        (format!("{here}Content-Type: text/plain\r\n"), 415),
        (here.to_owned(), 415),
        ("Host: evil.test\r\nContent-Type: application/json\r\n".to_owned(), 404),
        (format!("{here}Content-Type: application/json\r\n"), 201),
    ] {
        assert_eq!(studio.request("POST", "/tasks", &headers, &body).0, status, "{headers}");
    }
    studio.interrupt();
    assert_eq!(studio.exit_code(), Some(0));
}

fn command(program: &str, words: &[&str]) -> Value {
    let args = json!({"action_command": program, "action_command_args": words});
    json!({"action_kind": "command", "execution_target": "host", "args": args})
}

impl Studio {
    fn submit(&self, task: &Value) -> String {
        let (status, answer) = self.post(&task.to_string());
        assert_eq!(status, 201, "{answer}");
        answer["id"].as_str().unwrap().to_owned()
    }

    fn wait_for(&self, id: &str, status: &str) -> Value {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let (code, run) = self.get(&format!("/tasks/{id}"));
            assert_eq!(code, 200, "{run}");
            if run["status"] == status {
                return run;
            }
            assert!(Instant::now() < deadline, "not {status}, but {run}");
            thread::sleep(Duration::from_millis(10));
        }
    }
}
