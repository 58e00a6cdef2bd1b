//! Which commands are allowed.

use leasehold::domain::allow::AllowList;

use super::failure::Failure;
use super::store::variable;

/// Where allowed commands are named too; the second is the original's.
const VARIABLES: [&str; 2] = ["LEASEHOLD_ALLOW_COMMANDS", "LIONAGI_SCHEDULER_COMMAND_ALLOWLIST"];

#[derive(Debug, clap::Args)]
pub(super) struct AllowOption {
    /// Allow a command by its name; may be given more than once, and as a comma list
    ///
    /// All that LEASEHOLD_ALLOW_COMMANDS and LIONAGI_SCHEDULER_COMMAND_ALLOWLIST list, separated by commas, is allowed
    /// as well. By default no command is allowed, and with it the kind command is off.
    #[arg(long, value_name = "NAME")]
    allow_command: Vec<String>,
}

impl AllowOption {
    /// All lists in one.
    pub(super) fn list(&self) -> Result<AllowList, Failure> {
        let mut allowed = AllowList::parse(&self.allow_command.join(","));
        for name in VARIABLES {
            let Some(list) = variable(name) else { continue };
            let list = list.to_str().ok_or_else(|| {
                Failure::Refused(format!("{name} is not valid UTF-8: name commands in plain text"))
            })?;
            allowed = allowed.union(&AllowList::parse(list));
        }
        Ok(allowed)
    }
}
