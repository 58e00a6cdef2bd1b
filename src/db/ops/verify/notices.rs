//! The notices of a store beside the runs that left them.

use std::collections::{HashMap, HashSet};

use diesel::prelude::*;

use super::{PAGE_ROWS, Verified, answers, facts_of};
use crate::db::columns::JsonText;
use crate::db::engine::AnyConn;
use crate::db::fragments::{After, Condition};
use crate::db::schema::{dispatch_outbox, leasehold_runs, schedule_runs, status_transitions};
use crate::domain::ledger::{self, Fault, NoticeEntry};
use crate::domain::notice::dedup_key;
use crate::domain::settings::RunSettings;
use crate::domain::transition::Entity;

#[derive(Queryable, Selectable)]
#[diesel(table_name = dispatch_outbox)]
struct Row {
    id: String,
    payload: JsonText,
    status: String,
    attempt: i32,
    schedule_run_id: Option<String>,
    created_at: f64,
}

pub(super) fn look(conn: &mut AnyConn, verified: &mut Verified) -> QueryResult<()> {
    each(conn, verified)?;
    missing(conn, verified)
}

/// Each notice against its own facts, and against the run whose end it tells.
fn each(conn: &mut AnyConn, verified: &mut Verified) -> QueryResult<()> {
    use dispatch_outbox::dsl;
    let mut last: Option<(f64, String)> = None;
    loop {
        let page = dsl::dispatch_outbox
            .select(Row::as_select())
            .filter(Condition("kind = 'leasehold.task_ended'"))
            .order((dsl::created_at.asc(), dsl::id.asc()))
            .limit(PAGE_ROWS);
        let rows: Vec<Row> = match last.take() {
            None => page.load(conn)?,
            Some((at, id)) => {
                page.filter(After { columns: "(created_at, id)", at, id }).load(conn)?
            }
        };
        let Some(end) = rows.last() else { return Ok(()) };
        last = Some((end.created_at, end.id.clone()));
        let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        let mut facts = facts_of(conn, Entity::Dispatch, &ids)?;
        let mut answers = answers::of_notices(conn, &ids)?;
        let runs: Vec<&str> =
            rows.iter().filter_map(|row| row.schedule_run_id.as_deref()).collect();
        let runs: Vec<(String, String)> = schedule_runs::table
            .select((schedule_runs::id, schedule_runs::status))
            .filter(schedule_runs::id.eq_any(runs))
            .load(conn)?;
        let runs: HashMap<String, String> = runs.into_iter().collect();
        for row in rows {
            let told = row.payload.value()["data"]["status"].as_str().map(str::to_owned);
            let run_status = row.schedule_run_id.as_ref().and_then(|id| runs.get(id)).cloned();
            let (fact_ids, facts) = facts.remove(&row.id).unwrap_or_default();
            let answers = answers.remove(&row.id).unwrap_or_default();
            let notice = NoticeEntry {
                answers: answers.into_iter().map(|stored| stored.found_in(&fact_ids)).collect(),
                facts,
                status: row.status,
                attempt: row.attempt,
                told,
                run_status,
            };
            verified.notices += 1;
            // One whose run was pruned is named by itself.
            let name = row.schedule_run_id.unwrap_or(row.id);
            let faults = ledger::notice_faults(&notice);
            verified.faults.extend(faults.into_iter().map(|fault| (name.clone(), fault)));
        }
    }
}

/// Runs that were to leave a notice, have ended here, and have left none. One that was removed after it had been tried has
/// its facts still; the end that the original writes leaves `ended_at` empty, and no notice.
fn missing(conn: &mut AnyConn, verified: &mut Verified) -> QueryResult<()> {
    let mut after = String::new();
    loop {
        let rows: Vec<(String, Option<JsonText>)> = leasehold_runs::table
            .select((leasehold_runs::run_id, leasehold_runs::settings))
            .filter(leasehold_runs::run_id.gt(&after))
            .order(leasehold_runs::run_id.asc())
            .limit(PAGE_ROWS)
            .load(conn)?;
        let Some((last, _)) = rows.last() else { return Ok(()) };
        after.clone_from(last);
        let wanted = rows.iter().filter_map(|(id, settings)| {
            let settings = RunSettings::parse(&settings.as_ref()?.0).ok()?;
            settings.notify.map(|_| id.as_str())
        });
        let ended: Vec<String> = schedule_runs::table
            .select(schedule_runs::id)
            .filter(schedule_runs::id.eq_any(wanted))
            .filter(schedule_runs::ended_at.is_not_null())
            .load(conn)?;
        let left = left_by(conn, &ended)?;
        for run_id in ended.into_iter().filter(|id| !left.contains(&dedup_key(id))) {
            if !was_tried(conn, &run_id)? {
                let what = "it has ended, and its notice is missing".into();
                verified.faults.push((run_id, Fault { check: "notice", what }));
            }
        }
    }
}

/// The keys of the notices that these runs have left.
fn left_by(conn: &mut AnyConn, runs: &[String]) -> QueryResult<HashSet<String>> {
    let keys = runs.iter().map(|id| dedup_key(id));
    let there: Vec<Option<String>> = dispatch_outbox::table
        .select(dispatch_outbox::dedup_key)
        .filter(dispatch_outbox::dedup_key.eq_any(keys))
        .load(conn)?;
    Ok(there.into_iter().flatten().collect())
}

/// Whether a notice under the id of one of the run's facts was ever changed.
fn was_tried(conn: &mut AnyConn, run_id: &str) -> QueryResult<bool> {
    use status_transitions::dsl;
    let facts: Vec<String> = dsl::status_transitions
        .select(dsl::id)
        .filter(dsl::entity_type.eq(Entity::ScheduleRun.as_str()))
        .filter(dsl::entity_id.eq(run_id))
        .load(conn)?;
    let ids: Vec<&str> = facts.iter().map(String::as_str).collect();
    Ok(!facts_of(conn, Entity::Dispatch, &ids)?.is_empty())
}
