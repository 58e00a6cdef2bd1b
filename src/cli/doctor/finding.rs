//! What a check has found.

use std::fmt::Write;

use serde::Serialize;

use crate::cli::harmless::harmless;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Ok,
    /// Something is weaker than it could be.
    Warning,
    /// Work cannot be done, or what was promised is not kept.
    Problem,
}

/// The answer of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) state: State,
    what: String,
    /// What to do; nothing where all is well.
    todo: Option<String>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, what: impl Into<String>) -> Finding {
        Finding { check, state: State::Ok, what: what.into(), todo: None }
    }

    pub(super) fn warning(
        check: &'static str,
        what: impl Into<String>,
        todo: impl Into<String>,
    ) -> Finding {
        Finding { check, state: State::Warning, what: what.into(), todo: Some(todo.into()) }
    }

    pub(super) fn problem(
        check: &'static str,
        what: impl Into<String>,
        todo: impl Into<String>,
    ) -> Finding {
        Finding { check, state: State::Problem, what: what.into(), todo: Some(todo.into()) }
    }

    /// An error of this program says by itself what to do, behind its last `: ` or `; `.
    pub(super) fn error(check: &'static str, error: &str) -> Finding {
        let place = [": ", "; "].iter().filter_map(|mark| error.rfind(mark)).max();
        let (what, todo) = match place {
            Some(place) => (&error[..place], &error[place + 2..]),
            None => (error, "see what it says"),
        };
        Finding::problem(check, what, todo)
    }
}

/// One line for each finding.
pub(super) fn lines(findings: &[Finding]) -> String {
    let mut lines = String::new();
    for finding in findings {
        let state = match finding.state {
            State::Ok => "ok",
            State::Warning => "warning",
            State::Problem => "problem",
        };
        let what = harmless(&finding.what);
        // Writing to a String cannot fail.
        let _ = write!(lines, "{state:<9}{:<17}{what}", finding.check);
        if let Some(todo) = &finding.todo {
            let _ = write!(lines, "; {}", harmless(todo));
        }
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_is_one_harmless_line_that_ends_with_what_to_do() {
        let findings = [
            Finding::ok("store", "is there"),
            Finding::problem("slots", "two\nlines\u{1b}[2J", "do\rthis"),
        ];
        assert_eq!(
            lines(&findings),
            "ok       store            is there\n\
             problem  slots            two\\nlines\\u{1b}[2J; do\\rthis\n"
        );
    }

    #[test]
    fn an_error_is_cut_into_what_is_wrong_and_what_to_do() {
        let found = Finding::error(
            "store",
            "there is no store at x: the first submit makes it, or another",
        );
        assert_eq!(found.what, "there is no store at x");
        assert_eq!(found.todo.as_deref(), Some("the first submit makes it, or another"));
        let found = Finding::error("store", "cannot reach x: refused; check the address");
        assert_eq!(found.what, "cannot reach x: refused");
    }
}
