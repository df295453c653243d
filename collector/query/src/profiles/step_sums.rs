//! One pass over a range for all series of an answer: time by start, group of workers and task.

use std::ops::RangeInclusive;
use std::sync::Arc;

use profiler_core::hash::KeyedMap;
use profiler_core::{NodeId, State, StateSet, TimeRange, Timestamp, Weight, WorkerId};

use crate::QueryError;
use crate::profiles::cycles::LongWindows;
use crate::table_reader::{ScanFilter, TableReader};
use base::limits::TIMELINE_STEPS_MAX;
use state::tree::TopNode;
use state::windows::WindowSnapshot;
use store::rows::StoredWindow;
use store::{Column, SumTable, WorkerNumber};

const SECOND_NS: u64 = 1_000_000_000;

/// Steps that cover a range. They start at multiples of their length since the Unix epoch, so that
/// a moving range keeps its steps; the first and last may be partial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Steps {
    pub(crate) first: Timestamp,
    step_ns: u64,
    pub(crate) count: u64,
    range: TimeRange,
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
            range,
        }
    }

    /// The steps of an answer.
    ///
    /// # Errors
    /// If they are too many.
    pub(crate) fn checked(range: TimeRange, step_ns: u64) -> Result<Steps, QueryError> {
        let steps = Steps::new(range, step_ns);
        if steps.count > TIMELINE_STEPS_MAX {
            return Err(QueryError::Steps {
                step: format!("{} s", step_ns as f64 / 1e9),
                steps: steps.count,
                limit: TIMELINE_STEPS_MAX,
            });
        }
        Ok(steps)
    }

    pub(crate) fn index(&self, time: Timestamp) -> usize {
        let index = time.since_ns(self.first) / self.step_ns;
        usize::try_from(index.min(self.count - 1)).expect("there are few steps")
    }

    /// The start of a step.
    pub(crate) fn start(&self, index: usize) -> Timestamp {
        self.first
            .shifted(self.step_ns.saturating_mul(index as u64).cast_signed())
    }

    /// The steps in which a window has time: one if its length is 0, because it then counts at its start.
    pub(crate) fn touched(&self, start: Timestamp, length_ns: u64) -> RangeInclusive<usize> {
        if length_ns == 0 {
            return self.index(start)..=self.index(start);
        }
        let shown = ShownWindow::new(start, length_ns, self.range);
        self.index(shown.start)..=self.index(shown.stop().shifted(-1))
    }

    /// Calls `add` with each step in which a window has time, and with its time there.
    pub(crate) fn split(
        &self,
        start: Timestamp,
        length_ns: u64,
        weight: &Weight,
        mut add: impl FnMut(usize, Weight),
    ) {
        let steps = self.touched(start, length_ns);
        let shown = ShownWindow::new(start, length_ns, self.range);
        let mut reached = Weight::ZERO;
        for index in *steps.start()..*steps.end() {
            let before = shown.before(self.start(index + 1), weight);
            add(index, before.saturating_sub(reached));
            reached = before;
        }
        add(*steps.end(), weight.saturating_sub(reached));
    }
}

/// The part of a long window that is displayed: it ends with the answer's range, so that all of its time is in the range.
#[derive(Clone, Copy)]
struct ShownWindow {
    start: Timestamp,
    length_ns: u64,
}

impl ShownWindow {
    /// A window that starts in `range`.
    fn new(start: Timestamp, length_ns: u64, range: TimeRange) -> ShownWindow {
        let start = start.max(range.start());
        ShownWindow {
            start,
            length_ns: length_ns.min(range.stop().since_ns(start)).max(1),
        }
    }

    fn stop(&self) -> Timestamp {
        self.start.shifted(self.length_ns.cast_signed())
    }

    /// The time of the window before `end`. The differences of neighbors add up to the whole.
    fn before(&self, end: Timestamp, weight: &Weight) -> Weight {
        let elapsed_ns = end.since_ns(self.start).min(self.length_ns);
        weight.scaled(elapsed_ns, self.length_ns)
    }
}

/// The place of some time in an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cell {
    /// Start of its period.
    pub(crate) start: Timestamp,
    /// Length of its period.
    pub(crate) period_ns: u64,
    /// Length of the worker's windows if they are spread, else 0.
    pub(crate) length_ns: u64,
    /// Number in the tables of a worker whose windows are spread, else 0: the rounded parts of its windows are its own.
    worker: u32,
    /// Index of the group of its worker.
    pub(crate) group: usize,
    /// Index of the first-level node.
    pub(crate) top: usize,
    /// Group of its node, 0 if nodes have none.
    pub(crate) node_group: u32,
}

/// Groups of the tree's nodes, such as their phases.
pub(crate) struct NodeGroups {
    /// By node; 0 for nodes past the end.
    pub(crate) by_node: Vec<u32>,
    /// The table whose rows have these nodes: samples by stack, or threads.
    pub(crate) table: SumTable,
}

impl NodeGroups {
    #[inline]
    fn of(&self, node: u32) -> u32 {
        self.by_node.get(node as usize).copied().unwrap_or(0)
    }
}

/// Groups of workers, by index.
#[derive(Default)]
pub(crate) struct WorkerGroups {
    by_worker: KeyedMap<WorkerId, usize>,
    /// By number in the tables, from 1.
    by_number: Vec<Option<usize>>,
}

impl WorkerGroups {
    /// Groups without common workers.
    pub(crate) fn new<'a>(
        groups: impl Iterator<Item = &'a Vec<String>>,
        stored: &TableReader<'_>,
    ) -> WorkerGroups {
        let mut by_worker = KeyedMap::default();
        for (group, workers) in groups.enumerate() {
            for worker in workers {
                by_worker.insert(WorkerId(worker.as_str().into()), group);
            }
        }
        let ids = stored.all_workers();
        let by_number = ids.iter().map(|id| by_worker.get(id).copied()).collect();
        WorkerGroups {
            by_worker,
            by_number,
        }
    }

    /// A group for each worker of the tables and of the snapshot.
    pub(crate) fn of_each(
        stored: &TableReader<'_>,
        view: &WindowSnapshot,
        mut group: impl FnMut(&WorkerId) -> usize,
    ) -> WorkerGroups {
        let mut by_worker: KeyedMap<WorkerId, usize> = KeyedMap::default();
        for window in &view.windows {
            if !by_worker.contains_key(&window.worker) {
                by_worker.insert(window.worker.clone(), group(&window.worker));
            }
        }
        let ids = stored.all_workers();
        let by_number = ids.iter().map(|id| Some(group(id)));
        WorkerGroups {
            by_number: by_number.collect(),
            by_worker,
        }
    }

    pub(crate) fn of(&self, worker: &WorkerId) -> Option<usize> {
        self.by_worker.get(worker).copied()
    }

    #[inline]
    pub(crate) fn of_number(&self, number: u32) -> Option<usize> {
        let at = number.checked_sub(1)? as usize;
        self.by_number.get(at).copied().flatten()
    }
}

/// The time to visit.
#[derive(Clone, Copy)]
pub(crate) struct StepScan<'a> {
    /// The tasks, ascending by node.
    pub(crate) tops: &'a [TopNode],
    /// The workers; `None` for all.
    pub(crate) numbers: Option<&'a [WorkerNumber]>,
    pub(crate) states: StateSet,
    /// By node of the tree, whether it is in a requested phase; `None`: all are.
    pub(crate) nodes: Option<&'a [bool]>,
    /// `None` is one group of all workers.
    pub(crate) groups: Option<&'a WorkerGroups>,
    /// `None` is one group of all nodes.
    pub(crate) node_groups: Option<&'a NodeGroups>,
    /// `None`: all windows count at their starts.
    pub(crate) long: Option<&'a LongWindows>,
}

/// Called with a cell and some of its time.
pub(crate) type Visit<'a> = dyn FnMut(&Cell, &Weight) + 'a;

impl<'a> StepScan<'a> {
    /// The same time, with these windows spread over their length.
    pub(crate) fn spreading(self, long: &'a LongWindows) -> StepScan<'a> {
        let long = Some(long).filter(|long| !long.is_empty());
        StepScan { long, ..self }
    }

    /// Visits the windows of a snapshot and the rows of the plan's periods.
    pub(crate) fn visit(
        self,
        stored: &mut TableReader<'_>,
        view: &WindowSnapshot,
        visit: &mut Visit<'_>,
    ) -> Result<(), QueryError> {
        self.visit_windows(&view.windows, visit);
        self.visit_stored(stored, visit)
    }

    /// Visits the windows of a snapshot.
    pub(crate) fn visit_windows(self, windows: &[Arc<StoredWindow>], visit: &mut Visit<'_>) {
        let mut sums = NeighborSums::new(visit);
        for window in windows {
            let start = window.second().start();
            let length_ns = self.long.map_or(0, |long| long.of(&window.worker));
            let group = self
                .groups
                .map_or(Some(0), |groups| groups.of(&window.worker));
            let Some(group) = group else { continue };
            let times = match self.table() {
                SumTable::Threads => &window.threads,
                _ => &window.samples,
            };
            for part in times
                .parts()
                .filter(|part| self.states.contains(part.state))
            {
                let top = self.tops.binary_search_by_key(&part.task, |top| top.node);
                let Ok(top) = top else { continue };
                let cell = Cell {
                    start,
                    period_ns: SECOND_NS,
                    length_ns,
                    worker: 0,
                    group,
                    top,
                    node_group: 0,
                };
                for (node, nanoseconds) in part.entries().filter(|(node, _)| self.has_node(node.0))
                {
                    let node_group = self.node_groups.map_or(0, |groups| groups.of(node.0));
                    sums.add(Cell { node_group, ..cell }, part.state, nanoseconds);
                }
            }
            sums.end();
        }
    }

    /// Visits the rows of the plan's periods.
    pub(crate) fn visit_stored(
        self,
        stored: &mut TableReader<'_>,
        visit: &mut Visit<'_>,
    ) -> Result<(), QueryError> {
        let tasks: Vec<NodeId> = self.tops.iter().map(|top| top.node).collect();
        // Totals by task have no phases.
        let by_node = self.nodes.is_some() || self.node_groups.is_some();
        let by_worker = self.groups.is_some() || self.long.is_some();
        let columns: &[Column] = match (by_node, by_worker) {
            (true, _) => &[Column::Task, Column::Worker, Column::Kind, Column::Node],
            (false, true) => &[Column::Task, Column::Worker, Column::Kind],
            (false, false) => &[Column::Task, Column::Kind],
        };
        let table = self.table();
        let asked = ScanFilter {
            tasks: Some(&tasks),
            workers: self.numbers,
            columns,
            sums_only: false,
        };
        let mut sums = NeighborSums::new(visit);
        stored.scan(
            |_| table,
            asked,
            |batch, rows| {
                // Rows of a task are neighbors, and so are those of a period of it.
                let mut last = (0, None);
                let period_ns = rows.period_ns();
                rows.each(|index| {
                    let task = batch.task[index];
                    if last.0 != task {
                        last = (task, tasks.binary_search(&NodeId(task)).ok());
                    }
                    let Some(top) = last.1 else { return };
                    let Some(state) = State::ALL.get(usize::from(batch.kind[index])) else {
                        return;
                    };
                    if !self.states.contains(*state) || by_node && !self.has_node(batch.node[index])
                    {
                        return;
                    }
                    let group = match self.groups {
                        Some(groups) => groups.of_number(batch.worker[index]),
                        None => Some(0),
                    };
                    let Some(group) = group else { return };
                    let mut cell = Cell {
                        start: rows.start(index),
                        period_ns,
                        length_ns: 0,
                        worker: 0,
                        group,
                        top,
                        node_group: 0,
                    };
                    if let Some(groups) = self.node_groups {
                        cell.node_group = groups.of(batch.node[index]);
                    }
                    if let Some(long) = self.long {
                        let worker = batch.worker[index];
                        let length_ns = long.of_number(worker);
                        // Where in a longer period the windows start is unknown.
                        if length_ns > period_ns {
                            cell.length_ns = length_ns;
                            cell.worker = worker;
                        }
                    }
                    sums.add(cell, *state, batch.values[index]);
                });
                sums.end();
            },
        )
    }

    /// The table with the fewest rows that has the requested nodes.
    fn table(&self) -> SumTable {
        match (self.node_groups, self.nodes) {
            (Some(groups), _) => groups.table,
            (None, Some(_)) => SumTable::Samples,
            (None, None) => SumTable::Totals,
        }
    }

    fn has_node(&self, node: u32) -> bool {
        self.nodes
            .is_none_or(|nodes| nodes.get(node as usize).is_some_and(|kept| *kept))
    }
}

/// Sums neighboring rows of the same cell, so that each is looked up once.
struct NeighborSums<'a, 'v> {
    cell: Option<Cell>,
    weight: Weight,
    visit: &'a mut Visit<'v>,
}

impl<'a, 'v> NeighborSums<'a, 'v> {
    fn new(visit: &'a mut Visit<'v>) -> NeighborSums<'a, 'v> {
        NeighborSums {
            cell: None,
            weight: Weight::ZERO,
            visit,
        }
    }

    #[inline]
    fn add(&mut self, cell: Cell, state: State, nanoseconds: u64) {
        if self.cell != Some(cell) {
            self.end();
            self.cell = Some(cell);
        }
        self.weight.count(state, nanoseconds);
    }

    fn end(&mut self) {
        if let Some(cell) = self.cell.take() {
            (self.visit)(&cell, &std::mem::take(&mut self.weight));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_parts_of_a_window_add_up(
            start_ns in 0..20_000_000_000i64,
            length_ns in 1..40_000_000_000u64,
            weight in any::<u64>(),
            cuts in prop::collection::vec(0..60_000_000_000i64, 0..20),
        ) {
            let at = Timestamp::from_unix_ns;
            let range = TimeRange::new(at(0), at(30_000_000_000)).unwrap();
            let shown = ShownWindow::new(at(start_ns), length_ns, range);
            prop_assert!(shown.stop() <= range.stop());
            let weight = Weight::of(State::Cpu, weight);
            let mut ends = cuts;
            ends.sort_unstable();
            ends.push(shown.stop().unix_ns());
            let mut sum_ns = 0;
            let mut reached_ns = 0;
            for end in ends {
                let before_ns = shown.before(at(end), &weight).total_ns();
                sum_ns += before_ns.saturating_sub(reached_ns);
                reached_ns = reached_ns.max(before_ns);
            }
            prop_assert_eq!(sum_ns, weight.total_ns());
        }
    }
}
