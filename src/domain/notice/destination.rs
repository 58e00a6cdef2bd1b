//! Where a notice goes: an address on the web, or a program of the worker's machine.

use http::Uri;

/// Where a notice goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// It is posted there.
    Http(HttpTarget),
    /// This program gets it on its standard input.
    Command(String),
}

/// An address, taken apart. Which hosts may be called is decided where it is called, by what the name stands for then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpTarget {
    /// Whether it is `https`.
    pub is_secure: bool,
    /// The name, or the address without brackets, in lower case.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Host and port as they were written.
    pub authority: String,
    /// Path and query.
    pub path: String,
}

/// The longest destination.
const LONGEST: usize = 2048;
const FORM: &str = "give http://HOST/…, https://HOST/… or command:NAME";

impl Destination {
    /// Reads one.
    ///
    /// # Errors
    /// What it must be instead.
    ///
    /// ```
    /// use leasehold::domain::notice::Destination;
    /// let Ok(Destination::Http(target)) = Destination::parse("https://Example.com/a?b=c") else {
    ///     panic!("it is one");
    /// };
    /// assert_eq!((target.host.as_str(), target.port), ("example.com", 443));
    /// assert_eq!(target.path, "/a?b=c");
    /// assert_eq!(Destination::parse("command:tell"), Ok(Destination::Command("tell".into())));
    /// assert!(Destination::parse("command:/bin/tell").is_err());
    /// ```
    pub fn parse(text: &str) -> Result<Destination, &'static str> {
        if let Some(name) = text.strip_prefix("command:") {
            return match is_program_name(name) {
                true => Ok(Destination::Command(name.to_owned())),
                false => Err("give the name of a program that is looked up on the worker's PATH"),
            };
        }
        if text.len() > LONGEST {
            return Err("give an address of at most 2048 bytes");
        }
        // It is read as having none, and whoever wrote one meant something by it.
        if text.contains('#') {
            return Err("leave out the fragment, which no server is sent");
        }
        let address: Uri = text.parse().map_err(|_| FORM)?;
        let is_secure = match address.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(FORM),
        };
        let authority = address.authority().ok_or(FORM)?.as_str();
        if authority.contains('@') {
            return Err(
                "leave out user and password: everybody who can read the store could see them",
            );
        }
        let host = address.host().ok_or(FORM)?.to_ascii_lowercase();
        if host.contains('%') {
            return Err("leave out the zone of the address: it means something else on each host");
        }
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        // A port that is none is read as absent.
        let written = authority.len() > address.host().map_or(0, str::len);
        let port = match address.port_u16() {
            Some(0) => return Err("give a port from 1 to 65535"),
            Some(port) => port,
            None if written => return Err("give a port from 1 to 65535"),
            None if is_secure => 443,
            None => 80,
        };
        if bare.is_empty() {
            return Err(FORM);
        }
        let path = address.path_and_query().map_or("/", |path| path.as_str());
        let path = if path.starts_with('?') { format!("/{path}") } else { path.to_owned() };
        Ok(Destination::Http(HttpTarget {
            is_secure,
            host: bare.to_owned(),
            port,
            authority: authority.to_owned(),
            path,
        }))
    }

    /// What may be shown of it: the rest of an address is often a secret.
    pub fn shown(&self) -> String {
        match self {
            Destination::Http(target) => target.origin(),
            Destination::Command(name) => format!("command:{name}"),
        }
    }
}

impl HttpTarget {
    /// Scheme, host and port.
    pub fn origin(&self) -> String {
        let scheme = if self.is_secure { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }
}

/// A name that is looked up on `PATH`, never a path.
fn is_program_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    !name.is_empty() && !name.starts_with(['-', '.']) && name.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(text: &str) -> HttpTarget {
        match Destination::parse(text) {
            Ok(Destination::Http(target)) => target,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn addresses_are_taken_apart() {
        let target = http("http://[::1]:8080?x=1");
        assert_eq!((target.host.as_str(), target.port), ("::1", 8080));
        assert_eq!((target.authority.as_str(), target.path.as_str()), ("[::1]:8080", "/?x=1"));
        let target = http("HTTPS://EXAMPLE.com");
        assert_eq!(
            (target.host.as_str(), target.port, target.is_secure),
            ("example.com", 443, true)
        );
        assert_eq!(target.path, "/");
        // However it is spelled, what is called is what the resolver makes of it.
        for spelled in ["http://2130706433/", "http://0x7f.1/", "http://0177.0.0.1/"] {
            assert!(Destination::parse(spelled).is_ok(), "{spelled}");
        }
    }

    #[test]
    fn what_is_no_destination_is_refused() {
        let long = format!("http://h/{}", "x".repeat(LONGEST));
        for text in [
            "",
            "h",
            "h/path",
            "/path",
            "ftp://h/",
            "file:///etc/passwd",
            "http://",
            "http:///path",
            "http://u:p@h/",
            "http://u@h/",
            "http://h:0/",
            "http://h:65536/",
            "http://h:port/",
            "http://h:/",
            "http://h/#part",
            "http://h/a b",
            "http://h/\u{0}",
            "http://hé/",
            "http://[fe80::1%25eth0]/",
            "http://h\\@evil/",
            "http://h/\r\nX: y",
            "command:",
            "command:a b",
            "command:../x",
            "command:/bin/sh",
            "command:-x",
            "command:x\n",
            &long,
        ] {
            assert!(Destination::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn only_the_origin_is_shown() {
        let shown = |text| Destination::parse(text).unwrap().shown();
        assert_eq!(shown("https://hooks.example:444/T0/secret?k=v"), "https://hooks.example:444");
        assert_eq!(shown("command:tell"), "command:tell");
    }
}
