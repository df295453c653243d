//! Rows of the ledger in columns.

use profiler_core::Outcome;
use serde::{Serialize, Serializer};

use super::RangeBody;
use crate::query::{TaskColumns, TaskQuery};

/// Answer of `/api/v1/tasks?format=columns`.
#[derive(Serialize)]
pub(crate) struct TaskColumnsBody<'a> {
    range: RangeBody,
    total: u64,
    truncated: bool,
    aggregated: u64,
    corrupt_files: &'a [String],
    outcomes: [&'static str; Outcome::ALL.len()],
    names: Vec<&'a str>,
    threads: Vec<ThreadBody<'a>>,
    first_ns: Option<i64>,
    columns: ColumnsBody<'a>,
}

#[derive(Serialize)]
struct ThreadBody<'a> {
    worker: &'a str,
    epoch: String,
    id: u32,
    name: &'a str,
}

/// Arrays of one number a task, written without being made.
#[derive(Serialize)]
struct ColumnsBody<'a> {
    name: Column<'a>,
    thread: Column<'a>,
    id: Column<'a>,
    earlier_us: Column<'a>,
    duration_us: Column<'a>,
    outcome: Column<'a>,
}

/// A number of the task at a place.
struct Column<'a>(&'a TaskColumns, fn(&TaskColumns, usize) -> u64);

impl Serialize for Column<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Column(columns, number) = self;
        serializer.collect_seq((0..columns.rows.len()).map(|at| number(columns, at)))
    }
}

/// Microseconds since the first task's start, which is the last of all.
fn before_us(columns: &TaskColumns, at: usize) -> u64 {
    columns.rows[0].start().since_ns(columns.rows[at].start()) / 1_000
}

impl<'a> TaskColumnsBody<'a> {
    pub(crate) fn new(query: &TaskQuery, answer: &'a TaskColumns) -> Self {
        let column = |number| Column(answer, number);
        TaskColumnsBody {
            range: query.range.into(),
            total: answer.total,
            truncated: answer.total > answer.rows.len() as u64,
            aggregated: answer.aggregated,
            corrupt_files: &answer.damaged,
            outcomes: Outcome::ALL.map(Outcome::name),
            names: answer.names.iter().map(|name| &**name).collect(),
            threads: answer
                .threads
                .iter()
                .map(|thread| ThreadBody {
                    worker: &thread.worker.0,
                    epoch: thread.epoch.to_string(),
                    id: thread.id,
                    name: &thread.name,
                })
                .collect(),
            first_ns: answer.rows.first().map(|row| row.start().unix_ns()),
            columns: ColumnsBody {
                name: column(|columns, at| columns.rows[at].name.into()),
                thread: column(|columns, at| columns.rows[at].thread.into()),
                id: column(|columns, at| columns.rows[at].id),
                // Differences of whole microseconds, so that nothing adds up.
                earlier_us: column(|columns, at| {
                    before_us(columns, at) - before_us(columns, at.saturating_sub(1))
                }),
                duration_us: column(|columns, at| columns.rows[at].duration_ns / 1_000),
                outcome: column(|columns, at| columns.rows[at].outcome().into()),
            },
        }
    }
}
