//! Sends a notice: posts it to an address, or hands it to a program. The only room that knows HTTP and TLS.
//!
//! Nothing here knows the store or decides what follows: an attempt is made once, within its time, and answers how it
//! went.

mod command;
mod http;
mod resolve;
mod tls;

use std::time::Duration;

use tokio::time::timeout;

use crate::db::ops::NoticeToSend;
use crate::domain::allow::AllowList;
use crate::domain::notice::address::Allowed;
use crate::domain::notice::{Backoff, Destination, Failed, SigningKey};
use crate::process::Inherit;

/// How a worker sends notices.
#[derive(Debug, Clone)]
pub struct NotifyConfig {
    /// What signs them; absent means that they are not signed.
    pub key: Option<SigningKey>,
    /// What may be called beside the public internet.
    pub allowed: Allowed,
    /// How long an attempt may take, from the look for the address to the answer.
    pub timeout: Duration,
    /// The pauses between attempts.
    pub backoff: Backoff,
}

impl Default for NotifyConfig {
    fn default() -> NotifyConfig {
        NotifyConfig {
            key: None,
            allowed: Allowed::default(),
            timeout: Duration::from_secs(10),
            backoff: Backoff::default(),
        }
    }
}

impl NotifyConfig {
    /// How long a notice is a worker's that sends it, in seconds. After that somebody else sends it, so what the attempt
    /// came to should be stored by then.
    pub(crate) fn lease(&self) -> f64 {
        self.timeout.as_secs_f64() + 5.0
    }
}

/// Sends notices.
#[derive(Debug)]
pub(crate) struct Sender {
    config: NotifyConfig,
    /// The commands that may be told.
    allow_commands: AllowList,
    /// Which variables of this process those inherit.
    inherit: Inherit,
    tls: tls::Tls,
}

impl Sender {
    pub fn new(config: NotifyConfig, allow_commands: AllowList, inherit: Inherit) -> Sender {
        Sender { config, allow_commands, inherit, tls: tls::Tls::default() }
    }

    /// Makes one attempt; `now` is in seconds since the epoch.
    ///
    /// # Errors
    /// The receiver does not have the notice, as far as anybody knows.
    pub async fn send(&self, notice: &NoticeToSend, now: f64) -> Result<(), Failed> {
        match Destination::parse(&notice.deliver_to) {
            Ok(Destination::Http(target)) => {
                let posted = http::post(&target, notice, self, now);
                timeout(self.config.timeout, posted).await.unwrap_or_else(|_| Err(self.too_slow()))
            }
            Ok(Destination::Command(name)) => command::tell(&name, notice, self).await,
            // A submit refuses it; somebody else has written the row.
            Err(rule) => Err(Failed {
                error: format!("it cannot be sent there: {rule}"),
                is_final: true,
                wait: None,
            }),
        }
    }

    fn too_slow(&self) -> Failed {
        Failed::again(format!("no answer within {} s", self.config.timeout.as_secs_f64()))
    }
}
