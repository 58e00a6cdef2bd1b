//! `leasehold cancel`.

use leasehold::Config;
use leasehold::db::ops::Cancelled;
use leasehold::domain::transition::Principal;

use super::failure::Failure;
use super::out;
use super::store::{StoreOption, variable};

/// Cancel a task
///
/// A task that waits is cancelled at once. For a running one the wish is stored, and its worker stops the process tree:
/// an end that the task reaches before stands. The answer says which it was. A task that has ended stays as it is: exit
/// code 1 says so. The fact names the user who cancelled it.
#[derive(Debug, clap::Args)]
pub(super) struct Cancel {
    /// The task's id, as `submit` printed it
    id: String,
}

impl Cancel {
    pub(super) fn run(&self, store: &StoreOption) -> Result<(), Failure> {
        // A store that is not there must not be made just to find nothing in it.
        store.read()?.run(&self.id)?;
        let mut queue = store.write(Config::default())?;
        match queue.cancel(&self.id, &operator())? {
            Cancelled::Yes { .. } => out::print("cancelled\n"),
            Cancelled::Requested => {
                out::print("requested: it is running, and its worker stops it\n")
            }
            Cancelled::TooLate(status) => Err(Failure::Refused(format!(
                "the task {:?} is {status}: a task that has ended cannot be cancelled",
                self.id
            ))),
            Cancelled::NotFound => {
                Err(Failure::Refused(format!("the task {:?} was removed a moment ago", self.id)))
            }
        }
    }
}

/// Whoever runs this program.
pub(super) fn operator() -> Principal {
    let name = ["USER", "LOGNAME"].into_iter().find_map(|name| variable(name)?.into_string().ok());
    Principal::operator(name.unwrap_or_else(|| rustix::process::getuid().as_raw().to_string()))
}
