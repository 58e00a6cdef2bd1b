//! Kinds of the user's own: what runs them, and which are accepted.

use std::collections::BTreeSet;

use leasehold::domain::json_text;
use leasehold::domain::kinds::name_problem;
use leasehold::execute::Adapters;
use serde_json::Value;

use super::failure::Failure;
use super::store::variable;

const VARIABLE: &str = "LEASEHOLD_ACCEPT_KINDS";

#[derive(Debug, clap::Args)]
pub(super) struct AdapterOption {
    /// Run tasks of a kind of your own by a program; may be given once for each kind
    ///
    /// The program gets the task's arguments as a JSON object on its standard input, and is otherwise a task as all
    /// others are. KIND:=JSON gives it words, as in thumbnail:=["convert","-"].
    #[arg(long, value_name = "KIND=PROGRAM|KIND:=JSON")]
    adapter: Vec<String>,
}

impl AdapterOption {
    pub(super) fn read(&self) -> Result<Adapters, Failure> {
        let mut adapters = Adapters::default();
        for word in &self.adapter {
            let refused =
                |problem: &str| Failure::Refused(format!("--adapter {word:?}: {problem}"));
            let (kind, argv) = parsed(word).map_err(|problem| refused(&problem))?;
            adapters.program(&kind, argv).map_err(|error| refused(&error.to_string()))?;
        }
        Ok(adapters)
    }
}

fn parsed(word: &str) -> Result<(String, Vec<String>), String> {
    let form = "give KIND=PROGRAM, or KIND:=[\"PROGRAM\",\"WORD\"]";
    let (kind, program) = word.split_once('=').ok_or(form)?;
    let Some(kind) = kind.strip_suffix(':') else {
        return Ok((kind.to_owned(), vec![program.to_owned()]));
    };
    let words = match json_text::parse(program) {
        Ok(Value::Array(words)) => words,
        Ok(_) => return Err(form.into()),
        Err(error) => return Err(format!("{form} ({error})")),
    };
    let words = words.iter().map(|word| word.as_str().map(str::to_owned));
    Ok((kind.to_owned(), words.collect::<Option<_>>().ok_or(form)?))
}

#[derive(Debug, clap::Args)]
pub(super) struct KindOption {
    /// Accept a kind of your own, for which a worker has an adapter; may be given more than once, and as a comma list
    ///
    /// All that LEASEHOLD_ACCEPT_KINDS lists, separated by commas, is accepted as well.
    #[arg(long, value_name = "KIND")]
    accept_kind: Vec<String>,
}

impl KindOption {
    pub(super) fn read(&self) -> Result<BTreeSet<String>, Failure> {
        let mut kinds = BTreeSet::new();
        let from_environment = variable(VARIABLE).map(|list| {
            list.into_string().map_err(|_| {
                Failure::Refused(format!("{VARIABLE} is not valid UTF-8: name kinds in plain text"))
            })
        });
        let from_environment = from_environment.transpose()?;
        let lists = self.accept_kind.iter().map(|list| ("--accept-kind", list));
        let lists = lists.chain(from_environment.iter().map(|list| (VARIABLE, list)));
        for (source, list) in lists {
            for kind in list.split(',').map(str::trim).filter(|kind| !kind.is_empty()) {
                if let Some(problem) = name_problem(kind) {
                    return Err(Failure::Refused(format!(
                        "{source}: the kind {kind:?}: {problem}"
                    )));
                }
                kinds.insert(kind.to_owned());
            }
        }
        Ok(kinds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adapter_is_a_program_or_words() {
        assert_eq!(parsed("a=/bin/x"), Ok(("a".into(), vec!["/bin/x".into()])));
        assert_eq!(parsed(r#"a:=["x","y=z"]"#), Ok(("a".into(), vec!["x".into(), "y=z".into()])));
        for word in ["a", "a:={}", "a:=[1]", "a:=x"] {
            assert!(parsed(word).unwrap_err().starts_with("give KIND=PROGRAM"), "{word}");
        }
        for adapters in [&["agent=x"][..], &["a="], &["a:=[]"], &["a=x", "a=y"], &["A=x"]] {
            let adapter = adapters.iter().map(|word| (*word).to_owned()).collect();
            assert!(AdapterOption { adapter }.read().is_err(), "{adapters:?}");
        }
    }
}
