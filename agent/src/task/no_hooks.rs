//! Stands in for `diagnostics::hooks` without the feature `diagnostics`: nobody observes tasks.

use profiler_core::{TaskId, TaskRecord};

use crate::detail::{Detail, Interval};
use crate::registry::NameId;

/// A task that callbacks observe: there is none.
#[derive(Debug)]
pub(crate) enum Observed {}

pub(crate) fn task_began(_task: &TaskRecord) -> Option<Observed> {
    None
}

pub(crate) fn task_ended(observed: Observed, _task: TaskRecord, _detail: Option<&Detail>) {
    match observed {}
}

pub(crate) fn note_phase(_task: TaskId, _interval: Interval) {}

pub(crate) fn note_result(_task: TaskId, _bytes: Option<u64>, _type_name: NameId) {}
