//! What every suite needs: reading the cases, and reporting.

use std::fmt;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Map, Number, Value};

/// Where the suites are.
pub(crate) fn directory() -> PathBuf {
    match std::env::var_os("LEASEHOLD_VECTORS") {
        Some(directory) => PathBuf::from(directory),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors"),
    }
}

/// One case of a suite, with `$float` and `$repeat` expanded.
#[derive(Debug)]
pub(crate) struct Case(Map<String, Value>);

impl Case {
    pub(crate) fn id(&self) -> &str {
        self.0.get("id").and_then(Value::as_str).unwrap_or("(a case without an id)")
    }

    /// A member of the case; null if it is absent.
    pub(crate) fn get(&self, key: &str) -> &Value {
        self.0.get(key).unwrap_or(&Value::Null)
    }

    /// Whether the case says so: absent is false.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.get(key).as_bool().unwrap_or(false)
    }

    /// Cases are normative unless they say otherwise.
    pub(crate) fn is_normative(&self) -> bool {
        self.get("normative").as_bool().unwrap_or(true)
    }
}

/// Reads `directory/suite.json`. Object keys keep their order, numbers their spelling.
pub(crate) fn load(directory: &Path, suite: &str) -> Result<Vec<Case>, String> {
    let file = directory.join(suite).with_extension("json");
    let problem = |what: &dyn fmt::Display| format!("{}: {what}", file.display());
    let text = fs::read_to_string(&file).map_err(|error| problem(&error))?;
    let mut suite: Value = serde_json::from_str(&text).map_err(|error| problem(&error))?;
    let Value::Array(cases) = suite["cases"].take() else {
        return Err(problem(&"no list of cases"));
    };
    cases
        .into_iter()
        .map(|case| match expand(case) {
            Value::Object(members) => Ok(Case(members)),
            other => Err(problem(&format!("not a case: {other}"))),
        })
        .collect()
}

/// `{"$float": "nan"}` as that float, `{"$repeat": [s, n]}` as `s` repeated, at any depth.
pub(crate) fn expand(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(expand).collect(),
        Value::Object(members) => match special(&members) {
            Some(value) => value,
            None => members.into_iter().map(|(key, value)| (key, expand(value))).collect(),
        },
        other => other,
    }
}

fn special(members: &Map<String, Value>) -> Option<Value> {
    if members.len() != 1 {
        return None;
    }
    if let Some(name) = members.get("$float").and_then(Value::as_str) {
        let spelling = match name {
            "nan" => "NaN",
            "inf" => "Infinity",
            "-inf" => "-Infinity",
            _ => return None,
        };
        // JSON has no such number, and no public constructor makes one.
        return Some(Value::Number(Number::from_string_unchecked(spelling.to_owned())));
    }
    let repeat = members.get("$repeat")?;
    let count = usize::try_from(repeat.get(1)?.as_u64()?).ok()?;
    Some(Value::String(repeat.get(0)?.as_str()?.repeat(count)))
}

/// What became of a case.
#[derive(Debug)]

pub(crate) enum Outcome {
    Passed,
    Failed { expected: String, got: String },
    Skipped { reason: String },
}

impl Outcome {
    pub(crate) fn failed(expected: impl fmt::Display, got: impl fmt::Display) -> Self {
        Self::Failed { expected: expected.to_string(), got: got.to_string() }
    }

    pub(crate) fn skipped(reason: impl Into<String>) -> Self {
        Self::Skipped { reason: reason.into() }
    }
}

/// The outcomes of one suite on one engine: `sqlite`, `postgres`, or `pure` where no store is
/// involved.
#[derive(Debug)]
pub(crate) struct Report {
    suite: &'static str,
    engine: &'static str,
    passed: usize,
    failed: Vec<(String, String, String)>,
    skipped: Vec<(String, String)>,
}

impl Report {
    /// Runs every case of `directory/suite.json`. A panic fails its case.
    pub(crate) fn of(
        directory: &Path,
        suite: &'static str,
        engine: &'static str,
        run: impl Fn(&Case) -> Outcome,
    ) -> Self {
        let mut report = Self { suite, engine, passed: 0, failed: vec![], skipped: vec![] };
        match load(directory, suite) {
            Err(problem) => report.record("(suite)", Outcome::failed("a suite", problem)),
            Ok(cases) => {
                for case in &cases {
                    let run = std::panic::AssertUnwindSafe(|| run(case));
                    let outcome = std::panic::catch_unwind(run);
                    let outcome =
                        outcome.unwrap_or_else(|_| Outcome::failed("no panic", "a panic"));
                    report.record(case.id(), outcome);
                }
            }
        }
        report
    }

    fn record(&mut self, id: &str, outcome: Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Failed { expected, got } => self.failed.push((id.to_owned(), expected, got)),
            Outcome::Skipped { reason } => self.skipped.push((id.to_owned(), reason)),
        }
    }

    /// Prints the report, and fails the test if a case failed or none ran.
    pub(crate) fn assert_passed(&self) {
        // Written past the test harness, which would keep the lines of a test that passes to itself.
        let _ = writeln!(std::io::stdout(), "{self}");
        assert!(self.failed.is_empty() && self.passed > 0, "{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { suite, engine, passed, failed, skipped } = self;
        write!(
            f,
            "conformance {suite} {engine}: {passed} passed, {} failed, {} skipped",
            failed.len(),
            skipped.len()
        )?;
        for (id, expected, got) in failed {
            write!(
                f,
                "\n  failed {id}\n    expected {}\n    got      {}",
                cut(expected),
                cut(got)
            )?;
        }
        for (id, reason) in skipped {
            write!(f, "\n  skipped {id}: {reason}")?;
        }
        Ok(())
    }
}

/// Some cases hold a megabyte of prompt.
fn cut(text: &str) -> String {
    match text.char_indices().nth(2000) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}
