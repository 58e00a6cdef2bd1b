//! Inserts many checked tasks in one transaction, in their order.

use diesel::prelude::*;

use super::submit::{Submit, Submitted};
use crate::db::engine::{AnyConn, Evidence, Operation};

/// Inserts each task as [`Submit`] does. A later one finds the key of an earlier one taken.
#[derive(Debug, Clone)]
pub struct SubmitTasks {
    /// The tasks.
    pub submits: Vec<Submit>,
    /// Whether nothing is written if the key of one of them stands for another task.
    pub atomic: bool,
}

impl Operation for SubmitTasks {
    /// What came of each. If `atomic` is set and one of them is [`Submitted::Taken`], nothing was written.
    type Output = Vec<Submitted>;

    fn name(&self) -> &'static str {
        // One alone is what it looks like.
        if self.submits.len() == 1 { "submit a task" } else { "submit tasks" }
    }

    fn subject(&self) -> Option<&str> {
        match self.submits.as_slice() {
            [submit] => Some(&submit.id),
            _ => None,
        }
    }

    fn evidence(&self, output: &Vec<Submitted>) -> Option<Evidence<'_>> {
        if self.is_refused(output) {
            return None;
        }
        let mut new = self.submits.iter().zip(output);
        let (submit, _) = new.find(|(_, submitted)| **submitted == Submitted::New)?;
        Some(Evidence::Run(&submit.id))
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Vec<Submitted>> {
        if !self.atomic {
            return self.submits.iter().map(|submit| submit.run(conn)).collect();
        }
        // All keys first, since a key alone can refuse a task here: until then nothing else is to be undone.
        let output: Vec<Submitted> = self
            .submits
            .iter()
            .map(|submit| submit.take_key(conn, None))
            .collect::<QueryResult<_>>()?;
        let is_refused = self.is_refused(&output);
        for (submit, _) in self.submits.iter().zip(&output).filter(|(_, s)| **s == Submitted::New) {
            if is_refused { submit.give_key_back(conn)? } else { submit.insert(conn, None)? }
        }
        Ok(output)
    }
}

impl SubmitTasks {
    fn is_refused(&self, output: &[Submitted]) -> bool {
        self.atomic && output.iter().any(|submitted| matches!(submitted, Submitted::Taken(_)))
    }
}
