//! Rows of the ledger, their summary, and progress.

use std::sync::Arc;

use profiler_core::{Outcome, State, Timestamp};
use serde::{Serialize, Serializer};

use super::time_range;
use query::significance::FALSE_ALARMS;
use query::{
    ProgressAnswer, ProgressRow, SampledTask, SummaryRow, TaskAnswer, TaskComparison,
    TaskDurations, TaskQuery, TaskSummary, format_time, task_body,
};
use state::ledger::PhaseTotal;
use store::rows::TaskRow;

/// [`api::TasksAnswer`], written row by row: the texts of all rows at once would take twice the memory of
/// the answer.
#[derive(Serialize)]
pub(crate) struct TasksBody<'a> {
    range: api::TimeRange,
    total: u64,
    truncated: bool,
    aggregated: u64,
    corrupt_files: &'a [String],
    sort: &'static str,
    tasks: TasksSeq<'a>,
}

struct TasksSeq<'a> {
    rows: &'a [Arc<TaskRow>],
    now: Timestamp,
}

impl Serialize for TasksSeq<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.rows.iter().map(|row| task_body(row, self.now)))
    }
}

impl<'a> TasksBody<'a> {
    pub(crate) fn new(query: &TaskQuery, answer: &'a TaskAnswer, now: Timestamp) -> Self {
        let selection = &answer.selection;
        TasksBody {
            range: time_range(query.range),
            total: selection.total,
            truncated: selection.total > selection.rows.len() as u64,
            aggregated: answer.aggregated,
            corrupt_files: &answer.damaged,
            sort: query.order.name(),
            tasks: TasksSeq {
                rows: &selection.rows,
                now,
            },
        }
    }
}

/// The rows of `/api/v1/tasks`, for files.
pub(crate) fn tasks(query: &TaskQuery, answer: TaskAnswer, now: Timestamp) -> api::TasksAnswer {
    let selection = &answer.selection;
    api::TasksAnswer {
        range: time_range(query.range),
        total: selection.total,
        truncated: selection.total > selection.rows.len() as u64,
        aggregated: answer.aggregated,
        corrupt_files: answer.damaged,
        sort: query.order.name().into(),
        tasks: selection
            .rows
            .iter()
            .map(|row| task_body(row, now))
            .collect(),
    }
}

/// Answer of `/api/v1/tasks?summary=true`.
pub(crate) fn task_summary(answer: TaskSummary) -> api::TaskSummaryAnswer {
    api::TaskSummaryAnswer {
        range: answer.range.map(time_range),
        aggregated: answer.aggregated,
        corrupt_files: answer.damaged,
        names: answer.rows.iter().map(task_name).collect(),
        sampled: answer.sampled.iter().map(sampled_task).collect(),
    }
}

fn sampled_task(task: &SampledTask) -> api::SampledTask {
    api::SampledTask {
        name: task.name.to_string(),
        cpu_ns: task.weight.get(State::Cpu),
        runnable_ns: task.weight.get(State::Runnable),
        wait_ns: task.weight.wait_ns(),
    }
}

fn task_name(row: &SummaryRow) -> api::TaskName {
    let ended = Outcome::ALL
        .into_iter()
        .filter(|outcome| *outcome != Outcome::Running);
    let outcomes = ended.map(|outcome| (outcome.name().into(), row.outcomes.get(outcome)));
    api::TaskName {
        name: row.name.to_string(),
        running: row.running,
        outcomes: outcomes.collect(),
        durations: row.spread,
        phases: row
            .phases
            .iter()
            .map(|(name, total)| phase_sum(name, total))
            .collect(),
    }
}

fn phase_sum(name: &str, total: &PhaseTotal) -> api::PhaseSum {
    api::PhaseSum {
        name: name.to_string(),
        tasks: total.count,
        duration_ns: total.duration_ns,
    }
}

/// Answer of `/api/v1/tasks/compare`.
pub(crate) fn task_comparison(answer: TaskComparison) -> api::TaskComparisonAnswer {
    api::TaskComparisonAnswer {
        before: time_range(answer.before),
        after: time_range(answer.after),
        false_alarms: FALSE_ALARMS,
        tests: answer.tests as u64,
        corrupt_files: answer.damaged,
        names: answer.names,
        omitted: answer.omitted as u64,
    }
}

/// Answer of `/api/v1/tasks/durations`.
pub(crate) fn task_durations(answer: TaskDurations) -> api::TaskDurationsAnswer {
    api::TaskDurationsAnswer {
        range: time_range(answer.range),
        step_ns: answer.step_ns,
        corrupt_files: answer.damaged,
        points: answer.points,
    }
}

/// Answer of `/api/v1/progress`.
pub(crate) fn progress(answer: ProgressAnswer) -> api::ProgressAnswer {
    api::ProgressAnswer {
        now: format_time(answer.now),
        now_ns: answer.now.unix_ns(),
        corrupt_files: answer.damaged,
        names: answer.rows.iter().map(progress_of_name).collect(),
        omitted: answer.omitted,
    }
}

fn progress_of_name(row: &ProgressRow) -> api::Progress {
    api::Progress {
        name: row.name.to_string(),
        expected: row.expected,
        done: row.outcomes.get(Outcome::Ok),
        running: row.running,
        failed: row.failed(),
        lost: row.outcomes.get(Outcome::Lost),
        cancelled: row.outcomes.get(Outcome::Cancelled),
        since: format_time(row.start),
        since_ns: row.start.unix_ns(),
        rate_per_s: row.rate_per_s(),
        remaining_ns: row.remaining_ns(),
        state: row.state().into(),
    }
}
