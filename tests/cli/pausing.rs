//! `pause` and `resume`.

use serde_json::{Value, json};

use crate::places::engines;
use crate::program::{Bench, keys};

#[test]
fn a_pause_is_told_by_everybody_who_is_asked_and_lifted_by_its_own_name() {
    for engine in engines() {
        let bench = Bench::new(engine);
        let user = |words: &[&str]| {
            let mut command = bench.command(words);
            crate::program::run(command.env("USER", "ada")).done()
        };
        let flow = bench.submit(&["flow"]);
        assert_eq!(
            user(&["pause", "--kind", "flow", "--reason", "no\u{1b}[2J model"]),
            "paused: the kind \"flow\"\n"
        );
        let again = bench.run(&["pause", "--kind", "flow"]).done();
        assert!(again.starts_with("paused before: the kind \"flow\", since 20"), "{again}");
        assert!(again.ends_with(" by operator ada: no\\u{1b}[2J model\n"), "{again}");
        assert_eq!(user(&["pause"]), "paused: the whole queue\n");
        assert_eq!(user(&["pause", "--target", "daytona"]), "paused: the target \"daytona\"\n");

        // Tasks are accepted meanwhile.
        let agent = bench.submit(&["agent"]);
        let why = bench.run(&["why", &flow]).done();
        let lines: Vec<&str> = why.lines().collect();
        assert!(
            lines[0].starts_with("! pause: paused since ")
                && lines[0].ends_with(" s by operator ada: the whole queue"),
            "{why}"
        );
        assert!(
            lines[1].ends_with(" by operator ada: the kind \"flow\": no\\u{1b}[2J model"),
            "{why}"
        );
        let listed = bench.json(&["list", "--json"]);
        assert_eq!((&listed[0]["why"], &listed[1]["why"]), (&json!("paused"), &json!("paused")));

        let rows = bench.json(&["pause", "--list", "--json"]);
        assert_eq!(keys(&rows[0]), bench.columns_of("leasehold_pauses"));
        let told = |row: &Value| format!("{} {} {}", row["scope"], row["value"], row["reason"]);
        let all: Vec<String> = rows.as_array().unwrap().iter().map(told).collect();
        assert_eq!(
            all,
            [
                r#""queue" "" null"#,
                r#""kind" "flow" "no\u001b[2J model""#,
                r#""target" "daytona" null"#
            ]
        );
        let table = bench.run(&["pause", "--list"]).done();
        assert!(table.starts_with("SCOPE   VALUE    SINCE"), "{table}");
        assert!(table.lines().nth(1).unwrap().starts_with("queue   -        20"), "{table}");

        let said = user(&["resume"]);
        assert!(said.starts_with("resumed: the whole queue, since 20"), "{said}");
        assert!(
            said.ends_with("; still paused: the kind \"flow\", the target \"daytona\"\n"),
            "{said}"
        );
        assert!(bench.run(&["why", &agent]).done().starts_with("! adapter: "));
        let said = user(&["resume", "--all"]);
        assert!(said.starts_with("not paused: the whole queue; still paused: "), "{said}");
        user(&["resume", "--target", "daytona"]);
        let said = user(&["resume", "--kind", "flow"]);
        assert!(said.starts_with("resumed: ") && !said.contains("still"), "{said}");
        assert_eq!(user(&["resume", "--kind", "flow"]), "not paused: the kind \"flow\"\n");
        assert_eq!(bench.json(&["pause", "--list", "--json"]), json!([]));
    }
}

#[test]
fn what_no_task_can_be_is_not_paused() {
    for engine in engines() {
        let bench = Bench::new(engine);
        bench.run(&["pause"]).refused(1, "there is no store");
        bench.run(&["resume", "--kind", "flow"]).refused(1, "there is no store");
        assert!(bench.is_untouched());
        bench.submit(&["agent"]);
        for verb in ["pause", "resume"] {
            let said = "no task has the kind \"agnet\": use one of agent, command, engine";
            bench.run(&[verb, "--kind", "agnet"]).refused(1, said);
            bench.run(&[verb, "--target", "moon"]).refused(1, "no task has the target \"moon\"");
            bench.run(&[verb, "--all", "--kind", "flow"]).wrong_usage("cannot be used with");
        }
        bench.run(&["pause", "--list", "--kind", "flow"]).wrong_usage("cannot be used with");
        bench.run(&["pause", "--json"]).wrong_usage("--list");
        // A kind of one's own is known when it is named.
        let own = ["pause", "--kind", "thumbnail", "--accept-kind", "thumbnail"];
        assert_eq!(bench.run(&own).done(), "paused: the kind \"thumbnail\"\n");
        let resume = ["resume", "--kind", "thumbnail", "--accept-kind", "thumbnail"];
        bench.run(&resume).done();
        // `play` has another name.
        assert_eq!(
            bench.run(&["pause", "--kind", "playbook"]).done(),
            "paused: the kind \"play\"\n"
        );
        assert_eq!(bench.json(&["pause", "--list", "--json"]).as_array().unwrap().len(), 1);
    }
}
