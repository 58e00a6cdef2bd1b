use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::json;

use super::*;

static NEVER: AtomicBool = AtomicBool::new(false);

fn judged(schema: &Value, document: &Value) -> Result<(), Misfit> {
    assert_eq!(refusal(schema), None, "{schema}");
    fits(schema, document, &NEVER)
}

/// A schema, documents that fit it, and some that do not.
fn case(schema: Value, good: &[Value], bad: &[Value]) {
    for document in good {
        assert_eq!(judged(&schema, document), Ok(()), "{schema}: {document}");
    }
    for document in bad {
        let misfit = judged(&schema, document);
        assert!(matches!(misfit, Err(Misfit::Differs(_))), "{schema}: {document}: {misfit:?}");
    }
}

fn text(document: &str) -> Value {
    serde_json::from_str(document).unwrap()
}

#[test]
fn values_are_of_their_types() {
    case(
        json!({"type": "integer"}),
        &[json!(3), text("3.0"), text("1e3"), text("123456789012345678901234567890")],
        &[text("3.5"), json!("3"), json!(true), json!(null)],
    );
    case(json!({"type": ["null", "number"]}), &[json!(null), text("3.5")], &[json!(""), json!([])]);
    case(json!({"type": "object"}), &[json!({})], &[json!([]), json!(null)]);
    case(json!({"type": "boolean"}), &[json!(true)], &[json!(0)]);
    case(json!(true), &[json!(1)], &[]);
    case(json!(false), &[], &[json!(1)]);
    case(
        json!({"enum": [1, "a", null, {"x": [1]}]}),
        &[text("1.0"), json!("a"), json!(null), text(r#"{"x": [1.0]}"#)],
        &[json!(true), json!({"x": [1, 1]}), json!("1")],
    );
    case(
        json!({"const": {"a": 1, "b": 2}}),
        &[text(r#"{"b": 2, "a": 1}"#)],
        &[json!({"a": 1}), json!(false)],
    );
    case(json!({"const": false}), &[json!(false)], &[json!(0), json!(null)]);
}

#[test]
fn numbers_keep_their_bounds_exactly() {
    case(
        json!({"minimum": 1, "exclusiveMaximum": 2}),
        &[json!(1), text("1.999"), json!("x")],
        &[json!(0), json!(2), text("2.0")],
    );
    let big = text(r#"{"maximum": 9007199254740992}"#);
    case(big, &[text("9007199254740992")], &[text("9007199254740993")]);
    case(
        json!({"multipleOf": 3}),
        &[json!(9), json!(0), json!(-3), text("9.0")],
        &[json!(10), text("9.5")],
    );
    case(
        text(r#"{"multipleOf": 0.01}"#),
        &[text("0.07"), text("19.99"), json!(3)],
        &[text("0.075")],
    );
    case(json!({"exclusiveMinimum": 0}), &[text("1e-300")], &[json!(0), json!(-1)]);
    case(
        text(r#"{"multipleOf": -1}"#.replace('-', "").as_str()),
        &[text("-170141183460469231731687303715884105728")],
        &[text("0.5")],
    );
}

#[test]
fn texts_are_counted_in_characters_and_matched_anywhere() {
    case(
        json!({"minLength": 2, "maxLength": 3}),
        &[json!("éé"), json!("日本語"), json!(1)],
        &[json!("é"), json!("abcd")],
    );
    case(json!({"pattern": "^a+$"}), &[json!("aaa"), json!(1)], &[json!("b"), json!("")]);
    case(json!({"pattern": "b"}), &[json!("abc")], &[json!("ac")]);
    case(json!({"format": "email"}), &[json!("nobody")], &[]);
}

#[test]
fn arrays_are_looked_through() {
    case(
        json!({"items": {"type": "integer"}}),
        &[json!([]), json!([1, 2]), json!({})],
        &[json!([1, "2"])],
    );
    case(
        json!({"prefixItems": [{"type": "string"}], "items": false}),
        &[json!([]), json!(["a"])],
        &[json!([1]), json!(["a", 1])],
    );
    case(json!({"contains": {"type": "string"}}), &[json!([1, "a"])], &[json!([]), json!([1])]);
    case(
        json!({"contains": {"type": "string"}, "minContains": 0, "maxContains": 1}),
        &[json!([]), json!(["a", 1])],
        &[json!(["a", "b"])],
    );
    case(json!({"minItems": 1, "maxItems": 2}), &[json!([1])], &[json!([]), json!([1, 2, 3])]);
    case(
        json!({"uniqueItems": true}),
        &[json!([1, "1", [1], {"a": 1}, {"a": 2}])],
        &[text("[1, 1.0]"), json!([{"a": 1, "b": 2}, {"b": 2, "a": 1}])],
    );
}

#[test]
fn members_are_looked_through() {
    case(
        json!({"properties": {"n": {"type": "integer"}}, "required": ["n"]}),
        &[json!({"n": 1, "x": 2}), json!([])],
        &[json!({}), json!({"n": "1"})],
    );
    case(
        json!({"properties": {"n": true}, "patternProperties": {"^x": {"type": "null"}}, "additionalProperties": false}),
        &[json!({"n": 1, "xy": null})],
        &[json!({"xy": 1}), json!({"y": 1})],
    );
    case(json!({"propertyNames": {"maxLength": 2}}), &[json!({"ab": 1})], &[json!({"abc": 1})]);
    case(
        json!({"minProperties": 1, "maxProperties": 2}),
        &[json!({"a": 1})],
        &[json!({}), json!({"a": 1, "b": 1, "c": 1})],
    );
    case(
        json!({"dependentRequired": {"a": ["b"]}}),
        &[json!({}), json!({"a": 1, "b": 1})],
        &[json!({"a": 1})],
    );
    case(
        json!({"dependentSchemas": {"a": {"required": ["b"]}}}),
        &[json!({"c": 1}), json!({"a": 1, "b": 1})],
        &[json!({"a": 1})],
    );
}

#[test]
fn schemas_are_combined_and_refer_to_each_other() {
    let number_or_text = [json!({"type": "integer"}), json!({"type": "string"})];
    case(json!({"anyOf": number_or_text}), &[json!(1), json!("a")], &[json!(null)]);
    case(json!({"oneOf": [{"minimum": 2}, {"maximum": 3}]}), &[json!(1), json!(4)], &[json!(2)]);
    case(
        json!({"allOf": [{"minimum": 2}, {"maximum": 3}], "not": {"const": 3}}),
        &[json!(2)],
        &[json!(1), json!(3)],
    );
    case(
        json!({"if": {"type": "string"}, "then": {"minLength": 1}, "else": {"type": "null"}}),
        &[json!("a"), json!(null)],
        &[json!(""), json!(1)],
    );
    let tree = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": "#/$defs/a~1b%20c",
        "$defs": {"a/b c": {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}}},
    });
    case(
        tree,
        &[json!({"children": [{"children": []}, {}]})],
        &[json!({"children": [{"children": 1}]})],
    );
}

#[test]
fn a_misfit_says_where_and_why_and_no_value() {
    let schema = json!({"properties": {"list": {"items": {"type": "integer"}}}});
    let misfit = judged(&schema, &json!({"list": [1, "a secret"]}));
    let words = "what stands at \"/list/1\" is string, and must be integer";
    assert_eq!(misfit, Err(Misfit::Differs(words.into())));
    let long = json!({ "x".repeat(9000): { "y".repeat(9000): 1 } });
    let Err(Misfit::Differs(why)) =
        judged(&json!({"additionalProperties": {"additionalProperties": false}}), &long)
    else {
        panic!("it does not fit");
    };
    assert!(why.len() < 300, "{why}");
}

#[test]
fn what_would_be_checked_in_part_or_without_bounds_is_refused() {
    let deep = (0..200).fold(json!(true), |inner, _| json!({ "not": inner }));
    let patterns: Vec<Value> = (0..101).map(|n| json!({ "pattern": n.to_string() })).collect();
    for (schema, said) in [
        (json!(3), "no schema"),
        (json!({"requires": ["a"]}), "\"#/requires\" is not known"),
        (json!({"unevaluatedProperties": false}), "not known"),
        (json!({"$anchor": "a"}), "not known"),
        (json!({"$dynamicRef": "#a"}), "not known"),
        (json!({"$ref": "https://example.org/s.json"}), "leads to no schema"),
        (json!({"$ref": "other.json#/a"}), "leads to no schema"),
        (json!({"$ref": "#/$defs/missing"}), "leads to no schema"),
        (json!({"$ref": "#/default", "default": {"type": 3}}), "leads to no schema"),
        (json!({"$schema": "http://json-schema.org/draft-04/schema#"}), "dialect"),
        (json!({"type": "text"}), "seven types"),
        (json!({"items": [true]}), "no schema"),
        (json!({"allOf": []}), "not empty"),
        (json!({"minLength": -1}), "0 or greater"),
        (json!({"minLength": 1.5}), "0 or greater"),
        (json!({"multipleOf": 0}), "greater than 0"),
        (json!({"pattern": "(?=a)"}), "look-around"),
        (json!({"pattern": "((a{1000}){1000}){1000}"}), "too large"),
        (json!({"patternProperties": {"(": true}}), "patterns"),
        (json!({"required": "a"}), "array of strings"),
        (json!({"properties": {"a": {"bogus": 1}}}), "\"#/properties/a/bogus\""),
        (json!({"anyOf": patterns}), "more than 100 patterns"),
        (json!({"title": "x".repeat(LONGEST_SCHEMA)}), "bytes"),
        (deep, "nested"),
    ] {
        let why = refusal(&schema).unwrap_or_default();
        assert!(why.contains(said), "{said}: {why}");
    }
}

#[test]
fn no_schema_and_no_document_take_for_ever() {
    let doubling: Vec<(String, Value)> = (0..60)
        .map(|n| {
            let next = json!({ "$ref": format!("#/$defs/d{}", n + 1) });
            (format!("d{n}"), json!({ "allOf": [next.clone(), next] }))
        })
        .chain([("d60".into(), json!(true))])
        .collect();
    let doubling =
        json!({ "$ref": "#/$defs/d0", "$defs": Value::Object(doubling.into_iter().collect()) });
    let endless = json!({"$ref": "#"});
    let branching = json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}, {"$ref": "#"}]});
    let unique = json!({"uniqueItems": true});
    let many: Value = (0..10_000).collect::<Vec<_>>().into();
    let slow = json!({"items": {"pattern": "(a|b|ab)*(c|d|cd)*(e?){100}$"}});
    let texts: Value = vec!["abcd".repeat(10_000); 20].into();
    let began = Instant::now();
    for (schema, document) in [
        (&doubling, json!(1)),
        (&endless, json!(1)),
        (&branching, json!(1)),
        (&unique, many),
        (&slow, texts),
    ] {
        assert_eq!(refusal(schema), None);
        let judged = fits_within(MOST_STEPS / 40, schema, &document, &NEVER);
        assert!(matches!(judged, Err(Misfit::Undecided(_))), "{schema}: {judged:?}");
    }
    // Hours without bounds; seconds with them, on the slowest machine.
    assert!(began.elapsed() < Duration::from_secs(300), "{:?}", began.elapsed());
    let stopped = fits(&json!(true), &json!(1), &AtomicBool::new(true));
    assert!(matches!(stopped, Err(Misfit::Undecided(_))), "{stopped:?}");
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "-?[1-9][0-9]{0,50}(\\.[0-9]{1,5})?(e[+-]?[0-9]{1,3})?".prop_map(|number| text(&number)),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 30, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec(("[a-c]|.{0,3}", inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Objects whose members are mostly keywords, with mostly sensible values.
fn any_schema() -> impl Strategy<Value = Value> {
    let number =
        prop_oneof![(-3i64..9).prop_map(Value::from), Just(text("0.5")), Just(text("1e400"))];
    let word = prop::sample::select(vec!["integer", "string", "array", "object", "null"]);
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        word.prop_map(|word| json!({ "type": word })),
        ("(minimum|maximum|multipleOf|minLength|maxItems|minProperties)", number)
            .prop_map(|(name, number)| json!({ name: number })),
        "[a-c.*+?()|^$]{0,6}".prop_map(|pattern| json!({ "pattern": pattern })),
        Just(json!({ "$ref": "#" })),
        Just(json!({ "uniqueItems": true })),
        any_json().prop_map(|value| json!({ "enum": [value.clone(), value] })),
        any_json().prop_map(|value| json!({ "const": value })),
        any_json(),
    ];
    leaf.prop_recursive(4, 40, 4, |inner| {
        let all = prop::collection::vec(inner.clone(), 0..4);
        let members = prop::collection::vec(("[a-c]|[a-c.*]{0,3}", inner.clone()), 0..4)
            .prop_map(|members| Value::Object(members.into_iter().collect()));
        prop_oneof![
            ("(allOf|anyOf|oneOf|prefixItems)", all).prop_map(|(name, all)| json!({ name: all })),
            ("(not|items|contains|additionalProperties|propertyNames|if|then)", inner)
                .prop_map(|(name, schema)| json!({ name: schema })),
            ("(properties|patternProperties|dependentSchemas|\\$defs)", members)
                .prop_map(|(name, members)| json!({ name: members })),
        ]
    })
}

proptest! {
    #[test]
    fn nothing_panics_and_what_is_refused_stays_refused(schema in any_schema(), document in any_json()) {
        let why = refusal(&schema);
        // Whether or not it can be used: a store may hold what another version has let pass.
        let judged = fits(&schema, &document, &NEVER);
        if why.is_none() {
            let not = json!({ "not": schema.clone() });
            // References are to the whole, which is another one.
            if !schema.to_string().contains("$ref") && refusal(&not).is_none() {
                let opposite = fits(&not, &document, &NEVER);
                match judged {
                    Ok(()) => prop_assert!(matches!(opposite, Err(Misfit::Differs(_)))),
                    Err(Misfit::Differs(_)) => prop_assert_eq!(opposite, Ok(())),
                    Err(Misfit::Undecided(_)) => {}
                }
            }
        }
    }

    #[test]
    fn a_document_is_its_own_constant(document in any_json()) {
        let schema = json!({ "const": document.clone(), "enum": [document.clone()] });
        prop_assert_eq!(fits(&schema, &document, &NEVER), Ok(()));
    }
}
