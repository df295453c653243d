//! Durations of tasks over time, step by step.

use profiler_core::{TimeRange, Timestamp};

use crate::Queries;
use crate::QueryError;
use crate::parameters::parameter::{Parameter, Parameters, names};
use crate::parameters::params::{LABEL, Params, TASK, WORKER, known_tasks, known_workers};
use crate::parameters::range::{RANGE, asked_range};
use crate::profiles::step_sums::Steps;
use crate::profiles::timeline::{chosen_step_ns, coarsest_in, parse_period_step_ns};
use crate::table_reader::Cancel;
use crate::tasks::ended_each::EndedTasks;
use base::limits::DURATION_STEPS_DEFAULT;
use state::CollectorState;
use state::ledger::{DurationHistogram, TaskFilter};

/// The quantiles of an answer.
pub(crate) const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];

/// A query for durations over time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskDurationsQuery {
    pub(crate) range: TimeRange,
    pub(crate) filter: TaskFilter,
    pub(crate) step_ns: u64,
    pub format: DurationsFormat,
}

/// The format of an answer with durations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DurationsFormat {
    /// Quantiles of all tasks together.
    Json,
    /// A log of histograms by name.
    HistogramLog,
}

impl DurationsFormat {
    const CHOICES: [(&'static str, DurationsFormat); 2] = [
        ("json", DurationsFormat::Json),
        ("hlog", DurationsFormat::HistogramLog),
    ];
}

impl TaskDurationsQuery {
    pub const PARAMETERS: Parameters = &[
        &RANGE,
        &[
            TASK,
            WORKER,
            LABEL,
            Parameter::span(
                "step",
                "10s",
                "Length of a step; at most 4,000 steps. Default: the smallest of 1 s, 2 s, 5 s, … of which at most 200 fit.",
            ),
            Parameter::choice(
                "format",
                || names(&DurationsFormat::CHOICES),
                "hlog",
                "`hlog` is a log of HdrHistograms by name.",
            )
            .default("json"),
        ],
    ];

    /// Parses the parameters; relative times are relative to `now`.
    pub fn parse(
        pairs: &[(String, String)],
        state: &CollectorState,
        now: Timestamp,
    ) -> Result<TaskDurationsQuery, QueryError> {
        let params = Params::of(pairs, TaskDurationsQuery::PARAMETERS)?;
        let (range, _) = asked_range(&params, state, now)?;
        let step_ns = match params.one("step")? {
            Some(text) => parse_period_step_ns(text, range)?,
            None => chosen_step_ns(range, DURATION_STEPS_DEFAULT),
        };
        let filter = TaskFilter {
            names: known_tasks(&params, state)?,
            workers: known_workers(&params, state)?,
            ..TaskFilter::default()
        };
        let format = params.choice("format", &DurationsFormat::CHOICES)?;
        Ok(TaskDurationsQuery {
            range,
            filter,
            step_ns,
            format,
        })
    }
}

/// Durations over time. Steps in which no task ended have no point.
#[derive(Clone, PartialEq, Debug)]
pub struct TaskDurations {
    pub range: TimeRange,
    pub step_ns: u64,
    pub points: Vec<api::DurationPoint>,
    pub damaged: Vec<String>,
}

/// The tasks of one step.
#[derive(Clone, Default)]
struct Step {
    durations: DurationHistogram,
    ended: u64,
    failed: u64,
}

impl Queries<'_> {
    /// Quantiles of the durations of the tasks that ended in each step.
    pub fn task_durations(
        &self,
        query: &TaskDurationsQuery,
        cancel: &Cancel,
    ) -> Result<TaskDurations, QueryError> {
        let TaskDurationsQuery {
            range,
            filter,
            step_ns,
            ..
        } = query;
        let mut ended = EndedTasks::of(self, *range, filter, coarsest_in(*step_ns), cancel);
        let layout = Steps::new(*range, *step_ns);
        let mut steps = vec![Step::default(); layout.count as usize];
        ended.each(|group| {
            let step = &mut steps[layout.index(group.at)];
            let count = group.count();
            step.ended = step.ended.saturating_add(count);
            if group.is_failure() {
                step.failed = step.failed.saturating_add(count);
            }
            if group.is_timed() {
                step.durations.add_to_buckets(group.counts.iter().copied());
            }
        })?;
        let points = steps
            .iter()
            .zip(0i64..)
            .filter(|(step, _)| step.ended > 0)
            .map(|(step, index)| {
                let [p50_ns, p90_ns, p99_ns] = quantiles_ns(&step.durations);
                let start = layout.first.shifted(index.saturating_mul(*step_ns as i64));
                api::DurationPoint {
                    start_ns: start.unix_ns(),
                    ended: step.ended,
                    failed: step.failed,
                    p50_ns,
                    p90_ns,
                    p99_ns,
                }
            })
            .collect();
        let range = ended.range(*range);
        Ok(TaskDurations {
            range,
            step_ns: *step_ns,
            points,
            damaged: ended.damaged(),
        })
    }
}

/// The [`QUANTILES`], if there are durations.
pub(crate) fn quantiles_ns(durations: &DurationHistogram) -> [Option<u64>; QUANTILES.len()] {
    match durations.quantiles_ns(QUANTILES) {
        Some(found) => found.map(Some),
        None => [None; QUANTILES.len()],
    }
}
