//! What guards a change of a notice, and what it may write: the columns that say how often it was tried, and when next.

/// Columns that must hold exactly these values, or the change is a conflict. An absent one is not compared.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DispatchGuard {
    /// How often it was tried.
    pub attempt: Option<i32>,
    /// When it is tried next, in seconds since the epoch, compared exactly.
    pub next_attempt_at: Option<f64>,
    /// What went wrong the last time.
    pub last_error: Option<String>,
}

impl DispatchGuard {
    /// Whether a row with these values passes.
    pub fn admits(&self, attempt: i32, next_attempt_at: f64, last_error: Option<&str>) -> bool {
        self.attempt.is_none_or(|there| there == attempt)
            && self.next_attempt_at.is_none_or(|at| at == next_attempt_at)
            && self.last_error.as_deref().is_none_or(|error| Some(error) == last_error)
    }
}

/// Columns to write with the change. The outer absence leaves a column alone, the inner one clears it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DispatchPatch {
    /// How often it was tried.
    pub attempt: Option<i32>,
    /// When it is tried next, in seconds since the epoch.
    pub next_attempt_at: Option<f64>,
    /// What went wrong the last time.
    pub last_error: Option<Option<String>>,
}

impl DispatchPatch {
    /// Whether it says something of every column.
    pub fn is_whole(&self) -> bool {
        self.attempt.is_some() && self.next_attempt_at.is_some() && self.last_error.is_some()
    }
}
