//! Data to be forwarded to other servers: samples, and tasks that ended.
//!
//! Ingest only notes what it applied. `bridge` merges, encodes and sends it.

mod outlet;
mod pending;

use std::sync::Arc;

use profiler_core::{TaskRecord, WorkerId};

use self::pending::{PendingSamples, PendingTasks};
use crate::session::SessionCell;
use base::sync::{Mutex, lock, rank};
use store::rows::{AgentInfo, CheckedFlush, TaskRow};

pub use self::outlet::{Message, Outlet, OutletStatus, Protocol};
pub use self::pending::{Life, LifeSamples, PendingWindow};

/// The label that marks forwarded profiles. Those with it are not forwarded again, so that collectors that
/// forward to each other, or to themselves, make no loop.
pub const FORWARDED_LABEL: &str = "emberline_forwarded";

/// Data that waits to be forwarded, and the outcome of the rest. Without receivers nothing is noted.
#[derive(Debug, Default)]
pub struct Forwards {
    pub samples: PendingSamples,
    pub tasks: PendingTasks,
    outlets: Mutex<Vec<Arc<Outlet>>, rank::Outlets>,
}

impl Forwards {
    /// Adds a receiver. From now on, what it receives is noted.
    pub fn add(&self, outlet: Arc<Outlet>) {
        match outlet.protocol {
            Protocol::Pyroscope | Protocol::Otlp => self.samples.enable(),
            Protocol::OtlpTraces => self.tasks.enable(),
        }
        lock(&self.outlets).push(outlet);
    }

    /// Notes what a flush of a worker's life adds.
    pub fn note(&self, cell: &SessionCell, agent: &AgentInfo, flush: &CheckedFlush) {
        if let Some(window) = &flush.window
            && self.samples.is_enabled()
            && !was_forwarded(&cell.worker, agent)
        {
            self.samples.note(cell, agent, window);
        }
        if self.tasks.is_enabled() {
            flush
                .tasks
                .iter()
                .for_each(|task| self.note_task(cell, task));
        }
    }

    /// Notes a task that ended, or that others may be below of.
    pub fn note_task(&self, cell: &SessionCell, record: &TaskRecord) {
        if record.stop.is_some() || record.parent.is_some() {
            let worker = cell.worker.clone();
            self.tasks.note(TaskRow {
                worker,
                epoch: cell.epoch,
                record: record.clone(),
            });
        }
    }

    /// Outcomes by receiver.
    pub fn statuses(&self) -> Vec<OutletStatus> {
        lock(&self.outlets)
            .iter()
            .map(|outlet| outlet.status())
            .collect()
    }
}

/// Whether a collector forwarded the samples of this worker.
fn was_forwarded(worker: &WorkerId, agent: &AgentInfo) -> bool {
    // Without its labels nobody knows.
    let is_unknown = !worker.has_agent() && agent.has_dropped_labels();
    is_unknown || agent.labels.contains_key(FORWARDED_LABEL)
}
