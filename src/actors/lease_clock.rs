//! The clock that leases are on: this host's where the store is a file here, the server's where hosts share one.

use super::reader::Reader;
use super::{CallError, Parts};
use crate::db::ops::Clock;
use crate::db::{Moment, StoreUrl};
use crate::domain::clocks::Look;

impl Parts {
    /// Whether workers on other hosts, with clocks of their own, may share the store.
    fn shares_a_server(&self) -> bool {
        matches!(self.config.store, StoreUrl::Postgres(_))
    }

    /// Now, for a statement.
    pub fn lease_now(&self) -> Moment {
        self.in_seconds(0.0)
    }

    /// When a lease runs out that is taken or renewed now.
    pub fn lease_end(&self) -> Moment {
        self.in_seconds(self.times.ttl)
    }

    fn in_seconds(&self, seconds: f64) -> Moment {
        match self.shares_a_server() {
            true => Moment::FromNow(seconds),
            false => Moment::At(self.clock.now() + seconds),
        }
    }

    /// Looks at the clock of leases, beside the steady one of this host.
    pub async fn look_at_clock(&self, reader: &Reader) -> Result<Look, CallError> {
        let before = self.clock.steady();
        let wall = match self.shares_a_server() {
            true => reader.read(Clock).await?,
            false => self.clock.now(),
        };
        Ok(Look { wall, before, after: self.clock.steady() })
    }

    /// Looks at it beside this host's own wall clock; nothing where there is no other.
    pub async fn compare_clocks(&self, reader: &Reader) -> Result<Option<Look>, CallError> {
        if !self.shares_a_server() {
            return Ok(None);
        }
        let before = self.clock.now();
        let wall = reader.read(Clock).await?;
        Ok(Some(Look { wall, before, after: self.clock.now() }))
    }
}
