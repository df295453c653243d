//! Rows of the ledger in columns.

use profiler_core::Outcome;
use serde::{Serialize, Serializer};

use super::time_range;
use query::{TaskColumns, TaskQuery};

/// [`api::TaskColumnsAnswer`], written from rows without a copy: there may be a million.
#[derive(Serialize)]
pub(crate) struct TaskColumnsBody<'a> {
    range: api::TimeRange,
    total: u64,
    truncated: bool,
    aggregated: u64,
    corrupt_files: &'a [String],
    outcomes: [&'static str; Outcome::ALL.len()],
    names: Vec<&'a str>,
    threads: Vec<api::TaskThread>,
    first_ns: Option<i64>,
    columns: Vectors<'a>,
}

#[derive(Serialize)]
struct Vectors<'a> {
    name: Column<'a>,
    thread: Column<'a>,
    id: Column<'a>,
    earlier_us: Column<'a>,
    duration_us: Column<'a>,
    outcome: Column<'a>,
}

/// A number of each task: the function returns it for a row's index.
struct Column<'a>(&'a TaskColumns, fn(&TaskColumns, usize) -> u64);

impl Serialize for Column<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Column(columns, number) = self;
        serializer.collect_seq((0..columns.rows.len()).map(|row| number(columns, row)))
    }
}

/// How much earlier than the first row, which is the newest task, a row's task started.
fn before_first_us(columns: &TaskColumns, row: usize) -> u64 {
    columns.rows[0].start().since_ns(columns.rows[row].start()) / 1_000
}

impl<'a> TaskColumnsBody<'a> {
    pub(crate) fn new(query: &TaskQuery, answer: &'a TaskColumns) -> Self {
        let column = |number| Column(answer, number);
        let threads = answer.threads.iter().map(|thread| api::TaskThread {
            worker: thread.worker.to_string(),
            epoch: thread.epoch.to_string(),
            id: thread.id,
            name: thread.name.to_string(),
        });
        TaskColumnsBody {
            range: time_range(query.range),
            total: answer.total,
            truncated: answer.total > answer.rows.len() as u64,
            aggregated: answer.aggregated,
            corrupt_files: &answer.damaged,
            outcomes: Outcome::ALL.map(Outcome::name),
            names: answer.names.iter().map(|name| &**name).collect(),
            threads: threads.collect(),
            first_ns: answer.rows.first().map(|row| row.start().unix_ns()),
            columns: Vectors {
                name: column(|columns, row| columns.rows[row].name.into()),
                thread: column(|columns, row| columns.rows[row].thread.into()),
                id: column(|columns, row| columns.rows[row].id),
                // Differences of whole microseconds since the first row, so that rounding errors do
                // not add up.
                earlier_us: column(|columns, row| {
                    let previous = row.saturating_sub(1);
                    before_first_us(columns, row) - before_first_us(columns, previous)
                }),
                duration_us: column(|columns, row| columns.rows[row].duration_ns / 1_000),
                outcome: column(|columns, row| columns.rows[row].outcome().into()),
            },
        }
    }
}
