//! Tasks of the fleet.

use profiler_core::{Epoch, TaskDetail, TaskId, TaskRecord, Timestamp, WorkerId};

/// One task of the fleet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskRow {
    pub worker: WorkerId,
    /// The life of the worker that ran the task.
    pub epoch: Epoch,
    pub record: TaskRecord,
}

impl TaskRow {
    /// Nanoseconds from start to stop; `None` for a running task.
    pub fn duration_ns(&self) -> Option<u64> {
        Some(self.record.stop?.since_ns(self.record.start))
    }

    /// Memory of the parts whose size the worker chooses, in bytes.
    pub fn text_bytes(&self) -> usize {
        /// The counters of an `Arc`.
        const TEXT_BYTES: usize = 16;
        let TaskRecord {
            key, cause, detail, ..
        } = &self.record;
        let texts = key.len() + cause.len();
        let Some(detail) = detail else { return texts };
        let TaskDetail { labels, phases, .. } = &**detail;
        let values = labels.iter().map(|(_, value)| value.len() + TEXT_BYTES);
        let lists = size_of_val(&labels[..]) + size_of_val(&phases[..]);
        texts + size_of::<TaskDetail>() + lists + values.sum::<usize>()
    }
}

/// A task that was sealed as lost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostTask {
    pub worker: WorkerId,
    pub epoch: Epoch,
    pub id: TaskId,
    /// The end that it was sealed with.
    pub stop: Timestamp,
}
