//! `schema.rs` is written by hand; here it is compared with what each engine's migrations really make.

use crate::kit::path;
use crate::original;
use crate::places::{Engine, Place, Raw, engines};

/// A column: its table, its name, its type in `schema.rs`, whether it may be absent.
type Column = (String, String, String, bool);

/// The columns that `schema.rs` names, in order.
fn written() -> Vec<Column> {
    let text = include_str!("../../src/db/schema.rs");
    let mut columns = Vec::new();
    let mut table = String::new();
    for line in text.lines().map(str::trim) {
        if let Some((name, _)) = line.split_once(" (").filter(|_| line.ends_with('{')) {
            table = name.to_owned();
        } else if let Some((name, kind)) = line.split_once(" -> ") {
            let kind = kind.trim_end_matches(',');
            let bare = kind.trim_start_matches("Nullable<").trim_end_matches('>');
            columns.push((table.clone(), name.to_owned(), bare.to_owned(), bare != kind));
        }
    }
    assert_eq!(
        columns.len(),
        27 + 12 + 5 + 2 + 2 + 10 + 12 + 4 + 6 + 2 + 8 + 17 + 6 + 8 + 7,
        "schema.rs is read wrongly: {columns:?}"
    );
    columns
}

/// The columns that a store has, in order, for the tables that `schema.rs` names.
fn made(raw: &mut Raw) -> Vec<Column> {
    let sql = match raw {
        Raw::Sqlite(_) => {
            // An INTEGER that is the key is of 64 bits, whatever a BIGINT would be.
            r#"SELECT s.name || ' ' || c.name || ' ' || iif(c.pk = 1 AND c.type = 'INTEGER', 'BIGINT', upper(c.type))
                 || ' ' || (c."notnull" = 0) AS value
               FROM sqlite_schema AS s, pragma_table_info(s.name) AS c WHERE s.type = 'table' ORDER BY s.name, c.cid"#
        }
        Raw::Postgres(_) => {
            "SELECT table_name || ' ' || column_name || ' ' || upper(replace(data_type, ' ', '_')) || ' ' || (is_nullable = 'YES')::int AS value
             FROM information_schema.columns WHERE table_schema = current_schema() ORDER BY table_name, ordinal_position"
        }
    };
    raw.texts(sql)
        .into_iter()
        .flatten()
        .map(|row| {
            let words: Vec<&str> = row.split(' ').collect();
            let kind = match words[2] {
                "TEXT" => "Text",
                "JSON" => "JsonColumn",
                "INTEGER" => "Integer",
                "BIGINT" => "BigInt",
                "BLOB" | "BYTEA" => "Binary",
                "REAL" | "FLOAT" | "DOUBLE_PRECISION" => "Double",
                other => other,
            };
            (words[0].to_owned(), words[1].to_owned(), kind.to_owned(), words[3] == "1")
        })
        .collect()
}

#[test]
fn the_schema_in_the_code_is_what_the_migrations_make() {
    for engine in engines() {
        let place = Place::new(engine);
        drop(place.queue());
        let mut made = made(&mut place.raw());
        let mut written = written();
        let tables: Vec<&String> = written.iter().map(|(table, ..)| table).collect();
        made.retain(|(table, ..)| tables.contains(&table));
        let by_table = |column: &Column| column.0.clone();
        written.sort_by_key(by_table);
        made.sort_by_key(by_table);
        assert_eq!(made, written, "{engine:?}");
    }
}

/// The original has more columns, and ours among them.
#[test]
fn the_schema_in_the_code_fits_an_adopted_store() {
    let place = Place::new(Engine::Sqlite);
    original::copy_to(&place);
    drop(place.queue());
    assert!(path(&place).exists());
    let made = made(&mut place.raw());
    for column in written() {
        assert!(made.contains(&column), "{column:?}");
    }
}
