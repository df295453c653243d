//! The windows of an answer: how well they were sampled, and how long those of a worker are.
//!
//! An agent's windows take about a second and count at the second in which they start. Other profilers push windows of 10 s
//! and more. Where time is shown by step, such a window is spread evenly over its length.

use profiler_core::hash::KeyedMap;
use profiler_core::{Ticks, WorkerId};

use crate::QueryError;
use crate::table_reader::{ScanFilter, TableReader};
use state::windows::WindowSnapshot;
use store::rows::StoredWindow;
use store::{Column, Measure, SumTable, WorkerNumber};

/// The shortest windows that are spread: a cycle of an agent that was late is not.
const LONG_NS: u64 = 2_000_000_000;

/// Sampling quality of the windows of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sampling {
    pub windows: u64,
    /// Sum of the windows' lengths over all workers.
    pub sampled_ns: u64,
    pub ticks: Ticks,
}

impl Sampling {
    fn add_window(&mut self, stored: &StoredWindow) {
        self.windows += 1;
        let length_ns = stored.range.length_ns();
        self.sampled_ns = self.sampled_ns.saturating_add(length_ns);
        self.ticks += stored.ticks;
    }

    fn add_measure(&mut self, measure: Measure, value: u64) {
        let sum = match measure {
            Measure::Windows => &mut self.windows,
            Measure::SampledNs => &mut self.sampled_ns,
            Measure::Ticks => &mut self.ticks.made,
            Measure::TicksExpected => &mut self.ticks.expected,
            Measure::TicksThrottled => &mut self.ticks.throttled,
        };
        *sum = sum.saturating_add(value);
    }

    fn add(&mut self, other: Sampling) {
        self.windows = self.windows.saturating_add(other.windows);
        self.sampled_ns = self.sampled_ns.saturating_add(other.sampled_ns);
        self.ticks += other.ticks;
    }

    /// Ticks per second; `None` without any time.
    pub fn rate_hz(&self) -> Option<f64> {
        (self.sampled_ns > 0).then(|| self.ticks.made as f64 * 1e9 / self.sampled_ns as f64)
    }

    /// Fraction of the expected ticks that happened; `None` if none was expected.
    pub fn share(&self) -> Option<f64> {
        let Ticks { made, expected, .. } = self.ticks;
        (expected > 0).then(|| made as f64 / expected as f64)
    }

    /// The mean length of the windows.
    fn mean_ns(&self) -> u64 {
        self.sampled_ns.checked_div(self.windows).unwrap_or(0)
    }
}

/// The windows of an answer, by worker.
pub(crate) struct Cycles {
    by_worker: KeyedMap<WorkerId, Sampling>,
}

impl Cycles {
    /// Reads them from a filtered snapshot and from the tables, in the fewest periods.
    pub(crate) fn read(
        stored: &mut TableReader<'_>,
        view: &WindowSnapshot,
        numbers: Option<&[WorkerNumber]>,
    ) -> Result<Cycles, QueryError> {
        let plan = stored.plan.clone();
        stored.coarsen();
        let ids = stored.all_workers();
        let mut by_number = vec![Sampling::default(); ids.len()];
        let asked = ScanFilter {
            tasks: None,
            workers: numbers,
            columns: &[Column::Worker, Column::Kind],
            sums_only: true,
        };
        let scanned = stored.scan(
            |_| SumTable::Cycles,
            asked,
            |batch, rows| {
                rows.each(|index| {
                    let measure = Measure::ALL.get(usize::from(batch.kind[index]));
                    let worker = batch.worker[index].checked_sub(1);
                    let sums = worker.and_then(|at| by_number.get_mut(at as usize));
                    if let (Some(measure), Some(sums)) = (measure, sums) {
                        sums.add_measure(*measure, batch.values[index]);
                    }
                });
            },
        );
        stored.plan = plan;
        scanned?;
        let mut by_worker: KeyedMap<WorkerId, Sampling> = ids
            .into_iter()
            .zip(by_number)
            .filter(|(_, sums)| *sums != Sampling::default())
            .collect();
        for window in &view.windows {
            let sums = by_worker.entry(window.worker.clone()).or_default();
            sums.add_window(window);
        }
        Ok(Cycles { by_worker })
    }

    /// The sum over all workers.
    pub(crate) fn sampling(&self) -> Sampling {
        let mut sum = Sampling::default();
        self.by_worker.values().for_each(|part| sum.add(*part));
        sum
    }

    /// The workers with windows, by id.
    pub(crate) fn workers(&self) -> Vec<WorkerId> {
        let mut workers: Vec<WorkerId> = self.by_worker.keys().cloned().collect();
        workers.sort_unstable();
        workers
    }

    /// The workers whose windows are longer than a period of `period_ns`.
    pub(crate) fn long_windows(&self, stored: &TableReader<'_>, period_ns: u64) -> LongWindows {
        let least_ns = LONG_NS.max(period_ns + 1);
        let by_worker: KeyedMap<WorkerId, u64> = self
            .by_worker
            .iter()
            .map(|(worker, sums)| (worker.clone(), sums.mean_ns()))
            .filter(|(_, length_ns)| *length_ns >= least_ns)
            .collect();
        let by_number = if by_worker.is_empty() {
            Vec::new()
        } else {
            let ids = stored.all_workers();
            let lengths = ids.iter().map(|id| by_worker.get(id).copied().unwrap_or(0));
            lengths.collect()
        };
        LongWindows {
            by_worker,
            by_number,
        }
    }
}

/// The mean length of the windows of workers that are not our agents.
#[derive(Default)]
pub(crate) struct LongWindows {
    by_worker: KeyedMap<WorkerId, u64>,
    /// By number in the tables, from 1; 0 for all others.
    by_number: Vec<u64>,
}

impl LongWindows {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_worker.is_empty()
    }

    /// The length of a worker's windows in nanoseconds; 0 if they count at their start.
    pub(crate) fn of(&self, worker: &WorkerId) -> u64 {
        self.by_worker.get(worker).copied().unwrap_or(0)
    }

    /// The same, of the worker with that number in the tables.
    #[inline]
    pub(crate) fn of_number(&self, number: u32) -> u64 {
        let at = number.checked_sub(1);
        at.and_then(|at| self.by_number.get(at as usize).copied())
            .unwrap_or(0)
    }
}
