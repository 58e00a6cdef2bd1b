//! Reads the queue by what its runs wait for: the classes there are, and the runs of one, oldest first.

use diesel::prelude::*;
use diesel::sql_types::Text;

use super::claim_page::Row;
use crate::db::engine::{AnyConn, Query};
#[cfg(feature = "postgres")]
use crate::db::fragments::POSTGRES_CLASS;
use crate::db::fragments::{After, Condition, InClass, Kept, SQLITE_CLASS};
use crate::db::schema::schedule_runs;
use crate::domain::claim_plan::PAGE_ROWS;
use crate::domain::ready::ReadyClass;
use crate::domain::run::QueuedRun;

/// As the partial index has it.
const QUEUED: Condition = Condition("status = 'queued' AND schedule_id IS NULL");
/// Classes that are read at a time.
const PAGE_CLASSES: usize = 1000;

/// The classes that have queued runs, by name: up to a thousand.
#[derive(Debug, Clone, Default)]
pub struct ReadyClasses {
    /// The name of the last one of the page before; empty for the first page.
    pub after: String,
}

#[derive(QueryableByName)]
struct Class {
    #[diesel(sql_type = Text)]
    name: String,
}

impl Query for ReadyClasses {
    type Output = Vec<ReadyClass>;

    fn name(&self) -> &'static str {
        "look at what the queue waits for"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Self::Output> {
        let rows: Vec<Class> = match conn {
            #[cfg(feature = "postgres")]
            AnyConn::Postgres(c) => {
                let walk = diesel::sql_query(walk(POSTGRES_CLASS, "", r#"$1::text COLLATE "C""#));
                Kept(walk.bind::<Text, _>(&self.after)).load(c)
            }
            AnyConn::Sqlite(c) => {
                // It would take another index, and read the whole queue.
                let walk = diesel::sql_query(walk(SQLITE_CLASS, "INDEXED BY leasehold_ready", "?"));
                Kept(walk.bind::<Text, _>(&self.after)).load(c)
            }
        }?;
        Ok(rows.into_iter().map(|class| ReadyClass::new(class.name)).collect())
    }
}

impl ReadyClasses {
    /// The page after one that came out full; nothing after the last.
    pub fn next(page: &[ReadyClass]) -> Option<ReadyClasses> {
        let last = page.last().filter(|_| page.len() >= PAGE_CLASSES)?;
        Some(ReadyClasses { after: last.name().to_owned() })
    }
}

/// Each step is one search of the index, for the first name after another one: neither engine does that by itself.
fn walk(name: &str, index: &str, after: &str) -> String {
    let Condition(queued) = QUEUED;
    format!(
        "WITH RECURSIVE class(name) AS (
           SELECT {after}
           UNION ALL
           SELECT (SELECT {name} FROM schedule_runs {index}
                   WHERE {queued} AND {name} > class.name ORDER BY 1 LIMIT 1)
           FROM class WHERE class.name IS NOT NULL
         )
         SELECT name FROM class WHERE name IS NOT NULL LIMIT {PAGE_CLASSES} OFFSET 1"
    )
}

/// One page of the runs of a class, in the order of the queue. Those without a time come first.
#[derive(Debug, Clone)]
pub struct ReadyPage {
    /// Which class.
    pub class: ReadyClass,
    /// The time and the id of the last run of the page before.
    pub after: Option<(f64, String)>,
}

impl Query for ReadyPage {
    type Output = Vec<QueuedRun>;

    fn name(&self) -> &'static str {
        "read a page of the queue"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Self::Output> {
        use schedule_runs::dsl;
        let after = self.after.clone().map(|(at, id)| After { columns: "(queued_at, id)", at, id });
        // A selection is of one engine.
        macro_rules! page {
            ($conn:expr, $time:expr) => {{
                let page = dsl::schedule_runs
                    .select(Row::as_select())
                    .filter(QUEUED)
                    .filter(InClass(self.class.name().to_owned()))
                    .order(($time, dsl::id.asc()))
                    .limit(PAGE_ROWS as i64);
                match after {
                    Some(after) => page.filter(after).load($conn),
                    None => page.load($conn),
                }
            }};
        }
        let rows: Vec<Row> = match conn {
            #[cfg(feature = "postgres")]
            AnyConn::Postgres(c) => page!(c, dsl::queued_at.asc().nulls_first()),
            AnyConn::Sqlite(c) => page!(c, dsl::queued_at.asc()),
        }?;
        Ok(rows.into_iter().map(QueuedRun::from).collect())
    }
}

impl ReadyPage {
    /// The page after one that came out full, of a class whose runs differ; nothing where the first page says it all.
    pub fn next(self, page: &[QueuedRun]) -> Option<ReadyPage> {
        let last = page.last().filter(|_| self.class.is_cut() && page.len() >= PAGE_ROWS)?;
        Some(ReadyPage { after: Some((last.queued_at?, last.id.clone())), ..self })
    }
}
