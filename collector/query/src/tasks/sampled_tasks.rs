//! Tasks with samples and without rows: clients of other profilers name tasks and report neither starts nor ends.

use std::cmp::Reverse;
use std::sync::Arc;

use profiler_core::hash::KeyedSet;
use profiler_core::{Filter, FrameKind, StateSet, TimeRange, Weight};

use crate::Queries;
use crate::QueryError;
use crate::profiles::profile::windows_in;
use crate::profiles::step_sums::StepScan;
use crate::table_reader::{Cancel, TableReader};
use base::limits::SAMPLED_TASKS_MAX;
use base::sync::read;
use state::ledger::TaskFilter;

/// The samples of a task without rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SampledTask {
    pub name: Arc<str>,
    pub weight: Weight,
}

impl Queries<'_> {
    /// The tasks with time in the range whose names are not in `reported`, at most [`SAMPLED_TASKS_MAX`], the most time
    /// first. Samples have no keys, outcomes or types: a filter by one of them keeps none.
    pub(super) fn sampled_tasks(
        &self,
        range: TimeRange,
        filter: &TaskFilter,
        reported: &KeyedSet<Arc<str>>,
        cancel: &Cancel,
    ) -> Result<Vec<SampledTask>, QueryError> {
        if !filter.keys.is_empty() || !filter.types.is_empty() || !filter.outcomes.is_empty() {
            return Ok(Vec::new());
        }
        let samples = Filter {
            tasks: filter.names.to_vec(),
            workers: filter.workers.to_vec(),
            ..Filter::default()
        };
        let mut tops = read(&self.tree).tops_kept(&samples);
        tops.retain(|top| top.kind == FrameKind::Task && !reported.contains(&top.name));
        if tops.is_empty() {
            return Ok(Vec::new());
        }
        let (mut stored, view) = TableReader::of(
            self,
            cancel,
            range,
            |state, seconds| windows_in(state, seconds, &samples),
            |coverage, seconds| coverage.plan(seconds),
        );
        let numbers = stored.worker_numbers(&samples.workers);
        let scan = StepScan {
            tops: &tops,
            numbers: numbers.as_deref(),
            states: StateSet::ALL,
            nodes: None,
            groups: None,
            node_groups: None,
            long: None,
        };
        let mut weights = vec![Weight::ZERO; tops.len()];
        scan.visit(&mut stored, &view, &mut |cell, weight| {
            weights[cell.top] += *weight;
        })?;
        let mut sampled: Vec<SampledTask> = tops
            .into_iter()
            .zip(weights)
            .filter(|(_, weight)| !weight.is_zero())
            .map(|(top, weight)| SampledTask {
                name: top.name,
                weight,
            })
            .collect();
        sampled.sort_by(|a, b| {
            let keys = [a, b].map(|task| (Reverse(task.weight.total_ns()), &task.name));
            keys[0].cmp(&keys[1])
        });
        sampled.truncate(SAMPLED_TASKS_MAX);
        Ok(sampled)
    }
}
