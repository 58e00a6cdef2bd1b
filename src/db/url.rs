//! Where a store is: `sqlite:PATH` or `postgres://...`.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::error::StoreError;

/// The address of a store. Its `Display` never shows a password.
///
/// ```
/// use leasehold::db::StoreUrl;
/// let url = StoreUrl::parse("postgres://app:secret@db.example/queue").unwrap();
/// assert_eq!(url.to_string(), "postgres://app@db.example/queue");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// A file on this machine.
    Sqlite(PathBuf),
    /// A database server; the whole URL, as libpq takes it.
    Postgres(String),
}

impl StoreUrl {
    /// Reads an address.
    ///
    /// # Errors
    /// [`StoreError::Url`] when it has neither form.
    pub fn parse(text: &str) -> Result<StoreUrl, StoreError> {
        let refused = |problem| StoreError::Url { given: redacted(text), problem };
        if text.contains('\0') {
            return Err(refused("holds the character U+0000"));
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return match cfg!(feature = "postgres") {
                true => Ok(StoreUrl::Postgres(text.into())),
                false => Err(refused("needs PostgreSQL, which this build leaves out")),
            };
        }
        match text.strip_prefix("sqlite:") {
            Some("") => Err(refused("names no file")),
            Some(":memory:") => Err(refused("would keep everything in memory only")),
            Some(path) => Ok(StoreUrl::Sqlite(path.into())),
            None => Err(refused("has neither form")),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreUrl::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            StoreUrl::Postgres(url) => f.write_str(&redacted(url)),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

/// `url` without its password and without its parameters, which may hold one too. libpq takes what stands before the
/// first `@` for the user and the password, unless a `/` comes first. Where an unescaped character in a password may
/// have moved that place, nothing behind the user is shown.
fn redacted(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        // No address at all; perhaps one that lost its scheme, or libpq's other form, `password=...`.
        return match url.contains(['@', '=']) {
            true => format!("{}…", &url[..url.find(':').unwrap_or(0)]),
            false => url.to_owned(),
        };
    };
    let authority = rest.split('/').next().unwrap_or_default();
    let user = rest.split([':', '/', '?', '@']).next().unwrap_or_default();
    let without_parameters = |text: &str| text.split('?').next().unwrap_or_default().to_owned();
    match authority.rsplit_once('@') {
        Some((credentials, _)) => {
            let place = without_parameters(&rest[credentials.len() + 1..]);
            let shown = if place.contains('@') { "…" } else { &place };
            format!("{scheme}://{user}@{shown}")
        }
        None if is_place(authority) => format!("{scheme}://{}", without_parameters(rest)),
        None => format!("{scheme}://{user}…"),
    }
}

/// Whether these are hosts with ports, as opposed to a user and a password that lack their `@`.
fn is_place(authority: &str) -> bool {
    let hosts = authority.split('?').next().unwrap_or_default();
    hosts.split(',').all(|host| match host.rsplit_once(':') {
        Some((_, port)) => port.ends_with(']') || port.bytes().all(|byte| byte.is_ascii_digit()),
        None => true,
    })
}

/// What libpq is told unless the address says otherwise: how long to wait for a server, in seconds, and how soon to take
/// one that has fallen silent for gone. Else a host that was switched off would keep a worker waiting for a quarter of
/// an hour, while its leases run out.
#[cfg(feature = "postgres")]
const PATIENCE: [(&str, &str); 5] = [
    ("connect_timeout", "10"),
    ("keepalives_idle", "10"),
    ("keepalives_interval", "5"),
    ("keepalives_count", "3"),
    // Milliseconds.
    ("tcp_user_timeout", "25000"),
];

/// The address with the parameters of [`PATIENCE`] that it does not have.
#[cfg(feature = "postgres")]
pub(super) fn with_patience(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    // A password may hold a question mark.
    let place = authority.rsplit_once('@').map_or(rest, |(before, _)| &rest[before.len() + 1..]);
    let given = place.split_once('?').map(|(_, given)| given);
    let names = |name: &str| {
        given.is_some_and(|given| {
            given.split('&').any(|pair| pair.split('=').next().is_some_and(|word| word == name))
        })
    };
    let missing = PATIENCE.iter().filter(|(name, _)| !names(name));
    let missing: Vec<_> = missing.map(|(name, value)| format!("{name}={value}")).collect();
    let joint = match given {
        _ if missing.is_empty() => "",
        None => "?",
        Some("") => "",
        Some(_) => "&",
    };
    format!("{url}{joint}{}", missing.join("&"))
}

/// The URI under which SQLite opens `path`, whatever bytes the path holds. `mode` is `ro`, `rw` or `rwc`. What stands
/// before the path keeps SQLite from reading the beginning of `//a/b` as the name of a host.
pub(super) fn sqlite_uri(path: &Path, mode: &str) -> String {
    let mut uri = String::from(if path.is_absolute() { "file://" } else { "file:./" });
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                uri.push(char::from(byte));
            }
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri + "?mode=" + mode
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(feature = "postgres")]
    fn an_address_keeps_what_it_says_of_waiting() {
        let all = "connect_timeout=10&keepalives_idle=10&keepalives_interval=5&keepalives_count=3\
                   &tcp_user_timeout=25000";
        for (url, joint) in [
            ("postgres://h/d", "?"),
            ("postgres:///d", "?"),
            ("postgres://u:p?s@h/d", "?"),
            ("postgres://h/d?", ""),
            ("postgres://h/d?options=-ctcp_user_timeout%3D1", "&"),
        ] {
            assert_eq!(with_patience(url), format!("{url}{joint}{all}"));
        }
        let url = "postgres://h/d?keepalives_idle=1&connect_timeout=2";
        let rest = "keepalives_interval=5&keepalives_count=3&tcp_user_timeout=25000";
        assert_eq!(with_patience(url), format!("{url}&{rest}"));
        let whole = format!("postgres://h/d?{all}");
        assert_eq!(with_patience(&whole), whole);
    }

    #[test]
    fn passwords_and_parameters_are_never_shown() {
        for (url, shown) in [
            ("postgres://u:p@h:5432/d?password=x", "postgres://u@h:5432/d"),
            ("postgresql://h/d", "postgresql://h/d"),
            ("postgres://u:p@ss@h/d", "postgres://u@h/d"),
            ("postgres://u:p?s@h/d", "postgres://u@h/d"),
            ("postgres://u:p/s@h/d", "postgres://u…"),
            ("postgres://u:p/s?t@h/d", "postgres://u…"),
            ("postgres://u:p@s/t@h/d", "postgres://u@…"),
            ("postgres://u:secret", "postgres://u…"),
            ("postgres://h/d?password=x@y", "postgres://h/d"),
            ("postgres://h1:1,h2:2/d?user=x", "postgres://h1:1,h2:2/d"),
            ("postgres://u:p@[::1]:5432/d", "postgres://u@[::1]:5432/d"),
            ("postgres:///d?host=/run", "postgres:///d"),
            ("postgres://[::1]/d", "postgres://[::1]/d"),
            ("u:p@h/d", "u…"),
            ("host=h password=p", "…"),
            ("queue.db", "queue.db"),
        ] {
            assert_eq!(redacted(url), shown);
        }
    }

    #[test]
    fn a_path_with_any_bytes_becomes_one_uri() {
        let path = Path::new("/tmp/a b?c#d%é");
        assert_eq!(sqlite_uri(path, "rw"), "file:///tmp/a%20b%3Fc%23d%25%C3%A9?mode=rw");
        assert_eq!(sqlite_uri(Path::new("//tmp/a"), "ro"), "file:////tmp/a?mode=ro");
        assert_eq!(sqlite_uri(Path::new(":memory:"), "ro"), "file:./%3Amemory%3A?mode=ro");
    }

    #[test]
    fn addresses_of_neither_form_are_refused() {
        for text in ["", "queue.db", "sqlite:", "sqlite::memory:", "mysql://x", "sqlite:a\0b"] {
            assert!(StoreUrl::parse(text).is_err(), "{text:?}");
        }
    }
}
