//! Reads what is stored of a run beside its row, until the store answers.

use std::time::Duration;

use actix::Addr;
use tracing::warn;

use super::CallError;
use super::reader::Reader;
use super::root::{Read, Root};
use crate::db::Query;
use crate::db::ops::{FindSettings, StoredSettings};
use crate::domain::ending::ExecuteError;
use crate::domain::settings::RunSettings;

/// What a run starts with.
#[derive(Default)]
pub(super) struct Stored {
    pub settings: RunSettings,
    pub stdin: Option<Vec<u8>>,
    /// The request may have come before there was an executor that could have been told.
    pub is_cancel_requested: bool,
}

/// What a run starts with; nothing but the request for one that somebody wants to be stopped.
pub(super) async fn read_settings(
    root: &Addr<Root>,
    run_id: String,
) -> Result<Stored, ExecuteError> {
    let Some(stored) = read_until_answered(root, FindSettings { run_id }).await else {
        return Ok(Stored::default());
    };
    let StoredSettings { settings, stdin, is_cancel_requested, .. } = stored;
    match is_cancel_requested {
        true => Ok(Stored { is_cancel_requested, ..Stored::default() }),
        false => {
            settings.map(|settings| Stored { settings, stdin, is_cancel_requested }).map_err(|_| {
                ExecuteError { kind: "SettingsUnreadable".into(), message: UNREADABLE.into() }
            })
        }
    }
}

/// What is said of settings that this version cannot read. They may hold secrets, so they are not shown.
pub(super) const UNREADABLE: &str =
    "a later version of leasehold has written its settings: run a worker of that version";

/// Asks again and again. The fence says how long this may take.
pub(super) async fn read_until_answered<Q>(root: &Addr<Root>, query: Q) -> Q::Output
where
    Q: Query + Clone + Send + 'static,
    Q::Output: Send,
{
    let ask = async || root.send(Read(query.clone())).await.map_err(CallError::from).flatten();
    until_answered(query.name(), ask).await
}

async fn until_answered<T>(what: &str, ask: impl AsyncFn() -> Result<T, CallError>) -> T {
    let mut pause = Duration::from_millis(20);
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => warn!(%error, "cannot {what} yet"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

/// Whether the run has a contract, or settings that nobody here can read and that may hold one.
pub(super) async fn has_contract(reader: &Reader, run_id: &str) -> bool {
    let query = FindSettings { run_id: run_id.to_owned() };
    let stored = until_answered(query.name(), async || reader.read(query.clone()).await).await;
    stored
        .is_some_and(|stored| stored.settings.map_or(true, |settings| settings.contract.is_some()))
}
