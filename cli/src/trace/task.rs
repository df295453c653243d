//! How a trace shows a task.

use std::collections::BTreeMap;

use api::{Phase, Task};
use serde::Serialize;

/// When a task or a phase started and stopped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    pub(super) start_ns: i64,
    pub(super) stop_ns: i64,
}

/// A task's phases, by how they can be shown.
pub(super) struct Parts<'a> {
    /// Those inside the task that do not overlap.
    pub(super) inside: Vec<&'a Phase>,
    /// The other single intervals, such as waiting before the start.
    pub(super) outside: Vec<&'a Phase>,
    /// Sums of several intervals, whose places are unknown.
    pub(super) summed: Vec<&'a Phase>,
}

/// Details that a viewer shows of a selected task.
#[derive(Serialize)]
pub(super) struct Args<'a> {
    id: u64,
    key: &'a str,
    outcome: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    cause: &'a str,
    thread_id: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_bytes: Option<u64>,
    #[serde(skip_serializing_if = "str::is_empty")]
    type_name: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    summed_phases: BTreeMap<&'a str, Sum>,
}

#[derive(Serialize, Default)]
struct Sum {
    count: u64,
    duration_ns: u64,
}

/// When a task ended, or until when a running one is known.
pub(crate) fn end_ns(task: &Task) -> i64 {
    task.start_ns.saturating_add_unsigned(task.duration_ns)
}

/// Start of the task or of its first phase, which may be earlier.
pub(super) fn earliest_ns(task: &Task) -> i64 {
    task.phases
        .iter()
        .map(|phase| phase.start_ns)
        .fold(task.start_ns, i64::min)
}

impl Interval {
    pub(super) fn of_task(task: &Task) -> Interval {
        Interval {
            start_ns: task.start_ns,
            stop_ns: end_ns(task),
        }
    }

    pub(super) fn of_phase(phase: &Phase) -> Interval {
        let stop_ns = phase.start_ns.saturating_add_unsigned(phase.duration_ns);
        Interval {
            start_ns: phase.start_ns,
            stop_ns,
        }
    }

    /// Whether `other` lies wholly inside this one.
    pub(super) fn contains(self, other: Interval) -> bool {
        self.start_ns <= other.start_ns && other.stop_ns <= self.stop_ns
    }
}

pub(super) fn parts(task: &Task) -> Parts<'_> {
    let mut parts = Parts {
        inside: Vec::new(),
        outside: Vec::new(),
        summed: Vec::new(),
    };
    let mut free_ns = task.start_ns;
    for phase in &task.phases {
        let interval = Interval::of_phase(phase);
        if phase.count > 1 {
            parts.summed.push(phase);
        } else if interval.start_ns >= free_ns && interval.stop_ns <= end_ns(task) {
            free_ns = interval.stop_ns;
            parts.inside.push(phase);
        } else {
            parts.outside.push(phase);
        }
    }
    parts
}

pub(super) fn args<'a>(task: &'a Task, summed: &[&'a Phase]) -> Args<'a> {
    let mut summed_phases: BTreeMap<&str, Sum> = BTreeMap::new();
    for phase in summed {
        let sum = summed_phases.entry(&phase.name).or_default();
        sum.count = sum.count.saturating_add(phase.count.into());
        sum.duration_ns = sum.duration_ns.saturating_add(phase.duration_ns);
    }
    Args {
        id: task.id,
        key: &task.key,
        outcome: &task.outcome,
        cause: &task.cause,
        thread_id: task.thread_id,
        parent: task.parent,
        attempt: task.attempt,
        result_bytes: task.result_bytes,
        type_name: &task.type_name,
        labels: &task.labels,
        summed_phases,
    }
}
