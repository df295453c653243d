//! A row of the ledger, as far as a trace shows it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One task.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Task {
    pub(crate) worker: String,
    pub(crate) epoch: String,
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) key: String,
    pub(crate) thread_id: u32,
    pub(crate) thread_name: String,
    pub(crate) parent: Option<u64>,
    pub(crate) start_ns: i64,
    pub(crate) duration_ns: u64,
    pub(crate) outcome: String,
    pub(crate) cause: String,
    pub(crate) attempt: Option<u32>,
    pub(crate) result_bytes: Option<u64>,
    pub(crate) type_name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) phases: Vec<Phase>,
}

/// What it did for a while.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Phase {
    pub(crate) name: String,
    pub(crate) start_ns: i64,
    pub(crate) duration_ns: u64,
    pub(crate) count: u32,
}

impl Phase {
    /// From when to when.
    pub(super) fn span(&self) -> (i64, i64) {
        (self.start_ns, self.start_ns.saturating_add_unsigned(self.duration_ns))
    }
}

/// A task's phases, by how they can be shown.
pub(super) struct Parts<'a> {
    /// Those that lie inside the task and apart from each other.
    pub(super) inside: Vec<&'a Phase>,
    /// Those that do not, such as waiting before the start.
    pub(super) beside: Vec<&'a Phase>,
    /// Sums of several intervals: nobody knows where each lay.
    pub(super) summed: Vec<&'a Phase>,
}

/// What a viewer shows of a task that is chosen.
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

impl Task {
    /// When it ended, or for a running task until when it is known.
    pub(crate) fn stop_ns(&self) -> i64 {
        self.start_ns.saturating_add_unsigned(self.duration_ns)
    }

    /// The earliest moment that is told of it.
    pub(super) fn earliest_ns(&self) -> i64 {
        self.phases.iter().map(|phase| phase.start_ns).fold(self.start_ns, i64::min)
    }

    pub(super) fn parts(&self) -> Parts<'_> {
        let mut parts = Parts { inside: Vec::new(), beside: Vec::new(), summed: Vec::new() };
        let mut free_ns = self.start_ns;
        for phase in &self.phases {
            let (start_ns, stop_ns) = phase.span();
            if phase.count > 1 {
                parts.summed.push(phase);
            } else if start_ns >= free_ns && stop_ns <= self.stop_ns() {
                free_ns = stop_ns;
                parts.inside.push(phase);
            } else {
                parts.beside.push(phase);
            }
        }
        parts
    }

    pub(super) fn args<'a>(&'a self, summed: &[&'a Phase]) -> Args<'a> {
        let mut summed_phases: BTreeMap<&str, Sum> = BTreeMap::new();
        for phase in summed {
            let sum = summed_phases.entry(&phase.name).or_default();
            sum.count = sum.count.saturating_add(phase.count.into());
            sum.duration_ns = sum.duration_ns.saturating_add(phase.duration_ns);
        }
        Args {
            id: self.id,
            key: &self.key,
            outcome: &self.outcome,
            cause: &self.cause,
            thread_id: self.thread_id,
            parent: self.parent,
            attempt: self.attempt,
            result_bytes: self.result_bytes,
            type_name: &self.type_name,
            labels: &self.labels,
            summed_phases,
        }
    }
}
