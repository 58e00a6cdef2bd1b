//! JSON columns: text on SQLite, `json` on PostgreSQL, which keeps the text as well.

use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::expression::AsExpression;
use diesel::serialize::{self, IsNull, Output, ToSql};
use diesel::sql_types::{HasSqlType, SqlType};
use diesel::sqlite::Sqlite;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::engine::MultiBackend;
use crate::domain::json_text;

/// The SQL type of a JSON column.
#[derive(Debug, Clone, Copy, SqlType, diesel::query_builder::QueryId)]
#[diesel(sqlite_type(name = "Text"))]
#[cfg_attr(feature = "postgres", diesel(postgres_type(oid = 114, array_oid = 199)))]
pub struct JsonColumn;

/// A JSON document as the text that is stored. It is not parsed on the way: key order and number spelling survive,
/// and a row whose text is malformed can still be read.
#[derive(Debug, Clone, PartialEq, Eq, AsExpression, FromSqlRow)]
#[diesel(sql_type = JsonColumn)]
pub struct JsonText(pub String);

impl JsonText {
    /// The document; text that is no JSON comes back as a string.
    pub fn value(&self) -> Value {
        json_text::parse(&self.0).unwrap_or_else(|_| Value::String(self.0.clone()))
    }
}

impl Serialize for JsonText {
    /// As the document itself, not as text that holds it.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}

impl HasSqlType<JsonColumn> for MultiBackend {
    fn metadata(lookup: &mut Self::MetadataLookup) -> Self::TypeMetadata {
        MultiBackend::lookup_sql_type::<JsonColumn>(lookup)
    }
}

impl ToSql<JsonColumn, Sqlite> for JsonText {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Sqlite>) -> serialize::Result {
        out.set_value(self.0.as_str());
        Ok(IsNull::No)
    }
}

impl FromSql<JsonColumn, Sqlite> for JsonText {
    fn from_sql(
        mut value: <Sqlite as diesel::backend::Backend>::RawValue<'_>,
    ) -> deserialize::Result<Self> {
        Ok(JsonText(value.read_text().to_owned()))
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use std::io::Write;

    use diesel::pg::{Pg, PgValue};

    use super::{FromSql, IsNull, JsonColumn, JsonText, Output, ToSql, deserialize, serialize};

    impl ToSql<JsonColumn, Pg> for JsonText {
        fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
            out.write_all(self.0.as_bytes())?;
            Ok(IsNull::No)
        }
    }

    impl FromSql<JsonColumn, Pg> for JsonText {
        fn from_sql(value: PgValue<'_>) -> deserialize::Result<Self> {
            Ok(JsonText(String::from_utf8(value.as_bytes().to_vec())?))
        }
    }
}

impl ToSql<JsonColumn, MultiBackend> for JsonText {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, MultiBackend>) -> serialize::Result {
        out.set_value((JsonColumn, self));
        Ok(IsNull::No)
    }
}

impl FromSql<JsonColumn, MultiBackend> for JsonText {
    fn from_sql(
        value: <MultiBackend as diesel::backend::Backend>::RawValue<'_>,
    ) -> deserialize::Result<Self> {
        value.from_sql::<JsonText, JsonColumn>()
    }
}
