//! Who is told when a task has ended; and, for a worker, how.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use leasehold::domain::notation;
use leasehold::domain::notice::address::Allowed;
use leasehold::domain::notice::{Backoff, DEFAULT_ATTEMPTS, Notify, SigningKey};
use leasehold::notify::NotifyConfig;

use super::failure::Failure;
use super::store::variable;

/// Where the key may stand; tasks do not inherit it.
const KEY: &str = "LEASEHOLD_NOTIFY_SECRET";

#[derive(Debug, clap::Args)]
pub(super) struct NotifyOptions {
    /// Tell this receiver when the task has ended, however it ends: http://…, https://…, or command:NAME
    ///
    /// The notice is stored with the end, and a worker sends it at least once. An address is posted a small JSON document:
    /// it must be public, or allowed by the worker's --notify-allow. A command gets the document on its standard input: it
    /// must be allowed by --allow-command, here and at the worker.
    #[arg(long, value_name = "URL|command:NAME")]
    notify: Option<String>,
    /// Give the notice up after so many attempts [default: 12, which last some five hours]
    #[arg(long, value_name = "N", requires = "notify")]
    notify_attempts: Option<u32>,
    /// Give the notice up so long after the end [default: when there are no attempts left]
    #[arg(long, value_name = "LENGTH", requires = "notify", value_parser = notation::length)]
    notify_within: Option<Duration>,
}

impl NotifyOptions {
    pub(super) fn read(&self) -> Option<Notify> {
        self.notify.clone().map(|to| Notify {
            to,
            attempts: self.notify_attempts.unwrap_or(DEFAULT_ATTEMPTS),
            within: self.notify_within.map(|length| length.as_secs_f64()),
        })
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct SendingOptions {
    /// Sign notices with the key in this file: whsec_ and base64, or any text of at least 16 bytes
    ///
    /// Without it the key in LEASEHOLD_NOTIFY_SECRET signs them, if there is one.
    #[arg(long, value_name = "FILE")]
    notify_key_file: Option<PathBuf>,
    /// Let notices go to this network, address or host, though it is not public; may be given more than once
    #[arg(long, value_name = "CIDR|HOST")]
    notify_allow: Vec<String>,
    /// How long an attempt to send a notice may take
    #[arg(long, value_name = "LENGTH", default_value = "10s", value_parser = notation::length)]
    notify_timeout: Duration,
    /// The longest pause after the first attempt; it grows threefold with each one, up to an hour
    #[arg(long, value_name = "LENGTH", default_value = "2s", value_parser = notation::length)]
    notify_backoff: Duration,
}

impl SendingOptions {
    pub(super) fn read(&self) -> Result<NotifyConfig, Failure> {
        let words = self.notify_allow.iter().map(String::as_str);
        let allowed = Allowed::parse(words)
            .map_err(|error| Failure::Refused(format!("--notify-allow: {error}")))?;
        let backoff = Backoff { base: self.notify_backoff.as_secs_f64(), ..Backoff::default() };
        Ok(NotifyConfig { key: self.key()?, allowed, timeout: self.notify_timeout, backoff })
    }

    fn key(&self) -> Result<Option<SigningKey>, Failure> {
        let unusable = |place: &str, problem: &dyn std::fmt::Display| {
            Failure::Refused(format!("the key in {place} cannot be used: {problem}"))
        };
        let (place, bytes) = match &self.notify_key_file {
            Some(file) => {
                let place = file.display().to_string();
                let bytes = fs::read(file).map_err(|error| unusable(&place, &error))?;
                (place, bytes)
            }
            None => match variable(KEY) {
                Some(text) => (KEY.to_owned(), text.as_bytes().to_vec()),
                None => return Ok(None),
            },
        };
        SigningKey::parse(&bytes).map(Some).map_err(|error| unusable(&place, &error))
    }
}
