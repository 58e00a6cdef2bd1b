//! Reads a whole store, to see whether what it says can be true.

mod answers;
mod feed;
mod notices;

use std::collections::HashMap;

use diesel::prelude::*;

use feed::{Feed, missing_triggers};

use crate::db::engine::{AnyConn, Query, at_one_moment};
use crate::db::fragments::Condition;
use crate::db::schema::{
    leasehold_attempts, leasehold_keys, leasehold_runs, leasehold_steps, schedule_runs,
    status_transitions,
};
use crate::domain::ledger::{self, Entry, Fault, StepEntry};
use crate::domain::transition::Entity;

/// Rows that are held in memory at a time.
const PAGE_ROWS: i64 = 1000;

/// Looks at every run and its facts, at the notices of those that have ended, and at our own tables beside them. It sees the store as it was at one moment, and
/// changes nothing.
#[derive(Debug, Clone)]
pub struct Verify {
    /// How often a lease may run out.
    pub most_expiries: i32,
    /// Whether our own tables are there.
    pub is_complete: bool,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    /// How many runs there are.
    pub runs: usize,
    /// How many facts they have.
    pub facts: usize,
    /// How many notices ended runs have left.
    pub notices: usize,
    /// What is wrong, and with which run; a key names the one whose turn it was.
    pub faults: Vec<(String, Fault)>,
}

impl Query for Verify {
    type Output = Verified;

    fn name(&self) -> &'static str {
        "verify the store"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Verified> {
        at_one_moment(conn, |conn| self.look(conn))
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = schedule_runs)]
struct Row {
    id: String,
    schedule_id: Option<String>,
    status: String,
    leased_by: Option<String>,
    lease_expires_at: Option<f64>,
    lease_attempts: i32,
    ended_at: Option<f64>,
}

impl Verify {
    fn look(&self, conn: &mut AnyConn) -> QueryResult<Verified> {
        let mut verified = Verified::default();
        let mut after = String::new();
        let mut feed = Feed::default();
        if self.is_complete {
            verified.faults.extend(missing_triggers(conn)?.into_iter().map(|trigger| {
                let what =
                    format!("the trigger {trigger} is gone, and what happens leaves no event");
                (trigger, Fault { check: "feed", what })
            }));
        }
        loop {
            let rows: Vec<Row> = schedule_runs::table
                .select(Row::as_select())
                .filter(schedule_runs::id.gt(&after))
                .order(schedule_runs::id.asc())
                .limit(PAGE_ROWS)
                .load(conn)?;
            let Some(last) = rows.last() else { break };
            if self.is_complete && last.id > feed.up_to {
                feed = Feed::after(conn, &after)?;
            }
            after.clone_from(&last.id);
            self.judge(conn, rows, &mut feed, &mut verified)?;
        }
        for (key, runs) in doubled_keys(conn)? {
            let what = format!("{} runs have the key {key:?} and run", runs.len());
            verified.faults.extend(
                runs.into_iter().map(|id| (id, Fault { check: "key", what: what.clone() })),
            );
        }
        if self.is_complete {
            for run_id in stray_keys(conn)? {
                let what = "an idempotency key stands for it twice".into();
                verified.faults.push((run_id, Fault { check: "idempotency", what }));
            }
            notices::look(conn, &mut verified)?;
        }
        Ok(verified)
    }

    fn judge(
        &self,
        conn: &mut AnyConn,
        rows: Vec<Row>,
        feed: &mut Feed,
        verified: &mut Verified,
    ) -> QueryResult<()> {
        let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        let mut facts = facts_of(conn, Entity::ScheduleRun, &ids)?;
        let (beside, mut attempts, mut answers, mut workflows) = match self.is_complete {
            true => (
                beside(conn, &ids)?,
                attempts_of(conn, &ids)?,
                answers::of_runs(conn, &ids)?,
                steps_of(conn, &ids)?,
            ),
            false => Default::default(),
        };
        for row in rows {
            let (facts, steps) = facts.remove(&row.id).unwrap_or_default();
            let answers = answers.remove(&row.id).unwrap_or_default();
            let run = Entry {
                facts: steps,
                events: feed.events_of(&row.id, &facts),
                answers: answers.into_iter().map(|stored| stored.found_in(&facts)).collect(),
                expiries: beside.get(&row.id).map_or(0, |beside| beside.0),
                wakes: beside.get(&row.id).is_some_and(|beside| beside.1),
                attempts: attempts.remove(&row.id).unwrap_or_default(),
                steps: workflows.remove(&row.id).unwrap_or_default(),
                is_scheduled: row.schedule_id.is_some(),
                status: row.status,
                owner: row.leased_by,
                lease_expires_at: row.lease_expires_at,
                epoch: row.lease_attempts,
                ended_at: row.ended_at,
            };
            verified.runs += 1;
            verified.facts += run.facts.len();
            let faults = ledger::faults(&run, self.most_expiries);
            verified.faults.extend(faults.into_iter().map(|fault| (row.id.clone(), fault)));
        }
        Ok(())
    }
}

/// Ids of facts, and from which status to which, in one order.
type Facts = (Vec<String>, Vec<(Option<String>, String)>);

fn facts_of(
    conn: &mut AnyConn,
    entity: Entity,
    ids: &[&str],
) -> QueryResult<HashMap<String, Facts>> {
    use status_transitions::dsl;
    let facts: Vec<(String, String, Option<String>, String)> = dsl::status_transitions
        .select((dsl::entity_id, dsl::id, dsl::previous_status, dsl::status))
        .filter(dsl::entity_type.eq(entity.as_str()))
        .filter(dsl::entity_id.eq_any(ids))
        .load(conn)?;
    let mut of: HashMap<String, Facts> = HashMap::new();
    for (run, id, from, to) in facts {
        let (ids, steps) = of.entry(run).or_default();
        ids.push(id);
        steps.push((from, to));
    }
    Ok(of)
}

/// How often a lease ran out, and whether the run waits for a moment.
fn beside(conn: &mut AnyConn, ids: &[&str]) -> QueryResult<HashMap<String, (i32, bool)>> {
    use leasehold_runs::dsl;
    let rows: Vec<(String, i32, Option<f64>)> = dsl::leasehold_runs
        .select((dsl::run_id, dsl::lease_expiries, dsl::wake_at))
        .filter(dsl::run_id.eq_any(ids))
        .load(conn)?;
    Ok(rows.into_iter().map(|(id, expiries, wake)| (id, (expiries, wake.is_some()))).collect())
}

fn attempts_of(conn: &mut AnyConn, ids: &[&str]) -> QueryResult<HashMap<String, Vec<i32>>> {
    use leasehold_attempts::dsl;
    let rows: Vec<(String, i32)> = dsl::leasehold_attempts
        .select((dsl::run_id, dsl::epoch))
        .filter(dsl::run_id.eq_any(ids))
        .load(conn)?;
    let mut of: HashMap<String, Vec<i32>> = HashMap::new();
    for (id, epoch) in rows {
        of.entry(id).or_default().push(epoch);
    }
    Ok(of)
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = leasehold_steps)]
struct StoredStep {
    run_id: String,
    step: i32,
    epoch: i32,
    ended_at: Option<f64>,
    exit_code: Option<i32>,
}

fn steps_of(conn: &mut AnyConn, ids: &[&str]) -> QueryResult<HashMap<String, Vec<StepEntry>>> {
    use leasehold_steps::dsl;
    let rows: Vec<StoredStep> = dsl::leasehold_steps
        .select(StoredStep::as_select())
        .filter(dsl::run_id.eq_any(ids))
        .order(dsl::step.asc())
        .load(conn)?;
    let mut of: HashMap<String, Vec<StepEntry>> = HashMap::new();
    for StoredStep { run_id, step, epoch, ended_at, exit_code } in rows {
        let is_over = ended_at.is_some();
        of.entry(run_id).or_default().push(StepEntry { step, epoch, is_over, exit_code });
    }
    Ok(of)
}

/// Concurrency keys that more than one running run has, with those runs.
fn doubled_keys(conn: &mut AnyConn) -> QueryResult<Vec<(String, Vec<String>)>> {
    use schedule_runs::dsl;
    let rows: Vec<(Option<String>, String)> = dsl::schedule_runs
        .select((dsl::concurrency_key, dsl::id))
        .filter(Condition("status = 'running' AND concurrency_key IS NOT NULL"))
        .order((dsl::concurrency_key.asc(), dsl::id.asc()))
        .load(conn)?;
    let mut of: Vec<(String, Vec<String>)> = Vec::new();
    for (key, id) in rows {
        let key = key.unwrap_or_default();
        match of.last_mut() {
            Some((last, ids)) if *last == key => ids.push(id),
            _ => of.push((key, vec![id])),
        }
    }
    of.retain(|(_, ids)| ids.len() > 1);
    Ok(of)
}

/// Runs for which more than one idempotency key stands: a submit has one at the most.
fn stray_keys(conn: &mut AnyConn) -> QueryResult<Vec<String>> {
    use leasehold_keys::dsl;
    let runs: Vec<String> =
        dsl::leasehold_keys.select(dsl::run_id).order(dsl::run_id.asc()).load(conn)?;
    let doubled = runs.windows(2).filter(|pair| pair[0] == pair[1]);
    Ok(doubled.map(|pair| pair[0].clone()).collect())
}
