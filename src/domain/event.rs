//! An event: something that happened to a run, at its place in the one ordered feed of a store.
//!
//! A place is an [`EventId`]. It is also a cursor: who has seen an event goes on after its id.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use thiserror::Error;

/// The place of an event in its feed. Later events have greater ids.
///
/// To programs an id is opaque text of 5 to 35 characters; the texts have the order of the ids.
///
/// ```
/// use leasehold::domain::event::EventId;
/// let id: EventId = "a0-b1f".parse().unwrap();
/// assert_eq!((id, id.to_string()), (EventId { stamp: 0, number: 31 }, "a0-b1f".to_owned()));
/// assert!(id < "a0-c100".parse().unwrap());
/// assert!("31".parse::<EventId>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId {
    /// What orders events first: 0 on SQLite, and made of ids of transactions on PostgreSQL. Never negative.
    pub stamp: i64,
    /// What orders those of one stamp. Never negative.
    pub number: i64,
}

/// A text that is no [`EventId`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{given:?} is no place in a feed of events: give an id as `leasehold events` prints it")]
pub struct NoEventId {
    /// The text.
    pub given: String,
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&sortable(self.stamp))?;
        f.write_str("-")?;
        f.write_str(&sortable(self.number))
    }
}

impl FromStr for EventId {
    type Err = NoEventId;

    fn from_str(text: &str) -> Result<EventId, NoEventId> {
        let read = |text: &str| {
            let (stamp, number) = text.split_once('-')?;
            Some(EventId { stamp: number_in(stamp)?, number: number_in(number)? })
        };
        read(text).ok_or_else(|| NoEventId { given: text.into() })
    }
}

impl Serialize for EventId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Hex digits behind a letter that counts them, so that the order of the texts is that of the numbers.
fn sortable(number: i64) -> String {
    let digits = format!("{number:x}");
    let count = u8::try_from(digits.len()).unwrap_or(u8::MAX);
    format!("{}{digits}", char::from(b'a' + count - 1))
}

/// Exactly what [`sortable`] writes: one number has one text.
fn number_in(text: &str) -> Option<i64> {
    let digits = text.get(1..)?;
    let number = i64::from_str_radix(digits, 16).ok()?;
    (number >= 0 && sortable(number) == text).then_some(number)
}

/// Why a reader cannot go on from where it was. Nothing was skipped: it is told instead.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CursorRefusal {
    /// The cursor is none of this store's.
    #[error(
        "the store has never given the event {after}: the cursor is of another store, or of a later state of this one; read the tasks, and begin without a cursor"
    )]
    Unknown {
        /// The cursor.
        after: EventId,
    },
    /// Events that the reader has not seen were removed.
    #[error(
        "events after {after} were removed, up to {removed}: read the tasks, and go on after {removed}"
    )]
    Removed {
        /// The cursor.
        after: EventId,
        /// The last event that was removed.
        removed: EventId,
    },
}

impl CursorRefusal {
    /// A stable name, for programs.
    pub fn check(&self) -> &'static str {
        match self {
            CursorRefusal::Unknown { .. } => "cursor_unknown",
            CursorRefusal::Removed { .. } => "cursor_removed",
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_id_has_one_text() {
        for text in
            ["", "-", "a0", "a0-", "a0-a0 ", "b0-a0", "b00-a0", "a0-bff0", "A0-a0", "a0-a0-a0"]
        {
            assert!(text.parse::<EventId>().is_err(), "{text:?}");
        }
        for text in ["a0-b1F", "a0-a+", "b+1-a0", "a0-b-1", "é0-a0", "a0-pffffffffffffffff"] {
            assert!(text.parse::<EventId>().is_err(), "{text:?}");
        }
        let last = EventId { stamp: i64::MAX, number: i64::MAX };
        assert_eq!(last.to_string(), "p7fffffffffffffff-p7fffffffffffffff");
        assert_eq!(serde_json::to_value(last).unwrap(), last.to_string());
    }

    fn any_id() -> impl Strategy<Value = EventId> {
        let number = || (0..=i64::MAX, 0..63u32).prop_map(|(number, shift)| number >> shift);
        (number(), number()).prop_map(|(stamp, number)| EventId { stamp, number })
    }

    proptest! {
        #[test]
        fn texts_are_read_back_and_have_the_order_of_the_ids(one in any_id(), other in any_id()) {
            prop_assert_eq!(one.to_string().parse(), Ok(one));
            prop_assert_eq!(one.cmp(&other), one.to_string().cmp(&other.to_string()));
            let near = EventId { number: other.number, ..one };
            prop_assert_eq!(one.cmp(&near), one.to_string().cmp(&near.to_string()));
        }
    }
}
