//! Data that ingest has noted and that is not encoded yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use profiler_core::{Epoch, TimeRange, Timestamp, WorkerId};

use crate::session::SessionCell;
use base::limits::{FORWARD_SAMPLES_BYTES_MAX, FORWARD_TASKS_BYTES_MAX};
use base::sync::{Mutex, lock, rank};
use store::packed::PackedWeights;
use store::rows::{AgentInfo, StoredWindow, TaskRow};

/// A life of a worker, as receivers see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Life {
    pub worker: WorkerId,
    pub host: String,
    pub labels: BTreeMap<String, String>,
}

/// Samples of one flush.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PendingWindow {
    pub range: TimeRange,
    pub samples: PackedWeights,
}

impl PendingWindow {
    fn bytes(&self) -> usize {
        size_of::<PendingWindow>() + self.samples.bytes().len()
    }
}

/// Samples of a worker's life, in the order in which they were applied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LifeSamples {
    pub life: Arc<Life>,
    pub windows: Vec<PendingWindow>,
}

/// Samples that wait to be merged.
#[derive(Debug, Default)]
pub struct PendingSamples {
    is_enabled: AtomicBool,
    state: Mutex<SamplesState, rank::ForwardSamples>,
}

#[derive(Debug, Default)]
struct SamplesState {
    by_life: BTreeMap<(WorkerId, Epoch), LifeSamples>,
    bytes: usize,
    lost_ns: u64,
}

/// Samples to merge, and those that found no room since the last time.
#[derive(Debug, Default)]
pub struct SampleBatch {
    pub lives: Vec<LifeSamples>,
    pub lost_ns: u64,
}

impl PendingSamples {
    pub(super) fn enable(&self) {
        self.is_enabled.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    /// Adds a window, or counts it as lost.
    pub(super) fn note(&self, cell: &SessionCell, agent: &AgentInfo, window: &StoredWindow) {
        let pending = PendingWindow {
            range: window.range,
            samples: window.samples.clone(),
        };
        let mut state = lock(&self.state);
        if state.bytes + pending.bytes() > FORWARD_SAMPLES_BYTES_MAX {
            state.lost_ns = state.lost_ns.saturating_add(pending.samples.total_ns());
            return;
        }
        state.bytes += pending.bytes();
        let life = state
            .by_life
            .entry((cell.worker.clone(), cell.epoch))
            .or_insert_with(|| {
                let life = Life {
                    worker: cell.worker.clone(),
                    host: agent.host.clone(),
                    labels: agent.labels.clone(),
                };
                LifeSamples {
                    life: Arc::new(life),
                    windows: Vec::new(),
                }
            });
        life.windows.push(pending);
    }

    /// Removes the samples that start before `end`.
    pub fn take(&self, end: Timestamp) -> SampleBatch {
        let mut state = lock(&self.state);
        let mut batch = SampleBatch {
            lives: Vec::new(),
            lost_ns: std::mem::take(&mut state.lost_ns),
        };
        let mut bytes = 0;
        state.by_life.retain(|_, life| {
            let windows: Vec<_> = life
                .windows
                .extract_if(.., |window: &mut PendingWindow| window.range.start() < end)
                .collect();
            if !windows.is_empty() {
                bytes += windows.iter().map(PendingWindow::bytes).sum::<usize>();
                batch.lives.push(LifeSamples {
                    life: life.life.clone(),
                    windows,
                });
            }
            !life.windows.is_empty()
        });
        state.bytes -= bytes;
        batch
    }
}

/// Tasks that wait to be encoded.
#[derive(Debug, Default)]
pub struct PendingTasks {
    is_enabled: AtomicBool,
    state: Mutex<TasksState, rank::ForwardTasks>,
}

#[derive(Debug, Default)]
struct TasksState {
    rows: Vec<TaskRow>,
    bytes: usize,
    lost: u64,
}

/// Tasks to encode, and the number of those that found no room since the last time.
#[derive(Debug, Default)]
pub struct TaskBatch {
    pub rows: Vec<TaskRow>,
    pub lost: u64,
}

impl PendingTasks {
    pub(super) fn enable(&self) {
        self.is_enabled.store(true, Ordering::Relaxed);
    }

    pub fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    /// Adds a task, or counts it as lost.
    pub(super) fn note(&self, row: TaskRow) {
        let bytes = size_of::<TaskRow>() + row.text_bytes();
        let mut state = lock(&self.state);
        if state.bytes + bytes > FORWARD_TASKS_BYTES_MAX {
            state.lost += u64::from(row.record.stop.is_some());
            return;
        }
        state.bytes += bytes;
        state.rows.push(row);
    }

    pub fn take(&self) -> TaskBatch {
        let mut state = lock(&self.state);
        let TasksState { rows, lost, .. } = std::mem::take(&mut *state);
        TaskBatch { rows, lost }
    }
}
