//! The rows of a report as Parquet files next to it.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use flamegraph::text::counted;

use crate::client::{Client, Query};
use crate::output::{say, write_to};

/// One file: what stands before its extension, and where its rows are.
struct Table {
    name: &'static str,
    path: &'static str,
    parameters: &'static [(&'static str, &'static str)],
}

/// The limit of one response.
const ROWS_MAX: (&str, &str) = ("limit", "100000");

const TABLES: [Table; 5] = [
    Table {
        name: "tasks",
        path: "tasks",
        parameters: &[ROWS_MAX],
    },
    Table {
        name: "functions",
        path: "profile",
        parameters: &[
            ("threads", "program"),
            ("outside", "shown"),
            ("stacks", "simple"),
        ],
    },
    Table {
        name: "resources",
        path: "resources",
        parameters: &[],
    },
    Table {
        name: "transfers",
        path: "transfers",
        parameters: &[ROWS_MAX],
    },
    Table {
        name: "timeline",
        path: "timeline",
        parameters: &[],
    },
];

/// Writes the files of the range, each replaced atomically, and returns their paths. The bytes are copied as
/// they arrive.
pub(super) fn write(
    client: &Client,
    document: &Path,
    same_range: &Query,
) -> anyhow::Result<Vec<PathBuf>> {
    TABLES
        .iter()
        .map(|table| table.write(client, document, same_range))
        .collect()
}

impl Table {
    fn write(
        &self,
        client: &Client,
        document: &Path,
        same_range: &Query,
    ) -> anyhow::Result<PathBuf> {
        let file = document.with_extension(format!("{}.parquet", self.name));
        let query = same_range.clone().with("format", "parquet");
        let query = self
            .parameters
            .iter()
            .fold(query, |query, (key, value)| query.with(key, *value));
        let mut answer = client.stream(self.path, &query)?;
        let rows = answer.count("x-emberline-rows");
        let total = answer.count("x-emberline-total");
        if total > rows {
            say(&format!(
                "{} has {} of {total}; reports of parts of the range have the others",
                file.display(),
                counted(rows, "row")
            ));
        }
        write_to(Some(&file), |out| {
            io::copy(&mut answer, out).with_context(|| format!("could not copy {}", self.name))
        })?;
        Ok(file)
    }
}
