//! Queries in SQL.

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
#[cfg(test)]
use ts_rs::TS;

/// The body of `POST /api/v1/sql`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(deny_unknown_fields)]
pub struct SqlRequest {
    /// One statement that reads.
    pub query: String,
    /// Form of the answer; default: `json`.
    #[serde(default)]
    pub format: SqlFormat,
    /// Most rows of the answer; default: 10,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub rows: Option<u32>,
}

/// The form of the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "lowercase")]
pub enum SqlFormat {
    /// [`SqlAnswer`].
    #[default]
    Json,
    /// A line of names, then a line for each row.
    Csv,
    /// A file of Parquet.
    Parquet,
}

impl SqlFormat {
    /// The word in requests and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            SqlFormat::Json => "json",
            SqlFormat::Csv => "csv",
            SqlFormat::Parquet => "parquet",
        }
    }
}

/// The rows of a query.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct SqlAnswer {
    /// The columns, in the order of the cells.
    pub columns: Vec<SqlColumn>,
    /// The cells of each row. Times are texts in RFC 3339.
    pub rows: Vec<Vec<SqlCell>>,
    /// Whether there are more rows.
    pub truncated: bool,
    /// When the version of the tables was published: it has no later data.
    pub data_until: String,
    /// The same in nanoseconds since the Unix epoch.
    pub data_until_ns: i64,
    /// Files that are damaged or lost: their rows are missing.
    pub corrupt_files: Vec<String>,
}

/// A value of a row.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(untagged)]
pub enum SqlCell {
    /// No value.
    Null,
    /// Yes or no.
    Boolean(bool),
    /// An integer that is not negative.
    Unsigned(u64),
    /// An integer.
    Integer(i64),
    /// Another number. JSON has none that is not finite: it is null.
    Number(f64),
    /// A text, and anything that is none of the above.
    Text(String),
}

/// A column of an answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct SqlColumn {
    /// The name, which may repeat.
    pub name: String,
    /// The type, as SQL calls it.
    #[serde(rename = "type")]
    pub type_name: String,
}
