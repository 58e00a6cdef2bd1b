//! Workers beside pauses.

use leasehold::domain::pause::Scope;
use leasehold::domain::transition::Principal;

use crate::bench::{Bench, command, on_engines, sh, until};

fn pause(bench: &Bench, words: &[&str]) {
    let output = bench.program([&["pause"], words].concat()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn resume(bench: &Bench, words: &[&str]) {
    let output = bench.program([&["resume"], words].concat()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// The timer would be an hour late: there is only the look for changes.
#[test]
fn running_tasks_outlast_a_pause_and_a_resume_wakes_every_worker() {
    on_engines(|bench| {
        let workers =
            [(); 2].map(|()| bench.worker(&["--concurrency", "4", "--tick", "1h"]).ready());
        let running = bench.submit(&sh("until [ -e go ]; do sleep 0.05; done"));
        bench.until_status(&running, "running");
        pause(bench, &["--kind", "command"]);
        let held: Vec<String> = (0..20).map(|_| bench.submit(&command("true", &[]))).collect();
        std::fs::write(bench.file("go"), "").unwrap();
        bench.until_status(&running, "completed");
        // Its end has made room, and both have looked.
        for worker in &workers {
            until(|| match worker.log().contains("paused: the kind \"command\"") {
                true => Ok(()),
                false => Err(worker.log()),
            });
        }
        for id in &held {
            assert_eq!(bench.run(id).status, "queued");
            assert_eq!(bench.run(id).lease_attempts, 0);
        }
        resume(bench, &["--kind", "command"]);
        bench.until_all("completed");
    });
}

#[test]
fn until_empty_does_not_wait_for_what_is_paused() {
    on_engines(|bench| {
        let held = bench.submit(&command("true", &[]));
        let later = bench.program(["submit", "--after", "1h", "command", "--", "true"]).output();
        assert!(later.unwrap().status.success());
        let other =
            bench.submit(&leasehold::domain::task::TaskApplication::new("agent", "daytona"));
        bench
            .queue()
            .pause(Scope::kind("command").unwrap(), Principal::operator("ada"), None)
            .unwrap();
        bench.work(&["--until-empty"]);
        assert_eq!(bench.run(&held).status, "queued");
        assert_eq!(bench.run(&other).status, "queued");
        bench.work(&["--once"]);
        assert_eq!(bench.run(&held).status, "queued");
        bench.queue().resume(&Scope::kind("command").unwrap()).unwrap();
        bench.work(&["--once"]);
        assert_eq!(bench.run(&held).status, "completed");
    });
}
