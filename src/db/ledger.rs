//! The steps that there are, and the ledger of those that a store has had.

use diesel::migration::{Migration, MigrationSource};
use diesel::prelude::*;
use diesel_migrations::{EmbeddedMigrations, embed_migrations};

use super::engine::AnyConn;

const SQLITE: EmbeddedMigrations = embed_migrations!("migrations/sqlite");
#[cfg(feature = "postgres")]
const POSTGRES: EmbeddedMigrations = embed_migrations!("migrations/postgres");

/// The table in which the applied steps are written down.
pub(super) const LEDGER: &str = "__diesel_schema_migrations";

/// The versions of all steps, oldest first.
pub(super) fn known() -> Vec<String> {
    // Both engines have the same steps; a test compares them.
    let steps: Result<Vec<Box<dyn Migration<diesel::sqlite::Sqlite>>>, _> = SQLITE.migrations();
    let mut versions: Vec<String> =
        steps.unwrap_or_default().iter().map(|step| step.name().version().to_string()).collect();
    versions.sort();
    versions
}

/// The versions of the steps that were applied.
pub(super) fn applied(conn: &mut AnyConn) -> QueryResult<Vec<String>> {
    ledger::table.select(ledger::version).load(conn)
}

/// The steps for the engine of `conn`.
pub(super) fn source(conn: &AnyConn) -> EmbeddedMigrations {
    match conn {
        #[cfg(feature = "postgres")]
        AnyConn::Postgres(_) => POSTGRES,
        AnyConn::Sqlite(_) => SQLITE,
    }
}

/// Writes down a step that need not be taken.
pub(super) fn record(conn: &mut AnyConn, version: &str) -> QueryResult<()> {
    diesel::insert_into(ledger::table).values(ledger::version.eq(version)).execute(conn).map(drop)
}

diesel::table! {
    #[sql_name = "__diesel_schema_migrations"]
    ledger (version) {
        version -> Text,
    }
}
