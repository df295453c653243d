//! What still holds, for a collector that forgets: the tasks and named runs that go on, and what is
//! expected.

use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_core::limits::EXPECTED_MAX;
use profiler_core::{ExpectedTasks, RunId, RunMarker, TaskId, TaskRecord, Telemetry};
use rustc_hash::FxHashMap;

use crate::batch::row_bytes;

/// Most named runs that are kept.
const RUNS_MAX: usize = 1_000;

/// The latest record of each task and run that goes on, and of each name that is expected.
#[derive(Debug, Default)]
pub(crate) struct Running {
    pub(crate) records: FxHashMap<TaskId, TaskRecord>,
    bytes: usize,
    expected: BTreeMap<Arc<str>, ExpectedTasks>,
    runs: BTreeMap<RunId, RunMarker>,
    /// Records that had no room.
    pub(crate) untracked: u64,
}

impl Running {
    /// Past `bytes_max` a task is not kept: to a collector that forgets it shows only when it ends.
    pub(crate) fn update(&mut self, task: &TaskRecord, bytes_max: usize) {
        if let Some(before) = self.records.remove(&task.id) {
            self.bytes -= row_bytes(&before);
        }
        if task.stop.is_some() {
            return;
        }
        if self.bytes + row_bytes(task) > bytes_max {
            self.untracked = self.untracked.saturating_add(1);
            return;
        }
        self.bytes += row_bytes(task);
        self.records.insert(task.id, task.clone());
    }

    /// As [`Running::update`], for what is told beside tasks.
    pub(crate) fn update_records(&mut self, records: &Telemetry) {
        for expected in &records.expected {
            let known = self.expected.contains_key(&expected.name);
            if known || self.expected.len() < EXPECTED_MAX {
                self.expected.insert(expected.name.clone(), expected.clone());
            } else {
                self.untracked = self.untracked.saturating_add(1);
            }
        }
        for run in &records.runs {
            if run.stop.is_some() {
                self.runs.remove(&run.id);
            } else if self.runs.len() < RUNS_MAX {
                self.runs.insert(run.id, run.clone());
            } else {
                self.untracked = self.untracked.saturating_add(1);
            }
        }
    }

    /// What to tell again beside the tasks.
    pub(crate) fn records_again(&self) -> Telemetry {
        Telemetry {
            expected: self.expected.values().cloned().collect(),
            runs: self.runs.values().cloned().collect(),
            ..Telemetry::default()
        }
    }
}
