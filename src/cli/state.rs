//! Where the runs of this host are kept.

use std::path::PathBuf;

use super::failure::Failure;
use super::store::{state_home, variable};

const VARIABLE: &str = "LEASEHOLD_STATE_DIR";

#[derive(Debug, clap::Args)]
pub(super) struct StateOption {
    /// Where running tasks of this host are kept, and their logs; on a local file system
    ///
    /// [env: LEASEHOLD_STATE_DIR]
    /// [default: $XDG_STATE_HOME/leasehold, or ~/.local/state/leasehold]
    #[arg(long, value_name = "DIR", verbatim_doc_comment)]
    state_dir: Option<PathBuf>,
}

impl StateOption {
    /// The directory, absolute.
    pub(super) fn directory(&self) -> Result<PathBuf, Failure> {
        let named = self.state_dir.clone().or_else(|| variable(VARIABLE).map(PathBuf::from));
        match named {
            Some(directory) => Ok(std::path::absolute(directory)?),
            None => Ok(state_home()?.join("leasehold")),
        }
    }
}
