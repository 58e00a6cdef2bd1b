//! Whose store this is, decided before anything is written to it.

use std::collections::{BTreeMap, BTreeSet};

use diesel::prelude::*;
use diesel::sql_types::Text;

use super::engine::AnyConn;
use super::ledger;
use super::schema::schema_meta;

/// The version of the original's schema that this program knows.
pub(super) const SCHEMA_VERSION: u32 = 4;
/// The lineage that the original writes, and that our own stores carry so that it opens them.
pub(super) const LINEAGE: &str = "lionagi";

/// The columns without which a store cannot be served.
const NEEDED: [(&str, &[&str]); 3] = [
    (
        "schedule_runs",
        &[
            "id",
            "schedule_id",
            "invocation_id",
            "trigger_context",
            "action_kind",
            "action_args",
            "status",
            "exit_code",
            "chain_parent_id",
            "chain_depth",
            "fired_at",
            "ended_at",
            "error_detail",
            "created_at",
            "updated_at",
            "status_reason_code",
            "status_reason_summary",
            "status_evidence_refs",
            "queued_at",
            "leased_by",
            "lease_expires_at",
            "concurrency_key",
            "lease_attempts",
            "required_capabilities",
            "execution_target",
            "library_ref",
            "library_content_hash",
        ],
    ),
    (
        "status_transitions",
        &[
            "id",
            "entity_type",
            "entity_id",
            "previous_status",
            "status",
            "reason_code",
            "reason_summary",
            "evidence_refs",
            "source",
            "actor",
            "created_at",
            "metadata",
        ],
    ),
    (
        "workers",
        &[
            "worker_id",
            "advertised_capabilities",
            "execution_targets",
            "last_heartbeat_at",
            "leased_run_id",
        ],
    ),
];

/// The outbox, which a store of the original may have or not. One that lacks a column would keep tasks from ending.
const OUTBOX: (&str, &[&str]) = (
    "dispatch_outbox",
    &[
        "id",
        "kind",
        "deliver_to",
        "payload",
        "dedup_key",
        "status",
        "attempt",
        "max_attempts",
        "next_attempt_at",
        "ack_required",
        "ack_token",
        "session_id",
        "schedule_run_id",
        "last_error",
        "created_at",
        "expires_at",
        "updated_at",
    ],
);

/// The tables that the steps make. None of them may be there before, or it is somebody else's.
const MADE: [&str; 18] = [
    "schedules",
    "invocations",
    "schedule_runs",
    "status_transitions",
    "workers",
    "schema_meta",
    "leasehold_meta",
    "leasehold_runs",
    "leasehold_attempts",
    "leasehold_keys",
    "leasehold_pauses",
    "leasehold_adapters",
    "leasehold_steps",
    "dispatch_outbox",
    "leasehold_events",
    "leasehold_transition_keys",
    "leasehold_dispatch_keys",
    ledger::LEDGER,
];

/// What can be seen of a database without writing to it.
#[derive(Debug, Default, Clone)]
pub(super) struct Facts {
    /// Every table, with its columns.
    pub tables: BTreeMap<String, BTreeSet<String>>,
    /// `schema_meta`, if there is one.
    pub meta: Option<BTreeMap<String, String>>,
    /// The migrations that were applied.
    pub migrations: Vec<String>,
    /// Whether tables of strangers are none of our business, as on a database server.
    pub shared: bool,
}

/// What a store is to us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing is there: the store is to be made.
    Fresh,
    /// Everything is there.
    Ready,
    /// A store of the original, or an older one of ours: these steps are still to be taken.
    Behind,
    /// Another program's database.
    Foreign(String),
    /// A store of a later version.
    TooNew(String),
}

impl Facts {
    /// Reads them.
    pub(super) fn read(conn: &mut AnyConn) -> QueryResult<Facts> {
        let mut facts = Facts { shared: is_server(conn), ..Facts::default() };
        for row in columns_of_all_tables(conn)? {
            facts.tables.entry(row.table).or_default().insert(row.column);
        }
        if facts.has("schema_meta", &["key", "value"]) {
            let rows: Vec<(String, String)> = schema_meta::table.load(conn)?;
            facts.meta = Some(rows.into_iter().collect());
        }
        if facts.tables.contains_key(ledger::LEDGER) {
            facts.migrations = ledger::applied(conn)?;
        }
        Ok(facts)
    }

    /// Decides.
    pub(super) fn verdict(&self) -> Verdict {
        let Some(meta) = &self.meta else {
            let in_the_way = |table: &&String| !self.shared || MADE.contains(&table.as_str());
            return match self.tables.keys().find(in_the_way) {
                Some(table) => {
                    let why = format!("it has a table {table:?}, but no schema_meta of ours");
                    Verdict::Foreign(why)
                }
                None => Verdict::Fresh,
            };
        };
        if let Some(refusal) = judge_meta(meta) {
            return refusal;
        }
        let known = ledger::known();
        if let Some(later) = self.migrations.iter().find(|version| !known.contains(version)) {
            return Verdict::TooNew(format!("it has the migration {later}"));
        }
        let outbox = self.tables.contains_key(OUTBOX.0).then_some(OUTBOX);
        for (table, columns) in NEEDED.into_iter().chain(outbox) {
            let there = self.tables.get(table);
            let missing = |column: &&&str| there.is_none_or(|names| !names.contains(**column));
            if let Some(column) = columns.iter().find(missing) {
                return Verdict::Foreign(format!("{table} has no column {column}"));
            }
        }
        if self.migrations.len() == known.len() { Verdict::Ready } else { Verdict::Behind }
    }

    fn has(&self, table: &str, columns: &[&str]) -> bool {
        self.tables
            .get(table)
            .is_some_and(|there| columns.iter().all(|column| there.contains(*column)))
    }
}

fn judge_meta(meta: &BTreeMap<String, String>) -> Option<Verdict> {
    match meta.get("lineage").map(String::as_str) {
        Some(LINEAGE) => {}
        Some(other) => return Some(Verdict::Foreign(format!("its lineage is {other:?}"))),
        None => return Some(Verdict::Foreign("schema_meta names no lineage".into())),
    }
    match meta.get("version").map(|text| (text, text.parse::<u32>())) {
        Some((_, Ok(version))) if version <= SCHEMA_VERSION => None,
        Some((text, Ok(_))) => Some(Verdict::TooNew(format!(
            "its schema version is {text}, and {SCHEMA_VERSION} is the latest known"
        ))),
        Some((text, Err(_))) => Some(Verdict::Foreign(format!("its schema version is {text:?}"))),
        None => Some(Verdict::Foreign("schema_meta names no version".into())),
    }
}

#[derive(QueryableByName)]
struct TableColumn {
    #[diesel(sql_type = Text)]
    table: String,
    #[diesel(sql_type = Text)]
    column: String,
}

fn columns_of_all_tables(conn: &mut AnyConn) -> QueryResult<Vec<TableColumn>> {
    let sql = match conn {
        #[cfg(feature = "postgres")]
        AnyConn::Postgres(_) => {
            r#"SELECT table_name::text AS "table", column_name::text AS "column"
               FROM information_schema.columns WHERE table_schema = current_schema()"#
        }
        AnyConn::Sqlite(_) => {
            r#"SELECT s.name AS "table", c.name AS "column"
               FROM sqlite_schema AS s, pragma_table_info(s.name) AS c
               WHERE s.type = 'table' AND s.name NOT LIKE 'sqlite\_%' ESCAPE '\'"#
        }
    };
    diesel::sql_query(sql).load(conn)
}

fn is_server(conn: &AnyConn) -> bool {
    match conn {
        #[cfg(feature = "postgres")]
        AnyConn::Postgres(_) => true,
        AnyConn::Sqlite(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn original() -> Facts {
        let tables = NEEDED.iter().map(|(table, columns)| {
            (table.to_string(), columns.iter().map(|c| c.to_string()).collect())
        });
        let meta =
            [("version", "4"), ("lineage", "lionagi")].map(|(k, v)| (k.to_string(), v.to_string()));
        Facts { tables: tables.collect(), meta: Some(meta.into()), ..Facts::default() }
    }

    fn with_meta(key: &str, value: Option<&str>) -> Verdict {
        let mut facts = original();
        let meta = facts.meta.as_mut().unwrap();
        match value {
            Some(value) => meta.insert(key.into(), value.into()),
            None => meta.remove(key),
        };
        facts.verdict()
    }

    #[test]
    fn nothing_is_fresh_and_a_server_may_hold_other_tables() {
        assert_eq!(Facts::default().verdict(), Verdict::Fresh);
        let stranger = BTreeMap::from([("users".to_string(), BTreeSet::new())]);
        let file = Facts { tables: stranger.clone(), ..Facts::default() };
        assert!(matches!(file.verdict(), Verdict::Foreign(_)));
        let server = Facts { tables: stranger, shared: true, ..Facts::default() };
        assert_eq!(server.verdict(), Verdict::Fresh);
    }

    #[test]
    fn a_store_of_the_original_is_behind_and_one_with_every_step_is_ready() {
        assert_eq!(original().verdict(), Verdict::Behind);
        assert_eq!(with_meta("version", Some("3")), Verdict::Behind);
        let ours = Facts { migrations: ledger::known(), ..original() };
        assert_eq!(ours.verdict(), Verdict::Ready);
    }

    #[test]
    fn unknown_versions_and_lineages_are_told_apart() {
        assert!(matches!(with_meta("version", Some("5")), Verdict::TooNew(_)));
        for (key, value) in
            [("version", Some("x")), ("version", None), ("lineage", Some("y")), ("lineage", None)]
        {
            assert!(matches!(with_meta(key, value), Verdict::Foreign(_)), "{key} {value:?}");
        }
        let mut migrations = ledger::known();
        migrations.push("20990101000000".into());
        let later = Facts { migrations, ..original() };
        assert!(matches!(later.verdict(), Verdict::TooNew(_)));
    }

    #[test]
    fn queue_tables_without_schema_meta_are_foreign() {
        for shared in [false, true] {
            let facts = Facts { meta: None, shared, ..original() };
            assert!(matches!(facts.verdict(), Verdict::Foreign(_)));
        }
    }

    #[test]
    fn a_missing_column_is_named() {
        let mut facts = original();
        facts.tables.get_mut("workers").unwrap().remove("leased_run_id");
        assert_eq!(facts.verdict(), Verdict::Foreign("workers has no column leased_run_id".into()));
        let mut facts = original();
        let columns = OUTBOX.1.iter().skip(1).map(|column| column.to_string()).collect();
        facts.tables.insert(OUTBOX.0.into(), columns);
        assert_eq!(facts.verdict(), Verdict::Foreign("dispatch_outbox has no column id".into()));
    }
}
