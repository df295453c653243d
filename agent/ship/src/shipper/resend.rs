//! State to send again to a collector that lost its memory: running tasks, open runs and expected
//! tasks.

use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_core::limits::EXPECTED_MAX;
use profiler_core::{ExpectedTasks, RunId, RunMarker, TaskId, TaskRecord, Telemetry};
use rustc_hash::FxHashMap;

use super::sizing::row_bytes;

/// Most named runs.
const RUNS_MAX: usize = 1_000;

/// The latest record of each running task, open run and expected name.
#[derive(Debug, Default)]
pub(crate) struct ResendState {
    pub(crate) tasks: FxHashMap<TaskId, TaskRecord>,
    bytes: usize,
    expected: BTreeMap<Arc<str>, ExpectedTasks>,
    runs: BTreeMap<RunId, RunMarker>,
    /// Records for which there was no room.
    pub(crate) untracked: u64,
}

impl ResendState {
    /// Adds a running task, or removes an ended one. Past `bytes_max` a task is only counted: a collector
    /// that lost its memory learns of it at its end.
    pub(crate) fn update(&mut self, task: &TaskRecord, bytes_max: usize) {
        if let Some(before) = self.tasks.remove(&task.id) {
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
        self.tasks.insert(task.id, task.clone());
    }

    /// Like [`ResendState::update`], for telemetry.
    pub(crate) fn update_telemetry(&mut self, telemetry: &Telemetry) {
        for expected in &telemetry.expected {
            let known = self.expected.contains_key(&expected.name);
            if known || self.expected.len() < EXPECTED_MAX {
                self.expected
                    .insert(expected.name.clone(), expected.clone());
            } else {
                self.untracked = self.untracked.saturating_add(1);
            }
        }
        for run in &telemetry.runs {
            if run.stop.is_some() {
                self.runs.remove(&run.id);
            } else if self.runs.len() < RUNS_MAX {
                self.runs.insert(run.id, run.clone());
            } else {
                self.untracked = self.untracked.saturating_add(1);
            }
        }
    }

    /// Returns the telemetry to send again.
    pub(crate) fn telemetry(&self) -> Telemetry {
        Telemetry {
            expected: self.expected.values().cloned().collect(),
            runs: self.runs.values().cloned().collect(),
            ..Telemetry::default()
        }
    }
}
