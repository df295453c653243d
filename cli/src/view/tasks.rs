//! The ledger's rows and sums.

use std::collections::BTreeMap;

use flamegraph::text::duration;
use serde::Deserialize;

use super::{Span, corrupt_files, grouped, moment};
use crate::grid::Align::{Count, Left, Right};
use crate::grid::Grid;

/// Tasks one by one.
#[derive(Deserialize, Debug)]
pub(crate) struct Tasks {
    range: Span,
    total: u64,
    aggregated: u64,
    #[serde(default)]
    corrupt_files: Vec<String>,
    tasks: Vec<Task>,
}

#[derive(Deserialize, Debug)]
struct Task {
    worker: String,
    name: String,
    key: String,
    thread_name: String,
    start: String,
    duration_ns: u64,
    outcome: String,
    cause: String,
}

impl Tasks {
    /// A row a task.
    pub(crate) fn table(&self) -> String {
        let mut grid = Grid::new(&[
            ("START (UTC)", Left),
            ("DURATION", Right),
            ("OUTCOME", Left),
            ("WORKER", Left),
            ("THREAD", Left),
            ("NAME", Left),
            ("KEY", Left),
            ("CAUSE", Left),
        ]);
        for task in &self.tasks {
            grid.push([
                moment(&task.start).trim_end_matches(" UTC").to_owned(),
                duration(task.duration_ns),
                task.outcome.clone(),
                task.worker.clone(),
                task.thread_name.clone(),
                task.name.clone(),
                task.key.clone(),
                task.cause.clone(),
            ]);
        }
        grid.text()
    }

    /// Says that a file of these rows is not all, if it is not.
    pub(crate) fn cut(&self) -> Option<String> {
        let shown = self.tasks.len() as u64;
        (self.total > shown).then(|| {
            let (shown, total) = (grouped(shown), grouped(self.total));
            format!("the ledger's file has the latest {shown} of {total} tasks")
        })
    }

    /// What the rows are not.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let shown = self.tasks.len() as u64;
        if self.total == 0 {
            notes.push(format!("no tasks of what was asked for in {}", self.range));
        }
        if self.total > shown {
            notes.push(format!(
                "the latest {} of {} tasks; --limit shows more, --summary all in sum",
                grouped(shown),
                grouped(self.total)
            ));
        }
        notes.extend(aggregated(self.aggregated));
        notes.extend(corrupt_files(&self.corrupt_files));
        notes
    }
}

/// Tasks by name.
#[derive(Deserialize, Debug)]
pub(crate) struct Summary {
    range: Option<Span>,
    aggregated: u64,
    #[serde(default)]
    corrupt_files: Vec<String>,
    names: Vec<Name>,
}

#[derive(Deserialize, Debug)]
struct Name {
    name: String,
    running: u64,
    outcomes: BTreeMap<String, u64>,
    durations: Option<Spread>,
}

#[derive(Deserialize, Debug)]
struct Spread {
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    max_ns: u64,
    total_ns: u64,
}

impl Summary {
    /// A row a name, those with most time first.
    pub(crate) fn table(&self) -> String {
        let mut grid = Grid::new(&[
            ("NAME", Left),
            ("OK", Right),
            ("ERRED", Count),
            ("CANCELLED", Count),
            ("PANICKED", Count),
            ("LOST", Count),
            ("RUNNING", Right),
            ("P50", Right),
            ("P90", Right),
            ("P99", Right),
            ("MAX", Right),
            ("TOTAL", Right),
        ]);
        let mut names: Vec<&Name> = self.names.iter().collect();
        names.sort_by_key(|name| {
            let total_ns = name.durations.as_ref().map_or(0, |spread| spread.total_ns);
            (std::cmp::Reverse(total_ns), &name.name)
        });
        for name in names {
            let mut row = vec![name.name.clone()];
            let ended = ["ok", "failed", "cancelled", "panicked", "lost"];
            let counts = ended.map(|outcome| name.outcomes.get(outcome).copied().unwrap_or(0));
            row.extend(counts.into_iter().chain([name.running]).map(grouped));
            let times: [fn(&Spread) -> u64; 5] = [
                |spread| spread.p50_ns,
                |spread| spread.p90_ns,
                |spread| spread.p99_ns,
                |spread| spread.max_ns,
                |spread| spread.total_ns,
            ];
            row.extend(times.map(|time| {
                let known = name.durations.as_ref();
                known.map_or("-".to_owned(), |spread| duration(time(spread)))
            }));
            grid.push(row);
        }
        grid.text()
    }

    /// What the sums are of.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = vec![match &self.range {
            Some(range) => format!("tasks that ended in {range}, and those that run"),
            None => "all tasks that the collector holds".to_owned(),
        }];
        notes.extend(aggregated(self.aggregated));
        notes.extend(corrupt_files(&self.corrupt_files));
        notes
    }
}

pub(crate) fn aggregated(rows: u64) -> Option<String> {
    (rows > 0).then(|| {
        format!(
            "{} tasks have no row: there were too many at once, and they are in sums only",
            grouped(rows)
        )
    })
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_are_aligned_and_say_what_is_missing() {
        let task = |name: &str, cause: &str, outcome: &str| {
            json!({"worker": "worker-0", "epoch": "0a", "id": 7, "name": name, "key": "k-7",
                "thread_id": 1, "thread_name": "pool-1", "parent": null,
                "start": "2026-01-31T12:00:00.123456789Z", "start_ns": 0, "stop": null,
                "stop_ns": null, "duration_ns": 1_240_000, "outcome": outcome, "cause": cause})
        };
        let tasks: Tasks = serde_json::from_value(json!({
            "range": {"from": "2026-01-31T12:00:00Z", "to": "2026-01-31T12:05:00Z",
                "from_ns": 0, "to_ns": 1},
            "total": 12_345, "truncated": true, "aggregated": 0,
            "tasks": [task("load", "", "running"), task("a\u{202e}b", "disk \u{1b}[1mfull", "failed")]
        }))
        .unwrap();
        expect![[r#"
            START (UTC)              DURATION  OUTCOME  WORKER    THREAD  NAME        KEY  CAUSE
            2026-01-31 12:00:00.123   1.24 ms  running  worker-0  pool-1  load        k-7
            2026-01-31 12:00:00.123   1.24 ms  failed    worker-0  pool-1  a\u{202e}b  k-7  disk \u{1b}[1mfull
        "#]]
        .assert_eq(&tasks.table());
        assert_eq!(
            tasks.notes(),
            ["the latest 2 of 12,345 tasks; --limit shows more, --summary all in sum"]
        );
    }

    #[test]
    fn sums_are_ordered_by_time() {
        let summary: Summary = serde_json::from_value(json!({
            "range": null, "aggregated": 5, "corrupt_files": ["tables/tasks/1.parquet"],
            "names": [
                {"name": "a", "running": 1, "outcomes": {}, "durations": null},
                {"name": "b", "running": 0,
                 "outcomes": {"ok": 1_000, "failed": 2, "cancelled": 0, "panicked": 0, "lost": 1},
                 "durations": {"count": 1_002, "min_ns": 1, "p50_ns": 1_000, "p90_ns": 2_000,
                     "p99_ns": 3_000, "max_ns": 4_000, "mean_ns": 1, "total_ns": 5_000_000}}
            ]
        }))
        .unwrap();
        expect![[r#"
            NAME     OK  ERRED  LOST  RUNNING      P50      P90      P99      MAX    TOTAL
            b     1,000      2     1        0  1.00 µs  2.00 µs  3.00 µs  4.00 µs  5.00 ms
            a         0      0     0        1        -        -        -        -        -
        "#]]
        .assert_eq(&summary.table());
        let notes = [
            "all tasks that the collector holds",
            "5 tasks have no row: there were too many at once, and they are in sums only",
            "what these damaged files of the store held is missing: tables/tasks/1.parquet",
        ];
        assert_eq!(summary.notes(), notes);
    }
}
