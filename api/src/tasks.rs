//! The ledger: tasks one by one, in columns, by name; and their progress.

use std::collections::BTreeMap;

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
#[cfg(test)]
use ts_rs::TS;

use crate::{TimeRange, Word};

/// Answer of `/api/v1/tasks`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct TasksAnswer {
    /// The requested range.
    pub range: TimeRange,
    /// Number of tasks that match.
    pub total: u64,
    /// Whether that is more than are listed.
    pub truncated: bool,
    /// Tasks without a row, which are in sums only.
    pub aggregated: u64,
    /// Files of the store that could not be read.
    pub corrupt_files: Vec<String>,
    /// The order of the tasks: `start`, the newest first, or `duration`, the longest first.
    #[serde(default)]
    #[cfg_attr(test, ts(type = "'start' | 'duration'"))]
    #[cfg_attr(test, schemars(extend("examples" = ["start", "duration"])))]
    pub sort: Word,
    /// In that order.
    pub tasks: Vec<Task>,
}

/// One task.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct Task {
    /// Id of the worker.
    pub worker: String,
    /// The worker's life, in hexadecimal.
    pub epoch: String,
    /// Number of the task, unique in the worker's life.
    pub id: u64,
    /// Its name, shared by all tasks of its kind.
    pub name: String,
    /// Its own key.
    pub key: String,
    /// The system's id of its thread.
    pub thread_id: u32,
    /// Name of its thread.
    pub thread_name: String,
    /// Number of the task that started it.
    pub parent: Option<u64>,
    /// When it started.
    pub start: String,
    /// When it started, since the Unix epoch.
    pub start_ns: i64,
    /// When it stopped; `None` while it runs.
    pub stop: Option<String>,
    /// When it stopped, since the Unix epoch.
    pub stop_ns: Option<i64>,
    /// Its length, of a running task so far.
    pub duration_ns: u64,
    /// `running`, `ok`, `failed`, `cancelled`, `panicked` or `lost`.
    pub outcome: Word,
    /// Why it ended that way.
    pub cause: String,
    /// Number of the attempt.
    pub attempt: Option<u32>,
    /// Size of its result.
    pub result_bytes: Option<u64>,
    /// Type of its result.
    pub type_name: String,
    /// Labels of the program.
    #[cfg_attr(test, ts(type = "Record<string, string>"))]
    pub labels: BTreeMap<String, String>,
    /// Its phases other than `execute`, by start.
    pub phases: Vec<Phase>,
}

/// An interval of a task, or the sum of several.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct Phase {
    /// Its name.
    pub name: String,
    /// When it started, since the Unix epoch.
    pub start_ns: i64,
    /// Its length.
    pub duration_ns: u64,
    /// Number of intervals summed here; usually 1.
    pub count: u32,
}

/// Answer of `/api/v1/tasks?format=columns`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct TaskColumnsAnswer {
    /// The requested range.
    pub range: TimeRange,
    /// Number of tasks that match.
    pub total: u64,
    /// Whether that is more than are listed.
    pub truncated: bool,
    /// Tasks without a row, which are in sums only.
    pub aggregated: u64,
    /// Files of the store that could not be read.
    pub corrupt_files: Vec<String>,
    /// Outcomes, by the index that the columns have.
    pub outcomes: Vec<Word>,
    /// Names of tasks, by index.
    pub names: Vec<String>,
    /// Threads, by index.
    pub threads: Vec<TaskThread>,
    /// Start of the first listed task, since the Unix epoch.
    pub first_ns: Option<i64>,
    /// One number per task in each.
    pub columns: TaskVectors,
}

/// A thread that ran tasks.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct TaskThread {
    /// Id of the worker.
    pub worker: String,
    /// The worker's life, in hexadecimal.
    pub epoch: String,
    /// The system's id of the thread.
    pub id: u32,
    /// Its name.
    pub name: String,
}

/// Tasks in columns, the newest first.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct TaskVectors {
    /// Index of the name.
    pub name: Vec<u32>,
    /// Index of the thread.
    pub thread: Vec<u32>,
    /// Number of the task.
    pub id: Vec<u64>,
    /// How much earlier than its predecessor in the list it started.
    pub earlier_us: Vec<u64>,
    /// Its length.
    pub duration_us: Vec<u64>,
    /// Index of the outcome.
    pub outcome: Vec<u8>,
}

/// Answer of `/api/v1/tasks?summary=true`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct TaskSummaryAnswer {
    /// The range that was summed; `None` for all retained data.
    pub range: Option<TimeRange>,
    /// Tasks without a row, which are in sums only.
    pub aggregated: u64,
    /// Files of the store that could not be read.
    pub corrupt_files: Vec<String>,
    /// By name.
    pub names: Vec<TaskName>,
    /// Tasks with samples in the range of which none ended or runs there, the most time first, at most 1,000: clients of
    /// other profilers report no starts and ends.
    #[serde(default)]
    pub sampled: Vec<SampledTask>,
}

/// Thread time of the samples of a task.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct SampledTask {
    /// The name.
    pub name: String,
    /// Time on a processor.
    pub cpu_ns: u64,
    /// Time waiting for a processor.
    pub runnable_ns: u64,
    /// Time blocked.
    pub wait_ns: u64,
}

impl SampledTask {
    /// Time in all states.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.cpu_ns
            .saturating_add(self.runnable_ns)
            .saturating_add(self.wait_ns)
    }
}

/// The tasks of one name.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct TaskName {
    /// The name.
    pub name: String,
    /// Tasks that run.
    pub running: u64,
    /// Tasks that ended, by outcome.
    #[cfg_attr(
        test,
        ts(type = "Record<'ok' | 'failed' | 'cancelled' | 'panicked' | 'lost', number>")
    )]
    pub outcomes: BTreeMap<Word, u64>,
    /// Of the tasks whose end was reported.
    pub durations: Option<Durations>,
    /// The longest first.
    pub phases: Vec<PhaseSum>,
}

/// All intervals of one phase.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct PhaseSum {
    /// Name of the phase.
    pub name: String,
    /// How often tasks were in it.
    pub tasks: u64,
    /// Time of all of them.
    pub duration_ns: u64,
}

/// A distribution of durations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct Durations {
    /// Number of durations.
    pub count: u64,
    /// The shortest.
    pub min_ns: u64,
    /// The median.
    pub p50_ns: u64,
    /// The 90th percentile.
    pub p90_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// The mean, exact.
    pub mean_ns: u64,
    /// The sum, exact.
    pub total_ns: u64,
}

/// Answer of `/api/v1/tasks/compare`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct TaskComparisonAnswer {
    /// The range of the side before.
    pub before: TimeRange,
    /// The range of the side after.
    pub after: TimeRange,
    /// Largest expected share of false alarms among the changes that exceed noise.
    pub false_alarms: f64,
    /// Number of changes that had enough tasks to exceed noise.
    pub tests: u64,
    /// Files of the store that could not be read.
    pub corrupt_files: Vec<String>,
    /// Those that got slower first.
    pub names: Vec<NameComparison>,
    /// Number of names past the limit.
    pub omitted: u64,
}

/// The tasks of one name on both sides of a comparison.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct NameComparison {
    /// The name.
    pub name: String,
    /// About its durations: `slower`, `faster`, `mixed` (one quantile slower, another one faster),
    /// `no_change` (none beyond noise), `too_few`, `only_before` or `only_after`.
    #[cfg_attr(
        test,
        ts(
            type = "'slower' | 'faster' | 'mixed' | 'no_change' | 'too_few' | 'only_before' | 'only_after'"
        )
    )]
    pub verdict: Word,
    /// The tasks that ended before.
    pub before: TaskStatistics,
    /// The tasks that ended after.
    pub after: TaskStatistics,
    /// Change of the median.
    pub p50: DurationChange,
    /// Change of the 90th percentile.
    pub p90: DurationChange,
    /// Change of the 99th percentile.
    pub p99: DurationChange,
    /// Change of the share of failures.
    pub failures: FailureChange,
}

/// Tasks that ended on one side of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct TaskStatistics {
    /// Number of tasks that ended.
    pub ended: u64,
    /// Of these, failed, panicked or lost ones.
    pub failed: u64,
    /// The median; `None` without durations.
    pub p50_ns: Option<u64>,
    /// The 90th percentile.
    pub p90_ns: Option<u64>,
    /// The 99th percentile.
    pub p99_ns: Option<u64>,
}

/// Change of one quantile of durations.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct DurationChange {
    /// After minus before; `None` if a side has no durations.
    pub change_ns: Option<i64>,
    /// After by before; `None` without a duration before.
    pub ratio: Option<f64>,
    /// Probability of such a difference between equal sides; `None` if a side has no durations.
    pub p_value: Option<f64>,
    /// `slower` or `faster` if it exceeds noise, else `no_change` or `too_few`.
    #[cfg_attr(test, ts(type = "'slower' | 'faster' | 'no_change' | 'too_few'"))]
    #[cfg_attr(test, schemars(extend("examples" = ["slower", "faster", "no_change", "too_few"])))]
    pub verdict: Word,
}

/// Change of the share of failures.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct FailureChange {
    /// Failed of ended tasks before; `None` without any.
    pub before_share: Option<f64>,
    /// Failed of ended tasks after; `None` without any.
    pub after_share: Option<f64>,
    /// Probability of such a difference between equal sides; `None` without failures.
    pub p_value: Option<f64>,
    /// `more` or `fewer` if it exceeds noise, else `no_change` or `too_few`.
    #[cfg_attr(test, ts(type = "'more' | 'fewer' | 'no_change' | 'too_few'"))]
    #[cfg_attr(test, schemars(extend("examples" = ["more", "fewer", "no_change", "too_few"])))]
    pub verdict: Word,
}

/// Answer of `/api/v1/tasks/durations`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct TaskDurationsAnswer {
    /// The range of the answer.
    pub range: TimeRange,
    /// Length of a step.
    pub step_ns: u64,
    /// Files of the store that could not be read.
    pub corrupt_files: Vec<String>,
    /// Steps in which tasks ended, in order.
    pub points: Vec<DurationPoint>,
}

/// The tasks that ended in one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct DurationPoint {
    /// Start of the step, since the Unix epoch.
    pub start_ns: i64,
    /// Number of tasks that ended.
    pub ended: u64,
    /// Of these, failed, panicked or lost ones.
    pub failed: u64,
    /// The median; `None` without durations.
    pub p50_ns: Option<u64>,
    /// The 90th percentile.
    pub p90_ns: Option<u64>,
    /// The 99th percentile.
    pub p99_ns: Option<u64>,
}

/// Answer of `/api/v1/progress`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct ProgressAnswer {
    /// By the collector's clock.
    pub now: String,
    /// By the collector's clock, since the Unix epoch.
    pub now_ns: i64,
    /// Files of the store that could not be read.
    pub corrupt_files: Vec<String>,
    /// By name.
    pub names: Vec<Progress>,
    /// Number of names that are not counted: too many are expected since different times, and these
    /// since the earliest.
    pub omitted: u64,
}

/// Progress of the tasks of one name.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
pub struct Progress {
    /// The name.
    pub name: String,
    /// Number of tasks that workers expect.
    pub expected: Option<u64>,
    /// Tasks that ended well.
    pub done: u64,
    /// Tasks that run.
    pub running: u64,
    /// Tasks that failed or panicked.
    pub failed: u64,
    /// Tasks whose worker is gone.
    pub lost: u64,
    /// Tasks that were cancelled.
    pub cancelled: u64,
    /// Since when they are counted.
    pub since: String,
    /// Since when they are counted, since the Unix epoch.
    pub since_ns: i64,
    /// Tasks that end per second.
    pub rate_per_s: Option<f64>,
    /// Time until all expected tasks have ended, at that rate.
    pub remaining_ns: Option<u64>,
    /// `running`, `done` or `failed`.
    #[cfg_attr(test, ts(type = "'running' | 'done' | 'failed'"))]
    #[cfg_attr(test, schemars(extend("examples" = ["running", "done", "failed"])))]
    pub state: Word,
}
