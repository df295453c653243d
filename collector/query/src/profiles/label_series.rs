//! Time by step, for each value of some labels.

use std::cmp::Reverse;

use profiler_core::hash::KeyedMap;
use profiler_core::{Filter, StateSet, TimeRange, Timestamp, Weight};

use crate::Queries;
use crate::QueryError;
use crate::parameters::label_matchers::LabelMatchers;
use crate::parameters::label_scope::{LabelScope, TASK_LABEL};
use crate::profiles::cycles::Cycles;
use crate::profiles::profile::windows_in;
use crate::profiles::step_sums::{Cell, StepScan, Steps, WorkerGroups};
use crate::profiles::timeline::{coarsest_in, period_ns, rounded_step_ns};
use crate::table_reader::{Cancel, TableReader};
use base::limits::{SERIES_MAX, SERIES_STEPS_MAX};
use base::sync::read;
use state::tree::TopNode;

const SECOND_NS: f64 = 1e9;

/// The value of the labels of all series past a limit, and the label that has their number.
const OTHERS: &str = "[other]";
const OTHERS_LABEL: &str = "others";

/// A query for series.
#[derive(Clone, Debug)]
pub struct LabelSeriesQuery {
    range: TimeRange,
    matchers: LabelMatchers,
    states: StateSet,
    /// Names of labels; without any there is one series.
    group_by: Vec<String>,
    step_ns: u64,
    /// Most series, the heaviest; the others are one more.
    limit: usize,
}

impl LabelSeriesQuery {
    /// The step is in seconds. It is rounded up if its time would have to be read in too small periods.
    pub fn new(
        range: TimeRange,
        matchers: LabelMatchers,
        states: StateSet,
        step_s: f64,
    ) -> Result<LabelSeriesQuery, QueryError> {
        if step_s.is_nan() || step_s < 1.0 {
            return Err(QueryError::StepSeconds { seconds: step_s });
        }
        let step_ns = rounded_step_ns(range, (step_s * SECOND_NS).round() as u64);
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
    fn total_ns(&self) -> u64 {
        self.sums
            .iter()
            .fold(0, |sum, step| sum.saturating_add(*step))
    }
}

/// The series of an answer, without their sums.
struct Shown {
    series: Vec<LabelSeries>,
    /// The place of each line among the series.
    place_of: Lines<u32>,
    /// Whether the heaviest come first; else they are in the order of their labels.
    is_sorted: bool,
}

/// Series, the heaviest first. The last one is the sum of those past the limit, if there are any.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LabelSeriesAnswer {
    pub first: Timestamp,
    pub step_ns: u64,
    pub series: Vec<LabelSeries>,
}

impl Queries<'_> {
    /// Sums the time of each group of workers, or of workers and tasks, by step, in one pass over the range.
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
        let steps = Steps::checked(query.range, query.step_ns)?;
        let scope = LabelScope::new(self, query.matchers.clone());
        let series = match scope.filter(self, query.states)? {
            Some(filter) => {
                let groups = Groups::of(&scope, by_worker, by_task)?;
                self.series_of(query, steps, &filter, &groups, cancel)?
            }
            None => Vec::new(),
        };
        Ok(LabelSeriesAnswer {
            first: steps.first,
            step_ns: query.step_ns,
            series,
        })
    }

    fn series_of(
        &self,
        query: &LabelSeriesQuery,
        steps: Steps,
        filter: &Filter,
        groups: &Groups,
        cancel: &Cancel,
    ) -> Result<Vec<LabelSeries>, QueryError> {
        let coarsest = coarsest_in(query.step_ns);
        let (mut stored, view) = TableReader::of(
            self,
            cancel,
            query.range,
            |state, seconds| windows_in(state, seconds, filter),
            |coverage, seconds| coverage.plan_in(seconds, coarsest),
        );
        let tops = read(&self.tree).tops_kept(filter);
        let numbers = stored.worker_numbers(&filter.workers);
        let cycles = Cycles::read(&mut stored, &view, numbers.as_deref())?;
        let long = cycles.long_windows(&stored, period_ns(coarsest));
        let workers = WorkerGroups::new(groups.workers.iter(), &stored);
        let scan = StepScan {
            tops: &tops,
            numbers: numbers.as_deref(),
            states: filter.states,
            nodes: None,
            groups: Some(&workers).filter(|_| groups.workers.len() > 1),
            node_groups: None,
            long: None,
        };
        let shown = match groups.all_shown(query, steps) {
            Some(shown) => shown,
            None => {
                // First the sum of each series, in the fewest periods, so that only those of the answer take memory.
                let plan = stored.plan.clone();
                stored.coarsen();
                let mut totals = groups.empty_lines();
                scan.visit(&mut stored, &view, &mut |cell, weight| {
                    totals.add(groups.line(cell), weight.total_ns());
                })?;
                stored.plan = plan;
                totals.heaviest(query, steps, groups, &tops)?
            }
        };
        let Shown {
            mut series,
            place_of,
            is_sorted,
        } = shown;
        let scan = scan.spreading(&long);
        scan.visit(&mut stored, &view, &mut |cell, weight| {
            if let Some(place) = place_of.get(groups.line(cell)) {
                let sums = &mut series[*place as usize].sums;
                steps.split(cell.start, cell.length_ns, weight, |step, part: Weight| {
                    sums[step] = sums[step].saturating_add(part.total_ns());
                });
            }
        })?;
        if !is_sorted {
            // Equal ones stay in the order of their labels.
            series.sort_by_cached_key(|series| Reverse(series.total_ns()));
        }
        Ok(series)
    }
}

/// A series before its labels are known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Line {
    group: usize,
    /// Index of the first-level node, if series are by task.
    top: Option<usize>,
}

/// A value of each line. Lines without tasks, of which a fleet has one for each worker, need no lookup.
struct Lines<T> {
    by_group: Vec<T>,
    by_task: KeyedMap<Line, T>,
}

impl<T: Default> Lines<T> {
    fn new(by_group: Vec<T>) -> Lines<T> {
        Lines {
            by_group,
            by_task: KeyedMap::default(),
        }
    }

    fn get(&self, line: Line) -> Option<&T> {
        match line.top {
            None => self.by_group.get(line.group),
            Some(_) => self.by_task.get(&line),
        }
    }

    fn set(&mut self, line: Line, value: T) {
        match line.top {
            None => self.by_group[line.group] = value,
            Some(_) => drop(self.by_task.insert(line, value)),
        }
    }
}

impl Lines<u64> {
    fn add(&mut self, line: Line, more: u64) {
        let sum = match line.top {
            None => &mut self.by_group[line.group],
            Some(_) => self.by_task.entry(line).or_default(),
        };
        *sum = sum.saturating_add(more);
    }

    /// The heaviest series.
    fn heaviest(
        self,
        query: &LabelSeriesQuery,
        steps: Steps,
        groups: &Groups,
        tops: &[TopNode],
    ) -> Result<Shown, QueryError> {
        let mut place_of = Lines::new(vec![0; self.by_group.len()]);
        let of_groups = self.by_group.into_iter().enumerate();
        let mut lines: Vec<(u64, Line)> = of_groups
            .map(|(group, total_ns)| (total_ns, Line { group, top: None }))
            .chain(
                self.by_task
                    .into_iter()
                    .map(|(line, total_ns)| (total_ns, line)),
            )
            .collect();
        // Groups are in the order of their labels.
        let name = |line: &Line| (line.group, line.top.map(|top| &tops[top].name));
        lines.sort_by(|a, b| (Reverse(a.0), name(&a.1)).cmp(&(Reverse(b.0), name(&b.1))));
        let shown = lines.len().min(query.limit).min(SERIES_MAX);
        let past = &lines[shown..];
        let others = past.iter().filter(|(total_ns, _)| *total_ns > 0).count();
        let count = shown + usize::from(others > 0);
        if count as u64 * steps.count > SERIES_STEPS_MAX {
            return Err(QueryError::SeriesSteps {
                series: count,
                steps: steps.count,
                limit: SERIES_STEPS_MAX,
            });
        }
        let mut labels: Vec<_> = lines[..shown]
            .iter()
            .map(|(_, line)| groups.labels(*line, tops))
            .collect();
        if others > 0 {
            labels.push(others_labels(&query.group_by, others));
        }
        for (place, (_, line)) in lines.into_iter().enumerate() {
            place_of.set(line, place.min(shown) as u32);
        }
        let sums = vec![0; steps.count as usize];
        let series = labels.into_iter().map(|labels| LabelSeries {
            labels,
            sums: sums.clone(),
        });
        Ok(Shown {
            series: series.collect(),
            place_of,
            is_sorted: true,
        })
    }
}

/// The labels of the sum of so many series.
fn others_labels(group_by: &[String], count: usize) -> Vec<(String, String)> {
    let others = group_by
        .iter()
        .map(|name| (name.clone(), OTHERS.to_owned()));
    others
        .chain([(OTHERS_LABEL.to_owned(), count.to_string())])
        .collect()
}

/// The groups of the workers of a scope.
struct Groups {
    labels: Vec<Vec<(String, String)>>,
    workers: Vec<Vec<String>>,
    by_task: bool,
}

impl Groups {
    fn of(scope: &LabelScope, by: Vec<String>, by_task: bool) -> Result<Groups, QueryError> {
        let groups = scope.groups(&by);
        // Each may have a series for each task.
        if by_task && groups.len() > SERIES_MAX {
            return Err(QueryError::LabelGroups {
                labels: by,
                count: groups.len(),
                limit: SERIES_MAX,
            });
        }
        let (labels, workers) = groups.into_iter().unzip();
        Ok(Groups {
            labels,
            workers,
            by_task,
        })
    }

    /// A series for each group, if an answer has room for all. Which are the heaviest need not be known before.
    fn all_shown(&self, query: &LabelSeriesQuery, steps: Steps) -> Option<Shown> {
        let count = self.labels.len();
        let has_room =
            count <= query.limit.min(SERIES_MAX) && count as u64 * steps.count <= SERIES_STEPS_MAX;
        if self.by_task || !has_room {
            return None;
        }
        let series = self.labels.iter().map(|labels| LabelSeries {
            labels: labels.clone(),
            sums: vec![0; steps.count as usize],
        });
        Some(Shown {
            series: series.collect(),
            place_of: Lines::new((0..count as u32).collect()),
            is_sorted: false,
        })
    }

    /// The series that an answer has even without time.
    fn empty_lines(&self) -> Lines<u64> {
        let count = if self.by_task { 0 } else { self.labels.len() };
        Lines::new(vec![0; count])
    }

    fn line(&self, cell: &Cell) -> Line {
        Line {
            group: cell.group,
            top: self.by_task.then_some(cell.top),
        }
    }

    fn labels(&self, line: Line, tops: &[TopNode]) -> Vec<(String, String)> {
        let mut labels = self.labels[line.group].clone();
        if let Some(top) = line.top {
            labels.push((TASK_LABEL.to_owned(), tops[top].name.to_string()));
        }
        labels
    }
}
