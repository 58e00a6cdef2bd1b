//! What `leasehold worker` says about tasks of a kind.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::domain::notation;
use leasehold::domain::settings::KindDefaults;
use leasehold::domain::task::{ACTION_KINDS, COMMAND};

use super::failure::Failure;

/// The defaults of each kind that one of the options names; `own` are the kinds that have an adapter.
pub(super) fn defaults(
    timeouts: &[String],
    graces: &[String],
    own: &[&str],
) -> Result<BTreeMap<String, KindDefaults>, Failure> {
    let mut defaults: BTreeMap<String, KindDefaults> = BTreeMap::new();
    for (option, words) in [("--timeout", timeouts), ("--grace", graces)] {
        for word in words {
            let refused =
                |problem: String| Failure::Refused(format!("{option} {word:?}: {problem}"));
            let (kind, length) = parsed(word, own).map_err(refused)?;
            let of_kind = defaults.entry(kind).or_default();
            let place = match option {
                "--timeout" => &mut of_kind.timeout,
                _ => &mut of_kind.grace,
            };
            if place.replace(length.as_secs_f64()).is_some() {
                return Err(refused("this kind has one already: give it once".into()));
            }
        }
    }
    Ok(defaults)
}

fn parsed(word: &str, own: &[&str]) -> Result<(String, Duration), String> {
    let (kind, length) = word.split_once('=').ok_or("give KIND=LENGTH, such as agent=2h")?;
    if kind != COMMAND && !ACTION_KINDS.contains(&kind) && !own.contains(&kind) {
        let known = [&ACTION_KINDS[..], own].concat().join(", ");
        return Err(format!("{kind:?} is no kind of task; there are {known} and {COMMAND}"));
    }
    Ok((kind.to_owned(), notation::length(length)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(timeouts: &[&str], graces: &[&str]) -> Result<BTreeMap<String, KindDefaults>, Failure> {
        let owned =
            |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        defaults(&owned(timeouts), &owned(graces), &["own"])
    }

    #[test]
    fn each_kind_has_one_of_each() {
        let read = read(&["agent=2h", "command=1.5", "own=1s"], &["agent=30s"]).unwrap();
        let of = |timeout, grace| KindDefaults { timeout, grace };
        assert_eq!(read["agent"], of(Some(7200.0), Some(30.0)));
        assert_eq!(read["command"], of(Some(1.5), None));
        assert_eq!(read["own"], of(Some(1.0), None));
        assert_eq!(read.len(), 3);
    }

    #[test]
    fn what_names_no_kind_or_no_length_is_refused() {
        for words in [&["2h"][..], &["agents=2h"], &["agent=soon"], &["agent=1s", "agent=2s"]] {
            assert!(read(words, &[]).is_err(), "{words:?}");
            assert!(read(&[], words).is_err(), "{words:?}");
        }
    }
}
