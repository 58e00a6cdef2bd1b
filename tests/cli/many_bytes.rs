//! `submit --from` with arbitrary bytes: each line is stored, or reported with its number, or blank.

use std::collections::BTreeSet;

use leasehold::Config;
use leasehold::domain::submission::Submission;
use leasehold::domain::task::TaskSpec;
use proptest::prelude::*;

use crate::places::{Engine, engines};
use crate::program::Bench;

/// Lines that are tasks, that nearly are, and that are anything.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let task = |n: u32| format!(r#"{{"action_kind": "agent", "args": {{"n": {n}}}}}"#).into_bytes();
    let spoilt = (any::<u32>(), any::<prop::sample::Index>(), any::<u8>()).prop_map(
        move |(n, place, byte)| {
            let mut line = task(n);
            let place = place.index(line.len());
            line[place] = byte;
            line
        },
    );
    prop_oneof![
        3 => any::<u32>().prop_map(task),
        3 => spoilt,
        2 => prop::collection::vec(prop::sample::select(b"\n\r \t\0\xef\xbb\xbf\xff{}[]\":,agent".to_vec()), 0..30),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
}

/// The numbers of the lines that are tasks, and of those that are neither that nor blank.
fn judged(file: &[u8]) -> (Vec<u64>, Vec<u64>) {
    let rules = Config::daemon().submit_rules();
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for (line, number) in file.split(|byte| *byte == b'\n').zip(1..) {
        let line =
            if number == 1 { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line };
        if line.iter().all(|byte| b" \t\r".contains(byte)) {
            continue;
        }
        let text = std::str::from_utf8(line).ok();
        let task = text.and_then(|text| Submission::from_json_text(text, &rules, 0.0).ok());
        let is_task = task.is_some_and(|task| TaskSpec::check(&task.app, &rules).is_ok());
        if is_task { good.push(number) } else { bad.push(number) }
    }
    (good, bad)
}

fn check(engine: Engine, file: &[u8]) -> Result<(), TestCaseError> {
    let bench = Bench::new(engine);
    let (good, bad) = judged(file);
    let answer = bench.run_reading(&["submit", "--from", "-", "--json"], file);
    prop_assert_eq!(answer.code, Some(i32::from(!bad.is_empty())), "{}", answer.err);
    let (mut ids, mut stored, mut refused) = (BTreeSet::new(), Vec::new(), Vec::new());
    for line in answer.out.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let number = line["line"].as_u64().unwrap();
        match line["id"].as_str() {
            Some(id) => {
                ids.insert(id.to_owned());
                stored.push(number);
            }
            None => refused.push(number),
        }
    }
    prop_assert_eq!(&stored, &good);
    prop_assert_eq!(&refused, &bad);
    let said = answer.err.lines().filter_map(|line| line.strip_prefix("leasehold: line "));
    let said: Vec<u64> =
        said.map(|line| line.split(':').next().unwrap().parse().unwrap()).collect();
    prop_assert_eq!(&said, &bad);
    prop_assert!(!answer.err.contains(|c: char| c.is_control() && c != '\n'), "{:?}", answer.err);
    if good.is_empty() {
        prop_assert!(bench.is_untouched());
    } else {
        let rows = bench.place.raw().texts("SELECT id AS value FROM schedule_runs");
        prop_assert_eq!(rows.into_iter().flatten().collect::<BTreeSet<_>>(), ids);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_good_lines_are_stored_and_the_others_named(
        lines in prop::collection::vec(line(), 0..12),
        has_mark: bool,
        end in prop::sample::select(vec!["\n", "\r\n"]),
    ) {
        let mark = if has_mark { "\u{feff}" } else { "" };
        let file = [mark.as_bytes(), &lines.join(end.as_bytes())].concat();
        for engine in engines() {
            check(engine, &file)?;
        }
    }
}
