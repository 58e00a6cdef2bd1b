//! The command line a launch yields.

use std::ffi::OsString;
use std::path::PathBuf;

use super::error::LaunchError;

/// The longest argument Linux takes, in bytes: `MAX_ARG_STRLEN` (32 pages of 4 KiB) less the NUL
/// that ends it.
const MAX_ARGUMENT_BYTES: usize = 131_071;

/// One argument of an [`Argv`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Argument {
    /// The argument itself.
    Text(String),
    /// The path of a file with these contents, which does not exist yet. The floor that starts the
    /// process writes it as `leasehold-*.yaml`, puts its path here, and removes it afterwards,
    /// whether or not the process was started.
    YamlFile(String),
}

/// A command line: the program first, then its arguments. At most one argument is a
/// [`Argument::YamlFile`], and only for the kind `flow_yaml`.
///
/// ```
/// use leasehold::launch::{Argument, Argv};
///
/// let argv: Argv = ["/opt/li", "agent", "--", "ping"].into_iter().collect();
/// assert_eq!(argv.arguments()[0], Argument::Text("/opt/li".to_owned()));
/// assert!(argv.check_exec().is_ok());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Argv(Vec<Argument>);

impl Argv {
    /// The arguments in order, the program at index 0.
    pub fn arguments(&self) -> &[Argument] {
        &self.0
    }

    /// What the YAML file must contain, if this command line reads one.
    pub fn yaml_contents(&self) -> Option<&str> {
        self.0.iter().find_map(|argument| match argument {
            Argument::YamlFile(contents) => Some(contents.as_str()),
            Argument::Text(_) => None,
        })
    }

    /// The command line as it is handed to `exec`. `write_yaml` gets the contents of the YAML
    /// file, writes it and returns its path; it is called once, or never.
    ///
    /// # Errors
    /// What `write_yaml` returns.
    pub fn with_yaml_path<E>(
        &self,
        mut write_yaml: impl FnMut(&str) -> Result<PathBuf, E>,
    ) -> Result<Vec<OsString>, E> {
        let to_os = |argument: &Argument| match argument {
            Argument::Text(text) => Ok(OsString::from(text)),
            Argument::YamlFile(contents) => write_yaml(contents).map(OsString::from),
        };
        self.0.iter().map(to_os).collect()
    }

    /// Whether the kernel can take every argument.
    ///
    /// # Errors
    /// * [`LaunchError::ArgTooLong`] for an argument of 131,072 bytes or more.
    /// * [`LaunchError::ArgHasNul`] for one with a NUL byte.
    pub fn check_exec(&self) -> Result<(), LaunchError> {
        for (index, argument) in self.0.iter().enumerate() {
            let Argument::Text(text) = argument else { continue };
            if text.len() > MAX_ARGUMENT_BYTES {
                return Err(LaunchError::ArgTooLong { index, bytes: text.len() });
            }
            if text.contains('\0') {
                return Err(LaunchError::ArgHasNul { index });
            }
        }
        Ok(())
    }

    pub(super) fn push(&mut self, text: impl Into<String>) {
        self.0.push(Argument::Text(text.into()));
    }

    pub(super) fn push_yaml_file(&mut self, contents: String) {
        self.0.push(Argument::YamlFile(contents));
    }
}

impl<S: Into<String>> FromIterator<S> for Argv {
    fn from_iter<I: IntoIterator<Item = S>>(texts: I) -> Self {
        Self(texts.into_iter().map(|text| Argument::Text(text.into())).collect())
    }
}

impl<S: Into<String>> Extend<S> for Argv {
    fn extend<I: IntoIterator<Item = S>>(&mut self, texts: I) {
        self.0.extend(texts.into_iter().map(|text| Argument::Text(text.into())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn an_argument_may_have_131071_bytes_and_no_more() {
        let argv = |bytes: usize| Argv::from_iter(["li".to_owned(), "é".repeat(bytes / 2) + "x"]);
        assert_eq!(argv(131_070).check_exec(), Ok(()));
        let refused = argv(131_072).check_exec();
        assert_eq!(refused, Err(LaunchError::ArgTooLong { index: 1, bytes: 131_073 }));
    }

    #[test]
    fn a_nul_byte_cannot_be_passed() {
        let argv = Argv::from_iter(["li", "a\0b"]);
        assert_eq!(argv.check_exec(), Err(LaunchError::ArgHasNul { index: 1 }));
    }

    #[test]
    fn the_contents_of_a_file_are_no_argument() {
        let mut argv = Argv::from_iter(["li"]);
        argv.push_yaml_file("x\0".repeat(131_072));
        assert_eq!(argv.check_exec(), Ok(()));
    }

    #[test]
    fn the_yaml_path_takes_the_place_of_the_file() {
        let mut argv = Argv::from_iter(["li", "-f"]);
        argv.push_yaml_file("a: 1\n".to_owned());
        let mut written = Vec::new();
        let line = argv.with_yaml_path(|contents| {
            written.push(contents.to_owned());
            Ok::<_, Infallible>(PathBuf::from("/tmp/leasehold-1.yaml"))
        });
        assert_eq!(line, Ok(["li", "-f", "/tmp/leasehold-1.yaml"].map(OsString::from).to_vec()));
        assert_eq!(written, ["a: 1\n"]);
        assert_eq!(argv.yaml_contents(), Some("a: 1\n"));
    }

    #[test]
    fn a_failed_write_is_the_callers_error() {
        let mut argv = Argv::from_iter(["li"]);
        argv.push_yaml_file(String::new());
        assert_eq!(argv.with_yaml_path(|_| Err("disk full")), Err("disk full"));
    }
}
