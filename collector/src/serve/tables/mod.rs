//! Answers as files of rows: CSV for spreadsheets and scripts, Parquet for analysis.

mod csv;
mod rows;

use axum::http::header;
use axum::response::{IntoResponse as _, Response};

pub(super) use self::rows::{functions, resources, task_names, tasks, timeline, transfers};
use query::TableFormat;
use store::{ColumnKind, ListColumn, Values, encode_columns};

/// Rows, column by column.
pub(super) struct Table {
    name: &'static str,
    columns: Vec<(ListColumn, Values)>,
    rows: usize,
    facts: Vec<(&'static str, u64)>,
}

impl Table {
    fn new(name: &'static str, rows: usize) -> Table {
        Table {
            name,
            columns: Vec::new(),
            rows,
            facts: vec![("x-emberline-rows", rows as u64)],
        }
    }

    /// With one more column of values, one for each row.
    fn with<K: ColumnKind>(
        mut self,
        name: &'static str,
        values: impl Iterator<Item = K::Value>,
    ) -> Table {
        self.columns.push((
            ListColumn {
                name,
                kind: K::KIND,
            },
            K::encode(values),
        ));
        self
    }

    /// With a header. JSON has such numbers next to its rows.
    fn with_fact(mut self, name: &'static str, value: u64) -> Table {
        self.facts.push((name, value));
        self
    }

    pub(super) fn response(&self, format: TableFormat) -> Response {
        let body = match format {
            TableFormat::Csv => self.csv(),
            TableFormat::Parquet => encode_columns(self.name, &self.columns),
        };
        let content_type = content_type(format);
        let mut response = ([(header::CONTENT_TYPE, content_type)], body).into_response();
        for (name, value) in &self.facts {
            response.headers_mut().insert(*name, (*value).into());
        }
        response
    }
}

/// The media type of a file of rows.
pub(super) const fn content_type(format: TableFormat) -> &'static str {
    match format {
        TableFormat::Csv => "text/csv; charset=utf-8; header=present",
        TableFormat::Parquet => "application/vnd.apache.parquet",
    }
}

#[cfg(test)]
mod tests;
