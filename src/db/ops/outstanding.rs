//! Whether any work is left that a worker could do.

use std::collections::HashSet;

use diesel::connection::DefaultLoadingMode;
use diesel::prelude::*;

use super::pause::ListPauses;
use super::ready::{ReadyClasses, ReadyPage};
use crate::db::columns::JsonText;
use crate::db::engine::{AnyConn, Query, at_one_moment};
use crate::db::fragments::NotHeld;
use crate::db::schema::schedule_runs;
use crate::domain::claim_plan::Offer;
use crate::domain::pause::Pauses;
use crate::domain::ready::{ReadyClass, may_claim};

/// Each as its partial index has it. A scheduled run belongs to the scheduler.
const RUNNING: &str = "status = 'running' AND schedule_id IS NULL";
const WAITING: &str = "status IN ('waiting_dependency', 'retry_wait') AND schedule_id IS NULL";

/// Asks whether a run that `offer` could serve is queued, waiting or running, whoever owns it. What waits and is paused
/// does not count: nobody knows for how long.
#[derive(Debug, Clone)]
pub struct Outstanding {
    /// What the worker can serve.
    pub offer: Offer,
}

impl Query for Outstanding {
    type Output = bool;

    fn name(&self) -> &'static str {
        "look for work that is left"
    }

    /// A run moves from one condition to another meanwhile, and must not be missed by all.
    fn run(&self, conn: &mut AnyConn) -> QueryResult<bool> {
        at_one_moment(conn, |conn| self.look(conn))
    }
}

impl Outstanding {
    fn look(&self, conn: &mut AnyConn) -> QueryResult<bool> {
        if self.any(conn, NotHeld(RUNNING, &Pauses::default()))? {
            return Ok(true);
        }
        let pauses = ListPauses.run(conn)?.into_iter().map(|pause| pause.scope).collect();
        Ok(self.any_queued(conn, &pauses)? || self.any(conn, NotHeld(WAITING, &pauses))?)
    }

    /// However many are queued that are not this worker's.
    fn any_queued(&self, conn: &mut AnyConn, pauses: &Pauses) -> QueryResult<bool> {
        let mut page = Some(ReadyClasses::default());
        while let Some(classes) = page {
            let found = classes.run(conn)?;
            page = ReadyClasses::next(&found);
            for class in found {
                // A key that is busy will be free.
                let is_mine = class.is_claimable(&self.offer, &HashSet::new(), pauses);
                if is_mine && (!class.is_cut() || self.any_in(conn, class, pauses)?) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn any_in(&self, conn: &mut AnyConn, class: ReadyClass, pauses: &Pauses) -> QueryResult<bool> {
        let mut page = Some(ReadyPage { class, after: None });
        while let Some(next) = page {
            let found = next.run(conn)?;
            if found.iter().any(|run| may_claim(run, &self.offer, pauses)) {
                return Ok(true);
            }
            page = next.next(&found);
        }
        Ok(false)
    }

    fn any(&self, conn: &mut AnyConn, condition: NotHeld<'_>) -> QueryResult<bool> {
        use schedule_runs::dsl;
        let rows = dsl::schedule_runs
            .select((dsl::action_kind, dsl::required_capabilities, dsl::execution_target))
            .filter(condition)
            .load_iter::<(String, Option<JsonText>, Option<String>), DefaultLoadingMode>(conn)?;
        for row in rows {
            let (kind, capabilities, target) = row?;
            let capabilities = capabilities.as_ref().map(|text| text.0.as_str());
            if self.offer.serves(&kind, capabilities, target.as_deref()).is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
