//! The commands an operator allows the kind `command` to start.

use std::collections::BTreeSet;

/// A set of command names. The default set is empty and allows nothing.
///
/// ```
/// use leasehold::domain::allow::AllowList;
///
/// let allowed = AllowList::parse("echo, git ,,").union(&AllowList::parse("ls"));
/// assert!(allowed.allows("git"));
/// assert!(!allowed.allows("rm"));
/// assert_eq!(allowed.to_string(), "echo,git,ls");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowList(BTreeSet<String>);

impl AllowList {
    /// Reads a comma list: `"echo, git ,,ls"` allows `echo`, `git` and `ls`. White space around a
    /// name and empty entries are dropped; a name is otherwise taken as written.
    pub fn parse(list: &str) -> Self {
        list.split(',').collect()
    }

    /// Both sets together.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0).cloned().collect())
    }

    /// Whether exactly this name is in the set.
    pub fn allows(&self, command: &str) -> bool {
        self.0.contains(command)
    }

    /// Whether no command is allowed, that is, the kind `command` is off.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names, in code point order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl<'a> FromIterator<&'a str> for AllowList {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Self {
        let trimmed = names.into_iter().map(|name| name.trim_matches(is_space));
        Self(trimmed.filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }
}

impl std::fmt::Display for AllowList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.names().collect::<Vec<_>>().join(","))
    }
}

/// White space as Python's `str.strip` has it: the four separator controls belong to it as well.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_trimmed_and_empty_entries_dropped() {
        let allowed = AllowList::parse(" echo,\tgit\n,, ,\u{1c}ls\u{a0}");
        assert_eq!(allowed.names().collect::<Vec<_>>(), ["echo", "git", "ls"]);
    }

    #[test]
    fn nothing_is_allowed_by_default() {
        assert!(AllowList::default().is_empty());
        assert!(AllowList::parse(" , ").is_empty());
        assert!(!AllowList::default().allows(""));
    }

    #[test]
    fn a_name_matches_exactly() {
        let allowed = AllowList::parse("git");
        assert!(!allowed.allows("Git"));
        assert!(!allowed.allows("git "));
        assert!(!allowed.allows("gi"));
    }
}
