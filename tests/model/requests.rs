//! What a daemon asks of the database, and what it hears.
//!
//! A request is sent, applied (atomically, at the database, and also after its sender has died: a server
//! commits what it was sent) and answered. The answer may never come. A request that is never applied
//! is one that was lost on its way.

use std::fmt;

use super::world::{End, Epoch, Inc, Time};

/// How an owner or its heir ends a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    Completed,
    Cancelled,
    Requeue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    Claim,
    Renew {
        epoch: Epoch,
    },
    Takeover {
        epoch: Epoch,
        old: Inc,
        /// The task has ended: its lease may have run out.
        ended: bool,
    },
    Finish {
        epoch: Epoch,
        owner: Inc,
        outcome: Outcome,
        /// Written by a new incarnation for a run that it does not own.
        heir: bool,
        /// Ghost: how the tree really ended.
        end: End,
    },
}

/// Whether the statement changed the row, and which epoch it RETURNs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Answer {
    pub changed: bool,
    pub epoch: Epoch,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Request {
    pub from: Inc,
    /// CLOCK_BOOTTIME, read before it was sent.
    pub sent: Time,
    pub op: Op,
    /// Some once applied.
    pub answer: Option<Answer>,
    /// The sender is alive and still waits.
    pub awaited: bool,
}

impl Request {
    /// When its sender dies, the EXTEND that follows from it may lie unread in the guardian's socket.
    pub fn may_have_become_extend(&self) -> bool {
        let extends = matches!(self.op, Op::Renew { .. } | Op::Takeover { .. });
        extends && self.answer.is_some_and(|a| a.changed)
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {:?}, sent at {}", self.op, self.from, self.sent)?;
        match self.answer {
            Some(answer) if answer.changed => write!(f, ", changed the row"),
            Some(_) => write!(f, ", changed nothing"),
            None if !self.awaited => write!(f, ", nobody waits"),
            None => Ok(()),
        }
    }
}
