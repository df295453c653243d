//! Timelines: each task's time, step by step.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use profiler_core::{Filter, FrameKind, NodeId, State, StateSet, TimeRange, Timestamp, Weight};

use crate::Queries;
use crate::QueryError;
use crate::parameters::parameter::{Parameter, Parameters};
use crate::parameters::params::{Filters, Params};
use crate::parameters::range::{RANGE, asked_range, parse_step_ns};
use crate::parameters::table_format::TableFormat;
use crate::profiles::profile::Provenance;
use crate::profiles::profile::windows_in;
use crate::table_reader::{Cancel, ScanFilter, TableReader};
use crate::tasks::phases::parse_phases;
use base::limits::{TIMELINE_SERIES_MAX, TIMELINE_STEPS_MAX};
use base::sync::read;
use state::CollectorState;
use state::tree::{PhaseFilter, TopNode};
use state::windows::WindowSnapshot;
use store::rows::StoredWindow;
use store::{Column, SumTable, Tier, WorkerNumber};

/// Default steps: the first that is not too small is used.
const STEPS_S: [u64; 14] = [
    1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 86_400,
];

/// A query for a timeline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimelineQuery {
    pub range: TimeRange,
    pub filter: Filter,
    /// The phases of tasks to keep.
    pub phases: PhaseFilter,
    pub step_ns: u64,
    /// `None` is JSON.
    pub format: Option<TableFormat>,
}

/// The length of steps, of which [`TIMELINE_STEPS_MAX`] are allowed.
const STEP: Parameter = Parameter::span(
    "step",
    "10s",
    "Length of a step; at most 4,000 steps. Default: the smallest of 1 s, 2 s, 5 s, … that fits.",
);

impl TimelineQuery {
    pub const PARAMETERS: Parameters = &[
        &RANGE,
        &Filters::PARAMETERS,
        &[STEP, TableFormat::PARAMETER],
    ];

    /// Parses the parameters; relative times are relative to `now`.
    pub fn parse(
        pairs: &[(String, String)],
        state: &CollectorState,
        now: Timestamp,
    ) -> Result<TimelineQuery, QueryError> {
        let params = Params::of(pairs, TimelineQuery::PARAMETERS)?;
        let (range, _) = asked_range(&params, state, now)?;
        let step_ns = match params.one("step")? {
            Some(text) => parse_step_ns(text, |step_ns| Steps::new(range, step_ns).count)?,
            None => chosen_step_ns(range, TIMELINE_STEPS_MAX),
        };
        let phases = parse_phases(&params, state)?;
        let format = params.choice("format", &TableFormat::CHOICES)?;
        let filter = Filters::parse(&params, state)?;
        Ok(TimelineQuery {
            range,
            step_ns,
            filter,
            phases,
            format,
        })
    }

    /// A query for all phases.
    pub(crate) fn of(
        range: TimeRange,
        filter: Filter,
        step_ns: u64,
    ) -> Result<TimelineQuery, QueryError> {
        let steps = Steps::new(range, step_ns).count;
        if steps > TIMELINE_STEPS_MAX {
            let step = format!("{} s", step_ns as f64 / 1e9);
            return Err(QueryError::Steps {
                step,
                steps,
                limit: TIMELINE_STEPS_MAX,
            });
        }
        Ok(TimelineQuery {
            range,
            filter,
            phases: PhaseFilter::All,
            step_ns,
            format: None,
        })
    }
}

/// The smallest default step of which at most `steps_max` cover the range.
pub(crate) fn chosen_step_ns(range: TimeRange, steps_max: u64) -> u64 {
    let steps = STEPS_S.into_iter().map(|seconds| seconds * 1_000_000_000);
    // Two fewer than the limit, for the partial steps at both ends.
    steps
        .clone()
        .find(|step_ns: &u64| Steps::new(range, *step_ns).count <= steps_max)
        .unwrap_or(range.length_ns() / (steps_max - 2) + 1)
}

/// Steps that cover a range. They start at multiples of their length since the Unix epoch, so that
/// a moving range keeps its steps; the first and last may be partial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Steps {
    pub(crate) first: Timestamp,
    step_ns: u64,
    pub(crate) count: u64,
}

impl Steps {
    pub(crate) fn new(range: TimeRange, step_ns: u64) -> Steps {
        let step = i128::from(step_ns);
        let start = i128::from(range.start().unix_ns()).div_euclid(step) * step;
        let length = i128::from(range.stop().unix_ns()) - start;
        let count = u64::try_from((length + step - 1) / step).unwrap_or(u64::MAX);
        let first = i64::try_from(start).unwrap_or(i64::MIN);
        Steps {
            first: Timestamp::from_unix_ns(first),
            step_ns,
            count,
        }
    }

    pub(crate) fn index(&self, time: Timestamp) -> usize {
        let index = time.since_ns(self.first) / self.step_ns;
        usize::try_from(index.min(self.count - 1)).expect("there are few steps")
    }
}

/// One series of a timeline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Series {
    /// `None` for the sum of the series past the limit.
    pub kind: Option<FrameKind>,
    pub name: String,
    /// One per step.
    pub weights: Vec<Weight>,
}

/// A timeline, the heaviest series first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimelineAnswer {
    pub first: Timestamp,
    pub step_ns: u64,
    pub steps: u64,
    pub series: Vec<Series>,
    /// The number of series in the last one, if some were past the limit.
    pub others: usize,
    pub facts: Provenance,
}

impl Queries<'_> {
    /// Sums, for each step, the windows that start in it and in the range, by first-level node.
    pub fn timeline(
        &self,
        query: &TimelineQuery,
        cancel: &Cancel,
    ) -> Result<TimelineAnswer, QueryError> {
        let TimelineQuery {
            range,
            filter,
            phases,
            step_ns,
            ..
        } = query;
        let coarsest = coarsest_in(*step_ns);
        let (mut stored, view) = TableReader::of(
            self,
            cancel,
            *range,
            |state, seconds| windows_in(state, seconds, filter),
            |held, seconds| held.plan_in(seconds, coarsest),
        );
        let tops = read(&self.tree).tops_kept(filter);
        let numbers = stored.worker_numbers(&filter.workers);
        let nodes = phases.nodes(&self.tree);
        let kept = RowFilter {
            states: filter.states,
            nodes: nodes.as_deref(),
        };
        let visit_all = |stored: &mut TableReader<'_>, visit: &mut Visit<'_>| {
            visit_windows(&view.windows, &tops, kept, visit);
            visit_stored(stored, &tops, numbers.as_deref(), kept, visit)
        };
        let steps = Steps::new(*range, *step_ns);
        // First the weight of each series, in the fewest periods, so that only displayed ones take
        // memory.
        let plan = stored.plan.clone();
        stored.coarsen();
        let mut totals = vec![Weight::ZERO; tops.len()];
        visit_all(&mut stored, &mut |_, top, weight| totals[top] += *weight)?;
        stored.plan = plan;
        let (mut series, line_of, others) = lines(&tops, &totals);
        for line in &mut series {
            line.weights = vec![Weight::ZERO; steps.count as usize];
        }
        visit_all(&mut stored, &mut |start, top, weight| {
            if let Some(line) = line_of[top] {
                series[line].weights[steps.index(start)] += *weight;
            }
        })?;
        Ok(TimelineAnswer {
            first: steps.first,
            step_ns: *step_ns,
            steps: steps.count,
            series,
            others,
            facts: Provenance::of(stored, view, *range, numbers.as_deref())?,
        })
    }
}

impl Queries<'_> {
    /// The starts of the plan's periods in which any of the tasks `tops` has time in the phases.
    pub(crate) fn busy_starts(
        &self,
        phases: &PhaseFilter,
        stored: &mut TableReader<'_>,
        view: &WindowSnapshot,
        tops: &[TopNode],
        numbers: Option<&[WorkerNumber]>,
    ) -> Result<BTreeSet<Timestamp>, QueryError> {
        let nodes = phases.nodes(&self.tree);
        let kept = RowFilter {
            states: StateSet::ALL,
            nodes: nodes.as_deref(),
        };
        let mut starts = BTreeSet::new();
        let mut visit = |start: Timestamp, _: usize, _: &Weight| {
            starts.insert(start);
        };
        visit_windows(&view.windows, tops, kept, &mut visit);
        visit_stored(stored, tops, numbers, kept, &mut visit)?;
        Ok(starts)
    }
}

/// The coarsest tier whose periods each lie in one step.
pub(crate) fn coarsest_in(step_ns: u64) -> Tier {
    Tier::ALL
        .into_iter()
        .rev()
        .find(|tier: &Tier| step_ns.is_multiple_of(u64::from(tier.seconds()) * 1_000_000_000))
        .unwrap_or(Tier::Second)
}

/// The rows to keep, in addition to task and worker.
#[derive(Clone, Copy)]
struct RowFilter<'a> {
    states: StateSet,
    /// By node of the tree, whether it is in a requested phase; `None`: all are.
    nodes: Option<&'a [bool]>,
}

impl RowFilter<'_> {
    fn has_node(&self, node: u32) -> bool {
        self.nodes
            .is_none_or(|nodes| nodes.get(node as usize).is_some_and(|kept| *kept))
    }
}

/// Called with the start of a period, the index of a first-level node, and some of its time.
type Visit<'a> = dyn FnMut(Timestamp, usize, &Weight) + 'a;

/// Sums neighboring rows of the same time and node, so that each is looked up once.
struct NeighborSums<'a, 'v> {
    at: Option<(Timestamp, usize)>,
    weight: Weight,
    visit: &'a mut Visit<'v>,
}

impl<'a, 'v> NeighborSums<'a, 'v> {
    fn new(visit: &'a mut Visit<'v>) -> NeighborSums<'a, 'v> {
        NeighborSums {
            at: None,
            weight: Weight::ZERO,
            visit,
        }
    }

    #[inline]
    fn add(&mut self, at: (Timestamp, usize), state: State, nanoseconds: u64) {
        if self.at != Some(at) {
            self.end();
            self.at = Some(at);
        }
        self.weight.count(state, nanoseconds);
    }

    fn end(&mut self) {
        if let Some((start, top)) = self.at.take() {
            (self.visit)(start, top, &std::mem::take(&mut self.weight));
        }
    }
}

/// Visits the rows in tables.
fn visit_stored(
    stored: &mut TableReader<'_>,
    tops: &[TopNode],
    numbers: Option<&[WorkerNumber]>,
    kept: RowFilter<'_>,
    visit: &mut Visit<'_>,
) -> Result<(), QueryError> {
    let tasks: Vec<NodeId> = tops.iter().map(|top| top.node).collect();
    // Totals by task have no phases.
    let by_node = kept.nodes.is_some();
    let columns: &[Column] = match (by_node, numbers) {
        (true, _) => &[Column::Task, Column::Worker, Column::Kind, Column::Node],
        (false, Some(_)) => &[Column::Task, Column::Worker, Column::Kind],
        (false, None) => &[Column::Task, Column::Kind],
    };
    let asked = ScanFilter {
        tasks: Some(&tasks),
        workers: numbers,
        columns,
    };
    let mut runs = NeighborSums::new(visit);
    stored.scan(
        |_| {
            if by_node {
                SumTable::Samples
            } else {
                SumTable::Totals
            }
        },
        asked,
        |batch, rows| {
            // Rows of a task are neighbors, and so are those of a period of it.
            let mut last = (0, None);
            rows.each(|index| {
                let task = batch.task[index];
                if last.0 != task {
                    last = (task, tasks.binary_search(&NodeId(task)).ok());
                }
                let state = State::ALL.get(usize::from(batch.kind[index]));
                if let (Some(top), Some(state)) = (last.1, state)
                    && kept.states.contains(*state)
                    && (!by_node || kept.has_node(batch.node[index]))
                {
                    runs.add((rows.start(index), top), *state, batch.values[index]);
                }
            });
            runs.end();
        },
    )
}

/// Visits the unsealed windows, as [`visit_stored`] does.
fn visit_windows(
    windows: &[Arc<StoredWindow>],
    tops: &[TopNode],
    kept: RowFilter<'_>,
    visit: &mut Visit<'_>,
) {
    let mut runs = NeighborSums::new(visit);
    for stored in windows {
        let start = stored.second().start();
        for part in stored
            .samples
            .parts()
            .filter(|part| kept.states.contains(part.state))
        {
            let Ok(top) = tops.binary_search_by_key(&part.task, |top| top.node) else {
                continue;
            };
            for (_, nanoseconds) in part.entries().filter(|(node, _)| kept.has_node(node.0)) {
                runs.add((start, top), part.state, nanoseconds);
            }
        }
    }
    runs.end();
}

/// Series for the heaviest first-level nodes and one for the rest; the series of each node with
/// weight; and the number of nodes in the last series.
fn lines(tops: &[TopNode], totals: &[Weight]) -> (Vec<Series>, Vec<Option<usize>>, usize) {
    let mut order: Vec<usize> = (0..totals.len())
        .filter(|top| !totals[*top].is_zero())
        .collect();
    order.sort_by_key(|top| {
        (
            Reverse(totals[*top].total_ns()),
            tops[*top].kind,
            &tops[*top].name,
            *top,
        )
    });
    let mut line_of = vec![None; totals.len()];
    for (line, top) in order.iter().enumerate() {
        line_of[*top] = Some(line.min(TIMELINE_SERIES_MAX));
    }
    let shown = order.iter().take(TIMELINE_SERIES_MAX).map(|top| {
        let TopNode { kind, name, .. } = &tops[*top];
        Series {
            kind: Some(*kind),
            name: name.to_string(),
            weights: Vec::new(),
        }
    });
    let mut series: Vec<Series> = shown.collect();
    let others = order.len() - series.len();
    if others > 0 {
        series.push(Series {
            kind: None,
            name: "[other]".to_owned(),
            weights: Vec::new(),
        });
    }
    (series, line_of, others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_step_is_the_smallest_that_fits() {
        const SECOND_NS: i64 = 1_000_000_000;
        check_step(0, 1, 1);
        check_step(999_999_999, SECOND_NS + 1, 1);
        check_step(0, 4_000 * SECOND_NS, 1);
        check_step(-1, 3_999 * SECOND_NS, 1);
        check_step(-1, 4_000 * SECOND_NS, 2);
        check_step(0, 86_400 * SECOND_NS, 30);
        check_step(0, 1_769_860_800 * SECOND_NS, 442_686);
    }

    fn check_step(from_ns: i64, to_ns: i64, expected: u64) {
        let [from, to] = [from_ns, to_ns].map(Timestamp::from_unix_ns);
        let range = TimeRange::new(from, to).unwrap();
        let step_ns = chosen_step_ns(range, TIMELINE_STEPS_MAX);
        let steps = Steps::new(range, step_ns);
        assert!((1..=TIMELINE_STEPS_MAX).contains(&steps.count), "{steps:?}");
        assert_eq!(step_ns / 1_000_000_000, expected);
        assert!(
            steps.first <= from && from.since_ns(steps.first) < step_ns,
            "{steps:?}"
        );
        let last = steps.index(to.shifted(-1)) as u64;
        assert_eq!((steps.index(from), last), (0, steps.count - 1));
    }
}
