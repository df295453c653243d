//! The row of every counting table, packed so that sorting and merging compare one number.

use profiler_core::{NodeId, State};

use super::tier::{Period, Tier};

/// Number of a worker in the store: its place in the table `workers`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct WorkerNumber(pub(crate) u32);

impl WorkerNumber {
    /// Most workers that a store ever names.
    pub(crate) const MAX: WorkerNumber = WorkerNumber((1 << WORKER_BITS) - 1);
    /// Where a table sums over all workers.
    pub(crate) const ALL: WorkerNumber = WorkerNumber(0);
}

/// What a row counts for. A table leaves out the columns that are 0 in all of its rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fields {
    /// Period of the table's tier.
    pub(crate) ts: Period,
    /// The node at the first level: a task, or threads outside any.
    pub(crate) task: NodeId,
    pub(crate) worker: WorkerNumber,
    /// A [`State`], an outcome or a measure, by its number.
    pub(crate) kind: u8,
    /// The stack's innermost node, or the bucket of a duration.
    pub(crate) node: u32,
}

impl Fields {
    /// The greatest `kind` that a key has room for.
    pub(crate) const KIND_MAX: u8 = (1 << KIND_BITS) - 1;
}

/// [`Fields`] in one number, of which the order is that of the rows in a file: first the periods
/// that share a row group, then task, period, worker, kind, node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(u128);

/// A sum and what it is the sum for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    pub(crate) key: Key,
    pub(crate) value: u64,
}

const GROUP_BITS: u32 = 28;
const TASK_BITS: u32 = 32;
const REST_BITS: u32 = 9;
const WORKER_BITS: u32 = 24;
const KIND_BITS: u32 = 3;
const NODE_BITS: u32 = 32;

const KIND_AT: u32 = NODE_BITS;
const WORKER_AT: u32 = KIND_AT + KIND_BITS;
const REST_AT: u32 = WORKER_AT + WORKER_BITS;
const TASK_AT: u32 = REST_AT + REST_BITS;
const GROUP_AT: u32 = TASK_AT + TASK_BITS;

const _: () = assert!(GROUP_AT + GROUP_BITS == u128::BITS);
const _: () = assert!(State::ALL.len() <= 1 << KIND_BITS);

impl Key {
    /// # Panics
    /// If a number is larger than its column: a caller's error.
    pub(crate) fn new(tier: Tier, fields: Fields) -> Key {
        let Fields { ts, task, worker, kind, node } = fields;
        let (group, rest) = (ts.0 / tier.periods_in_group(), ts.0 % tier.periods_in_group());
        assert!(group >> GROUP_BITS == 0 && rest >> REST_BITS == 0, "a period is past 2106");
        assert!(worker <= WorkerNumber::MAX && kind >> KIND_BITS == 0, "{worker:?} {kind}");
        let parts = [
            (group, GROUP_AT),
            (task.0, TASK_AT),
            (rest, REST_AT),
            (worker.0, WORKER_AT),
            (kind.into(), KIND_AT),
            (node, 0),
        ];
        Key(parts.into_iter().fold(0, |key, (value, at)| key | u128::from(value) << at))
    }

    /// The periods that share a row group, by number.
    pub(crate) fn group(self) -> u32 {
        self.part(GROUP_AT, GROUP_BITS)
    }

    /// Periods that share a row group, task and period: what all rows of a task in a period share.
    pub(crate) fn of_task(self) -> u128 {
        self.0 >> REST_AT
    }

    /// What it was made from. `tier` must be that of [`Key::new`].
    pub(crate) fn fields(self, tier: Tier) -> Fields {
        Fields {
            ts: Period(self.group() * tier.periods_in_group() + self.part(REST_AT, REST_BITS)),
            task: NodeId(self.part(TASK_AT, TASK_BITS)),
            worker: WorkerNumber(self.part(WORKER_AT, WORKER_BITS)),
            kind: u8::try_from(self.part(KIND_AT, KIND_BITS)).expect("it has 3 bits"),
            node: self.part(0, NODE_BITS),
        }
    }

    fn part(self, at: u32, bits: u32) -> u32 {
        u32::try_from(self.0 >> at & ((1 << bits) - 1)).expect("no part has more than 32 bits")
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Sorts rows and sums those of one key. Sums stop at the largest value.
pub(crate) fn sort_and_sum(rows: &mut Vec<Row>) {
    match Packing::of(rows.iter().map(|row| row.key)).filter(|_| rows.len() >= PACKED_ROWS_MIN) {
        Some(packing) => packing.sort(rows),
        None => rows.sort_unstable_by_key(|row| row.key),
    }
    sum_neighbours(rows);
}

/// Sums neighbours of one key. Sums stop at the largest value.
pub(crate) fn sum_neighbours(rows: &mut Vec<Row>) {
    rows.dedup_by(|next, sum| {
        let same = next.key == sum.key;
        if same {
            sum.value = sum.value.saturating_add(next.value);
        }
        same
    });
}

/// Fewer rows are sorted sooner by comparing them.
const PACKED_ROWS_MIN: usize = 2_048;

/// The fields of a key: where each begins, and how many bits it has.
const FIELDS: [(u32, u32); 6] = [
    (0, NODE_BITS),
    (KIND_AT, KIND_BITS),
    (WORKER_AT, WORKER_BITS),
    (REST_AT, REST_BITS),
    (TASK_AT, TASK_BITS),
    (GROUP_AT, GROUP_BITS),
];

/// How keys that share most of their bits are written in 64: of each field only the low bits in
/// which any two differ. So they keep their order, and take half the room and time of sorting.
#[derive(Debug)]
struct Packing {
    /// The bits that all keys share; 0 where they differ.
    shared: u128,
    /// For each field: where its bits stand in the key, which they are, where they go.
    parts: [(u32, u64, u32); FIELDS.len()],
}

impl Packing {
    /// `None` if the keys differ in too many bits, or there are none.
    fn of(mut keys: impl Iterator<Item = Key>) -> Option<Packing> {
        let first = keys.next()?.0;
        let differing = keys.fold(0, |bits, key| bits | key.0 ^ first);
        let (mut bits, mut packed) = (0, 0u128);
        let parts = FIELDS.map(|(at, width)| {
            let field = differing >> at & ((1 << width) - 1);
            let used = u128::BITS - field.leading_zeros();
            let mask = (1u128 << used) - 1;
            packed |= mask << at;
            let to = bits;
            bits += used;
            // A field has at most 32 bits. Where more than 64 are used, none of this is.
            (at, mask as u64, to.min(u64::BITS - 1))
        });
        (bits <= u64::BITS).then_some(Packing { shared: first & !packed, parts })
    }

    fn pack(&self, key: Key) -> u64 {
        let part = |(at, mask, to): &(u32, u64, u32)| ((key.0 >> at) as u64 & mask) << to;
        self.parts.iter().fold(0, |packed, at| packed | part(at))
    }

    fn unpack(&self, packed: u64) -> Key {
        let part = |(at, mask, to): &(u32, u64, u32)| u128::from(packed >> to & mask) << at;
        Key(self.parts.iter().fold(self.shared, |key, at| key | part(at)))
    }

    /// Sorts rows by their keys, of one key by their values. Takes half as much memory again as they do.
    fn sort(&self, rows: &mut Vec<Row>) {
        let packed = rows.iter().map(|row| (self.pack(row.key), row.value));
        let mut packed: Vec<(u64, u64)> = packed.collect();
        // Given back before more is taken.
        drop(std::mem::take(rows));
        packed.sort_unstable();
        let row = |(key, value)| Row { key: self.unpack(key), value };
        *rows = packed.into_iter().map(row).collect();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tier::Second;
    use super::*;

    fn fields() -> impl Strategy<Value = (u32, u32, u32, u8, u32)> {
        (any::<u32>(), any::<u32>(), 0..=WorkerNumber::MAX.0, 0..8u8, any::<u32>())
    }

    proptest! {
        #[test]
        fn a_key_holds_its_fields_in_the_order_of_a_file(
            a in fields(), b in fields(), tier in prop::sample::select(&Tier::ALL[..])
        ) {
            let fields = |(second, task, worker, kind, node)| Fields {
                ts: tier.period(Second(second)),
                task: NodeId(task),
                worker: WorkerNumber(worker),
                kind,
                node,
            };
            let order = |Fields { ts, task, worker, kind, node }| {
                (ts.0 / tier.periods_in_group(), task, ts, worker, kind, node)
            };
            let (a, b) = (fields(a), fields(b));
            let [key_a, key_b] = [a, b].map(|fields| Key::new(tier, fields));
            prop_assert_eq!(key_a.fields(tier), a);
            prop_assert_eq!(key_a.cmp(&key_b), order(a).cmp(&order(b)));
        }

        /// Whether keys differ in few bits or in nearly all, here and there or side by side.
        #[test]
        fn packed_rows_sort_as_their_keys_do(
            shared in any::<u128>(), differing in prop::collection::vec((0..128u32, 1..20u32), 0..6),
            keys in prop::collection::vec(any::<u128>(), 1..200),
        ) {
            let mask = |(at, bits): &(u32, u32)| ((1u128 << bits) - 1) << at;
            let differing = differing.iter().fold(0, |bits, at| bits | mask(at));
            let key = |key: u128| Key(shared & !differing | key & differing);
            let rows = keys.iter().enumerate();
            let rows = rows.map(|(at, bits)| Row { key: key(*bits), value: at as u64 });
            let mut rows: Vec<Row> = rows.collect();
            let mut expected = rows.clone();
            expected.sort_by_key(|row| row.key);
            match Packing::of(rows.iter().map(|row| row.key)) {
                Some(packing) => {
                    packing.sort(&mut rows);
                    prop_assert_eq!(rows, expected);
                }
                None => prop_assert!(differing.count_ones() > 8),
            }
        }
    }

    #[test]
    fn equal_keys_are_summed_and_sums_stop_at_the_largest_value() {
        let row = |node, value| {
            let (ts, task, worker) = (Period(9), NodeId(1), WorkerNumber(2));
            let key = Key::new(Tier::Second, Fields { ts, task, worker, kind: 3, node });
            Row { key, value }
        };
        let mut rows = vec![row(7, 1), row(5, u64::MAX), row(7, 2), row(5, 1), row(6, 4)];
        sort_and_sum(&mut rows);
        assert_eq!(rows, [row(5, u64::MAX), row(6, 4), row(7, 3)]);
    }
}
