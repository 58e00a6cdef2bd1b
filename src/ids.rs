//! The source of ids that is handed in: nothing else in the crate makes any.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

/// Makes the ids of everything the queue writes.
pub trait IdSource: fmt::Debug + Send + Sync {
    /// A task's id: a version 4 UUID, 36 lower-case characters with hyphens (ADR-0071 D2).
    fn task_id(&self) -> String;

    /// A fact's id: 32 lower-case hex digits.
    fn fact_id(&self) -> String;

    /// Eight hex digits that tell one start of a worker from the next.
    fn incarnation(&self) -> String;

    /// Twelve hex digits that a task's process finds in `LIONAGI_INVOCATION_ID`.
    fn invocation_id(&self) -> String;
}

/// Random ids. Those of facts are in time order (UUID version 7), so that they land side by side in their index.
#[derive(Debug, Clone, Copy, Default)]
pub struct RandomIds;

#[expect(clippy::disallowed_methods, reason = "this is the one place that makes random ids")]
impl IdSource for RandomIds {
    fn task_id(&self) -> String {
        Uuid::new_v4().to_string()
    }

    fn fact_id(&self) -> String {
        Uuid::now_v7().simple().to_string()
    }

    fn incarnation(&self) -> String {
        leading_digits(8)
    }

    fn invocation_id(&self) -> String {
        leading_digits(12)
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that makes random ids")]
fn leading_digits(count: usize) -> String {
    Uuid::new_v4().simple().to_string().chars().take(count).collect()
}

/// Ids that count up from one; for tests.
///
/// ```
/// use leasehold::ids::{CountedIds, IdSource};
/// let ids = CountedIds::default();
/// assert_eq!(ids.task_id(), "00000000-0000-4000-8000-000000000001");
/// assert_eq!(ids.fact_id(), "00000000000000000000000000000002");
/// ```
#[derive(Debug, Default)]
pub struct CountedIds(AtomicU64);

impl CountedIds {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl IdSource for CountedIds {
    fn task_id(&self) -> String {
        format!("00000000-0000-4000-8000-{:012x}", self.next())
    }

    fn fact_id(&self) -> String {
        format!("{:032x}", self.next())
    }

    fn incarnation(&self) -> String {
        format!("{:08x}", self.next())
    }

    fn invocation_id(&self) -> String {
        format!("{:012x}", self.next())
    }
}
