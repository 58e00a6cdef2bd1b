//! What this project keeps beside a run: its settings, a requested cancel, how often its lease ran out.

use diesel::prelude::*;

use crate::db::columns::JsonText;
use crate::db::engine::{AnyConn, Query, on};
use crate::db::fragments::Kept;
use crate::db::rows::Attempt;
use crate::db::schema::{leasehold_attempts, leasehold_runs, schedule_runs};
use crate::db::words::known_status;
use crate::domain::run::RunEpoch;
use crate::domain::settings::RunSettings;
use crate::domain::status::Status;
use crate::domain::transition::{Principal, PrincipalType};

/// The settings of a run as they are stored.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredSettings {
    /// The settings; the text itself when this version cannot read it.
    pub settings: Result<RunSettings, String>,
    /// What the task reads from its standard input; absent means nothing.
    pub stdin: Option<Vec<u8>>,
    /// When a run that waits goes back to the queue, in seconds since the epoch.
    pub wake_at: Option<f64>,
    /// When one that is still queued is skipped, in seconds since the epoch.
    pub expires_at: Option<f64>,
    /// How often it has failed by itself.
    pub failures: i32,
    /// Whether somebody has asked for the run to be stopped.
    pub is_cancel_requested: bool,
}

/// The settings that a run was submitted with; nothing for one without, of which nothing was asked since.
#[derive(Debug, Clone)]
pub struct FindSettings {
    /// The run.
    pub run_id: String,
}

/// Settings, input, and when a cancel was asked for.
type Beside = (Option<JsonText>, Option<Vec<u8>>, Option<f64>, Option<f64>, Option<f64>, i32);

impl Query for FindSettings {
    type Output = Option<StoredSettings>;

    fn name(&self) -> &'static str {
        "read a run's settings"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Self::Output> {
        use leasehold_runs::dsl;
        let row: Option<Beside> = dsl::leasehold_runs
            .find(&self.run_id)
            .select((
                dsl::settings,
                dsl::stdin,
                dsl::cancel_requested_at,
                dsl::wake_at,
                dsl::expires_at,
                dsl::failures,
            ))
            .first(conn)
            .optional()?;
        Ok(row.map(|(text, stdin, cancel_requested_at, wake_at, expires_at, failures)| {
            let text = text.map_or_else(|| "{}".into(), |text| text.0);
            StoredSettings {
                settings: RunSettings::parse(&text).map_err(|_| text),
                stdin,
                is_cancel_requested: cancel_requested_at.is_some(),
                wake_at,
                expires_at,
                failures,
            }
        }))
    }
}

/// How the attempts of a run ended, the first one first.
#[derive(Debug, Clone)]
pub struct Attempts {
    /// The run.
    pub run_id: String,
}

impl Query for Attempts {
    type Output = Vec<Attempt>;

    fn name(&self) -> &'static str {
        "read a run's attempts"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Vec<Attempt>> {
        use leasehold_attempts::dsl;
        dsl::leasehold_attempts
            .select(Attempt::as_select())
            .filter(dsl::run_id.eq(&self.run_id))
            .order(dsl::epoch.asc())
            .load(conn)
    }
}

/// Which of these runs somebody wants to be stopped.
#[derive(Debug, Clone)]
pub struct CancelRequests {
    /// The runs.
    pub run_ids: Vec<String>,
}

impl Query for CancelRequests {
    type Output = Vec<String>;

    fn name(&self) -> &'static str {
        "look for requested cancels"
    }

    fn run(&self, conn: &mut AnyConn) -> QueryResult<Vec<String>> {
        use leasehold_runs::dsl;
        let asked = dsl::leasehold_runs
            .select(dsl::run_id)
            .filter(dsl::run_id.eq_any(&self.run_ids))
            .filter(dsl::cancel_requested_at.is_not_null());
        Kept(asked).load(conn)
    }
}

/// A cancel that was requested while the run was running.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RequestedCancel {
    pub by: Principal,
}

/// The status of a run, which nobody else can change before this transaction ends.
pub(super) fn locked_status(conn: &mut AnyConn, run_id: &str) -> QueryResult<Option<Status>> {
    let row = schedule_runs::table.find(run_id).select(schedule_runs::status);
    let word: Option<String> = match conn {
        #[cfg(feature = "postgres")]
        AnyConn::Postgres(c) => row.for_update().first(c).optional()?,
        AnyConn::Sqlite(c) => row.first(c).optional()?,
    };
    word.map(|word| known_status(&word)).transpose()
}

/// Whether the run runs in this epoch, which nobody else can change before this transaction ends.
pub(super) fn is_running_in(conn: &mut AnyConn, run: &RunEpoch) -> QueryResult<bool> {
    if locked_status(conn, &run.run_id)? != Some(Status::Running) {
        return Ok(false);
    }
    let epoch = schedule_runs::table.find(&run.run_id).select(schedule_runs::lease_attempts);
    Ok(epoch.first::<i32>(conn).optional()? == Some(run.epoch))
}

pub(super) fn requested_cancel(
    conn: &mut AnyConn,
    run_id: &str,
) -> QueryResult<Option<RequestedCancel>> {
    use leasehold_runs::dsl;
    let row: Option<(Option<String>, Option<String>)> = dsl::leasehold_runs
        .find(run_id)
        .select((dsl::cancel_source, dsl::cancel_actor))
        .filter(dsl::cancel_requested_at.is_not_null())
        .first(conn)
        .optional()?;
    Ok(row.map(|(source, actor)| {
        let kind =
            source.as_deref().and_then(PrincipalType::parse).unwrap_or(PrincipalType::Operator);
        RequestedCancel { by: Principal { kind, id: actor.unwrap_or_default() } }
    }))
}

/// Writes down that the run is to be stopped; the first request stands.
pub(super) fn record_cancel(
    conn: &mut AnyConn,
    run_id: &str,
    by: &Principal,
    at: f64,
) -> QueryResult<()> {
    use leasehold_runs::dsl;
    if requested_cancel(conn, run_id)?.is_some() {
        return Ok(());
    }
    let request = (
        dsl::cancel_requested_at.eq(at),
        dsl::cancel_source.eq(by.kind.as_str()),
        dsl::cancel_actor.eq(&by.id),
    );
    on!(conn, c => {
        diesel::insert_into(dsl::leasehold_runs)
            .values((dsl::run_id.eq(run_id), request))
            .on_conflict(dsl::run_id)
            .do_update()
            .set(request)
            .execute(c)
            .map(drop)
    })
}

/// When the run is tried again, if it is, now that it has failed once more with this exit code. That is counted.
pub(super) fn next_try(
    conn: &mut AnyConn,
    run_id: &str,
    exit_code: i32,
    fraction: f64,
) -> QueryResult<Option<NextTry>> {
    use leasehold_runs::dsl;
    let beside = dsl::leasehold_runs.find(run_id);
    let row: Option<(Option<JsonText>, i32)> =
        beside.select((dsl::settings, dsl::failures)).first(conn).optional()?;
    let Some((Some(text), failures)) = row else { return Ok(None) };
    let policy = RunSettings::parse(&text.0).ok().and_then(|settings| settings.retry);
    let Some(policy) = policy else { return Ok(None) };
    let failures = failures.saturating_add(1);
    diesel::update(beside).set(dsl::failures.eq(failures)).execute(conn)?;
    let count = u32::try_from(failures).unwrap_or(u32::MAX);
    let pause = policy.next_try(count, exit_code, fraction);
    Ok(pause.map(|pause| NextTry { failures: count, most: policy.max_failures, pause }))
}

/// A run that has failed is tried again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct NextTry {
    /// How often it has failed.
    pub failures: u32,
    /// How many failures end it.
    pub most: u32,
    /// How long it waits, in seconds.
    pub pause: f64,
}

/// Has the run wait until this moment, in seconds since the epoch.
pub(super) fn wake_at(conn: &mut AnyConn, run_id: &str, moment: f64) -> QueryResult<()> {
    use leasehold_runs::dsl;
    diesel::update(dsl::leasehold_runs.find(run_id))
        .set(dsl::wake_at.eq(moment))
        .execute(conn)
        .map(drop)
}

/// How often the run's lease has run out.
pub(super) fn expiries(conn: &mut AnyConn, run_id: &str) -> QueryResult<i32> {
    let count = leasehold_runs::table.find(run_id).select(leasehold_runs::lease_expiries);
    Ok(count.first(conn).optional()?.unwrap_or(0))
}

/// Counts one more.
pub(super) fn count_expiry(conn: &mut AnyConn, run_id: &str) -> QueryResult<()> {
    use leasehold_runs::dsl;
    on!(conn, c => {
        diesel::insert_into(dsl::leasehold_runs)
            .values((dsl::run_id.eq(run_id), dsl::lease_expiries.eq(1)))
            .on_conflict(dsl::run_id)
            .do_update()
            .set(dsl::lease_expiries.eq(dsl::lease_expiries + 1))
            .execute(c)
            .map(drop)
    })
}
