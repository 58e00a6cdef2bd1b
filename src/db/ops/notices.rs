//! What is asked of notices: which are due, when the next is, and what people look at.

use diesel::prelude::*;

use super::query::facts_of;
use crate::db::engine::{AnyConn, Query};
use crate::db::fragments::{After, Condition};
use crate::db::moment::Moment;
use crate::db::rows::{Fact, Notice};
use crate::db::schema::dispatch_outbox;
use crate::domain::dispatch::DispatchStatus;
use crate::domain::notice::{KIND, LATER, dedup_key, moment};
use crate::domain::transition::Entity;

/// Rows per page of due notices.
const PAGE_ROWS: i64 = 200;
/// Those of ended tasks that somebody is still to send.
const UNSENT: Condition =
    Condition("kind = 'leasehold.task_ended' AND status IN ('pending', 'delivering')");
/// Those of ended tasks.
const OURS: Condition = Condition("kind = 'leasehold.task_ended'");

/// A notice that is due.
#[derive(Debug, Clone, PartialEq, Queryable)]
pub struct DueNotice {
    /// Its id.
    pub id: String,
    /// Its status: `pending`, or `delivering` when who was sending is gone.
    pub status: String,
    /// How often it was tried.
    pub attempt: i32,
    /// Whom it goes to.
    pub deliver_to: String,
    /// Its place in the order of what is due.
    pub next_attempt_at: f64,
}

/// One page of the notices whose next attempt is due, the longest due first.
#[derive(Debug, Clone)]
pub struct DueNotices {
    /// Now.
    pub now: Moment,
    /// The last one of the page before.
    pub after: Option<DueNotice>,
}

impl Query for DueNotices {
    type Output = Vec<DueNotice>;

    fn name(&self) -> &'static str {
        "read the notices that are due"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Self::Output> {
        use dispatch_outbox::dsl;
        let now = self.now.later(LATER).of_read(conn);
        let page = dsl::dispatch_outbox
            .select((dsl::id, dsl::status, dsl::attempt, dsl::deliver_to, dsl::next_attempt_at))
            .filter(UNSENT)
            .filter(dsl::next_attempt_at.le(now.assume_not_null()))
            .order((dsl::next_attempt_at.asc(), dsl::id.asc()))
            .limit(PAGE_ROWS);
        match &self.after {
            None => page.load(conn),
            Some(last) => {
                let (at, id) = (last.next_attempt_at, last.id.clone());
                page.filter(After { columns: "(next_attempt_at, id)", at, id }).load(conn)
            }
        }
    }
}

impl DueNotices {
    /// The page after one that came out full; nothing after the last.
    pub fn next(&self, page: &[DueNotice]) -> Option<DueNotices> {
        let full = page.len() as i64 >= PAGE_ROWS;
        let last = page.last().filter(|_| full)?;
        Some(DueNotices { now: self.now, after: Some(last.clone()) })
    }
}

/// The `next_attempt_at` of the first notice that is to be sent.
#[derive(Debug, Clone, Copy)]
pub struct NextNotice {
    /// Only of those that are not due yet now.
    pub now: Option<Moment>,
}

impl Query for NextNotice {
    type Output = Option<f64>;

    fn name(&self) -> &'static str {
        "look when a notice is due"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Option<f64>> {
        use dispatch_outbox::dsl;
        let first = dsl::dispatch_outbox
            .select(dsl::next_attempt_at)
            .filter(UNSENT)
            .order((dsl::next_attempt_at.asc(), dsl::id.asc()))
            .limit(1);
        match self.now {
            None => first.first(conn).optional(),
            Some(now) => {
                let now = now.later(LATER).of_read(conn).assume_not_null();
                first.filter(dsl::next_attempt_at.gt(now)).first(conn).optional()
            }
        }
    }
}

/// The notice of a task.
#[derive(Debug, Clone)]
pub struct NoticeOf {
    /// The task.
    pub run_id: String,
}

impl Query for NoticeOf {
    type Output = Option<Notice>;

    fn name(&self) -> &'static str {
        "read the notice of a task"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Option<Notice>> {
        use dispatch_outbox::dsl;
        dsl::dispatch_outbox
            .filter(dsl::dedup_key.eq(dedup_key(&self.run_id)))
            .select(Notice::as_select())
            .first(conn)
            .optional()
            .map(|found| found.map(as_moments))
    }
}

/// The notice with this id, of a task.
#[derive(Debug, Clone)]
pub struct FindNotice {
    /// The notice.
    pub id: String,
}

impl Query for FindNotice {
    type Output = Option<Notice>;

    fn name(&self) -> &'static str {
        "read a notice"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Option<Notice>> {
        use dispatch_outbox::dsl;
        dsl::dispatch_outbox
            .find(&self.id)
            .filter(dsl::kind.eq(KIND))
            .select(Notice::as_select())
            .first(conn)
            .optional()
            .map(|found| found.map(as_moments))
    }
}

/// Notices of tasks, the oldest first.
#[derive(Debug, Clone)]
pub struct ListNotices {
    /// Only those with this status.
    pub status: Option<DispatchStatus>,
    /// At most so many.
    pub limit: u32,
}

impl Query for ListNotices {
    type Output = Vec<Notice>;

    fn name(&self) -> &'static str {
        "list the notices"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Vec<Notice>> {
        use dispatch_outbox::dsl;
        let all = dsl::dispatch_outbox
            .select(Notice::as_select())
            .filter(OURS)
            .order((dsl::created_at.asc(), dsl::id.asc()))
            .limit(self.limit.into());
        let found: Vec<Notice> = match self.status {
            None => all.load(conn),
            Some(status) => all.filter(dsl::status.eq(status.as_str())).load(conn),
        }?;
        Ok(found.into_iter().map(as_moments).collect())
    }
}

/// Every change of a notice, the first one first.
#[derive(Debug, Clone)]
pub struct NoticeHistory {
    /// The notice.
    pub id: String,
}

impl Query for NoticeHistory {
    type Output = Vec<Fact>;

    fn name(&self) -> &'static str {
        "read the history of a notice"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Vec<Fact>> {
        facts_of(conn, Entity::Dispatch, &self.id)
    }
}

fn as_moments(mut notice: Notice) -> Notice {
    notice.next_attempt_at = moment(notice.next_attempt_at);
    notice
}
