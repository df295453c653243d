//! Files of rows, which the collector writes: CSV and Parquet.

use std::io::{self, IsTerminal as _};
use std::path::Path;

use flamegraph::text::counted;

use super::nothing_written;
use crate::client::{Answer, Client, Query};
use crate::exit::BadInput;
use crate::output::{put, say_wrapped};

/// Requests rows and writes them, after what they lack.
pub(super) fn write(
    client: &Client,
    path: &str,
    query: &Query,
    file: Option<&Path>,
) -> anyhow::Result<()> {
    let answer = client.get(path, query)?;
    notes(&answer).iter().for_each(|note| say_wrapped(note));
    if answer.header::<u64>("x-emberline-rows") == Some(0) {
        return Err(nothing_written("rows").into());
    }
    put(file, &answer.body)
}

/// Returns notes on the rows that are missing from a file.
pub(super) fn notes(answer: &Answer) -> Vec<String> {
    notes_of(Facts {
        rows: answer.count("x-emberline-rows"),
        total: answer.count("x-emberline-total"),
        aggregated: answer.count("x-emberline-aggregated"),
        corrupt_files: answer.count("x-emberline-corrupt-files"),
    })
}

/// Counts of an answer.
#[derive(Clone, Copy, Default)]
struct Facts {
    rows: u64,
    /// Of tasks that match.
    total: u64,
    aggregated: u64,
    corrupt_files: u64,
}

fn notes_of(facts: Facts) -> Vec<String> {
    let Facts {
        rows,
        total,
        aggregated,
        corrupt_files,
    } = facts;
    let mut notes = Vec::new();
    if rows == 0 {
        notes.push("no rows in this range".to_owned());
    }
    if total > rows {
        notes.push(format!(
            "{rows} of {} are listed; for more use --limit, or parts of the range",
            counted(total, "task")
        ));
    }
    if aggregated > 0 {
        notes.push(format!(
            "in sums only: {} without a row",
            counted(aggregated, "task")
        ));
    }
    notes.extend(corrupt_count(corrupt_files));
    notes
}

/// A note about files of the store that could not be read, if there are any.
pub(super) fn corrupt_count(files: u64) -> Option<String> {
    let note = |files| format!("{files} of the store could not be read; format json names them");
    (files > 0).then(|| note(counted(files, "file")))
}

/// Rejects a binary format on a terminal; `file` is a name for the advice.
///
/// # Errors
/// [`BadInput`] if there is no file and stdout is a terminal.
pub(super) fn reject_terminal(
    format: &str,
    output: Option<&Path>,
    file: &str,
) -> Result<(), BadInput> {
    if output.is_none() && io::stdout().is_terminal() {
        return Err(BadInput(format!(
            "format {format} is binary, and stdout is a terminal; write to a file: -o {file}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_lacks_is_told() {
        assert_eq!(
            notes_of(Facts {
                rows: 3,
                total: 3,
                ..Facts::default()
            }),
            [""; 0]
        );
        let facts = Facts {
            rows: 50,
            total: 1_234,
            aggregated: 1,
            corrupt_files: 2,
        };
        assert_eq!(
            notes_of(facts),
            [
                "50 of 1,234 tasks are listed; for more use --limit, or parts of the range",
                "in sums only: 1 task without a row",
                "2 files of the store could not be read; format json names them",
            ]
        );
        assert_eq!(notes_of(Facts::default()), ["no rows in this range"]);
    }
}
