//! Placeholders in prompts and command arguments.

use serde_json::{Map, Value};

use super::text::python_str;
use super::word::is_word;

/// Replaces each `{{name}}` by its value in `trigger`, once: what a value holds is not rendered
/// again. A name is one or more Unicode word characters, with no space around it.
///
/// The value is `trigger["github_events"][0][name]` if that is there and not null, else
/// `trigger[name]`, as text ([`python_str`]; null becomes `None`). A placeholder without a value
/// stays as written.
///
/// ```
/// use leasehold::launch::template::render;
/// use serde_json::{Map, json};
///
/// let trigger = Map::from_iter([("pr".to_owned(), json!(42))]);
/// assert_eq!(render("review {{pr}} of {{ pr }}, {{who}}", &trigger), "review 42 of {{ pr }}, {{who}}");
/// ```
pub fn render(template: &str, trigger: &Map<String, Value>) -> String {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(found) = next_placeholder(rest) {
        out.push_str(found.before);
        match value_of(found.name, trigger) {
            Some(value) => out.push_str(&value),
            None => out.extend(["{{", found.name, "}}"]),
        }
        rest = found.after;
    }
    out.push_str(rest);
    out
}

/// Whether `render` would look up anything.
pub fn has_placeholder(template: &str) -> bool {
    next_placeholder(template).is_some()
}

struct Placeholder<'a> {
    before: &'a str,
    name: &'a str,
    after: &'a str,
}

fn next_placeholder(text: &str) -> Option<Placeholder<'_>> {
    let mut from = 0;
    while let Some(offset) = text[from..].find("{{") {
        let open = from + offset;
        let inner = &text[open + 2..];
        let end = inner.find(|c| !is_word(c)).unwrap_or(inner.len());
        let (name, close) = inner.split_at(end);
        if let (false, Some(after)) = (name.is_empty(), close.strip_prefix("}}")) {
            return Some(Placeholder { before: &text[..open], name, after });
        }
        // The second brace may open the placeholder: `{{{name}}`.
        from = open + 1;
    }
    None
}

fn value_of(name: &str, trigger: &Map<String, Value>) -> Option<String> {
    let event = trigger.get("github_events").and_then(|events| events.get(0));
    let from_event = event.and_then(|event| event.get(name)).filter(|value| !value.is_null());
    from_event.or_else(|| trigger.get(name)).map(python_str)
}

#[cfg(test)]
mod tests {

    use super::*;
    use serde_json::json;

    fn rendered(template: &str, trigger: Value) -> String {
        render(template, trigger.as_object().unwrap())
    }

    #[test]
    fn braces_around_a_placeholder_stay() {
        assert_eq!(rendered("{{{a}}}", json!({"a": "1"})), "{1}");
        assert_eq!(rendered("{{{{a}}}}", json!({"a": "1"})), "{{1}}");
        assert_eq!(rendered("{{a}", json!({"a": "1"})), "{{a}");
        assert_eq!(rendered("{{}}{{a}}", json!({"a": "1"})), "{{}}1");
        assert_eq!(rendered("{{a}}}}{{", json!({"a": "1"})), "1}}{{");
        assert_eq!(rendered("{{a{{a}}", json!({"a": "1"})), "{{a1");
    }

    #[test]
    fn names_are_unicode_words() {
        assert_eq!(rendered("{{é_1}}{{日}}", json!({"é_1": "x", "日": "y"})), "xy");
        assert_eq!(rendered("{{a-b}}{{a.b}}", json!({"a-b": 1, "a.b": 1})), "{{a-b}}{{a.b}}");
        assert_eq!(rendered("{{a\n}}", json!({"a": 1})), "{{a\n}}");
    }

    #[test]
    fn values_are_not_rendered_again() {
        let trigger = json!({"a": "{{b}}", "b": "x", "c": "{{"});
        assert_eq!(rendered("{{a}}", trigger.clone()), "{{b}}");
        assert_eq!(rendered("{{c}}b}}", trigger), "{{b}}");
    }

    #[test]
    fn the_first_event_comes_before_the_trigger() {
        let trigger = json!({"github_events": [{"a": 0, "n": null}], "a": 1, "n": 2, "o": 3});
        assert_eq!(rendered("{{a}}{{n}}{{o}}", trigger), "023");
        assert_eq!(rendered("{{a}}", json!({"github_events": {"0": {"a": 0}}, "a": 1})), "1");
        assert_eq!(rendered("{{a}}", json!({"github_events": [], "a": null})), "None");
    }
}
