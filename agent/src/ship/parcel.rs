//! What waits in the outbox: a cycle, several merged into one, or a part of one.

use profiler_core::{Delta, State, TaskId, TaskRecord, Ticks, TimeRange};
use prost::encoding::encoded_len_varint;
use rustc_hash::FxHashSet;

use crate::cycle::SealedCycle;

/// Memory that a parcel takes beside its entries and rows, in bytes, rounded up.
const PARCEL_BYTES: usize = 256;

/// Most bytes of a row on the wire beside its texts: ten numbers, ten tags, four lengths.
const ROW_BYTES_MAX: usize = 80;

/// Most bytes of a flush on the wire beside its columns and rows: sequence number, times, clock,
/// account, and the columns' tags and lengths.
const FLUSH_BYTES_MAX: usize = 384;

/// When a parcel's weights were counted, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) range: TimeRange,
    /// Every weight is a multiple of it; never 0.
    pub(crate) quantum_ns: u64,
    pub(crate) ticks: Ticks,
}

impl Span {
    /// What holds for the sum of both.
    fn merge(self, other: Span) -> Span {
        Span {
            range: self.range.hull(other.range),
            quantum_ns: common_divisor(self.quantum_ns, other.quantum_ns),
            ticks: self.ticks + other.ticks,
        }
    }
}

/// The content of one flush, or of several that are still to be split off. Weight is only ever
/// moved from parcel to parcel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Parcel {
    /// `None` if there are only rows; then the delta is empty.
    pub(crate) span: Option<Span>,
    pub(crate) delta: Delta,
    /// Each task once, in its latest state, those that changed last at the end.
    pub(crate) tasks: Vec<TaskRecord>,
    /// Weight that was lost before it reached a delta.
    pub(crate) lost_queue_ns: u64,
}

impl From<SealedCycle> for Parcel {
    fn from(cycle: SealedCycle) -> Self {
        let SealedCycle { range, delta, quantum_ns, ticks, tasks, .. } = cycle;
        // A weight between quanta must not be, but encoding it would panic; a quantum of one
        // nanosecond keeps it whole and costs bytes only.
        let quantum_ns = if in_quanta(&delta, quantum_ns) { quantum_ns } else { 1 };
        // Rows that were collected while sampling was off say nothing of that time.
        let sampled = ticks.expected > 0 || !delta.is_empty();
        let span = sampled.then_some(Span { range, quantum_ns, ticks });
        Parcel { span, delta, tasks, lost_queue_ns: cycle.lost_queue_ns }
    }
}

impl Parcel {
    /// Rows alone.
    pub(crate) fn of_tasks(tasks: Vec<TaskRecord>) -> Self {
        Parcel { span: None, delta: Delta::default(), tasks, lost_queue_ns: 0 }
    }

    /// Sum of the weights, in nanoseconds.
    pub(crate) fn weight_ns(&self) -> u64 {
        self.delta.total().total_ns()
    }

    /// Length of the time it covers, in nanoseconds.
    pub(crate) fn length_ns(&self) -> u64 {
        self.span.map_or(0, |span| span.range.length_ns())
    }

    /// Memory that it takes, in bytes: a fixed part, the entries, and the rows with all their texts,
    /// as if no text were shared.
    pub(crate) fn bytes(&self) -> usize {
        PARCEL_BYTES + self.delta.bytes() + self.tasks.iter().map(row_bytes).sum::<usize>()
    }

    /// The sum of this and what came after it. Of a task in both, the later record stays.
    pub(crate) fn merge(mut self, later: Parcel) -> Parcel {
        self.span = match (self.span, later.span) {
            (Some(span), Some(later)) => Some(span.merge(later)),
            (span, later) => span.or(later),
        };
        if self.delta.is_empty() {
            self.delta = later.delta;
        } else if !later.delta.is_empty() {
            self.delta = self.delta.merge(&later.delta);
        }
        let replaced: FxHashSet<TaskId> = later.tasks.iter().map(|task| task.id).collect();
        self.tasks.retain(|task| !replaced.contains(&task.id));
        self.tasks.extend(later.tasks);
        self.lost_queue_ns = self.lost_queue_ns.saturating_add(later.lost_queue_ns);
        self
    }

    /// Splits off what one flush of at most `bytes_max` encoded bytes holds, and at least one entry
    /// or row, so that splitting ends. Weights go before rows; ticks go with the first part.
    pub(crate) fn split(mut self, bytes_max: usize) -> (Parcel, Option<Parcel>) {
        let room = bytes_max.saturating_sub(FLUSH_BYTES_MAX);
        let (entries, bytes) = self.entries_within(room);
        let rest_of_delta = self.delta.split_off(entries);
        let rows = if rest_of_delta.is_empty() {
            rows_within(&self.tasks, room.saturating_sub(bytes), entries == 0)
        } else {
            0
        };
        if rest_of_delta.is_empty() && rows == self.tasks.len() {
            return (self, None);
        }
        let rest_of_span = self.span.filter(|_| !rest_of_delta.is_empty());
        let rest = Parcel {
            span: rest_of_span.map(|span| Span { ticks: Ticks::default(), ..span }),
            tasks: self.tasks.split_off(rows),
            delta: rest_of_delta,
            lost_queue_ns: 0,
        };
        (self, Some(rest))
    }

    /// Drops rows until `bytes` are freed or none is left: those of ended tasks first, the oldest
    /// first. Gives their number.
    pub(crate) fn shed_tasks(&mut self, bytes: usize) -> u64 {
        let before = self.tasks.len();
        let mut freed = 0;
        for running in [false, true] {
            self.tasks.retain(|task| {
                let shed = freed < bytes && task.stop.is_none() == running;
                freed += if shed { row_bytes(task) } else { 0 };
                !shed
            });
        }
        (before - self.tasks.len()) as u64
    }

    /// How many entries from the front fit into `bytes_max` encoded bytes, at least one if there is
    /// any; and what they take.
    fn entries_within(&self, bytes_max: usize) -> (usize, usize) {
        let quantum_ns = self.span.map_or(1, |span| span.quantum_ns);
        let mut last_nodes = [0; State::ALL.len()];
        let mut bytes = 0;
        for (index, (node, state, weight)) in self.delta.entries().iter().enumerate() {
            let last = &mut last_nodes[*state as usize];
            let entry_bytes = encoded_len_varint(u64::from(node.0 - *last))
                + encoded_len_varint(weight / quantum_ns);
            if index > 0 && bytes + entry_bytes > bytes_max {
                return (index, bytes);
            }
            bytes += entry_bytes;
            *last = node.0;
        }
        (self.delta.entries().len(), bytes)
    }
}

/// Memory that a row takes, in bytes.
pub(crate) fn row_bytes(task: &TaskRecord) -> usize {
    std::mem::size_of::<TaskRecord>() + task.name.len() + text_bytes(task)
}

/// Bytes of the texts that go with a row on the wire; its name is in the dictionary.
fn text_bytes(task: &TaskRecord) -> usize {
    task.key.len() + task.thread_name.len() + task.cause.len()
}

/// How many rows from the front fit into `bytes_max` encoded bytes; with `at_least_one`, one is
/// taken even if it does not.
fn rows_within(tasks: &[TaskRecord], bytes_max: usize, at_least_one: bool) -> usize {
    let mut bytes = 0;
    let fits = |task: &&TaskRecord| {
        bytes += ROW_BYTES_MAX + text_bytes(task);
        bytes <= bytes_max
    };
    tasks.iter().take_while(fits).count().max(usize::from(at_least_one && !tasks.is_empty()))
}

fn in_quanta(delta: &Delta, quantum_ns: u64) -> bool {
    let mut entries = delta.entries().iter();
    quantum_ns > 0 && entries.all(|(_, _, weight)| weight.is_multiple_of(quantum_ns))
}

/// The largest number that divides both, neither of which is 0.
fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}
