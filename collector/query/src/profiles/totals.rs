//! Totals of the whole collector, for monitoring.

use crate::Queries;
use profiler_core::{Ticks, TimeRange};

use base::sync::{lock, read};
use state::session::Presence;
use store::rows::Names;

/// Sums over all sessions, and sizes of what is retained.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CollectorTotals {
    pub connected: u64,
    pub away: u64,
    pub gone: u64,
    pub accepted_ns: u64,
    pub stored_ns: u64,
    pub lost_rejected_ns: u64,
    pub lost_by_collector_ns: u64,
    pub lost_queue_ns: u64,
    pub lost_tasks: u64,
    pub rejected: u64,
    pub ticks: Ticks,
    pub data: Option<TimeRange>,
    pub windows: usize,
    pub window_bytes: usize,
    pub files: usize,
    pub file_bytes: u64,
    pub nodes: u32,
    pub task_rows: usize,
}

impl Queries<'_> {
    /// The totals. Locks each session for some additions.
    pub fn totals(&self) -> CollectorTotals {
        let mut totals = CollectorTotals::default();
        for cell in self.sessions(&Names::default()) {
            let session = lock(&cell.state);
            match session.presence {
                Presence::Connected => totals.connected += 1,
                Presence::Away(_) => totals.away += 1,
                Presence::Gone(_) => totals.gone += 1,
            }
            let account = session.account().unwrap_or_default();
            add(&mut totals.accepted_ns, account.accepted_ns);
            add(&mut totals.stored_ns, session.stored_ns);
            add(&mut totals.lost_rejected_ns, account.lost_rejected_ns);
            add(
                &mut totals.lost_by_collector_ns,
                account.lost_by_collector_ns,
            );
            add(&mut totals.lost_queue_ns, account.lost_queue_ns);
            add(&mut totals.lost_tasks, account.lost_tasks);
            add(&mut totals.rejected, session.rejected);
            add(&mut totals.ticks.made, session.ticks.made);
            add(&mut totals.ticks.expected, session.ticks.expected);
            add(&mut totals.ticks.throttled, session.ticks.throttled);
        }
        totals.task_rows = read(&self.ledger).row_count();
        totals.nodes = read(&self.tree).held_count();
        let windows = read(&self.windows);
        totals.data = windows.data(self.clock.now());
        totals.windows = windows.count();
        totals.window_bytes = windows.bytes();
        let files = &windows.manifest().files;
        totals.files = files.len();
        totals.file_bytes = files.iter().map(|file| file.bytes).sum();
        totals
    }
}

fn add(sum: &mut u64, value: u64) {
    *sum = sum.saturating_add(value);
}
