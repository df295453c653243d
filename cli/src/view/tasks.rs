//! Tasks one by one, and by name.

use std::cmp::Reverse;

use api::{Durations, SampledTask, Task, TaskName, TaskSummaryAnswer, TasksAnswer};
use flamegraph::text::duration;

use super::{View, aggregated, corrupt_files, grouped, moment_in_zone, or_dash, range, row_count};
use crate::grid::Align::{Count, Left, Right, Sentence, Time};
use crate::grid::Grid;
use crate::zone::start_title;

/// A note about a file of these rows that does not have all tasks, if so.
pub(crate) fn missing_from_file(answer: &TasksAnswer) -> Option<String> {
    let shown = answer.tasks.len() as u64;
    (answer.total > shown).then(|| {
        let total = grouped(answer.total);
        format!(
            "the task log has the latest {} of {total} tasks",
            grouped(shown)
        )
    })
}

impl View for TasksAnswer {
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let advice = "--limit shows more, --summary totals";
        let count = row_count("tasks", self.tasks.len(), self.total, &self.range, advice);
        notes.extend(count.map(|note| match &*self.sort {
            "duration" => note.replacen("the latest", "the longest", 1),
            _ => note,
        }));
        notes.extend(aggregated(self.aggregated));
        notes.extend(corrupt_files(&self.corrupt_files));
        notes
    }

    fn text(&self) -> String {
        let mut columns = [
            (start_title(), Time),
            ("DURATION", Right),
            ("OUTCOME", Left),
            ("NAME", Left),
            ("CAUSE", Sentence),
            ("WORKER", Left),
            ("KEY", Left),
            ("THREAD", Left),
        ];
        // Why tasks failed matters more than how long they took.
        let has_causes = self.tasks.iter().any(|task| !cause(task).is_empty());
        if has_causes {
            columns[1..5].rotate_left(1);
        }
        let mut grid = Grid::new(&columns);
        for task in &self.tasks {
            let mut cells = [
                moment_in_zone(&task.start),
                duration(task.duration_ns),
                task.outcome.to_string(),
                task.name.clone(),
                cause(task),
                task.worker.clone(),
                task.key.clone(),
                task.thread_name.clone(),
            ];
            if has_causes {
                cells[1..5].rotate_left(1);
            }
            grid.push(cells);
        }
        grid.text()
    }
}

impl View for TaskSummaryAnswer {
    fn notes(&self) -> Vec<String> {
        let mut notes = vec![match &self.range {
            Some(summed) => format!("tasks that ended in {}, and running ones", range(summed)),
            None => "all retained tasks".to_owned(),
        }];
        notes.extend(aggregated(self.aggregated));
        notes.extend(corrupt_files(&self.corrupt_files));
        notes
    }

    /// A row for each name, those with most time first.
    fn text(&self) -> String {
        let mut grid = Grid::new(&[
            ("NAME", Left),
            ("OK", Right),
            ("FAILED", Count),
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
        let mut names: Vec<&TaskName> = self.names.iter().collect();
        names.sort_by_key(|name| {
            let total_ns = name.durations.map_or(0, |durations| durations.total_ns);
            (Reverse(total_ns), &name.name)
        });
        for name in names {
            grid.push([
                name.name.clone(),
                ended(name, "ok"),
                ended(name, "failed"),
                ended(name, "cancelled"),
                ended(name, "panicked"),
                ended(name, "lost"),
                grouped(name.running),
                time(name, |durations| durations.p50_ns),
                time(name, |durations| durations.p90_ns),
                time(name, |durations| durations.p99_ns),
                time(name, |durations| durations.max_ns),
                time(name, |durations| durations.total_ns),
            ]);
        }
        let sampled = sampled_tasks(&self.sampled);
        match (self.names.is_empty(), self.sampled.is_empty()) {
            (_, true) => grid.text(),
            (true, false) => sampled,
            (false, false) => format!("{}\n{sampled}", grid.text()),
        }
    }
}

/// A table of the tasks that only samples name.
fn sampled_tasks(tasks: &[SampledTask]) -> String {
    let mut grid = Grid::new(&[
        ("SAMPLES ONLY", Left),
        ("TIME", Right),
        ("CPU", Right),
        ("WAITING FOR CPU", Right),
        ("BLOCKED", Right),
    ]);
    for task in tasks {
        grid.push([
            task.name.clone(),
            duration(task.total_ns()),
            duration(task.cpu_ns),
            duration(task.runnable_ns),
            duration(task.wait_ns),
        ]);
    }
    grid.text()
}

/// How many tasks of that name ended so.
fn ended(name: &TaskName, outcome: &str) -> String {
    grouped(name.outcomes.get(outcome).copied().unwrap_or(0))
}

fn time(name: &TaskName, of: fn(Durations) -> u64) -> String {
    or_dash(name.durations.map(of), duration)
}

/// Why a task ended badly, as on the page. Nobody reports the end of a lost one.
pub(crate) fn cause(task: &Task) -> String {
    if task.cause.is_empty() && task.outcome == "lost" {
        return "its worker ended or disconnected first".to_owned();
    }
    task.cause.clone()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::view::tests::range_of_test;

    #[test]
    fn rows_are_aligned_and_notes_count_what_is_missing() {
        let answer = TasksAnswer {
            range: range_of_test(),
            total: 12_345,
            truncated: true,
            tasks: vec![
                task("load", "", "running"),
                task("a\u{202e}b", "disk \u{1b}[1mfull", "failed"),
            ],
            ..TasksAnswer::default()
        };
        expect![[r#"
            START (UTC)              OUTCOME  NAME        CAUSE               DURATION  …
            2026-01-31 12:00:00.123  running  load                             1.24 ms
            2026-01-31 12:00:00.123  failed   a\u{202e}b  disk \u{1b}[1mfull   1.24 ms
        "#]]
        .assert_eq(&answer.text());
        let notes = ["the latest 2 of 12,345 tasks; --limit shows more, --summary totals"];
        assert_eq!(answer.notes(), notes);
        let longest = TasksAnswer {
            sort: "duration".into(),
            ..answer
        };
        let notes = ["the longest 2 of 12,345 tasks; --limit shows more, --summary totals"];
        assert_eq!(longest.notes(), notes);
    }

    fn task(name: &str, cause: &str, outcome: &'static str) -> Task {
        Task {
            worker: "worker-0".to_owned(),
            name: name.to_owned(),
            key: "k-7".to_owned(),
            thread_name: "pool-1".to_owned(),
            start: "2026-01-31T12:00:00.123456789Z".to_owned(),
            duration_ns: 1_240_000,
            outcome: outcome.into(),
            cause: cause.to_owned(),
            ..Task::default()
        }
    }

    #[test]
    fn causes_stay_readable_in_80_columns() {
        let cause = "worker-1 is gone: Broken pipe (os error 32)".to_owned();
        let task = Task {
            worker: "worker-0".to_owned(),
            name: "transfer".to_owned(),
            outcome: "failed".into(),
            start: "2026-01-31T12:00:00.123Z".to_owned(),
            duration_ns: 510_000_000,
            cause,
            ..Task::default()
        };
        let answer = TasksAnswer {
            tasks: vec![task],
            ..TasksAnswer::default()
        };
        expect![[r#"
            START (UTC)              OUTCOME  NAME      CAUSE  …
            2026-01-31 12:00:00.123  failed   transfer  worker-1 is gone…pe (os error 32)
        "#]]
        .assert_eq(&answer.text());
    }

    #[test]
    fn a_lost_task_has_a_cause() {
        assert_eq!(
            cause(&ended_task("lost")),
            "its worker ended or disconnected first"
        );
        assert_eq!(cause(&ended_task("ok")), "");
    }

    fn ended_task(outcome: &'static str) -> Task {
        Task {
            outcome: outcome.into(),
            ..Task::default()
        }
    }

    #[test]
    fn tasks_without_rows_have_a_table_of_their_own() {
        let mut answer = TaskSummaryAnswer {
            sampled: vec![SampledTask {
                name: "exporter".to_owned(),
                cpu_ns: 2_000_000_000,
                runnable_ns: 3_000_000,
                wait_ns: 4_000,
            }],
            ..TaskSummaryAnswer::default()
        };
        expect![[r#"
            SAMPLES ONLY    TIME     CPU  WAITING FOR CPU  BLOCKED
            exporter      2.00 s  2.00 s          3.00 ms  4.00 µs
        "#]]
        .assert_eq(&answer.text());
        answer.names.push(TaskName {
            name: "a".to_owned(),
            running: 1,
            ..TaskName::default()
        });
        assert_eq!(answer.text().matches("exporter").count(), 1);
        assert!(answer.text().starts_with("NAME"), "{}", answer.text());
    }

    #[test]
    fn names_are_ordered_by_time() {
        let durations = Durations {
            count: 1_002,
            min_ns: 1,
            p50_ns: 1_000,
            p90_ns: 2_000,
            p99_ns: 3_000,
            max_ns: 4_000,
            mean_ns: 1,
            total_ns: 5_000_000,
        };
        let outcomes = [("ok", 1_000), ("failed", 2), ("cancelled", 0), ("lost", 1)];
        let running = TaskName {
            name: "a".to_owned(),
            running: 1,
            ..TaskName::default()
        };
        let ended = TaskName {
            name: "b".to_owned(),
            outcomes: outcomes
                .map(|(outcome, count)| (outcome.into(), count))
                .into(),
            durations: Some(durations),
            ..TaskName::default()
        };
        let answer = TaskSummaryAnswer {
            range: None,
            aggregated: 5,
            corrupt_files: vec!["tables/tasks/1.parquet".to_owned()],
            names: vec![running, ended],
            sampled: Vec::new(),
        };
        expect![[r#"
            NAME     OK  FAILED  LOST  RUNNING      P50      P90      P99      MAX    TOTAL
            b     1,000       2     1        0  1.00 µs  2.00 µs  3.00 µs  4.00 µs  5.00 ms
            a         0       0     0        1        -        -        -        -        -
        "#]]
        .assert_eq(&answer.text());
        let notes = [
            "all retained tasks",
            "5 tasks have no row: only totals of all workers, keys and types have them",
            "data is missing: tables/tasks/1.parquet cannot be read",
        ];
        assert_eq!(answer.notes(), notes);
    }
}
