//! The tasks that still run, for a collector that forgets.

use profiler_core::{TaskId, TaskRecord};
use rustc_hash::FxHashMap;

use super::parcel::row_bytes;

/// The latest record of each task that still runs.
#[derive(Debug, Default)]
pub(crate) struct Running {
    pub(crate) records: FxHashMap<TaskId, TaskRecord>,
    bytes: usize,
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
}
