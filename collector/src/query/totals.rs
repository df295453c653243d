//! Totals of the whole collector, for monitoring.

use profiler_core::{Ticks, TimeRange};

use crate::session::Presence;
use crate::state::CollectorState;
use base::sync::{lock, read};
use store::rows::Names;

/// Sums over all sessions, and sizes of what is retained.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct CollectorTotals {
    pub(crate) connected: u64,
    pub(crate) away: u64,
    pub(crate) gone: u64,
    pub(crate) accepted_ns: u64,
    pub(crate) stored_ns: u64,
    pub(crate) lost_rejected_ns: u64,
    pub(crate) lost_by_collector_ns: u64,
    pub(crate) lost_queue_ns: u64,
    pub(crate) lost_tasks: u64,
    pub(crate) rejected: u64,
    pub(crate) ticks: Ticks,
    pub(crate) data: Option<TimeRange>,
    pub(crate) windows: usize,
    pub(crate) window_bytes: usize,
    pub(crate) files: usize,
    pub(crate) file_bytes: u64,
    pub(crate) nodes: u32,
    pub(crate) task_rows: usize,
}

impl CollectorState {
    /// The totals. Locks each session for some additions.
    pub(crate) fn totals(&self) -> CollectorTotals {
        let mut totals = CollectorTotals::default();
        for cell in self.sessions(&Names::default()) {
            let session = lock(&cell.state);
            match session.presence {
                Presence::Connected => totals.connected += 1,
                Presence::Away(_) => totals.away += 1,
                Presence::Gone(_) => totals.gone += 1,
            }
            let account = session.account().unwrap_or_default();
            let add = |sum: &mut u64, value: u64| *sum = sum.saturating_add(value);
            add(&mut totals.accepted_ns, account.accepted_ns);
            add(&mut totals.stored_ns, session.stored_ns);
            add(&mut totals.lost_rejected_ns, account.lost_rejected_ns);
            add(&mut totals.lost_by_collector_ns, account.lost_by_collector_ns);
            add(&mut totals.lost_queue_ns, account.lost_queue_ns);
            add(&mut totals.lost_tasks, account.lost_tasks);
            add(&mut totals.rejected, session.rejected);
            add(&mut totals.ticks.made, session.ticks.made);
            add(&mut totals.ticks.expected, session.ticks.expected);
            add(&mut totals.ticks.throttled, session.ticks.throttled);
        }
        totals.task_rows = read(&self.ledger).row_count();
        totals.nodes = read(&self.tree).node_count();
        let windows = read(&self.windows);
        totals.data = windows.data();
        totals.windows = windows.count();
        totals.window_bytes = windows.bytes();
        let files = &windows.manifest().files;
        totals.files = files.len();
        totals.file_bytes = files.iter().map(|file| file.bytes).sum();
        totals
    }
}
