//! Time by step, for each value of some labels.

use std::cmp::Reverse;

use profiler_core::{Filter, StateSet, TimeRange, Timestamp, Weight};

use crate::Queries;
use crate::QueryError;
use crate::parameters::label_matchers::LabelMatchers;
use crate::parameters::label_scope::{LabelScope, TASK_LABEL};
use crate::profiles::timeline::{Steps, TimelineAnswer, TimelineQuery};
use crate::table_reader::Cancel;
use base::limits::GROUPS_MAX;

const SECOND_NS: f64 = 1e9;

/// A query for series.
#[derive(Clone, Debug)]
pub struct LabelSeriesQuery {
    range: TimeRange,
    matchers: LabelMatchers,
    states: StateSet,
    /// Names of labels; without any there is one series.
    group_by: Vec<String>,
    step_ns: u64,
    /// Most series, the heaviest.
    limit: usize,
}

impl LabelSeriesQuery {
    /// The step is in seconds.
    pub fn new(
        range: TimeRange,
        matchers: LabelMatchers,
        states: StateSet,
        step_s: f64,
    ) -> Result<LabelSeriesQuery, QueryError> {
        if step_s.is_nan() || step_s < 1.0 {
            return Err(QueryError::StepSeconds { seconds: step_s });
        }
        let step_ns = (step_s * SECOND_NS).round() as u64;
        let group_by = Vec::new();
        Ok(LabelSeriesQuery {
            range,
            matchers,
            states,
            group_by,
            step_ns,
            limit: usize::MAX,
        })
    }

    pub fn by(self, group_by: Vec<String>, limit: usize) -> LabelSeriesQuery {
        LabelSeriesQuery {
            group_by,
            limit,
            ..self
        }
    }
}

/// The series of some values of labels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LabelSeries {
    pub labels: Vec<(String, String)>,
    /// Nanoseconds, one sum for each step.
    pub sums: Vec<u64>,
}

impl LabelSeries {
    fn total(&self) -> u64 {
        self.sums
            .iter()
            .fold(0, |total, sum| total.saturating_add(*sum))
    }
}

/// Series, the heaviest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LabelSeriesAnswer {
    pub first: Timestamp,
    pub step_ns: u64,
    pub series: Vec<LabelSeries>,
}

impl Queries<'_> {
    /// Sums the time of each group of workers, or of workers and tasks, by step.
    pub fn label_series(
        &self,
        query: &LabelSeriesQuery,
        cancel: &Cancel,
    ) -> Result<LabelSeriesAnswer, QueryError> {
        let by_worker: Vec<String> = query
            .group_by
            .iter()
            .filter(|name| **name != TASK_LABEL)
            .cloned()
            .collect();
        let by_task = by_worker.len() < query.group_by.len();
        let scope = LabelScope::new(self, query.matchers.clone());
        let mut series = Vec::new();
        if let Some(filter) = scope.filter(self, query.states)? {
            let groups = if by_worker.is_empty() {
                vec![(Vec::new(), filter.workers.clone())]
            } else {
                scope.groups(&by_worker).into_iter().collect()
            };
            if groups.len() > GROUPS_MAX {
                let count = groups.len();
                return Err(QueryError::LabelGroups {
                    labels: by_worker,
                    count,
                    limit: GROUPS_MAX,
                });
            }
            for (labels, workers) in groups {
                let filter = Filter {
                    workers,
                    ..filter.clone()
                };
                let timeline = TimelineQuery::of(query.range, filter, query.step_ns)?;
                let timeline = self.timeline(&timeline, cancel)?;
                if by_task {
                    series.extend(of_tasks(&labels, timeline));
                } else {
                    series.push(LabelSeries {
                        labels,
                        sums: sums(&timeline),
                    });
                }
            }
        }
        series.sort_by_cached_key(|series| (Reverse(series.total()), series.labels.clone()));
        series.truncate(query.limit);
        let first = Steps::new(query.range, query.step_ns).first;
        Ok(LabelSeriesAnswer {
            first,
            step_ns: query.step_ns,
            series,
        })
    }
}

/// A series for each task of a group.
fn of_tasks(
    labels: &[(String, String)],
    timeline: TimelineAnswer,
) -> impl Iterator<Item = LabelSeries> {
    timeline.series.into_iter().map(move |series| {
        let mut labels = labels.to_vec();
        labels.push((TASK_LABEL.to_owned(), series.name));
        LabelSeries {
            labels,
            sums: series.weights.iter().map(Weight::total_ns).collect(),
        }
    })
}

/// The sums of all tasks by step.
fn sums(timeline: &TimelineAnswer) -> Vec<u64> {
    let mut sums = vec![0u64; timeline.steps as usize];
    for series in &timeline.series {
        for (sum, weight) in sums.iter_mut().zip(&series.weights) {
            *sum = sum.saturating_add(weight.total_ns());
        }
    }
    sums
}
