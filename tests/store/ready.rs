//! The queue by what its runs wait for.

use std::collections::{BTreeMap, BTreeSet};

use leasehold::db::ops::{Outstanding, ReadyClasses, ReadyPage};
use leasehold::domain::capability::CapabilityClasses;
use leasehold::domain::claim_plan::{Offer, in_queue_order};
use leasehold::domain::ready::{NAME_CHARS, ReadyClass};

use crate::kit::store;
use crate::places::{Place, Raw, engines};

/// One queued run; `NULL` or a quoted text each.
fn insert(raw: &mut Raw, id: &str, [target, needs, key, at]: [&str; 4]) {
    raw.run(&format!(
        "INSERT INTO schedule_runs (id, action_kind, action_args, status, fired_at, created_at, trigger_context,
            chain_depth, lease_attempts, execution_target, required_capabilities, concurrency_key, queued_at)
         VALUES ('{id}', 'agent', '{{}}', 'queued', 1, 1, '{{}}', 0, 0, {target}, {needs}, {key}, {at})"
    ));
}

fn all_classes(store: &mut leasehold::db::Store) -> Vec<ReadyClass> {
    let (mut all, mut page) = (Vec::new(), Some(ReadyClasses::default()));
    while let Some(classes) = page {
        let found = store.read(&classes).unwrap();
        page = ReadyClasses::next(&found);
        all.extend(found);
    }
    all
}

#[test]
fn classes_are_those_of_the_queue_and_their_pages_make_it_up() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut store = store(&place);
        let mut raw = place.raw();
        raw.run("BEGIN");
        let (mut expected, mut number) = (BTreeMap::<String, usize>::new(), 0);
        for (target, needs, key) in [
            ("NULL", "NULL", "NULL"),
            ("''", "'null'", "NULL"),
            ("'host'", "'[]'", "NULL"),
            ("'host'", "'[\"a\"]'", "'a:here'"),
            ("'host'", "'[\"a\"]'", "'a:there'"),
            ("'daytona'", "'[\"a\", \"b\"]'", "'b%_é:here'"),
        ] {
            for at in ["NULL", "7", "3.5", "3.5", "NULL"] {
                number += 1;
                insert(&mut raw, &format!("r{number:04}"), [target, needs, key, at]);
                let part = |text: &str| text.trim_matches('\'').replace("NULL", "");
                let name = ["agent", &part(target), &part(needs), &part(key)].join("\u{1f}");
                *expected.entry(name).or_default() += 1;
            }
        }
        // More than are read at a time.
        for token in 0..1500 {
            let needs = format!("[\"t{token}\"]");
            insert(
                &mut raw,
                &format!("t{token:04}"),
                ["'host'", &format!("'{needs}'"), "NULL", "1"],
            );
            expected.insert(["agent", "host", &needs, ""].join("\u{1f}"), 1);
        }
        raw.run("COMMIT");
        raw.run("UPDATE schedule_runs SET status = 'running' WHERE id = 'r0001'");
        *expected.get_mut("agent\u{1f}\u{1f}\u{1f}").unwrap() -= 1;

        let classes = all_classes(&mut store);
        let names: Vec<_> = classes.iter().map(ReadyClass::name).collect();
        assert_eq!(names, expected.keys().collect::<Vec<_>>(), "{engine:?}");
        let mut ids = BTreeSet::new();
        for class in classes {
            let (name, count) = (class.name().to_owned(), expected[class.name()]);
            let mut page = store.read(&ReadyPage { class, after: None }).unwrap();
            assert_eq!(page.len(), count, "{engine:?}: {name:?}");
            ids.extend(page.iter().map(|run| run.id.clone()));
            let order: Vec<_> = page.iter().map(|run| run.id.clone()).collect();
            in_queue_order(&mut page);
            let sorted: Vec<_> = page.into_iter().map(|run| run.id).collect();
            assert_eq!(order, sorted, "{engine:?}: {name:?}");
        }
        assert_eq!(ids.len(), number + 1500 - 1);
    }
}

#[test]
fn needs_that_are_longer_than_a_name_are_looked_at_one_by_one() {
    for engine in engines() {
        let place = Place::new(engine);
        let mut store = store(&place);
        let mut raw = place.raw();
        let long = "é".repeat(NAME_CHARS);
        let token = |last: usize| format!("{long}{last}");
        // Longer than a row of an index may be.
        let much = format!("'[\"{}\"]'", "x".repeat(20_000));
        insert(&mut raw, "much", ["'host'", &much, "NULL", "0"]);
        for number in 0..120 {
            let needs = format!("'[\"{}\"]'", token(number));
            insert(
                &mut raw,
                &format!("r{number:04}"),
                ["'host'", &needs, "NULL", &number.to_string()],
            );
        }
        let classes = all_classes(&mut store);
        assert_eq!(classes.len(), 2);
        assert!(classes.iter().all(ReadyClass::is_cut), "{classes:?}");
        let offer = |token| Offer::new(&[token], &[], CapabilityClasses::default());
        let mut is_left = |token| store.read(&Outstanding { offer: offer(token) }).unwrap();
        assert!(is_left(token(119)), "{engine:?}: behind two pages of others");
        assert!(!is_left(token(120)));
        assert!(is_left("x".repeat(20_000)));
    }
}
