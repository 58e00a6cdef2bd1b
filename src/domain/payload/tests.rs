use proptest::prelude::*;

use super::*;

fn spec(args: &str) -> TaskSpec {
    TaskSpec {
        action_kind: "agent".into(),
        args: serde_json::from_str(args).unwrap(),
        execution_target: "host".into(),
        required_capabilities: vec!["a".into(), "b".into()],
        concurrency_key: None,
        library_ref: None,
        library_content_hash: None,
        idempotency_key: None,
    }
}

fn of(args: &str) -> String {
    hash(&spec(args), &RunSettings::default(), None)
}

#[test]
fn order_and_white_space_do_not_matter_and_spelling_does() {
    let one = of(r#"{"a": {"x": 1, "y": [1, 2]}, "b": "\u00e9"}"#);
    assert_eq!(one, of(r#"{"b":"é","a":{"y":[1,2],"x":1}}"#));
    let different = [
        r#"{"b":"é","a":{"y":[2,1],"x":1}}"#,
        r#"{"b":"é","a":{"y":[1,2],"x":1.0}}"#,
        r#"{"b":"é","a":{"y":[1,2],"x":"1"}}"#,
        r#"{"b":"é","a":{"y":[1,2]},"x":1}"#,
        r#"{"b":"e","a":{"y":[1,2],"x":1}}"#,
    ];
    for args in different {
        assert_ne!(one, of(args), "{args}");
    }
    let big = "9007199254740993";
    assert_ne!(of(&format!("{{\"n\":{big}}}")), of(r#"{"n":9007199254740992}"#));
}

#[test]
fn everything_that_makes_up_a_task_counts() {
    let plain = spec("{}");
    let changes: [fn(&mut TaskSpec); 6] = [
        |spec| spec.action_kind = "flow".into(),
        |spec| spec.execution_target = "process".into(),
        |spec| spec.required_capabilities.reverse(),
        |spec| drop(spec.required_capabilities.pop()),
        |spec| spec.library_ref = Some("r".into()),
        |spec| spec.library_content_hash = Some("r".into()),
    ];
    let mut hashes: Vec<_> = changes
        .iter()
        .map(|change| {
            let mut changed = plain.clone();
            change(&mut changed);
            hash(&changed, &RunSettings::default(), None)
        })
        .collect();
    let settings = RunSettings { timeout: Some(1.0), ..RunSettings::default() };
    hashes.push(hash(&plain, &settings, None));
    hashes.push(hash(&plain, &RunSettings::default(), None));
    hashes.push(hash(&plain, &RunSettings::default(), Some(b"")));
    hashes.push(hash(&plain, &RunSettings::default(), Some(b"x")));
    let count = hashes.len();
    hashes.sort();
    hashes.dedup();
    assert_eq!(hashes.len(), count);
    // A retry may be made by a later version, on a host with another name.
    assert_eq!(of("{}"), "a5a42b7ad8023588eaf059843887e1bdfa16edfac3d004995f2fec72ec7c96d3");
    let elsewhere = TaskSpec { concurrency_key: Some("h:x".into()), ..plain.clone() };
    assert_eq!(hash(&elsewhere, &RunSettings::default(), None), of("{}"));
}

#[test]
fn a_retry_is_another_task_than_its_parent_and_than_a_retry_of_another() {
    let task = of("{}");
    let hashes = [task.clone(), hash_of_retry(&task, "a"), hash_of_retry(&task, "b")];
    assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2] && hashes[0] != hashes[2]);
    // A later version must find what this one has stored.
    let stored = "d1c258d4a295785320783d9c227005f17b5617a5ff59cb96d092b2da1d9dcbab";
    assert_eq!(hash_of_retry("h", "a"), stored);
}

#[test]
fn keys_are_short_and_visible() {
    let longest = "é".repeat(LONGEST_KEY);
    for key in ["k", "schedule:1:2", "a/b?c=d&e", "日本", longest.as_str()] {
        assert_eq!(IdempotencyKey::check(key).unwrap().as_str(), key);
    }
    let longer = "é".repeat(LONGEST_KEY + 1);
    for key in ["", " ", "a b", "a\n", "\u{0}", "a\u{200b}", "a\u{feff}", "\u{202e}x", &longer] {
        assert!(IdempotencyKey::check(key).is_err(), "{key:?}");
    }
}

fn json() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        any::<i64>().prop_map(Value::from),
        "-?[1-9][0-9]{0,40}(\\.[0-9]{1,5})?(e[+-]?[0-9]{1,2})?"
            .prop_map(|text| serde_json::from_str(&text).unwrap()),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number,
        ".{0,6}".prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((".{0,4}", inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// The text of a value with the members of every object in another order, and white space where `seed` puts it.
fn written_otherwise(value: &Value, seed: &mut u64) -> String {
    let mut draw = |most: usize| {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(*seed >> 33).unwrap() % most
    };
    let space = ["", " ", "\n", "\t ", "\r\n"][draw(5)];
    let inner = match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            let turn = draw(members.len().max(1));
            members.rotate_left(turn);
            if draw(2) == 0 {
                members.reverse();
            }
            let member = |(name, value): (&String, &Value)| {
                let name = Value::from(name.clone());
                format!("{space}{name}{space}:{}", written_otherwise(value, seed))
            };
            format!("{{{}}}", members.into_iter().map(member).collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| written_otherwise(item, seed)).collect();
            format!("[{}]", items.join(","))
        }
        other => other.to_string(),
    };
    format!("{space}{inner}{space}")
}

/// Every value that differs from this one in one place.
fn changed(value: &Value) -> Vec<Value> {
    let mut changed = match value {
        Value::Null => vec![json!(false), json!({}), json!([])],
        Value::Bool(is) => vec![json!(!is), json!(is.to_string())],
        Value::String(text) => vec![json!(format!("{text}x")), json!(format!(" {text}"))],
        Value::Number(number) => {
            let text = number.to_string();
            // Another digit, however many there are, another spelling, and no number.
            let mut texts = vec![format!("{text}0"), format!("\"{text}\"")];
            if !text.contains(['.', 'e']) {
                texts.extend([format!("{text}.0"), format!("{text}e0")]);
            }
            texts.iter().map(|text| serde_json::from_str(text).unwrap()).collect()
        }
        Value::Array(items) => {
            let mut longer = items.clone();
            longer.push(Value::Null);
            vec![Value::from(longer), json!({ "0": items })]
        }
        Value::Object(members) => {
            let mut more = members.clone();
            let new = (0..).map(|n| n.to_string()).find(|name| !more.contains_key(name));
            more.insert(new.unwrap(), Value::Null);
            vec![Value::Object(more), json!([members])]
        }
    };
    match value {
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                for other in self::changed(item) {
                    let mut items = items.clone();
                    items[place] = other;
                    changed.push(Value::Array(items));
                }
                let mut fewer = items.clone();
                fewer.remove(place);
                changed.push(Value::Array(fewer));
                let mut turned = items.clone();
                turned.swap(place, 0);
                changed.extend((turned != *items).then_some(Value::Array(turned)));
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                let with = |name: &str, value: Option<Value>| {
                    let mut members = members.clone();
                    members.extend(value.map(|value| (name.to_owned(), value)));
                    members
                };
                changed.extend(
                    self::changed(member).into_iter().map(|v| Value::Object(with(name, Some(v)))),
                );
                let mut fewer = members.clone();
                fewer.shift_remove(name);
                let mut renamed = fewer.clone();
                let new = format!("{name}x");
                if !renamed.contains_key(&new) {
                    renamed.insert(new, member.clone());
                    changed.push(Value::Object(renamed));
                }
                changed.push(Value::Object(fewer));
            }
        }
        _ => {}
    }
    changed
}

#[test]
fn numbers_are_told_apart_by_their_digits() {
    let numbers = [
        "1",
        "1.0",
        "1.00",
        "1e0",
        "10e-1",
        "-1",
        "0",
        "-0",
        "0.0",
        "-0.0",
        "9007199254740992",
        "9007199254740993",
        "9007199254740993.0",
        "18446744073709551615",
        "18446744073709551616",
        "18446744073709551617",
        "1180591620717411303424",
        "1180591620717411303425",
        "0.1",
        "0.10000000000000001",
        "\"1\"",
    ];
    let mut hashes: Vec<_> =
        numbers.iter().map(|number| of(&format!("{{\"n\": {number}}}"))).collect();
    hashes.sort();
    hashes.dedup();
    assert_eq!(hashes.len(), numbers.len());
}

proptest! {
    #[test]
    fn a_value_has_one_hash_whichever_way_it_was_written(value in json(), seed: u64) {
        let whole = json!({ "v": value, "a": null, "z": [] });
        let mut seed = seed;
        let hash = of(&whole.to_string());
        prop_assert_eq!(&hash, &of(&serde_json::to_string_pretty(&whole).unwrap()));
        for _ in 0..4 {
            let text = written_otherwise(&whole, &mut seed);
            prop_assert_eq!(&hash, &of(&text), "{}", text);
        }
    }

    #[test]
    fn a_value_that_differs_in_one_place_has_another_hash(value in json()) {
        let of = |value: &Value| of(&json!({ "v": value }).to_string());
        let hash = of(&value);
        for other in changed(&value) {
            prop_assert_ne!(&value, &other);
            prop_assert_ne!(&hash, &of(&other), "{} and {}", value, other);
        }
    }
}
