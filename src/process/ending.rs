//! How a task ended.

use super::Tail;

/// How a task ended, and the last bytes of what it wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// What the kernel said.
    pub end: End,
    /// Whether we signalled the task while it was still running. An end that we did not ask for is
    /// the task's own result; what an asked-for end means is for the caller to say, who knows why
    /// it asked.
    pub stopped: bool,
    /// The end of its standard output.
    pub stdout: Tail,
    /// The end of its standard error.
    pub stderr: Tail,
    /// All of its standard output, if that was to be kept and fits.
    pub whole_stdout: Option<Vec<u8>>,
}

/// How the leader of a task left, exactly as the kernel gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It exited with this code, 0 to 255.
    Exited(i32),
    /// A signal ended it.
    Signalled {
        /// The number of the signal.
        signal: i32,
        /// Whether the kernel wrote a core.
        core_dumped: bool,
    },
    /// It was sent SIGKILL and is still there: stuck in the kernel, or running as a user that we
    /// may not signal. It still holds what it holds.
    Unkillable,
    /// It is gone and its status with it: this process ignores SIGCHLD, or somebody else in it
    /// reaped the child.
    Lost,
}

impl Ending {
    /// The exit code, or `-N` for an end by signal `N`. An end without a status counts as 1.
    pub fn exit_code(&self) -> i32 {
        match self.end {
            End::Exited(code) => code,
            End::Signalled { signal, .. } => -signal,
            End::Unkillable | End::Lost => 1,
        }
    }

    /// The signal that ended it.
    pub fn signal(&self) -> Option<i32> {
        match self.end {
            End::Signalled { signal, .. } => Some(signal),
            _ => None,
        }
    }

    /// Whether the kernel wrote a core.
    pub fn core_dumped(&self) -> bool {
        matches!(self.end, End::Signalled { core_dumped: true, .. })
    }

    /// What the task wrote at last, in one text (ADR-0071): standard error as it is when standard
    /// output is blank, `[stdout]` and standard output when standard error is blank, else one after
    /// the other. At most about 12 KiB, without U+0000. An end without a status puts a line before
    /// it that says so.
    pub fn detail(&self) -> String {
        let written = compose(&self.stdout.text(), &self.stderr.text());
        let said = match self.end {
            End::Exited(_) | End::Signalled { .. } => return written,
            End::Unkillable => "the task was sent SIGKILL and is still there",
            End::Lost => {
                "the exit status of the task was lost: another part of this process reaped it"
            }
        };
        if written.is_empty() { said.to_owned() } else { format!("{said}\n{written}") }
    }
}

/// [`exit_code`](Ending::exit_code) and [`detail`](Ending::detail), the shape in which an executor
/// reports a run.
impl From<Ending> for (i32, String) {
    fn from(ending: Ending) -> Self {
        (ending.exit_code(), ending.detail())
    }
}

fn compose(stdout: &str, stderr: &str) -> String {
    if is_blank(stdout) {
        stderr.to_owned()
    } else if is_blank(stderr) {
        format!("[stdout]\n{stdout}")
    } else {
        format!("{stderr}\n[stdout]\n{stdout}")
    }
}

/// Blank as Python's `str.strip` has it, which also strips the four separators U+001C to U+001F.
fn is_blank(text: &str) -> bool {
    text.chars().all(|c| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(end: End, stdout: &str, stderr: &str) -> Ending {
        let (mut out, mut err) = (Tail::default(), Tail::default());
        out.push(stdout.as_bytes());
        err.push(stderr.as_bytes());
        Ending { end, stopped: false, stdout: out, stderr: err, whole_stdout: None }
    }

    #[test]
    fn detail_is_composed_as_the_original_does() {
        for (stdout, stderr, detail) in [
            ("", "", ""),
            (" \n\u{1c}\u{a0}", "boom\n", "boom\n"),
            ("\n", " \n", " \n"),
            ("out\n", "", "[stdout]\nout\n"),
            ("out\n", " \t\n", "[stdout]\nout\n"),
            ("out\n", "err\n", "err\n\n[stdout]\nout\n"),
            ("a\0b", "", "[stdout]\na\u{fffd}b"),
        ] {
            assert_eq!(
                ending(End::Exited(1), stdout, stderr).detail(),
                detail,
                "{stdout:?} {stderr:?}"
            );
        }
    }

    #[test]
    fn codes_and_signals_keep_apart() {
        let cases = [
            (End::Exited(0), 0, None),
            (End::Exited(255), 255, None),
            (End::Exited(137), 137, None),
            (End::Signalled { signal: 9, core_dumped: false }, -9, Some(9)),
            (End::Signalled { signal: 11, core_dumped: true }, -11, Some(11)),
            (End::Lost, 1, None),
            (End::Unkillable, 1, None),
        ];
        for (end, code, signal) in cases {
            let ending = ending(end, "", "");
            assert_eq!((ending.exit_code(), ending.signal()), (code, signal), "{end:?}");
            assert_eq!(ending.core_dumped(), code == -11, "{end:?}");
        }
    }

    #[test]
    fn an_end_without_a_status_says_so() {
        assert!(ending(End::Lost, "", "").detail().contains("was lost"));
        assert!(ending(End::Unkillable, "", "last words").detail().ends_with("\nlast words"));
    }
}
