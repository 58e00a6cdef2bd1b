//! Numbers of JSON, compared exactly as integers up to 127 bits and as doubles else.

use std::cmp::Ordering;

use serde_json::Number;

/// How far from a whole number a quotient of doubles may be and count as one.
const SLACK: f64 = 1e-9;
/// Doubles below it are taken for the integers that they are.
const EXACT: f64 = 1e36;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Num {
    Whole(i128),
    Double(f64),
}

impl Num {
    pub fn of(number: &Number) -> Num {
        let text = number.to_string();
        if let Ok(whole) = text.parse() {
            return Num::Whole(whole);
        }
        let double: f64 = text.parse().unwrap_or(f64::NAN);
        // 1.0 is the integer 1 to a schema.
        if double.fract() == 0.0 && double.abs() < EXACT {
            return Num::Whole(double as i128);
        }
        Num::Double(double)
    }

    pub fn is_whole(self) -> bool {
        match self {
            Num::Whole(_) => true,
            Num::Double(double) => double.is_finite() && double.fract() == 0.0,
        }
    }

    pub fn compare(self, other: Num) -> Option<Ordering> {
        match (self, other) {
            (Num::Whole(a), Num::Whole(b)) => Some(a.cmp(&b)),
            (a, b) => a.double().partial_cmp(&b.double()),
        }
    }

    pub fn is_multiple_of(self, other: Num) -> bool {
        match (self, other) {
            (_, Num::Whole(0)) => false,
            // -1 would overflow at one end.
            (Num::Whole(a), Num::Whole(b)) => a.checked_rem(b).is_none_or(|rest| rest == 0),
            (a, b) => {
                let times = a.double() / b.double();
                (times - times.round()).abs() <= SLACK * times.abs().max(1.0)
            }
        }
    }

    fn double(self) -> f64 {
        match self {
            Num::Whole(whole) => whole as f64,
            Num::Double(double) => double,
        }
    }
}
