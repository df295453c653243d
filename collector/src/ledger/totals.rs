//! Counts and durations by name, over all tasks that ever ended; rows that go do not change them.

use std::sync::Arc;

use profiler_core::Outcome;
use rustc_hash::FxHashMap;

use super::{Durations, TaskRow};

/// The name that takes what is past the limit on names.
const OVERFLOW: &str = "[overflow]";

/// How many tasks ended in which way.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OutcomeCounts([u64; Outcome::ALL.len()]);

impl OutcomeCounts {
    /// How many ended as `outcome`.
    #[must_use]
    pub fn get(&self, outcome: Outcome) -> u64 {
        self.0[outcome as usize]
    }

    /// The count of `outcome`, to be changed.
    pub fn get_mut(&mut self, outcome: Outcome) -> &mut u64 {
        &mut self.0[outcome as usize]
    }
}

/// All tasks of one name.
#[derive(Clone, Default, Debug)]
pub struct NameTotal {
    /// How they ended.
    pub outcomes: OutcomeCounts,
    /// How long they took: those whose worker said when they ended, so not the lost ones.
    pub durations: Durations,
}

impl NameTotal {
    /// Counts a task.
    pub fn count(&mut self, row: &TaskRow) {
        *self.outcomes.get_mut(row.record.outcome) += 1;
        if let Some(duration_ns) = known_duration_ns(row) {
            self.durations.add(duration_ns);
        }
    }
}

/// How long a task took, if its worker said so.
fn known_duration_ns(row: &TaskRow) -> Option<u64> {
    row.duration_ns().filter(|_| row.record.outcome != Outcome::Lost)
}

/// Totals by name, bounded in names. Each is shared, so that a reader takes it under a short lock; it
/// is copied only if it changes while it is read.
#[derive(Clone, Debug)]
pub struct Totals {
    names: FxHashMap<Arc<str>, Arc<NameTotal>>,
    names_max: usize,
}

impl Totals {
    pub(super) fn new(names_max: usize) -> Totals {
        Totals { names: FxHashMap::default(), names_max }
    }

    pub(super) fn count(&mut self, row: &TaskRow) {
        self.of(&row.record.name).count(row);
    }

    /// Takes a task out again that was counted.
    pub(super) fn uncount(&mut self, row: &TaskRow) {
        let total = self.of(&row.record.name);
        let count = total.outcomes.get_mut(row.record.outcome);
        *count = count.saturating_sub(1);
        if let Some(duration_ns) = known_duration_ns(row) {
            total.durations.remove(duration_ns);
        }
    }

    /// Takes a lost task out again: its true end is known now.
    pub(super) fn uncount_lost(&mut self, name: &Arc<str>) {
        let count = self.of(name).outcomes.get_mut(Outcome::Lost);
        *count = count.saturating_sub(1);
    }

    /// Each name with its totals, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<NameTotal>)> {
        self.names.iter()
    }

    /// Whether that name has totals.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// The names that have totals.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.names.keys()
    }

    fn of(&mut self, name: &Arc<str>) -> &mut NameTotal {
        let known = self.names.contains_key(name);
        // Names are never taken out, so a name that went to the overflow once always does.
        let name = match known || self.names.len() < self.names_max {
            true => name.clone(),
            false => OVERFLOW.into(),
        };
        Arc::make_mut(self.names.entry(name).or_default())
    }
}
