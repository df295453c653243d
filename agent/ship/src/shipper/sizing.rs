//! How much room a batch takes, in memory and on the wire; and what keeps it within a limit:
//! merging, splitting, and shedding the oldest rows.
//!
//! Room on the wire includes the names that are in the dictionary: the collector's log, whose records are
//! limited too, has them in each record.

mod telemetry;

use profiler_core::wire::weight_bytes_max;
use profiler_core::{Delta, NodeId, PhaseInterval, TaskId, TaskRecord, TaskTotals, Ticks};
use rustc_hash::FxHashSet;

use crate::batch::{Batch, Span, coarsen_totals, merge_telemetry, merge_totals};

/// Memory of a batch without its entries and rows, in bytes.
const BATCH_BYTES: usize = size_of::<Batch>();

/// Most bytes of a row on the wire without its texts and lists: thirteen numbers, their tags, and
/// four lengths.
const ROW_BYTES_MAX: usize = 104;
/// Most bytes of a label without its value, and of a phase.
const LABEL_BYTES_MAX: usize = 16;
const PHASE_BYTES_MAX: usize = 40;
/// Most bytes of a sum of tasks without its buckets and phases: four numbers and their tags.
const TOTALS_BYTES_MAX: usize = 48;
/// Most bytes of a bucket.
const BUCKET_BYTES_MAX: usize = 14;

/// Most bytes of a flush on the wire without its weights and rows: sequence number, times, clock,
/// account, and the tags and lengths of the weights by stack and by thread.
const FLUSH_BYTES_MAX: usize = 512;

impl Span {
    /// The span of the sum of both.
    fn merge(self, other: Span) -> Span {
        Span {
            range: self.range.hull(other.range),
            quantum_ns: common_divisor(self.quantum_ns, other.quantum_ns),
            ticks: self.ticks + other.ticks,
        }
    }
}

impl Batch {
    /// Sum of the weights, in nanoseconds.
    pub(crate) fn weight_ns(&self) -> u64 {
        self.delta.total().total_ns()
    }

    /// Length of the time that it covers, in nanoseconds.
    pub(crate) fn length_ns(&self) -> u64 {
        self.span.map_or(0, |span| span.range.length_ns())
    }

    /// Memory of the batch in bytes: a fixed part, the entries, and the rows, sums and telemetry
    /// with all their texts, as if no text were shared.
    pub(crate) fn bytes(&self) -> usize {
        let rows = self.tasks.iter().map(row_bytes).sum::<usize>();
        let totals = self.totals.iter().map(totals_bytes).sum::<usize>();
        let weights = self.delta.bytes() + self.threads.bytes();
        BATCH_BYTES + weights + rows + totals + telemetry::memory_bytes(&self.telemetry)
    }

    /// The sum of this batch and a later one. Of a task in both, the later record stays.
    pub(crate) fn merge(mut self, later: Batch) -> Batch {
        self.span = match (self.span, later.span) {
            (Some(span), Some(later)) => Some(span.merge(later)),
            (span, later) => span.or(later),
        };
        merge_delta(&mut self.delta, later.delta);
        merge_delta(&mut self.threads, later.threads);
        merge_totals(&mut self.totals, later.totals);
        let replaced: FxHashSet<TaskId> = later.tasks.iter().map(|task| task.id).collect();
        self.tasks.retain(|task| !replaced.contains(&task.id));
        self.tasks.extend(later.tasks);
        merge_telemetry(&mut self.telemetry, later.telemetry);
        self.aggregated_tasks = self.aggregated_tasks.saturating_add(later.aggregated_tasks);
        self.lost_tasks = self.lost_tasks.saturating_add(later.lost_tasks);
        self.lost_telemetry = self.lost_telemetry.saturating_add(later.lost_telemetry);
        self.lost_queue_ns = self.lost_queue_ns.saturating_add(later.lost_queue_ns);
        self.lost_unseen_ns = self.lost_unseen_ns.saturating_add(later.lost_unseen_ns);
        self
    }

    /// Splits the batch into what one flush of at most `bytes_max` encoded bytes holds, and the
    /// rest. The first part has at least one entry, row, sum or record, so that splitting ends.
    /// Weights by thread go first, then weights by stack, rows, sums and telemetry. Ticks and
    /// counts of losses go with the first part.
    pub(crate) fn split(mut self, bytes_max: usize) -> (Batch, Option<Batch>) {
        let mut room = bytes_max.saturating_sub(FLUSH_BYTES_MAX);
        let mut is_first = true;
        let quantum_ns = self.span.map_or(1, |span| span.quantum_ns);
        let mut rest = Batch::default();
        let weights = [
            (&mut self.threads, &mut rest.threads),
            (&mut self.delta, &mut rest.delta),
        ];
        for (delta, rest) in weights {
            let (entries, bytes) = entries_within(delta, quantum_ns, room, is_first);
            *rest = delta.split_off(entries);
            // Later kinds wait until this one is sent whole.
            room = if rest.is_empty() {
                room.saturating_sub(bytes)
            } else {
                0
            };
            is_first &= entries == 0;
        }
        let (rows, bytes) = within(&self.tasks, room, is_first, row_wire_bytes);
        rest.tasks = self.tasks.split_off(rows);
        room = if rest.tasks.is_empty() {
            room.saturating_sub(bytes)
        } else {
            0
        };
        is_first &= rows == 0;
        let (sums, bytes) = within(&self.totals, room, is_first, totals_wire_bytes_max);
        rest.totals = self.totals.split_off(sums);
        room = if rest.totals.is_empty() {
            room.saturating_sub(bytes)
        } else {
            0
        };
        is_first &= sums == 0;
        rest.telemetry = telemetry::split_off(&mut self.telemetry, room, is_first);
        let weights_left = !rest.delta.is_empty() || !rest.threads.is_empty();
        let rows_left = !rest.tasks.is_empty() || !rest.totals.is_empty();
        if !weights_left && !rows_left && rest.telemetry.is_empty() {
            return (self, None);
        }
        let rest_of_span = self.span.filter(|_| weights_left);
        rest.span = rest_of_span.map(|span| Span {
            ticks: Ticks::default(),
            ..span
        });
        (self, Some(rest))
    }

    /// Merges sums that differ only by their second, so that they take less memory.
    pub(crate) fn coarsen_totals(&mut self) {
        coarsen_totals(&mut self.totals);
    }

    /// Tasks in rows and sums.
    pub(crate) fn task_count(&self) -> u64 {
        let summed = self
            .totals
            .iter()
            .fold(0u64, |sum, totals| sum.saturating_add(totals.count()));
        summed.saturating_add(self.tasks.len() as u64)
    }

    /// Drops rows until `bytes` are freed or none is left: ended tasks before running ones, the
    /// oldest first. Returns their number.
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

    /// Drops resource samples, then transfers, until `bytes` are freed or none is left, the oldest
    /// first. Returns their number.
    pub(crate) fn shed_telemetry(&mut self, bytes: usize) -> u64 {
        telemetry::shed(&mut self.telemetry, bytes)
    }
}

fn merge_delta(delta: &mut Delta, later: Delta) {
    if delta.is_empty() {
        *delta = later;
    } else if !later.is_empty() {
        *delta = delta.merge(&later);
    }
}

/// The number of entries from the front that fit into `bytes_max` encoded bytes, and their size.
/// With `at_least_one`, the first is taken even if it does not fit.
fn entries_within(
    delta: &Delta,
    quantum_ns: u64,
    bytes_max: usize,
    at_least_one: bool,
) -> (usize, usize) {
    let mut last = NodeId::ROOT;
    let mut bytes = 0;
    for (index, (node, state, weight)) in delta.entries().iter().enumerate() {
        let entry_bytes = weight_bytes_max(last, *node, *state, weight / quantum_ns);
        let must = at_least_one && index == 0;
        if !must && bytes + entry_bytes > bytes_max {
            return (index, bytes);
        }
        bytes += entry_bytes;
        last = *node;
    }
    (delta.entries().len(), bytes)
}

/// Memory of a row in bytes.
pub(crate) fn row_bytes(task: &TaskRecord) -> usize {
    let detail = task.detail.as_deref().map_or(0, |detail| {
        let lists = size_of_val(&detail.labels[..]) + size_of_val(&detail.phases[..]);
        size_of_val(detail) + lists + detail.type_name.len()
    });
    std::mem::size_of::<TaskRecord>() + task.name.len() + text_bytes(task) + detail
}

/// Bytes of the names of a row, which are in the dictionary.
fn name_bytes(task: &TaskRecord) -> usize {
    let detail = task.detail.as_deref().map_or(0, |detail| {
        let keys: usize = detail.labels.iter().map(|(key, _)| key.len()).sum();
        keys + phase_name_bytes(&detail.phases) + detail.type_name.len()
    });
    task.name.len() + detail
}

fn phase_name_bytes(phases: &[PhaseInterval]) -> usize {
    phases.iter().map(|phase| phase.name.len()).sum()
}

/// Bytes of the other texts of a row.
fn text_bytes(task: &TaskRecord) -> usize {
    let labels = task.detail.iter().flat_map(|detail| &detail.labels);
    let values: usize = labels.map(|(_, value)| value.len()).sum();
    task.key.len() + task.thread_name.len() + task.cause.len() + values
}

/// Memory of a sum of tasks in bytes.
fn totals_bytes(totals: &TaskTotals) -> usize {
    let TaskTotals {
        name,
        buckets,
        phases,
        ..
    } = totals;
    size_of_val(totals) + name.len() + size_of_val(&buckets[..]) + size_of_val(&phases[..])
}

/// Most bytes of a sum of tasks on the wire.
fn totals_wire_bytes_max(totals: &TaskTotals) -> usize {
    let TaskTotals {
        name,
        buckets,
        phases,
        ..
    } = totals;
    let lists = buckets.len() * BUCKET_BYTES_MAX + phases.len() * PHASE_BYTES_MAX;
    TOTALS_BYTES_MAX + lists + name.len() + phase_name_bytes(phases)
}

/// Most bytes of a row on the wire.
fn row_wire_bytes(task: &TaskRecord) -> usize {
    let lists = task.detail.as_ref().map_or(0, |detail| {
        detail.labels.len() * LABEL_BYTES_MAX + detail.phases.len() * PHASE_BYTES_MAX
    });
    ROW_BYTES_MAX + name_bytes(task) + text_bytes(task) + lists
}

/// As [`entries_within`], for items with a size of their own.
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

    use profiler_core::{Outcome, State, TaskDetail, TimeRange, Timestamp};
    use proptest::prelude::*;

    use super::*;
    use crate::shipper::session::encode;
    use crate::tables::Tables;

    const QUANTUM_NS: u64 = 10;

    fn deltas() -> impl Strategy<Value = Delta> {
        let state = prop::sample::select(&State::ALL[..]);
        let entry = ((1..2_000u32).prop_map(NodeId), state, 1..9_000_000u64)
            .prop_map(|(node, state, quanta)| (node, state, quanta * QUANTUM_NS));
        prop::collection::vec(entry, 0..60).prop_map(|entries| entries.into_iter().collect())
    }

    fn phases(count: usize) -> Vec<PhaseInterval> {
        (0..count)
            .map(|place: usize| PhaseInterval {
                name: format!("phase {place}").into(),
                start_ns: i64::MIN / 2,
                duration_ns: 1 << 60,
                count: u32::MAX,
            })
            .collect()
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
            buckets: (0..buckets)
                .map(|bucket| (bucket * 2_000, 1 << 50))
                .collect(),
            phases: phases(count),
        });
        prop::collection::vec(one, 0..6)
    }

    proptest! {
        #[test]
        fn splitting_keeps_everything_in_parts_that_fit(
            delta in deltas(), threads in deltas(), tasks in tasks(), totals in totals(),
        ) {
            let bytes_max = 2_000;
            let at = Timestamp::from_unix_ns;
            let range = TimeRange::new(at(i64::MAX - 9), at(i64::MAX)).unwrap();
            let ticks = Ticks { made: u64::MAX, expected: u64::MAX, throttled: u64::MAX };
            let span = Span { range, quantum_ns: QUANTUM_NS, ticks };
            let samples = Batch::of_samples(span, delta, threads);
            let whole = Batch { tasks, totals, lost_queue_ns: 7, ..samples };
            let mut rest = Some(whole.clone());
            let mut parts = Vec::new();
            let tables = Mutex::new(Tables::default());
            while let Some(batch) = rest {
                let (part, after) = batch.split(bytes_max);
                let items = part.tasks.len() + part.totals.len();
                let encoded = encode(u64::MAX, &part, &tables).encoded_len();
                prop_assert!(encoded <= bytes_max || items == 1, "{encoded} bytes");
                parts.push(part);
                rest = after;
            }
            let mut delta = Delta::default();
            let mut threads = Delta::default();
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
