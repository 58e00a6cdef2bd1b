//! Where the locks of this machine are.

use std::path::{Path, PathBuf};

use leasehold::process::machine_lock::{LockDir, SHARED};

use super::failure::Failure;
use super::state::StateOption;
use super::store::variable;

const VARIABLE: &str = "LEASEHOLD_LOCK_DIR";

#[derive(Debug, clap::Args)]
pub(super) struct LockOption {
    /// Where the locks of this machine are, for exclusive tokens; on a local file system
    ///
    /// A task that needs gpu-exclusive starts only when its worker has an exclusive flock on
    /// DIR/gpu-exclusive.lock, and holds it until its last process is gone. So any program can
    /// take part: flock DIR/gpu-exclusive.lock PROGRAM. Nobody may remove the file.
    ///
    /// [env: LEASEHOLD_LOCK_DIR]
    /// [default: /run/lock/leasehold if it is there or can be made, and is writable;
    ///  else locks in the state directory]
    #[arg(long, value_name = "DIR", verbatim_doc_comment)]
    lock_dir: Option<PathBuf>,
}

impl LockOption {
    /// The directory that somebody has named, absolute.
    pub(super) fn named(&self) -> Result<Option<PathBuf>, Failure> {
        let named = self.lock_dir.clone().or_else(|| variable(VARIABLE).map(PathBuf::from));
        Ok(named.map(std::path::absolute).transpose()?)
    }

    /// The directory as far as it is there: to look makes nothing.
    pub(super) fn to_look_at(&self, state: &StateOption) -> Result<Option<LockDir>, Failure> {
        let directory = match self.named()? {
            Some(named) => named,
            None if Path::new(SHARED).exists() => LockOption::default(state)?,
            None => state.directory()?.join("locks"),
        };
        if directory.exists() { Ok(Some(LockDir::open(&directory)?)) } else { Ok(None) }
    }

    /// The one that is used when nobody has.
    pub(super) fn default(state: &StateOption) -> Result<PathBuf, Failure> {
        match LockDir::shared() {
            Ok(shared) => Ok(shared.path().to_owned()),
            Err(_) => Ok(state.directory()?.join("locks")),
        }
    }
}
