//! Every hot statement, as it really runs, is served by an index: with an empty store and a large one, before and
//! after the engine has gathered statistics, on our own stores and on an adopted one.

use crate::hot::{
    self, BESIDE_KEY, EVENTS_KEY, FACTS_KEY, OUTBOX_KEY, REQUESTS_KEY, RUNS_KEY, STEPS, WORKERS_KEY,
};
use crate::kit::{Event, Watched, tables};
use crate::original;
use crate::places::{Engine, Place, Raw};

const ROWS: u32 = 100_000;

#[test]
fn sqlite_serves_every_hot_statement_by_an_index() {
    let place = Place::new(Engine::Sqlite);
    drop(place.queue());
    in_four_states(&place);
}

#[test]
fn an_adopted_store_serves_every_hot_statement_by_an_index() {
    let place = Place::new(Engine::Sqlite);
    original::copy_to(&place);
    drop(place.queue());
    in_four_states(&place);
}

#[test]
fn postgres_serves_every_hot_statement_by_an_index() {
    for engine in crate::places::engines().into_iter().filter(|e| *e == Engine::Postgres) {
        let place = Place::new(engine);
        drop(place.queue());
        in_four_states(&place);
    }
}

fn in_four_states(place: &Place) {
    let mut raw = place.raw();
    if place.engine == Engine::Postgres {
        // The server's own ANALYZE would come at a moment of its choice.
        for table in tables(&mut raw) {
            raw.run(&format!("ALTER TABLE {table} SET (autovacuum_enabled = off)"));
        }
    }
    let order_of_leases = |raw: &mut Raw, statistics: i32| {
        if place.engine == Engine::Postgres {
            raw.run(&format!(
                "ALTER TABLE schedule_runs ALTER lease_expires_at SET STATISTICS {statistics}"
            ));
        }
    };
    check(place, "a1", "empty", false);
    // That the leases of a few rows stand in order is chance, and no reason to look for running rows by their leases.
    order_of_leases(&mut raw, 0);
    // One row in which no moment is set would tell the engine that none ever is.
    raw.run("DELETE FROM leasehold_runs");
    raw.run("ANALYZE");
    check(place, "a2", "empty, analyzed", false);
    fill(&mut raw);
    check(place, "a3", "large, analyzed while it was empty", true);
    if place.engine == Engine::Sqlite {
        raw.run("DROP TABLE sqlite_stat1");
        check(place, "a4", "large", true);
    }
    order_of_leases(&mut raw, -1);
    raw.run("ANALYZE");
    check(place, "a5", "large, analyzed", true);
}

/// 100,000 queued rows of two kinds, a tenth as many that ended, 1,000 running, a fact for each of the latter two, 10,000 workers.
fn fill(raw: &mut Raw) {
    let numbers = match raw {
        Raw::Sqlite(_) => {
            "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count})"
        }
        Raw::Postgres(_) => "WITH numbers (n) AS (SELECT generate_series(1, {count}))",
    };
    raw.run(&format!(
        "INSERT INTO workers (worker_id, last_heartbeat_at) {} SELECT 'worker-' || n, n FROM numbers",
        numbers.replace("{count}", "10000")
    ));
    // Of one kind alone a planner that knows no values would expect that a pause leaves nothing.
    let kind =
        "CASE n % 4 WHEN 0 THEN 'flow' WHEN 1 THEN 'play' WHEN 2 THEN 'command' ELSE 'agent' END";
    let target = "CASE n % 2 WHEN 0 THEN 'process' ELSE 'host' END";
    for (count, status, key) in [
        (ROWS, "queued", "CASE WHEN n % 10 = 0 THEN 'k' || n END"),
        (ROWS / 10, "completed", "NULL"),
        (ROWS / 100, "running", "'r' || n"),
    ] {
        let numbers = numbers.replace("{count}", &count.to_string());
        raw.run(&format!(
            "INSERT INTO schedule_runs (id, trigger_context, action_kind, action_args, status, chain_depth, fired_at,
                created_at, queued_at, concurrency_key, lease_expires_at, lease_attempts, required_capabilities, execution_target)
             {numbers} SELECT '{status}-' || n, '{{}}', {kind}, '{{}}', '{status}', 0, 1000 + n, 1000 + n, 1000 + n, {key},
                CASE WHEN '{status}' = 'running' THEN 9000 + n END, 0, '[]', {target} FROM numbers"
        ));
        if status != "queued" {
            raw.run(&format!(
                "INSERT INTO status_transitions (id, entity_type, entity_id, previous_status, status, reason_code, source, created_at)
                 {numbers} SELECT 'fact-{status}-' || n, 'schedule_run', '{status}-' || n, 'queued', '{status}', 'r', 'system', 1000 + n FROM numbers"
            ));
        }
    }
    raw.run(
        "INSERT INTO leasehold_runs (run_id, settings, wake_at, expires_at)
         SELECT id, '{}', CASE WHEN id LIKE '%7' THEN fired_at END, CASE WHEN id LIKE '%9' THEN fired_at END
         FROM schedule_runs WHERE id NOT IN (SELECT run_id FROM leasehold_runs)",
    );
    // Of notices those that wait, those that were sent, and the original's own.
    raw.run(
        "INSERT INTO dispatch_outbox (id, kind, deliver_to, payload, dedup_key, status, attempt, max_attempts,
            next_attempt_at, ack_required, created_at)
         SELECT 'notice-' || id, CASE WHEN id LIKE '%3' THEN 'terminal_notify' ELSE 'leasehold.task_ended' END,
            'command:x', '{}', 'key-' || id, CASE WHEN id LIKE '%1' THEN 'pending' ELSE 'delivered' END, 0, 8,
            fired_at, 0, created_at
         FROM schedule_runs",
    );
    raw.run(
        "INSERT INTO leasehold_steps (run_id, step, kind, epoch, begun_at)
         SELECT id, 1, 'command', 1, fired_at FROM schedule_runs",
    );
    raw.run(
        "INSERT INTO leasehold_transition_keys
         SELECT id, 'other', 'h', 'f', 'a0-a0', 'queued', 'running', 1 FROM schedule_runs WHERE id LIKE '%7'",
    );
}

pub fn check(place: &Place, tag: &str, state: &str, large: bool) {
    let mut on = Watched::new(place);
    let mut problems = Vec::new();
    for hot in hot::ALL {
        on.take();
        (hot.run)(&mut on, tag);
        let (mut used, mut plans) = (Vec::new(), Vec::new());
        for statement in statements(on.take()) {
            let plan = match place.engine {
                // It names the tables that refer to the new row, which are read only where a constraint is broken.
                Engine::Sqlite if statement.starts_with("INSERT") => continue,
                Engine::Sqlite => explain_sqlite(place, &statement),
                Engine::Postgres => explain_postgres(&mut on, &statement, large),
            };
            plans.extend(plan.iter().cloned());
            // It has a row for each kind and target at the most, and is read whole.
            for line in plan.iter().filter(|line| !line.contains("leasehold_pauses")) {
                if let Some(why) = scans_or_sorts(line) {
                    problems.push(format!(
                        "{}, {state}: {why}: {statement}\n{}",
                        hot.name,
                        plan.join("\n")
                    ));
                }
                used.extend(index_in(line).map(str::to_owned));
            }
        }
        // Of two indexes that have the same few rows a server takes either.
        let is_open = place.engine == Engine::Postgres && !large && used.len() == hot.indexes.len();
        if used != hot.indexes && !is_open {
            problems.push(format!(
                "{}, {state}: used {used:?}, expected {:?}\n{}",
                hot.name,
                hot.indexes,
                plans.join("\n")
            ));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}

fn statements(events: Vec<Event>) -> impl Iterator<Item = String> {
    events.into_iter().filter_map(|event| match event {
        Event::Ran(sql) if !sql.contains("pg_advisory_xact_lock") => Some(sql),
        _ => None,
    })
}

fn explain_sqlite(place: &Place, statement: &str) -> Vec<String> {
    use diesel::RunQueryDsl;
    use diesel::sql_types::Text;
    #[derive(diesel::QueryableByName)]
    struct Line {
        #[diesel(sql_type = Text)]
        detail: String,
    }
    let Raw::Sqlite(mut conn) = place.raw() else { unreachable!() };
    let lines: Vec<Line> =
        diesel::sql_query(format!("EXPLAIN QUERY PLAN {statement}")).load(&mut conn).unwrap();
    lines.into_iter().map(|line| line.detail).collect()
}

/// The plan that the session's own prepared statement gets when it is planned for any values.
fn explain_postgres(on: &mut Watched, statement: &str, large: bool) -> Vec<String> {
    use diesel::RunQueryDsl;
    use diesel::connection::SimpleConnection;
    use diesel::sql_types::{Integer, Text};
    #[derive(diesel::QueryableByName)]
    struct Prepared {
        #[diesel(sql_type = Text)]
        name: String,
        #[diesel(sql_type = Integer)]
        parameters: i32,
    }
    #[derive(diesel::QueryableByName)]
    struct Line {
        #[diesel(sql_type = Text, column_name = "QUERY PLAN")]
        line: String,
    }
    // An empty table is cheapest to read whole; forbidding that shows whether an index can serve it.
    let seqscan = if large { "on" } else { "off" };
    on.conn
        .batch_execute(&format!(
            "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = {seqscan}; DISCARD PLANS"
        ))
        .unwrap();
    let prepared: Vec<Prepared> = diesel::sql_query(
        "SELECT name, coalesce(array_length(parameter_types, 1), 0) AS parameters FROM pg_prepared_statements WHERE statement = $1",
    )
    .bind::<Text, _>(statement)
    .load(&mut on.conn)
    .unwrap();
    let Some(Prepared { name, parameters }) = prepared.first() else {
        panic!("not kept prepared: {statement}");
    };
    let nulls = vec!["NULL"; *parameters as usize].join(", ");
    let nulls = if nulls.is_empty() { nulls } else { format!("({nulls})") };
    // What a recursion does is not shown unless it is done; from NULL on that is nothing.
    let how = if statement.starts_with("WITH RECURSIVE") { "(ANALYZE)" } else { "" };
    let lines: Vec<Line> = diesel::sql_query(format!("EXPLAIN {how} EXECUTE \"{name}\" {nulls}"))
        .load(&mut on.conn)
        .unwrap();
    on.conn.batch_execute("RESET enable_seqscan; RESET plan_cache_mode").unwrap();
    on.take();
    lines.into_iter().map(|line| line.line).collect()
}

fn scans_or_sorts(line: &str) -> Option<&'static str> {
    // A handful of rows is read whole.
    if line.contains("leasehold_meta") {
        return None;
    }
    // Nor is what the statement itself has made a table.
    let made = ["SCAN CONSTANT ROW", "SCAN class"].contains(&line);
    let sqlite_scan = line.starts_with("SCAN") && !line.contains(" USING ") && !made;
    if sqlite_scan || line.contains("Seq Scan") {
        Some("a scan of the table")
    } else if line.contains("TEMP B-TREE") || line.contains("Sort") {
        Some("a sort")
    } else {
        None
    }
}

/// The index that a line of a plan names, under one name for both engines.
fn index_in(line: &str) -> Option<&str> {
    let marks =
        [" INDEX ", " USING ", " Scan Backward using ", " Scan using ", "Bitmap Index Scan on "];
    let (_, rest) = marks.iter().find_map(|mark| line.split_once(mark))?;
    match rest.split(' ').next()? {
        "sqlite_autoindex_schedule_runs_1" | "schedule_runs_pkey" => Some(RUNS_KEY),
        "sqlite_autoindex_leasehold_runs_1" | "leasehold_runs_pkey" => Some(BESIDE_KEY),
        "sqlite_autoindex_leasehold_steps_1" | "leasehold_steps_pkey" => Some(STEPS),
        "sqlite_autoindex_dispatch_outbox_1" | "dispatch_outbox_pkey" => Some(OUTBOX_KEY),
        "sqlite_autoindex_workers_1" | "workers_pkey" => Some(WORKERS_KEY),
        "sqlite_autoindex_status_transitions_1" | "status_transitions_pkey" => Some(FACTS_KEY),
        "sqlite_autoindex_leasehold_transition_keys_1" | "leasehold_transition_keys_pkey" => {
            Some(REQUESTS_KEY)
        }
        "INTEGER" | "leasehold_events_pkey" => Some(EVENTS_KEY),
        "leasehold_meta_pkey" | "sqlite_autoindex_leasehold_meta_1" => None,
        index => Some(index),
    }
}
