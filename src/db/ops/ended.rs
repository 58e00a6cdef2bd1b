//! Runs that have ended, the oldest first, and the runs that were made from one.

use diesel::prelude::*;

use crate::db::engine::{AnyConn, Query};
use crate::db::fragments::{After, Condition, EndedAt, Kept};
use crate::db::schema::schedule_runs;
use crate::domain::status::Status;

/// Runs per page.
const PAGE_ROWS: i64 = 500;

/// One page of the runs that ended within some time. Those of schedules are left out: they belong to their scheduler.
///
/// A worker of the original stores no `ended_at`; its runs ended when they were changed for the last time.
#[derive(Debug, Clone)]
pub struct EndedPage {
    /// With one of these statuses.
    pub statuses: Vec<Status>,
    /// Not before this moment, in seconds since the epoch.
    pub since: f64,
    /// Before this moment, in seconds since the epoch.
    pub before: f64,
    /// Only those from which no other run was made.
    pub childless: bool,
    /// The last one of the page before: when it was made, and its id.
    pub after: Option<(f64, String)>,
}

impl Query for EndedPage {
    /// The ids, with the moments at which the runs were made.
    type Output = Vec<(f64, String)>;

    fn name(&self) -> &'static str {
        "look for tasks that have ended"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Self::Output> {
        use schedule_runs::dsl;
        let (at, id) = self.after.clone().unwrap_or((f64::NEG_INFINITY, String::new()));
        let words: Vec<&str> = self.statuses.iter().map(|status| status.as_str()).collect();
        let mut page = dsl::schedule_runs
            .select((dsl::created_at, dsl::id))
            .filter(After { columns: "(created_at, id)", at, id })
            // No run ends before it is made, and the index that is walked ends here.
            .filter(dsl::created_at.lt(self.before))
            .filter(dsl::status.eq_any(words))
            // In such words that the original's index of schedules does not lead SQLite away from the order.
            .filter(Condition("coalesce(schedule_id, '') = ''"))
            .filter(EndedAt { relation: "<", at: self.before })
            .filter(EndedAt { relation: ">=", at: self.since })
            .order((dsl::created_at.asc(), dsl::id.asc()))
            .limit(PAGE_ROWS)
            .into_boxed();
        if self.childless {
            page = page.filter(Condition(
                "NOT EXISTS (SELECT 1 FROM schedule_runs AS child WHERE child.chain_parent_id = schedule_runs.id)",
            ));
        }
        Kept(page).load(conn)
    }
}

impl EndedPage {
    /// The page after one that came out full; nothing after the last.
    pub fn next(&self, page: &[(f64, String)]) -> Option<EndedPage> {
        let full = page.len() as i64 >= PAGE_ROWS;
        let after = page.last().filter(|_| full)?;
        Some(EndedPage { after: Some(after.clone()), ..self.clone() })
    }
}

/// The runs that were made from a run, the oldest first.
#[derive(Debug, Clone)]
pub struct Children {
    /// The run.
    pub run_id: String,
}

impl Query for Children {
    type Output = Vec<String>;

    fn name(&self) -> &'static str {
        "look for what was made from a run"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Vec<String>> {
        use schedule_runs::dsl;
        let mut children: Vec<(f64, String)> = dsl::schedule_runs
            .select((dsl::created_at, dsl::id))
            .filter(dsl::chain_parent_id.eq(&self.run_id))
            .load(conn)?;
        // They are few, and the index is not in this order.
        children.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
        Ok(children.into_iter().map(|(_, id)| id).collect())
    }
}
