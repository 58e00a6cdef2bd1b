//! Finding the executable `li`.
//!
//! A prefix that starts `li` is *usable* if and only if it is absolute: a relative one would be
//! looked up in whatever directory the process happens to run in. The first of three ways that
//! yields a usable prefix wins (ADR-0071, execution: "the absolute li prefix"):
//!
//! 1. the first executable file `li` on the search path;
//! 2. an executable file `li` beside the Python interpreter;
//! 3. the console-script entry point `li` among the packages of that interpreter, run as a module.
//!
//! Only the file system is read. The search path and the interpreter are the caller's to name.

mod entry_point;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use entry_point::find_module;

/// The search path that holds if `PATH` is unset.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Where to look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LiSearch {
    /// The search path, as in `PATH`. `None` stands for `/bin:/usr/bin`.
    pub path: Option<OsString>,
    /// The Python interpreter that has lionagi installed, if one is known.
    pub interpreter: Option<PathBuf>,
}

/// No way to start `li` was found. The message names each attempt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot resolve li executable: {}; install lionagi so that `li` is in an absolute directory of PATH, or name the Python interpreter that has it",
    .attempts.join("; ")
)]
pub struct LiNotFound {
    /// What was tried, in order, each with the reason why it failed.
    pub attempts: Vec<String>,
}

/// A usable prefix, or the reason why there is none.
type Attempt = Result<Vec<String>, String>;

/// Finds the words that start `li`: `[path]`, or `[interpreter, "-m", module]`.
///
/// ```
/// use leasehold::launch::{LiSearch, find_li};
///
/// let search = LiSearch { path: Some("/nonexistent".into()), interpreter: None };
/// let error = find_li(&search).unwrap_err();
/// assert_eq!(error.attempts.len(), 3);
/// ```
///
/// # Errors
/// [`LiNotFound`] with one attempt for each way.
pub fn find_li(search: &LiSearch) -> Result<Vec<String>, LiNotFound> {
    let mut attempts = Vec::new();
    let ways: [fn(&LiSearch) -> Attempt; 3] = [on_path, beside_interpreter, entry_point];
    for way in ways {
        match way(search) {
            Ok(prefix) => return Ok(prefix),
            Err(reason) => attempts.push(reason),
        }
    }
    Err(LiNotFound { attempts })
}

/// A relative hit ends the search of the path: it is what a shell would run, and it is unusable.
fn on_path(search: &LiSearch) -> Attempt {
    let default = OsString::from(DEFAULT_PATH);
    let path = search.path.as_ref().unwrap_or(&default);
    let hit = std::env::split_paths(path).map(|dir| dir.join("li")).find(|file| is_program(file));
    match hit {
        None => Err("no executable `li` on PATH".to_owned()),
        Some(file) if file.is_absolute() => Ok(vec![utf8(&file)?]),
        Some(file) => Err(format!(
            "`li` on PATH is not absolute ({}) and would depend on the working directory",
            file.display()
        )),
    }
}

fn beside_interpreter(search: &LiSearch) -> Attempt {
    let file = absolute_interpreter(search)?.with_file_name("li");
    match is_program(&file) {
        true => Ok(vec![utf8(&file)?]),
        false => Err(format!(
            "no executable `li` beside the interpreter (sys.executable): {}",
            file.display()
        )),
    }
}

fn entry_point(search: &LiSearch) -> Attempt {
    let interpreter = absolute_interpreter(search)
        .map_err(|reason| format!("no console_scripts entry point read, since {reason}"))?;
    match find_module(interpreter, "li") {
        Some(module) => Ok(vec![utf8(interpreter)?, "-m".to_owned(), module]),
        None => Err(format!(
            "no `li` among the console_scripts entry points of {}",
            interpreter.display()
        )),
    }
}

fn absolute_interpreter(search: &LiSearch) -> Result<&Path, String> {
    match search.interpreter.as_deref() {
        None => Err("no interpreter (sys.executable) is known".to_owned()),
        Some(interpreter) if interpreter.is_absolute() => Ok(interpreter),
        Some(interpreter) => Err(format!(
            "the interpreter (sys.executable) is not an absolute path: {}",
            interpreter.display()
        )),
    }
}

fn is_program(file: &Path) -> bool {
    file.is_file() && access(file, Access::EXEC_OK).is_ok()
}

fn utf8(path: &Path) -> Result<String, String> {
    match path.to_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(format!("{} is not valid UTF-8", path.display())),
    }
}

#[cfg(test)]
mod tests;
