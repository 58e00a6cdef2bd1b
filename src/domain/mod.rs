//! What a task, a lease, a capability and a transition *are*: pure values and decisions.
//!
//! Nothing here reads a clock, a database, an environment or a file, so every rule of the queue can be
//! tested by calling a function.

pub mod adoption;
pub mod allow;
pub mod capability;
pub mod claim_plan;
pub mod clocks;
pub mod contract;
pub mod dispatch;
pub mod ending;
pub mod event;
pub mod fence;
pub mod json_text;
pub mod kinds;
pub mod lease;
pub mod ledger;
pub mod notation;
pub mod notice;
pub mod pause;
pub mod payload;
pub mod pruning;
pub mod ready;
pub mod reason;
pub mod redrive;
pub mod restart;
pub mod retry;
pub mod run;
pub mod schema;
pub mod settings;
pub mod status;
pub mod submission;
pub mod task;
pub mod transition;
pub mod why;
pub mod workflow;
