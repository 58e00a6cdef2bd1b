//! How a task becomes an argv.
//!
//! A *launch* takes the kind of a run and its `action_args` and yields an [`Argv`]: the command
//! line of the program that does the work, and the YAML file it reads, if any. Most kinds run
//! `lionagi`'s `li`; the kind `command` runs a program the operator has allowed by name.
//!
//! Nothing here starts a process, writes a file or reads the environment, so every rule can be
//! tested as a function: [`build_argv`] over values, [`find_li`] over a search path.
//!
//! What a task asks for is data from outside. No value may turn into an option of the program that
//! is started: identifiers are checked against a small alphabet, free text goes behind `--`, and
//! what cannot be made safe is refused with a [`LaunchError`].

pub mod action;
pub mod argv;
mod check;
pub mod error;
mod fields;
mod flow_yaml;
pub mod li;
pub mod template;
pub mod text;
mod word;

pub use crate::domain::allow::AllowList;
pub use action::{LaunchContext, build_argv, needs_li};
pub use argv::{Argument, Argv};
pub use error::LaunchError;
pub use li::{LiNotFound, LiSearch, find_li};
