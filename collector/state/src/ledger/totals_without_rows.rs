//! Sums of ended tasks without rows, until they are sealed.

use std::collections::BTreeMap;
use std::sync::Arc;

use profiler_core::{PhaseInterval, TaskTotals, TimeRange};

/// Sums by the second in which their tasks ended, then by arrival.
type Seconds = BTreeMap<(i64, u64), Arc<TaskTotals>>;

/// The unsealed sums; see [`Ledger`](super::Ledger).
#[derive(Default, Debug)]
pub(super) struct Sums {
    open: Seconds,
    /// Sums being written to tables.
    sealing: Seconds,
    arrivals: u64,
    open_bytes: usize,
    sealing_bytes: usize,
}

impl Sums {
    pub(super) fn add(&mut self, totals: TaskTotals) {
        self.arrivals += 1;
        self.open_bytes += bytes(&totals);
        self.open
            .insert((totals.second.second(), self.arrivals), Arc::new(totals));
    }

    /// Adds the sums of another store.
    pub(super) fn add_all(&mut self, other: &Sums) {
        for totals in other.sealing.values().chain(other.open.values()) {
            self.add(TaskTotals::clone(totals));
        }
    }

    /// The sums of all seconds that overlap a range.
    pub(super) fn of(&self, range: TimeRange) -> Vec<Arc<TaskTotals>> {
        let places = (range.start().second(), 0)..=(range.stop().second(), u64::MAX);
        let parts = [&self.sealing, &self.open];
        let sums = parts.iter().flat_map(|part| part.range(places.clone()));
        sums.map(|(_, totals)| totals.clone()).collect()
    }

    /// All sums. They stay here until [`Sums::sealed`].
    pub(super) fn take_for_sealing(&mut self) -> Vec<Arc<TaskTotals>> {
        self.sealing.append(&mut self.open);
        self.sealing_bytes += std::mem::take(&mut self.open_bytes);
        self.sealing.values().cloned().collect()
    }

    #[must_use = "to be dropped when the lock is free again"]
    pub(super) fn sealed(&mut self) -> impl Sized + use<> {
        self.sealing_bytes = 0;
        std::mem::take(&mut self.sealing)
    }

    /// Memory of the sums, roughly, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.open_bytes + self.sealing_bytes
    }
}

fn bytes(totals: &TaskTotals) -> usize {
    /// A node of the map, and the counts of an `Arc`.
    const ENTRY_BYTES: usize = 64;
    size_of::<TaskTotals>()
        + ENTRY_BYTES
        + size_of_val(&totals.buckets[..])
        + totals.phases.len() * size_of::<PhaseInterval>()
}
