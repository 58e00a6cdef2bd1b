use proptest::prelude::*;

use super::*;

fn edited(text: &str) -> String {
    with_model(text, "m").unwrap_or_else(|error| error.category().to_owned())
}

fn check(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(edited(text), *expected, "{text:?}");
    }
}

#[test]
fn a_block_mapping_gets_one_more_line() {
    check(&[
        ("a: 1\n", "a: 1\nmodel: \"m\"\n"),
        ("a: 1", "a: 1\nmodel: \"m\"\n"),
        ("  a: 1\n  b: 2\n", "  a: 1\n  b: 2\n  model: \"m\"\n"),
        ("# c\na: 1\n# d\n", "# c\na: 1\n# d\nmodel: \"m\"\n"),
        ("a: 1\r\nb: 2\r\n", "a: 1\r\nb: 2\r\nmodel: \"m\"\n"),
        ("on: push\nb: 0777\n", "on: push\nb: 0777\nmodel: \"m\"\n"),
        ("a:\n- b\n- c", "a:\n- b\n- c\nmodel: \"m\"\n"),
        ("? a\n? b\n", "? a\n? b\nmodel: \"m\"\n"),
        ("\u{feff}a: 1\n", "\u{feff}a: 1\nmodel: \"m\"\n"),
        ("%YAML 1.1\n---\na: 1\n", "%YAML 1.1\n---\na: 1\nmodel: \"m\"\n"),
        ("--- !!map\na: 1\n", "--- !!map\na: 1\nmodel: \"m\"\n"),
        ("a: {model: x}\n", "a: {model: x}\nmodel: \"m\"\n"),
    ]);
}

#[test]
fn nothing_is_put_behind_the_end_of_the_document() {
    check(&[("---\na: 1\n...\n", "---\na: 1\nmodel: \"m\"\n...\n")]);
}

#[test]
fn a_last_value_that_depends_on_the_end_of_the_text_keeps_it() {
    check(&[
        ("a: |\n  text", "model: \"m\"\na: |\n  text"),
        ("# c\n  a: |\n    text", "# c\n  model: \"m\"\n  a: |\n    text"),
        ("a: |+\n  text\n\n\n", "a: |+\n  text\n\n\nmodel: \"m\"\n"),
    ]);
}

#[test]
fn a_flow_mapping_gets_one_more_entry() {
    check(&[
        ("{}", "{ \"model\": \"m\"}"),
        ("{\"a\": 1}\n", "{\"a\": 1, \"model\": \"m\"}\n"),
        ("{a: 1,}", "{a: 1, \"model\": \"m\"}"),
        ("{a}", "{a, \"model\": \"m\"}"),
        ("--- {a: 1 # c\n}\n# d\n", "--- {a: 1 # c\n, \"model\": \"m\"}\n# d\n"),
    ]);
}

#[test]
fn a_model_is_replaced_in_place() {
    check(&[
        ("model: old\na: 1\n", "model: \"m\"\na: 1\n"),
        ("a: 1\nmodel: old # why\n", "a: 1\nmodel: \"m\" # why\n"),
        ("'model': old", "'model': \"m\""),
        ("\"mod\\x65l\": old\n", "\"mod\\x65l\": \"m\"\n"),
        ("model: !!str 5\n", "model: \"m\"\n"),
        ("model: a\n  b\n  c\nd: e", "model: \"m\"\nd: e"),
        ("model: [1,\n 2]\nb: 1\n", "model: \"m\"\nb: 1\n"),
        ("model: a\nmodel: b\n", "model: \"m\"\nmodel: \"m\"\n"),
        ("? model\n: old\na: 2\n", "? model\n: \"m\"\na: 2\n"),
        ("{model: {a: b}, c: d}", "{model: \"m\", c: d}"),
    ]);
}

#[test]
fn an_absent_value_is_put_in_place() {
    check(&[
        ("model:\na: 1\n", "model: \"m\"\na: 1\n"),
        ("model:  # none\na: 1\n", "model: \"m\"  # none\na: 1\n"),
        ("a: 1\nmodel:", "a: 1\nmodel: \"m\""),
        ("{model, b: 2}", "{model: \"m\", b: 2}"),
    ]);
}

#[test]
fn a_block_value_is_replaced_up_to_the_next_key() {
    check(&[
        ("model:\n  a: 1\n  b: [1]\nc: 2\n", "model: \"m\"\nc: 2\n"),
        ("model:\n- 1\n- 2\nb: 1\n", "model: \"m\"\nb: 1\n"),
        ("model: |\n  x\n\nc: 2\n", "model: \"m\"\nc: 2\n"),
        ("c: 2\nmodel: >\n  x\n  y", "c: 2\nmodel: \"m\"\n"),
    ]);
}

#[test]
fn a_later_key_wins_where_a_model_cannot_be_replaced() {
    check(&[
        ("model: &m x\nb: *m\n", "model: &m x\nb: *m\nmodel: \"m\"\n"),
        ("k: &k model\n*k : old\n", "k: &k model\n*k : old\nmodel: \"m\"\n"),
        ("b: &b {model: q}\n<<: *b\n", "b: &b {model: q}\n<<: *b\nmodel: \"m\"\n"),
    ]);
}

#[test]
fn a_model_that_cannot_be_set_alone_is_an_error() {
    check(&[("model: &m x\nb: *m\nc: |\n  text", "flow_yaml_model")]);
}

#[test]
fn text_that_is_no_mapping_stays_as_it_is() {
    let texts = [
        "",
        "# only a comment\n",
        "text",
        "- a\n- b\n",
        "key: [unclosed",
        "a: 1\n---\nb: 2\n",
        "!own {a: 1}",
        "a: !own 1\n",
        "!!set {a, b}",
        "{a: 1}: 2",
        "? [a]\n: 2\n",
        "a: &a [1]\n*a : 2\n",
        "a: *unknown\n",
        "a: \u{7}\n",
        "a: b: c\n",
    ];
    for text in texts {
        assert_eq!(edited(text), text);
    }
}

#[test]
fn a_model_is_text_whatever_it_looks_like() {
    for model in ["on", "1e3", "null", "@x", ":x", "a:", "2024-01-01"] {
        let expected = format!("a: 1\nmodel: \"{model}\"\n");
        assert_eq!(with_model("a: 1\n", model).as_deref(), Ok(expected.as_str()));
    }
}

fn any_text() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "model", "a", "é", ": ", ":", "\n", "\n  ", "- ", "? ", "{", "}", "[", "]", ", ", "|\n  ",
        "'", "\"", "#", " # ", "&k ", "*k", "!!str ", "---\n", "...\n", "\r\n", "<<", "\t",
    ]);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever the text, it stays as it is, is refused, or has the model as its last one.
    #[test]
    fn no_text_is_broken(text in any_text()) {
        if let Ok(edited) = with_model(&text, "m") && edited != text {
            prop_assert!(Document::read(&edited).is_some());
            prop_assert!(edited.contains("\"m\""));
        }
    }
}
