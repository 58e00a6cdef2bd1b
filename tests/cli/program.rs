//! Running the program, and what every test says about its answers.

use std::ffi::OsStr;
use std::fmt;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::places::{Engine, Place, patiently};

/// A program that knows nothing of the environment of the tests.
pub(crate) fn leasehold() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.env_clear().stdin(Stdio::null());
    command
}

/// How it ended and what it said.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn run(command: &mut Command) -> Answer {
    patiently(|| Answer::of(command.output().unwrap()).unless_busy()).unwrap_or_else(|busy| busy)
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.err)
    }
}

impl Answer {
    pub(crate) fn of(output: Output) -> Answer {
        Answer {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// An error when nothing was done since others have held the store for too long.
    fn unless_busy(self) -> Result<Answer, Answer> {
        if self.code == Some(0) || !self.err.contains(" is busy: ") { Ok(self) } else { Err(self) }
    }

    /// Done, and nothing on standard error.
    #[track_caller]
    pub(crate) fn done(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{}", self.out);
        self.out
    }

    /// Refused with this exit code and one harmless line that holds `words`.
    #[track_caller]
    pub(crate) fn refused(self, code: i32, words: &str) -> String {
        assert_eq!((self.code, self.out.as_str()), (Some(code), ""), "{}", self.err);
        let line = self.err.strip_suffix('\n').expect("a whole line");
        assert!(line.starts_with("leasehold: ") && !line.contains(char::is_control), "{line:?}");
        assert!(line.contains(words), "{line}\ndoes not say: {words}");
        line.to_owned()
    }

    /// Wrong usage, in clap's words.
    #[track_caller]
    pub(crate) fn wrong_usage(self, words: &str) {
        assert_eq!((self.code, self.out.as_str()), (Some(2), ""), "{}", self.err);
        assert!(self.err.contains(words), "{}\ndoes not say: {words}", self.err);
        assert!(!self.err.contains(|c: char| c.is_control() && c != '\n'), "{:?}", self.err);
    }
}

/// The program beside one store.
pub(crate) struct Bench {
    pub(crate) place: Place,
}

impl Bench {
    pub(crate) fn new(engine: Engine) -> Bench {
        Bench { place: Place::new(engine) }
    }

    /// The program with its store named by the environment and its home in the place's directory.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Command {
        let mut command = leasehold();
        command.args(words).env("LEASEHOLD_STORE", &self.place.url);
        command.env("HOME", self.place.dir.path()).current_dir(self.place.dir.path());
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> Answer {
        run(&mut self.command(words))
    }

    /// As `run`, with a text on standard input.
    pub(crate) fn run_reading(&self, words: &[&str], input: &[u8]) -> Answer {
        let mut command = self.command(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        Answer::of(child.wait_with_output().unwrap())
    }

    /// Submits, and answers the id.
    #[track_caller]
    pub(crate) fn submit(&self, words: &[&str]) -> String {
        let words: Vec<&str> = ["submit"].iter().chain(words).copied().collect();
        let out = self.run(&words).done();
        let id = out.strip_suffix('\n').expect("a whole line");
        assert_eq!(id.len(), 36, "{out:?} is more than an id");
        id.to_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.run(words).done()).unwrap()
    }

    /// What is stored as the arguments of a task.
    #[track_caller]
    pub(crate) fn stored_args(&self, id: &str) -> Value {
        self.json(&["show", id, "--json"])["action_args"].clone()
    }

    /// The names of a table's columns, in order.
    pub(crate) fn columns_of(&self, table: &str) -> Vec<String> {
        let sql = match self.place.engine {
            Engine::Sqlite => {
                format!("SELECT name AS value FROM pragma_table_info('{table}') ORDER BY cid")
            }
            Engine::Postgres => format!(
                "SELECT column_name::text AS value FROM information_schema.columns
                 WHERE table_schema = current_schema() AND table_name = '{table}' ORDER BY ordinal_position"
            ),
        };
        self.place.raw().texts(&sql).into_iter().flatten().collect()
    }

    /// Whether nothing has made the store.
    pub(crate) fn is_untouched(&self) -> bool {
        match self.place.engine {
            Engine::Sqlite => !std::path::Path::new(self.file()).exists(),
            Engine::Postgres => self.columns_of("schedule_runs").is_empty(),
        }
    }

    pub(crate) fn file(&self) -> &str {
        self.place.url.strip_prefix("sqlite:").unwrap()
    }
}

/// The keys of an object, in order.
pub(crate) fn keys(row: &Value) -> Vec<String> {
    row.as_object().unwrap().keys().cloned().collect()
}
