//! Why a runtime ended.

use std::sync::{Arc, Mutex, PoisonError};

use actix::System;

/// Why a runtime ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitReason {
    /// It was asked to.
    Shutdown,
    /// One of its actors died too often.
    RestartsSpent {
        /// Which.
        actor: &'static str,
    },
    /// The actor that owns all others died, or its thread.
    RootDied,
}

impl ExitReason {
    /// The exit code for a program that has nothing else to say: 0, or 70 for a fault of this crate.
    pub fn code(self) -> u8 {
        match self {
            ExitReason::Shutdown => 0,
            ExitReason::RestartsSpent { .. } | ExitReason::RootDied => 70,
        }
    }
}

/// Where the reason is kept; the first one stands.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExitSlot(Arc<Mutex<(Option<ExitReason>, Option<System>)>>);

impl ExitSlot {
    /// The system to stop.
    pub fn attach(&self, system: System) {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.0.is_some() {
            system.stop();
        }
        slot.1 = Some(system);
    }

    /// Ends the system for this reason.
    pub fn end(&self, reason: ExitReason) {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let reason = *slot.0.get_or_insert(reason);
        if let Some(system) = &slot.1 {
            system.stop_with_code(i32::from(reason.code()));
        }
    }

    /// Whether the end has begun.
    pub fn is_ending(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.is_some()
    }

    /// Root is gone: if nobody gave a reason, it died.
    pub fn root_is_gone(&self) {
        self.end(ExitReason::RootDied);
    }

    pub fn reason(&self) -> ExitReason {
        let slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.0.unwrap_or(ExitReason::RootDied)
    }
}
