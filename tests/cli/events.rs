//! `events`: what happened, from a place on, and as it happens.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold::domain::task::TaskApplication;
use leasehold::domain::transition::Principal;
use leasehold::{Config, Queue};
use serde_json::{Value, json};

use crate::places::{Engine, engines, patiently};
use crate::program::{Bench, keys};

/// `--follow`, until it is dropped.
struct Following {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Following {
    fn new(bench: &Bench, words: &[&str]) -> Following {
        let mut command = bench.command([&["events", "--follow"], words].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Following { child, lines }
    }

    /// The next line, however long it takes: the test program would be ended from outside.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "{line:?} is a whole line");
        line.pop();
        line
    }

    /// Kills it. Answers the whole lines that it had written and nobody has read.
    fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        let whole = rest.rfind('\n').map_or("", |end| &rest[..end]);
        whole.lines().map(str::to_owned).collect()
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn id_of(line: &str) -> &str {
    line.split(' ').next().unwrap()
}

#[test]
fn each_event_is_a_line_and_an_object_with_the_columns_of_its_fact() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let (mut queue, _) = bench.place.manual_queue(Config::default());
        let id = queue.submit_task(&TaskApplication::new("agent", "host")).unwrap();
        assert!(queue.cancel_task(&id, &Principal::operator("a\u{1b}da")).unwrap());
        // The first two to be seen have been seen by all.
        let mut follow = Following::new(&bench, &[]);
        let (first, second) = (follow.line(), follow.line());
        let time = "2023-11-14T22:13:20.250Z";
        let (place, rest) = first.split_once(' ').unwrap();
        assert_eq!(rest, format!("{time} {id} - > queued - -"));
        let (_, rest) = second.split_once(' ').unwrap();
        let reason = "run.cancelled.orchestrator operator a\\u{1b}da";
        assert_eq!(rest, format!("{time} {id} queued > cancelled {reason}"));
        assert_eq!(bench.run(&["events"]).done(), format!("{first}\n{second}\n"));
        assert_eq!(bench.run(&["events", "--limit", "1"]).done(), format!("{first}\n"));
        assert_eq!(bench.run(&["events", "--after", place]).done(), format!("{second}\n"));
        assert_eq!(bench.run(&["events", "--after", "newest"]).done(), "");
        let all = bench.json(&["events", "--json"]);
        let expected = [
            "id",
            "created_at",
            "run_id",
            "previous_status",
            "status",
            "reason_code",
            "source",
            "actor",
            "transition_id",
        ];
        assert_eq!(keys(&all[0]), expected);
        assert_eq!((&all[0]["id"], &all[0]["transition_id"]), (&json!(place), &Value::Null));
        let facts = bench.json(&["history", &id, "--json"]);
        assert_eq!(all[1]["transition_id"], facts[0]["id"]);
        for column in ["created_at", "previous_status", "status", "reason_code", "source", "actor"]
        {
            assert_eq!(all[1][column], facts[0][column], "{column}");
        }
        let mut follow = Following::new(&bench, &["--json", "--after", place]);
        assert_eq!(serde_json::from_str::<Value>(&follow.line()).unwrap(), all[1]);
    }
}

#[test]
fn what_cannot_be_followed_is_refused() {
    for engine in engines() {
        let bench = Bench::new(engine);
        bench.run(&["events"]).refused(1, "");
        assert!(bench.is_untouched());
        bench.submit(&["agent"]);
        for word in ["", "0", "a0", "A0-b1"] {
            bench.run(&["events", "--after", word]).wrong_usage("no place in a feed of events");
        }
        let strange = if engine == Engine::Sqlite { "a7-a1" } else { "a0-a1" };
        for more in [&[][..], &["--follow"]] {
            let words = [&["events", "--after", strange], more].concat();
            bench.run(&words).refused(1, "the cursor is of another store");
        }
    }
}

#[test]
fn following_ends_at_its_limit_and_begins_before_anything_is_there() {
    for engine in engines() {
        let bench = Bench::new(engine);
        drop(bench.place.queue());
        let mut follow = Following::new(&bench, &["--limit", "3"]);
        let ids: Vec<String> = (0..4).map(|_| bench.submit(&["agent"])).collect();
        for id in &ids[..3] {
            assert!(follow.line().contains(&format!("{id} - > queued")));
        }
        assert!(follow.child.wait().unwrap().success());
    }
}

#[test]
fn a_reader_that_is_killed_at_any_moment_goes_on_from_its_place_without_loss_or_repetition() {
    for engine in engines() {
        let bench = Bench::new(engine);
        drop(bench.place.queue());
        let done = AtomicBool::new(false);
        let mut seen: Vec<String> = Vec::new();
        let written = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let mut queue = Queue::open(&bench.place.url, Config::default()).unwrap();
                        let (app, by) =
                            (TaskApplication::new("agent", "host"), Principal::operator("t"));
                        let mut written = 0;
                        while !done.load(Ordering::SeqCst) {
                            let id = patiently(|| queue.submit_task(&app)).unwrap();
                            written += 1;
                            if written % 3 == 0 {
                                assert!(patiently(|| queue.cancel_task(&id, &by)).unwrap());
                                written += 1;
                            }
                        }
                        written
                    })
                })
                .collect();
            for round in 0..12 {
                let after = seen.last().map(|line| id_of(line).to_owned());
                let words: Vec<&str> = after.iter().flat_map(|id| ["--after", id]).collect();
                let mut follow = Following::new(&bench, &words);
                for _ in 0..1 + round * 3 {
                    seen.push(follow.line());
                }
                seen.extend(follow.kill());
            }
            done.store(true, Ordering::SeqCst);
            writers.into_iter().map(|writer| writer.join().unwrap()).sum::<usize>()
        });
        let after = id_of(seen.last().unwrap()).to_owned();
        let left = (written - seen.len()).to_string();
        let mut follow = Following::new(&bench, &["--after", &after, "--limit", &left]);
        for _ in seen.len()..written {
            seen.push(follow.line());
        }
        assert_eq!(bench.run(&["events", "--after", id_of(seen.last().unwrap())]).done(), "");
        let ids: HashSet<&str> = seen.iter().map(|line| id_of(line)).collect();
        assert_eq!(ids.len(), written, "{}", engine.name());
        let whole = bench.run(&["events", "--limit", "1000000"]).done();
        assert_eq!(whole.lines().collect::<Vec<_>>(), seen, "{}", engine.name());
        assert_eq!(bench.run(&["verify"]).code, Some(0));
    }
}
