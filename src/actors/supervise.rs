//! How a death is heard of.
//!
//! A panic in a handler ends an actor for good and tells nobody. So each actor holds a [`DeathWatch`] as its last
//! field: whatever ends the actor drops it, and the drop tells [`Root`](super::root::Root).

use std::thread;

use actix::{Message, Recipient, WeakRecipient};

use crate::domain::run::RunEpoch;

/// The actors that Root starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Child {
    Scheduler,
    Worker,
    Heartbeat,
    Reaper,
    Claim,
    Dispatch,
    Db,
    Executor(RunEpoch),
}

impl Child {
    /// The actor's name, for logs.
    pub fn name(&self) -> &'static str {
        match self {
            Child::Scheduler => "scheduler",
            Child::Worker => "worker",
            Child::Heartbeat => "heartbeat",
            Child::Reaper => "reaper",
            Child::Claim => "claim",
            Child::Dispatch => "dispatch",
            Child::Db => "db",
            Child::Executor(_) => "executor",
        }
    }
}

/// An actor is gone.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct ChildDown {
    pub child: Child,
    /// Which start of the loops it belonged to; word from an earlier one means nothing any more.
    pub incarnation: u64,
    pub panicked: bool,
}

/// Tells of its own drop. Declared last in an actor, so that all its other fields are released before.
#[derive(Debug)]
pub(crate) struct DeathWatch {
    parent: WeakRecipient<ChildDown>,
    child: Child,
    incarnation: u64,
}

impl DeathWatch {
    pub fn new(parent: &Recipient<ChildDown>, child: Child, incarnation: u64) -> DeathWatch {
        DeathWatch { parent: parent.downgrade(), child, incarnation }
    }
}

impl Drop for DeathWatch {
    fn drop(&mut self) {
        if let Some(parent) = self.parent.upgrade() {
            // Past the bound of the mailbox: this must arrive. A second panic in here would abort the process.
            parent.do_send(ChildDown {
                child: self.child.clone(),
                incarnation: self.incarnation,
                panicked: thread::panicking(),
            });
        }
    }
}

/// Ends a loop whose companions have died, or whose time is over.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Halt;

/// Lets a loop be halted.
macro_rules! halts {
    ($loop:ty) => {
        impl actix::Handler<$crate::actors::supervise::Halt> for $loop {
            type Result = ();

            fn handle(&mut self, _: $crate::actors::supervise::Halt, ctx: &mut Self::Context) {
                actix::ActorContext::stop(ctx);
            }
        }
    };
}
pub(super) use halts;
