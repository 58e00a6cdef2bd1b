//! What a task must leave behind, besides exit code 0, to have done its work.
//!
//! It is judged after the last process of the task is gone and before its end is written. If a part of it does not hold
//! the run fails, and says which; that is a failure like any other to a policy of retries.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ending::Usage;
use super::schema::{self, Misfit};

/// How long a check may take unless it is said, in seconds.
pub const CHECK_SECONDS: f64 = 60.0;
/// More files than these are a list that belongs into a check.
const MOST_FILES: usize = 100;
/// As the kernel has it for one argument of a program, with the NUL that ends it.
const LONGEST_ARGUMENT: usize = 131_072;
/// Times of files are those of the last tick of the kernel's clock, which may be so many seconds before.
const TICK: f64 = 0.02;

/// The contract of one task. The default demands nothing.
///
/// ```
/// use leasehold::domain::contract::{Contract, ExpectedFile};
/// let file = ExpectedFile { path: "out.json".into(), not_empty: true };
/// let contract = Contract { files: vec![file], ..Contract::default() };
/// assert!(contract.problem(true).is_none());
/// assert!(contract.problem(false).is_some(), "relative to which directory?");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Contract {
    /// Files that it must have made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<ExpectedFile>,
    /// A JSON document that it must have written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json: Option<ExpectedJson>,
    /// A command that must succeed after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<Check>,
    /// Whether no process of it may be left when its first one exits.
    #[serde(skip_serializing_if = "is_false")]
    pub no_leftovers: bool,
    /// Whether files count that were there before it was started and were not changed since.
    #[serde(skip_serializing_if = "is_false")]
    pub old_files: bool,
}

/// A file that a task must have made: a regular one, or a symbolic link to one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExpectedFile {
    /// Its path; a relative one is taken from the task's directory.
    pub path: String,
    /// Whether it must hold something.
    #[serde(skip_serializing_if = "is_false")]
    pub not_empty: bool,
}

/// A JSON document that a task must have written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExpectedJson {
    /// The file that holds it; absent means its standard output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The JSON Schema that it must fit; `true` fits everything.
    pub schema: Value,
}

impl Default for ExpectedJson {
    fn default() -> ExpectedJson {
        ExpectedJson { path: None, schema: Value::Bool(true) }
    }
}

/// A command that must end with exit code 0. It runs where and as the task ran, and reads nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The program, which must be allowed like that of any command, and its arguments.
    pub argv: Vec<String>,
    /// How long it may take, in seconds.
    pub timeout: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Which part does not hold, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmet {
    /// One sentence.
    pub why: String,
    /// What a check had to say; may be empty.
    pub detail: String,
}

impl Unmet {
    /// A reason in one sentence.
    pub fn new(why: impl Into<String>) -> Unmet {
        Unmet { why: why.into(), detail: String::new() }
    }
}

/// A file as it was seen after the end of a task.
#[derive(Debug, Clone, PartialEq)]
pub enum SeenFile {
    /// There is none.
    Missing,
    /// What is there is something else: a directory, a pipe.
    Other(&'static str),
    /// It cannot be looked at.
    Unreadable(String),
    /// A regular file.
    Regular {
        /// How long it is.
        bytes: u64,
        /// When its contents, its name or its rights were changed last, in seconds since the epoch.
        changed_at: f64,
    },
}

impl Contract {
    /// What is wrong with it: a setting, its value, and what it must be. `has_cwd` says whether the task has a directory of
    /// its own.
    pub fn problem(&self, has_cwd: bool) -> Option<(&'static str, String, &'static str)> {
        if self.files.len() > MOST_FILES {
            let many = format!("{} files", self.files.len());
            return Some(("expect_file", many, "give at most 100, and check others by a command"));
        }
        let in_json = self.json.iter().filter_map(|json| json.path.as_deref());
        let paths = self.files.iter().map(|file| ("expect_file", file.path.as_str()));
        for (setting, path) in paths.chain(in_json.map(|path| ("expect_json", path))) {
            if let Some(rule) = wrong_path(path, has_cwd) {
                return Some((setting, format!("{path:?}"), rule));
            }
        }
        if let Some(why) = self.json.as_ref().and_then(|json| schema::refusal(&json.schema)) {
            let rule = "give a JSON Schema of which each keyword is known here";
            return Some(("schema", format!("used, since {why}"), rule));
        }
        self.check.as_ref().and_then(Check::problem)
    }

    /// Whether files have to be looked at or read.
    pub fn looks_at_files(&self) -> bool {
        !self.files.is_empty() || self.json.is_some()
    }

    /// Whether the number of processes that the task left behind is what it may be.
    ///
    /// # Errors
    /// It is not.
    pub fn judge_leftovers(&self, usage: &Usage) -> Result<(), Unmet> {
        match usage.leftovers {
            _ if !self.no_leftovers => Ok(()),
            None => Err(Unmet::new("nobody has counted the processes that it left behind")),
            Some(_) => usage.leftovers_in_words().map_or(Ok(()), |words| Err(Unmet::new(words))),
        }
    }

    /// Whether a file is what was expected of a task that was started at this moment, in seconds since the epoch.
    ///
    /// # Errors
    /// It is not.
    pub fn judge_file(
        &self,
        file: &ExpectedFile,
        seen: &SeenFile,
        started_at: f64,
    ) -> Result<(), Unmet> {
        let is = |what: &str| Err(Unmet::new(format!("the file {:?} {what}", file.path)));
        match seen {
            SeenFile::Missing => is("is not there"),
            SeenFile::Other(what) => is(&format!("is {what}, and no regular file")),
            SeenFile::Unreadable(why) => is(&format!("cannot be looked at: {why}")),
            SeenFile::Regular { changed_at, .. }
                if !self.old_files && *changed_at < started_at - TICK =>
            {
                is("was there before the task was started, and is unchanged")
            }
            SeenFile::Regular { bytes: 0, .. } if file.not_empty => is("is empty"),
            SeenFile::Regular { .. } => Ok(()),
        }
    }
}

impl ExpectedJson {
    /// What the document is called in a sentence.
    pub fn subject(&self) -> String {
        match &self.path {
            Some(path) => format!("the file {path:?}"),
            None => "its standard output".into(),
        }
    }

    /// Whether these bytes are the document. `stop` ends a judgement that takes too long.
    ///
    /// # Errors
    /// They are not.
    pub fn judge(&self, bytes: &[u8], stop: &std::sync::atomic::AtomicBool) -> Result<(), Unmet> {
        let unmet = |why: String| Err(Unmet::new(format!("{} {why}", self.subject())));
        if bytes.len() > schema::LONGEST_JSON {
            return unmet(format!("has more than {} bytes", schema::LONGEST_JSON));
        }
        let document: Value = match serde_json::from_slice(bytes) {
            Ok(document) => document,
            // Where, and in the parser's words; not what stands there.
            Err(error) => return unmet(format!("is no JSON document: {error}")),
        };
        match schema::fits(&self.schema, &document, stop) {
            Ok(()) => Ok(()),
            Err(Misfit::Differs(why)) => unmet(format!("does not fit its schema: {why}")),
            Err(Misfit::Undecided(why)) => unmet(format!("cannot be judged: {why}")),
        }
    }
}

impl Check {
    /// The program, for sentences: arguments may hold what nobody else is to see.
    pub fn program(&self) -> &str {
        self.argv.first().map_or("", String::as_str)
    }

    fn problem(&self) -> Option<(&'static str, String, &'static str)> {
        if self.program().is_empty() {
            return Some(("check", "empty".into(), "give a program, and its arguments"));
        }
        let unfit = |word: &&String| word.len() >= LONGEST_ARGUMENT || word.contains('\0');
        if self.argv.iter().any(|word| unfit(&word)) {
            let given = format!("{:?} with such an argument", self.program());
            return Some(("check", given, "an argument has at most 131071 bytes, and no U+0000"));
        }
        let fits = self.timeout.is_finite() && self.timeout > 0.0 && self.timeout <= 86_400.0;
        let given = format!("{} s", self.timeout);
        (!fits).then_some((
            "check_timeout",
            given,
            "give a positive length of time, a day at the most",
        ))
    }
}

fn wrong_path(path: &str, has_cwd: bool) -> Option<&'static str> {
    if path.is_empty() || path.contains('\0') || path.len() > 4000 {
        return Some("give a path of 1 to 4000 bytes without the character U+0000");
    }
    if path.split('/').any(|part| part == "..") {
        return Some("write the path without \"..\"");
    }
    if path.ends_with('/') {
        return Some("give the path of a file, not of a directory");
    }
    (!has_cwd && !path.starts_with('/')).then_some(
        "give an absolute path, or a directory with --cwd, since a worker may run anywhere",
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn file(path: &str) -> Contract {
        let file = ExpectedFile { path: path.into(), not_empty: false };
        Contract { files: vec![file], ..Contract::default() }
    }

    fn check(argv: &[&str], timeout: f64) -> Contract {
        let argv = argv.iter().map(|word| (*word).to_owned()).collect();
        Contract { check: Some(Check { argv, timeout }), ..Contract::default() }
    }

    #[test]
    fn what_no_worker_could_judge_is_refused() {
        let named = |contract: &Contract| contract.problem(true).map(|(setting, ..)| setting);
        for path in ["", "..", "a/../b", "/../etc", "a/", "a\0b", "x".repeat(4001).as_str()] {
            assert_eq!(named(&file(path)), Some("expect_file"), "{path:?}");
        }
        for path in ["a", "a/b", "/a", "..a", "a..", "a/...", "é"] {
            assert_eq!(named(&file(path)), None, "{path:?}");
        }
        let many = Contract { files: vec![ExpectedFile::default(); 101], ..Contract::default() };
        assert_eq!(named(&many), Some("expect_file"));
        let json = |path: Option<&str>, schema| Contract {
            json: Some(ExpectedJson { path: path.map(str::to_owned), schema }),
            ..Contract::default()
        };
        assert_eq!(named(&json(Some(".."), json!(true))), Some("expect_json"));
        assert_eq!(named(&json(None, json!({"bogus": 1}))), Some("schema"));
        assert_eq!(named(&json(None, json!({"type": "object"}))), None);
        for bad in [check(&[], 1.0), check(&[""], 1.0), check(&["a", "\0"], 1.0)] {
            assert_eq!(named(&bad), Some("check"));
        }
        for timeout in [0.0, -1.0, f64::NAN, f64::INFINITY, 86_401.0] {
            assert_eq!(named(&check(&["a"], timeout)), Some("check_timeout"), "{timeout}");
        }
    }

    #[test]
    fn a_file_counts_if_it_was_changed_since_the_start() {
        let plain = file("a");
        let regular = |bytes, changed_at| SeenFile::Regular { bytes, changed_at };
        let judge = |contract: &Contract, seen: &SeenFile| {
            contract.judge_file(&contract.files[0], seen, 100.0).map_err(|unmet| unmet.why)
        };
        assert_eq!(judge(&plain, &regular(0, 100.0)), Ok(()));
        assert_eq!(judge(&plain, &regular(0, 99.99)), Ok(()), "the clock of files ticks slowly");
        let old = judge(&plain, &regular(5, 99.0)).unwrap_err();
        assert_eq!(old, "the file \"a\" was there before the task was started, and is unchanged");
        let lenient = Contract { old_files: true, ..plain.clone() };
        assert_eq!(judge(&lenient, &regular(5, 1.0)), Ok(()));
        let mut filled = plain.clone();
        filled.files[0].not_empty = true;
        assert_eq!(judge(&filled, &regular(0, 100.0)).unwrap_err(), "the file \"a\" is empty");
        assert_eq!(judge(&filled, &regular(1, 100.0)), Ok(()));
        for seen in
            [SeenFile::Missing, SeenFile::Other("a directory"), SeenFile::Unreadable("no".into())]
        {
            assert!(judge(&lenient, &seen).is_err(), "{seen:?}");
        }
    }

    #[test]
    fn leftovers_count_where_that_was_asked_for() {
        let strict = Contract { no_leftovers: true, ..Contract::default() };
        let left = |leftovers| Usage { leftovers, ..Usage::default() };
        assert_eq!(Contract::default().judge_leftovers(&left(Some(3))), Ok(()));
        assert_eq!(strict.judge_leftovers(&left(Some(0))), Ok(()));
        let why = |leftovers| strict.judge_leftovers(&left(leftovers)).unwrap_err().why;
        assert!(why(Some(1)).starts_with("a process"));
        assert!(why(Some(3)).starts_with("3 processes"));
        assert!(why(None).starts_with("nobody"));
    }

    #[test]
    fn documents_are_judged_and_never_quoted() {
        let never = AtomicBool::new(false);
        let schema = json!({"type": "object", "required": ["n"]});
        let expected = ExpectedJson { path: Some("r.json".into()), schema };
        let judge = |bytes: &[u8]| expected.judge(bytes, &never).map_err(|unmet| unmet.why);
        assert_eq!(judge(b" {\"n\": 1}\n"), Ok(()));
        let said = judge(b"{}").unwrap_err();
        assert_eq!(said, "the file \"r.json\" does not fit its schema: it has no member \"n\"");
        for bad in [&b""[..], b"{\"n\": 1} x", b"\xff\xfe", "[".repeat(9000).as_bytes()] {
            let said = judge(bad).unwrap_err();
            assert!(said.starts_with("the file \"r.json\" is no JSON document"), "{said}");
        }
        assert!(judge(&vec![b' '; schema::LONGEST_JSON + 1]).unwrap_err().contains("more than"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_judgement_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let never = AtomicBool::new(false);
            let judged = ExpectedJson::default().judge(&bytes, &never);
            let is_json = serde_json::from_slice::<Value>(&bytes).is_ok();
            prop_assert_eq!(judged.is_ok(), is_json);
        }
    }
}
