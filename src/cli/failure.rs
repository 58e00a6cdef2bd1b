//! How the program fails: one line on standard error, and an exit code.

use std::error::Error;
use std::io::{Write, stderr};
use std::panic::PanicHookInfo;
use std::process::ExitCode;

use super::harmless::harmless;

const FAILED: u8 = 1;
const WRONG_USAGE: u8 = 2;
const INTERNAL: u8 = 70;

/// Why nothing more is done.
#[derive(Debug)]
pub(super) enum Failure {
    /// The queue refused, or could not be used.
    Refused(String),
    /// The words make no sense: what clap has to say, `--help` and `--version` too.
    Usage(clap::Error),
    /// A word that clap would refuse without naming it.
    WrongWord(String),
}

impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Refused(error.to_string())
    }
}

impl Failure {
    /// Says why, and answers with which code the program ends.
    pub(super) fn report(self) -> ExitCode {
        match self {
            Failure::Refused(reason) => {
                say(&reason);
                ExitCode::from(FAILED)
            }
            Failure::WrongWord(reason) => {
                say(&reason);
                ExitCode::from(WRONG_USAGE)
            }
            Failure::Usage(answer) if !answer.use_stderr() => {
                // Nobody may be reading the help any more.
                let _ = answer.print();
                ExitCode::SUCCESS
            }
            Failure::Usage(error) => {
                let text = error.render().to_string();
                let lines: Vec<String> = text.lines().map(harmless).collect();
                let _ = writeln!(stderr(), "{}", lines.join("\n"));
                ExitCode::from(WRONG_USAGE)
            }
        }
    }
}

/// From now on a panic, in whatever thread, ends the program with one line.
pub(super) fn report_panics() {
    std::panic::set_hook(Box::new(|info| {
        say(&format!("internal error: {}", describe(info)));
        end();
    }));
}

/// From now on a panic is logged, in the span of the actor that it ends, and only one of the main thread ends the
/// program: the runtime starts its actors again.
pub(super) fn log_panics() {
    std::panic::set_hook(Box::new(|info| {
        tracing::error!(panic = %describe(info), "internal error");
        if std::thread::current().name() == Some("main") {
            end();
        }
    }));
}

/// Ends the program after a panic that has been reported.
pub(super) fn end() -> ! {
    std::process::exit(i32::from(INTERNAL))
}

fn describe(info: &PanicHookInfo<'_>) -> String {
    let what = info.payload_as_str().unwrap_or("a panic without words");
    match info.location() {
        Some(place) => format!("{what} ({}:{})", place.file(), place.line()),
        None => what.to_owned(),
    }
}

/// One line on standard error.
pub(super) fn say(reason: &str) {
    // There is nobody left to tell that this went wrong.
    let _ = writeln!(stderr(), "leasehold: {}", harmless(reason));
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use leasehold::db::StoreUrl;
    use leasehold::runtime::Outside;
    use leasehold::{Runtime, RuntimeConfig};

    const CHILD: &str = "LEASEHOLD_TEST_PANICS";

    /// The test program runs itself: a panic hook that serves a whole process cannot be tried in this one. Answers the
    /// exit code and what was said.
    fn alone(test: &str, body: fn()) -> (Option<i32>, String) {
        if std::env::var_os(CHILD).is_some() {
            body();
            std::process::exit(0);
        }
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("cli::failure::tests::{test}"), "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        (child.status.code(), String::from_utf8(child.stderr).unwrap())
    }

    #[test]
    fn a_panic_of_an_actor_is_logged_with_the_actor_s_name_and_ends_nothing() {
        let name = "a_panic_of_an_actor_is_logged_with_the_actor_s_name_and_ends_nothing";
        let (code, said) = alone(name, || {
            tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
            super::log_panics();
            let dir = tempfile::tempdir().unwrap();
            let config = RuntimeConfig::new(StoreUrl::Sqlite(dir.path().join("queue.db")));
            let spent = AtomicBool::new(false);
            let seam = move |actor: &'static str| {
                assert!(actor != "claim" || spent.swap(true, Ordering::SeqCst), "a hidden fault");
            };
            let outside = Outside { actor_seam: Some(Arc::new(seam)), ..Outside::default() };
            let runtime = Runtime::start_with(config, outside).unwrap();
            let waiting = tokio::runtime::Builder::new_current_thread().build().unwrap();
            // The first may be lost with the actor; one after the restart works.
            while waiting.block_on(runtime.handle().tick()).is_err() {}
            runtime.handle().shut_down_now();
            assert_eq!(runtime.join().code(), 0);
        });
        assert_eq!(code, Some(0), "{said}");
        let line = said.lines().find(|line| line.contains("a hidden fault")).unwrap_or_default();
        assert!(line.contains("ERROR") && line.contains("actor=\"claim\""), "{said}");
    }

    #[test]
    fn a_panic_is_one_line_and_exit_code_70() {
        let (code, said) = alone("a_panic_is_one_line_and_exit_code_70", || {
            super::report_panics();
            panic!("two\nlines");
        });
        assert_eq!(code, Some(70));
        assert!(said.starts_with("leasehold: internal error: two\\nlines (src/"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}
