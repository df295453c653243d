//! What waits in the outbox: a cycle, several merged into one, or a part of one.

use profiler_core::wire::weight_bytes_max;
use profiler_core::{Delta, NodeId, TaskId, TaskRecord, TaskTotals, Telemetry, Ticks, TimeRange};
use rustc_hash::FxHashSet;

use super::extras;
use crate::cycle::SealedCycle;
use crate::totals;

/// Memory that a parcel takes beside its entries and rows, in bytes, rounded up.
const PARCEL_BYTES: usize = 256;

/// Most bytes of a row on the wire beside its texts and lists: thirteen numbers, as many tags, four
/// lengths.
const ROW_BYTES_MAX: usize = 104;
/// Most bytes of a label beside its value, and of a phase.
const LABEL_BYTES_MAX: usize = 16;
const PHASE_BYTES_MAX: usize = 40;

/// Most bytes of a flush on the wire beside its weights and rows: sequence number, times, clock,
/// account, and the tags and lengths of the weights by stack and by thread.
const FLUSH_BYTES_MAX: usize = 512;

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
    /// `None` if there are only rows and records; then the deltas are empty.
    pub(crate) span: Option<Span>,
    pub(crate) delta: Delta,
    /// The same weights by thread. Where a cycle is split, they go first.
    pub(crate) threads: Delta,
    /// Each task once, in its latest state, those that changed last at the end.
    pub(crate) tasks: Vec<TaskRecord>,
    /// Ended tasks without rows, by name, outcome and second.
    pub(crate) totals: Vec<TaskTotals>,
    /// What else was told and measured.
    pub(crate) records: Telemetry,
    /// Weight that was lost before it reached a delta.
    pub(crate) lost_queue_ns: u64,
}

impl From<SealedCycle> for Parcel {
    fn from(cycle: SealedCycle) -> Self {
        let SealedCycle { range, delta, threads, quantum_ns, ticks, tasks, totals, .. } = cycle;
        // A weight between quanta must not be, but encoding it would panic; a quantum of one
        // nanosecond keeps it whole and costs bytes only.
        let whole = in_quanta(&delta, quantum_ns) && in_quanta(&threads, quantum_ns);
        let quantum_ns = if whole { quantum_ns } else { 1 };
        // Rows that were collected while sampling was off say nothing of that time.
        let sampled = ticks.expected > 0 || !delta.is_empty() || !threads.is_empty();
        let span = sampled.then_some(Span { range, quantum_ns, ticks });
        let (records, lost_queue_ns) = (cycle.records, cycle.lost_queue_ns);
        Parcel { span, delta, threads, tasks, totals, records, lost_queue_ns }
    }
}

impl Parcel {
    /// Rows and records alone.
    pub(crate) fn of_records(tasks: Vec<TaskRecord>, records: Telemetry) -> Self {
        Parcel {
            span: None,
            delta: Delta::default(),
            threads: Delta::default(),
            tasks,
            totals: Vec::new(),
            records,
            lost_queue_ns: 0,
        }
    }

    /// Sum of the weights, in nanoseconds.
    pub(crate) fn weight_ns(&self) -> u64 {
        self.delta.total().total_ns()
    }

    /// Length of the time it covers, in nanoseconds.
    pub(crate) fn length_ns(&self) -> u64 {
        self.span.map_or(0, |span| span.range.length_ns())
    }

    /// Memory that it takes, in bytes: a fixed part, the entries, and the rows, sums and records with
    /// all their texts, as if no text were shared.
    pub(crate) fn bytes(&self) -> usize {
        let rows = self.tasks.iter().map(row_bytes).sum::<usize>();
        let totals = self.totals.iter().map(totals::shipped::bytes).sum::<usize>();
        let weights = self.delta.bytes() + self.threads.bytes();
        PARCEL_BYTES + weights + rows + totals + extras::memory_bytes(&self.records)
    }

    /// The sum of this and what came after it. Of a task in both, the later record stays.
    pub(crate) fn merge(mut self, later: Parcel) -> Parcel {
        self.span = match (self.span, later.span) {
            (Some(span), Some(later)) => Some(span.merge(later)),
            (span, later) => span.or(later),
        };
        merge_delta(&mut self.delta, later.delta);
        merge_delta(&mut self.threads, later.threads);
        totals::merge(&mut self.totals, later.totals);
        let replaced: FxHashSet<TaskId> = later.tasks.iter().map(|task| task.id).collect();
        self.tasks.retain(|task| !replaced.contains(&task.id));
        self.tasks.extend(later.tasks);
        extras::merge(&mut self.records, later.records);
        self.lost_queue_ns = self.lost_queue_ns.saturating_add(later.lost_queue_ns);
        self
    }

    /// Splits off what one flush of at most `bytes_max` encoded bytes holds, and at least one entry,
    /// row, sum or record, so that splitting ends. Weights go before rows, those of threads first, and
    /// sums and records last; ticks go with the first part.
    pub(crate) fn split(mut self, bytes_max: usize) -> (Parcel, Option<Parcel>) {
        let mut room = bytes_max.saturating_sub(FLUSH_BYTES_MAX);
        let mut is_first = true;
        let quantum_ns = self.span.map_or(1, |span| span.quantum_ns);
        let mut rest = Parcel::of_records(Vec::new(), Telemetry::default());
        let weights = [(&mut self.threads, &mut rest.threads), (&mut self.delta, &mut rest.delta)];
        for (delta, rest) in weights {
            let (entries, bytes) = entries_within(delta, quantum_ns, room, is_first);
            *rest = delta.split_off(entries);
            // What comes after waits for the rest of this.
            room = if rest.is_empty() { room.saturating_sub(bytes) } else { 0 };
            is_first &= entries == 0;
        }
        let (rows, bytes) = within(&self.tasks, room, is_first, row_wire_bytes);
        rest.tasks = self.tasks.split_off(rows);
        room = if rest.tasks.is_empty() { room.saturating_sub(bytes) } else { 0 };
        is_first &= rows == 0;
        let (sums, bytes) = within(&self.totals, room, is_first, totals::shipped::wire_bytes_max);
        rest.totals = self.totals.split_off(sums);
        room = if rest.totals.is_empty() { room.saturating_sub(bytes) } else { 0 };
        is_first &= sums == 0;
        rest.records = extras::split_off(&mut self.records, room, is_first);
        let weights_left = !rest.delta.is_empty() || !rest.threads.is_empty();
        let rows_left = !rest.tasks.is_empty() || !rest.totals.is_empty();
        if !weights_left && !rows_left && rest.records.is_empty() {
            return (self, None);
        }
        let rest_of_span = self.span.filter(|_| weights_left);
        rest.span = rest_of_span.map(|span| Span { ticks: Ticks::default(), ..span });
        (self, Some(rest))
    }

    /// Drops the seconds of sums, so that they take less memory.
    pub(crate) fn coarsen_totals(&mut self) {
        totals::coarsen(&mut self.totals);
    }

    /// Tasks that are lost if this is: those of rows and of sums.
    pub(crate) fn task_count(&self) -> u64 {
        totals::shipped::count(&self.totals).saturating_add(self.tasks.len() as u64)
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

    /// Drops transfers and samples of resources until `bytes` are freed or none is left, the oldest
    /// first. Gives their number.
    pub(crate) fn shed_records(&mut self, bytes: usize) -> u64 {
        extras::shed(&mut self.records, bytes)
    }
}

fn merge_delta(delta: &mut Delta, later: Delta) {
    if delta.is_empty() {
        *delta = later;
    } else if !later.is_empty() {
        *delta = delta.merge(&later);
    }
}

/// How many entries from the front fit into `bytes_max` encoded bytes, and what they take; with
/// `at_least_one`, one is taken even if it does not fit.
fn entries_within(
    delta: &Delta,
    quantum_ns: u64,
    bytes_max: usize,
    at_least_one: bool,
) -> (usize, usize) {
    let mut last = NodeId::ROOT;
    let mut bytes = 0;
    for (index, (node, _, weight)) in delta.entries().iter().enumerate() {
        let entry_bytes = weight_bytes_max(last, *node, weight / quantum_ns);
        let must = at_least_one && index == 0;
        if !must && bytes + entry_bytes > bytes_max {
            return (index, bytes);
        }
        bytes += entry_bytes;
        last = *node;
    }
    (delta.entries().len(), bytes)
}

/// Memory that a row takes, in bytes.
pub(crate) fn row_bytes(task: &TaskRecord) -> usize {
    let detail = task.detail.as_deref().map_or(0, |detail| {
        let lists = size_of_val(&detail.labels[..]) + size_of_val(&detail.phases[..]);
        size_of_val(detail) + lists + detail.type_name.len()
    });
    std::mem::size_of::<TaskRecord>() + task.name.len() + text_bytes(task) + detail
}

/// Bytes of the texts that go with a row on the wire; its names are in the dictionary.
fn text_bytes(task: &TaskRecord) -> usize {
    let labels = task.detail.iter().flat_map(|detail| &detail.labels);
    let values: usize = labels.map(|(_, value)| value.len()).sum();
    task.key.len() + task.thread_name.len() + task.cause.len() + values
}

/// Most bytes that a row takes on the wire.
fn row_wire_bytes(task: &TaskRecord) -> usize {
    let lists = task.detail.as_ref().map_or(0, |detail| {
        detail.labels.len() * LABEL_BYTES_MAX + detail.phases.len() * PHASE_BYTES_MAX
    });
    ROW_BYTES_MAX + text_bytes(task) + lists
}

/// How many items from the front fit into `bytes_max` encoded bytes, and what they take; with
/// `at_least_one`, one is taken even if it does not fit.
fn within<T>(
    items: &[T],
    bytes_max: usize,
    at_least_one: bool,
    bytes_of: impl Fn(&T) -> usize,
) -> (usize, usize) {
    let mut bytes = 0;
    for (index, item) in items.iter().enumerate() {
        let more = bytes_of(item);
        let must = at_least_one && index == 0;
        if !must && bytes + more > bytes_max {
            return (index, bytes);
        }
        bytes += more;
    }
    (items.len(), bytes)
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use profiler_core::{Outcome, PhaseInterval, State, TaskDetail, Timestamp};
    use proptest::prelude::*;

    use super::*;
    use crate::cycle::Tables;
    use crate::ship::session::encode;

    const QUANTUM_NS: u64 = 10;

    fn deltas() -> impl Strategy<Value = Delta> {
        let state = prop::sample::select(&State::ALL[..]);
        let entry = ((1..2_000u32).prop_map(NodeId), state, 1..9_000_000u64);
        let entry = entry.prop_map(|(node, state, quanta)| (node, state, quanta * QUANTUM_NS));
        prop::collection::vec(entry, 0..60).prop_map(|entries| entries.into_iter().collect())
    }

    fn phases(count: usize) -> Vec<PhaseInterval> {
        let phase = |place: usize| PhaseInterval {
            name: format!("phase {place}").into(),
            start_ns: i64::MIN / 2,
            duration_ns: 1 << 60,
            count: u32::MAX,
        };
        (0..count).map(phase).collect()
    }

    fn tasks() -> impl Strategy<Value = Vec<TaskRecord>> {
        let one = (0..200usize, 0..5usize, 0..20usize).prop_map(|(text, labels, count)| {
            let label = |place: usize| (format!("key {place}").into(), "v".repeat(text).into());
            TaskRecord {
                id: TaskId(u64::MAX),
                name: "load".into(),
                key: "k".repeat(text).into(),
                thread_id: u32::MAX,
                thread_name: "pool".into(),
                parent: Some(TaskId(u64::MAX)),
                start: Timestamp::from_unix_ns(i64::MIN / 2),
                stop: Some(Timestamp::from_unix_ns(i64::MAX)),
                outcome: Outcome::Failed,
                cause: "".into(),
                detail: Some(Box::new(TaskDetail {
                    attempt: u32::MAX,
                    result_bytes: Some(u64::MAX),
                    type_name: "Vec".into(),
                    labels: (0..labels).map(label).collect(),
                    phases: phases(count),
                })),
            }
        });
        prop::collection::vec(one, 0..6)
    }

    fn totals() -> impl Strategy<Value = Vec<TaskTotals>> {
        let one = (0..30u32, 0..20usize).prop_map(|(buckets, count)| TaskTotals {
            name: "load".into(),
            outcome: Outcome::Cancelled,
            second: Timestamp::from_unix_ns(i64::MAX),
            duration_ns: u64::MAX,
            buckets: (0..buckets).map(|bucket| (bucket * 2_000, 1 << 50)).collect(),
            phases: phases(count),
        });
        prop::collection::vec(one, 0..6)
    }

    proptest! {
        #[test]
        fn splitting_keeps_everything_in_parts_that_fit(
            (delta, threads) in (deltas(), deltas()), tasks in tasks(), totals in totals(),
        ) {
            let bytes_max = 2_000;
            let at = Timestamp::from_unix_ns;
            let range = TimeRange::new(at(i64::MAX - 9), at(i64::MAX)).unwrap();
            let ticks = Ticks { made: u64::MAX, expected: u64::MAX, throttled: u64::MAX };
            let span = Span { range, quantum_ns: QUANTUM_NS, ticks };
            let whole =
                Parcel { span: Some(span), delta, threads, tasks, totals, records: Telemetry::default(), lost_queue_ns: 7 };
            let mut rest = Some(whole.clone());
            let mut parts = Vec::new();
            let tables = Mutex::new(Tables::new());
            while let Some(parcel) = rest {
                let (part, after) = parcel.split(bytes_max);
                let items = part.tasks.len() + part.totals.len();
                let encoded = encode(u64::MAX, &part, &tables).encoded_len();
                prop_assert!(encoded <= bytes_max || items == 1, "{encoded} bytes");
                parts.push(part);
                rest = after;
            }
            let (mut delta, mut threads) = (Delta::default(), Delta::default());
            for part in &parts {
                merge_delta(&mut delta, part.delta.clone());
                merge_delta(&mut threads, part.threads.clone());
            }
            prop_assert_eq!((delta, threads), (whole.delta, whole.threads));
            prop_assert_eq!(parts.iter().flat_map(|part| part.tasks.clone()).collect::<Vec<_>>(), whole.tasks);
            prop_assert_eq!(parts.iter().flat_map(|part| part.totals.clone()).collect::<Vec<_>>(), whole.totals);
            prop_assert_eq!(parts.iter().map(|part| part.lost_queue_ns).sum::<u64>(), 7);
            let made = parts.iter().filter_map(|part| part.span).filter(|span| span.ticks.made > 0);
            prop_assert_eq!(made.count(), 1);
        }
    }
}
