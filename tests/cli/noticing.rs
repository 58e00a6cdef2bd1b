//! What is said of notices, and which are refused before anything is stored.

use crate::places::engines;
use crate::program::Bench;

const HOOK: &str = "https://hooks.example.com/T0/hunter2?key=hunter3";

#[test]
fn a_receiver_that_no_worker_could_tell_is_refused_and_makes_no_store() {
    for engine in engines() {
        let bench = Bench::new(engine);
        for (options, said) in [
            (&["--notify", "ftp://example.com"][..], "notify"),
            (&["--notify", "http://u:hunter2@example.com/"], "password"),
            (&["--notify", "example.com/hook"], "command:NAME"),
            (&["--notify", "command:tell"], "--allow-command"),
            (&["--notify", "command:/bin/sh", "--allow-command", "sh"], "PATH"),
            (&["--notify", HOOK, "--notify-attempts", "0"], "1 to 1000"),
        ] {
            let words = [&["submit", "agent"], options].concat();
            bench.run(&words).refused(1, said);
        }
        let refused = bench.run(&["submit", "agent", "--notify", "http://u:hunter2@e.com/"]);
        assert!(!refused.err.contains("hunter2"), "{}", refused.err);
        bench.run(&["submit", "agent", "--notify-attempts", "3"]).wrong_usage("--notify");
        assert!(bench.is_untouched());
    }
}

#[test]
fn a_notice_is_listed_by_its_host_and_shown_whole() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let id = bench.submit(&["agent", "--notify", HOOK, "--notify-within", "1h"]);
        assert_eq!(bench.run(&["notices", "--json"]).done(), "[]\n");
        bench.run(&["notices", &id]).refused(1, "no task of that id has left one");
        bench.run(&["cancel", &id]).done();
        let listed = bench.run(&["notices"]).done();
        assert!(listed.contains("https://hooks.example.com ") && listed.contains(&id), "{listed}");
        assert!(listed.contains("pending") && listed.contains("0/12"), "{listed}");
        assert!(!listed.contains("hunter"), "{listed}");
        assert!(!bench.run(&["why", &id]).done().contains("hunter"));
        assert!(!bench.run(&["list"]).done().contains("hunter"));
        let all = bench.json(&["notices", "--json"]);
        assert_eq!(all.as_array().unwrap().len(), 1);
        let notice = &all[0];
        assert_eq!((&notice["deliver_to"], &notice["status"]), (&HOOK.into(), &"pending".into()));
        assert_eq!(notice["payload"]["data"]["status"], "cancelled");
        let due = notice["next_attempt_at"].as_f64().unwrap();
        let created = notice["created_at"].as_f64().unwrap();
        assert!((due - created).abs() < 60.0, "a moment of today: {notice}");
        assert_eq!(notice["expires_at"].as_f64(), Some(created + 3600.0));
        let of_task = bench.json(&["notices", &id, "--json"]);
        assert_eq!(of_task, *notice);
        assert_eq!(bench.json(&["notices", notice["id"].as_str().unwrap(), "--json"]), *notice);
        let shown = bench.run(&["show", &id]).done();
        let line = "notice: pending, attempt 0 of 12, to https://hooks.example.com\n";
        assert!(shown.contains(line), "{shown}");
        assert_eq!(bench.run(&["notices", "--status", "delivered", "--json"]).done(), "[]\n");
        bench.run(&["notices", "--status", "sent"]).wrong_usage("dead_letter");
        bench.run(&["notices", "retry", &id]).refused(1, "is pending");
        bench.run(&["notices", "retry", "nobody"]).refused(1, "there is no notice");
        bench.run(&["verify"]).done();
    }
}

#[test]
fn a_worker_that_could_send_nothing_as_it_should_is_refused_at_the_start() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let short = bench.place.dir.path().join("short");
        std::fs::write(&short, "short").unwrap();
        for (options, said) in [
            (&["--notify-allow", "10.0.0.0/33"][..], "10.0.0.0/33"),
            (&["--notify-key-file", "no-such-file"], "no-such-file"),
            (&["--notify-key-file", short.to_str().unwrap()], "fewer than 16 bytes"),
            (&["--notify-timeout", "0s"], "positive"),
        ] {
            bench.run(&[&["worker", "--once"], options].concat()).refused(1, said);
        }
    }
}
