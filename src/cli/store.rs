//! Which store, and how it is opened.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use leasehold::clock::SystemClock;
use leasehold::db::{Mode, StoreError, StoreUrl};
use leasehold::ids::RandomIds;
use leasehold::{Config, Queue};

use super::failure::Failure;

const VARIABLE: &str = "LEASEHOLD_STORE";

#[derive(Debug, clap::Args)]
pub(super) struct StoreOption {
    /// The store: sqlite:PATH or postgres://USER@HOST/DATABASE
    ///
    /// A relative PATH is taken from the working directory. Every user of the machine can
    /// see a command line, so an address with a password belongs into LEASEHOLD_STORE.
    ///
    /// [env: LEASEHOLD_STORE]
    /// [default: sqlite:$XDG_STATE_HOME/leasehold/queue.db, or ~/.local/state/leasehold/queue.db]
    #[arg(
        long = "store",
        value_name = "URL",
        global = true,
        display_order = 900,
        verbatim_doc_comment
    )]
    url: Option<String>,
}

impl StoreOption {
    /// Opens a store that must be there; nothing is made and nothing is changed.
    pub(super) fn read(&self) -> Result<Queue, Failure> {
        open_for_reading(&self.address()?.0)
    }

    /// The same for a store that may be missing.
    pub(super) fn read_if_there(&self, config: Config) -> Result<Option<Queue>, Failure> {
        match open_with(&self.address()?.0, Mode::Read, config) {
            Err(StoreError::Missing { .. }) => Ok(None),
            opened => Ok(Some(opened?)),
        }
    }

    /// Opens the store for writing, and makes it if it is not there.
    pub(super) fn write(&self, config: Config) -> Result<Queue, Failure> {
        open(&self.url_for_writing()?, Mode::Write, config)
    }

    /// Opens a store for writing that must be there: one that is not is the wrong one, most likely, and must not be made
    /// just to find nothing in it.
    pub(super) fn write_existing(&self, config: Config) -> Result<Queue, Failure> {
        drop(self.read()?);
        self.write(config)
    }

    /// The address of a store that may be made.
    pub(super) fn url_for_writing(&self) -> Result<StoreUrl, Failure> {
        let (url, is_default) = self.address()?;
        if let (StoreUrl::Sqlite(file), true) = (&url, is_default) {
            make_directory(file)?;
        }
        Ok(url)
    }

    /// The address, and whether it is the default one. An empty variable is none.
    pub(super) fn address(&self) -> Result<(StoreUrl, bool), Failure> {
        let named = self.url.clone().map(OsString::from).or_else(|| variable(VARIABLE));
        match named {
            Some(text) => Ok((parse(&text)?, false)),
            None => Ok((StoreUrl::Sqlite(default_file()?), true)),
        }
    }
}

/// An environment variable that says something.
pub(super) fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Opens a store that must be there.
pub(super) fn open_for_reading(url: &StoreUrl) -> Result<Queue, Failure> {
    open(url, Mode::Read, Config::default())
}

fn open(url: &StoreUrl, mode: Mode, config: Config) -> Result<Queue, Failure> {
    Ok(open_with(url, mode, config)?)
}

fn open_with(url: &StoreUrl, mode: Mode, config: Config) -> Result<Queue, StoreError> {
    Queue::open_with(url, mode, config, Arc::new(SystemClock), Arc::new(RandomIds))
}

/// A path may hold any bytes, though only the environment can bring such.
fn parse(address: &OsStr) -> Result<StoreUrl, Failure> {
    if let Some(text) = address.to_str() {
        return Ok(StoreUrl::parse(text)?);
    }
    match address.as_bytes().strip_prefix(b"sqlite:") {
        Some(path) => Ok(StoreUrl::Sqlite(OsString::from_vec(path.to_vec()).into())),
        None => Err(Failure::Refused(format!(
            "the store address in {VARIABLE} is not valid UTF-8: only the path of a sqlite: address may be so"
        ))),
    }
}

fn default_file() -> Result<PathBuf, Failure> {
    Ok(state_home()?.join("leasehold").join("queue.db"))
}

/// Where programs keep their state.
pub(super) fn state_home() -> Result<PathBuf, Failure> {
    // The XDG specification says that a relative path is invalid and to be ignored.
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .ok_or_else(|| {
            Failure::Refused(format!(
                "there is no place for the store, since HOME names no directory: set --store, {VARIABLE} or HOME"
            ))
        })
}

fn make_directory(file: &Path) -> Result<(), Failure> {
    let Some(directory) = file.parent() else { return Ok(()) };
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(|error| {
        let directory = directory.display();
        Failure::Refused(format!(
            "cannot make {directory}: {error}; make it yourself, or name another store with --store"
        ))
    })
}
