//! Time by worker, host, label or run, as groups with numbers.

use profiler_core::hash::KeyedMap;
use profiler_core::{TimeRange, Timestamp};

use crate::Queries;
use crate::QueryError;
use crate::profiles::group_by::GroupBy;
use crate::profiles::run_groups::RunGroups;
use crate::profiles::step_sums::{Cell, WorkerGroups};
use crate::table_reader::TableReader;
use state::windows::WindowSnapshot;
use store::Tier;
use store::rows::StoredWindow;

/// The groups of a range's time.
pub(crate) struct TimeGroups {
    names: Vec<String>,
    /// With runs: the run of an imported profile, else 0.
    pub(crate) workers: WorkerGroups,
    runs: Option<RunGroups>,
}

impl TimeGroups {
    /// The groups of all workers. By run, the reader's seconds are planned so that each period is in one run.
    pub(crate) fn of(
        state: &Queries<'_>,
        by: &GroupBy,
        range: TimeRange,
        stored: &mut TableReader<'_>,
        view: &WindowSnapshot,
        coarsest: Tier,
    ) -> Result<TimeGroups, QueryError> {
        if *by == GroupBy::Run {
            let mut runs = RunGroups::plan(state, range, stored, coarsest)?;
            return Ok(TimeGroups {
                names: runs.take_names(),
                workers: WorkerGroups::of_each(stored, view, |worker| runs.of_import(worker)),
                runs: Some(runs),
            });
        }
        let facts = state.worker_attributes();
        let mut names: Vec<String> = Vec::new();
        let mut numbers: KeyedMap<String, usize> = KeyedMap::default();
        let workers = WorkerGroups::of_each(stored, view, |worker| {
            let numbered = numbers.entry(by.of(worker, &facts));
            *numbered.or_insert_with_key(|name| {
                names.push(name.clone());
                names.len() - 1
            })
        });
        Ok(TimeGroups {
            names,
            workers,
            runs: None,
        })
    }

    /// Their names, by number.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether the group of a period depends on its start.
    pub(crate) fn have_times(&self) -> bool {
        self.runs.is_some()
    }

    /// Plans the reader's seconds again, in other periods.
    pub(crate) fn plan(
        &self,
        stored: &mut TableReader<'_>,
        coarsest: Tier,
    ) -> Result<(), QueryError> {
        match &self.runs {
            Some(runs) if !runs.split(stored, coarsest) => Err(QueryError::RunsExpired),
            _ => Ok(()),
        }
    }

    pub(crate) fn of_window(&self, window: &StoredWindow) -> usize {
        let of_worker = self
            .workers
            .of(&window.worker)
            .expect("the groups are of all workers in the snapshot");
        self.at(of_worker, || window.second().start())
    }

    /// The group of a row of that worker's number in the tables, and of that start.
    #[inline]
    pub(crate) fn of_number(
        &self,
        number: u32,
        start: impl FnOnce() -> Timestamp,
    ) -> Option<usize> {
        Some(self.at(self.workers.of_number(number)?, start))
    }

    pub(crate) fn of_cell(&self, cell: &Cell) -> usize {
        self.at(cell.group, || cell.start)
    }

    #[inline]
    fn at(&self, of_worker: usize, start: impl FnOnce() -> Timestamp) -> usize {
        match &self.runs {
            Some(runs) if of_worker == 0 => runs.at(start()),
            _ => of_worker,
        }
    }
}
