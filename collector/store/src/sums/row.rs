//! The row of every sum table, packed so that sorting and merging compare one number.

use profiler_core::{NodeId, State};

use crate::sums::tier::{Period, Tier};

/// Number of a worker in the store: its row in the table `workers`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WorkerNumber(pub u32);

impl WorkerNumber {
    /// The largest number; a store cannot name more workers.
    pub const MAX: WorkerNumber = WorkerNumber((1 << WORKER_BITS) - 1);
    /// Stands for all workers where a table sums over them.
    pub const ALL: WorkerNumber = WorkerNumber(0);
}

/// The key columns of a row. A table omits the columns that are 0 in all of its rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fields {
    /// The period, in the table's tier.
    pub ts: Period,
    /// The first-level node: a task, or the threads outside any task.
    pub task: NodeId,
    pub worker: WorkerNumber,
    /// A [`State`], an outcome or a measure, by its number.
    pub kind: u8,
    /// The stack's innermost node, or the bucket of a duration.
    pub node: u32,
}

impl Fields {
    /// The largest `kind` that fits in a key.
    pub const KIND_MAX: u8 = (1 << KIND_BITS) - 1;
}

/// [`Fields`] in one number, ordered as the rows of a file: by the group of periods that share a row
/// group, then by task, period, worker, kind and node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(u128);

/// A sum and its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    pub key: Key,
    pub value: u64,
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
    /// If a number does not fit in its bits: an error of the caller.
    pub fn new(tier: Tier, fields: Fields) -> Key {
        let Fields {
            ts,
            task,
            worker,
            kind,
            node,
        } = fields;
        let group = ts.0 / tier.periods_in_group();
        let rest = ts.0 % tier.periods_in_group();
        assert!(
            group >> GROUP_BITS == 0 && rest >> REST_BITS == 0,
            "a period is past 2106"
        );
        assert!(
            worker <= WorkerNumber::MAX && kind >> KIND_BITS == 0,
            "{worker:?} {kind}"
        );
        let parts = [
            (group, GROUP_AT),
            (task.0, TASK_AT),
            (rest, REST_AT),
            (worker.0, WORKER_AT),
            (kind.into(), KIND_AT),
            (node, 0),
        ];
        Key(parts
            .into_iter()
            .fold(0, |key, (value, at)| key | u128::from(value) << at))
    }

    /// The number of the group of periods that share a row group.
    pub fn group(self) -> u32 {
        self.part(GROUP_AT, GROUP_BITS)
    }

    /// Group, task and period: the part that all rows of a task in a period share.
    pub fn of_task(self) -> u128 {
        self.0 >> REST_AT
    }

    /// The fields that [`Key::new`] was called with. `tier` must be the same.
    pub fn fields(self, tier: Tier) -> Fields {
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

/// Sorts rows and adds up those with equal keys. Sums saturate.
pub(crate) fn sort_and_sum(rows: &mut Vec<Row>) {
    match Packing::of(rows.iter().map(|row| row.key)).filter(|_| rows.len() >= PACKED_ROWS_MIN) {
        Some(packing) => packing.sort(rows),
        None => rows.sort_unstable_by_key(|row| row.key),
    }
    sum_neighbors(rows);
}

/// Adds up neighbors with equal keys. Sums saturate.
pub(crate) fn sum_neighbors(rows: &mut Vec<Row>) {
    rows.dedup_by(|next, sum| {
        let same = next.key == sum.key;
        if same {
            sum.value = sum.value.saturating_add(next.value);
        }
        same
    });
}

/// Fewer rows are sorted faster by comparing whole keys.
const PACKED_ROWS_MIN: usize = 2_048;

/// The fields of a key: first bit and number of bits of each.
const FIELDS: [(u32, u32); 6] = [
    (0, NODE_BITS),
    (KIND_AT, KIND_BITS),
    (WORKER_AT, WORKER_BITS),
    (REST_AT, REST_BITS),
    (TASK_AT, TASK_BITS),
    (GROUP_AT, GROUP_BITS),
];

/// Packs keys that share most of their bits into 64 bits: the low bits of each field in which any two
/// keys differ. They keep their order, and sorting takes half the memory and half the time.
#[derive(Debug)]
struct Packing {
    /// The bits that all keys share; 0 where they differ.
    shared: u128,
    fields: [PackedField; FIELDS.len()],
}

/// The bits of a field that are packed.
#[derive(Clone, Copy, Debug)]
struct PackedField {
    /// First bit in the key.
    at: u32,
    mask: u64,
    /// First bit in the packed number.
    to: u32,
}

impl Packing {
    /// `None` if the keys differ in too many bits, or there are none.
    fn of(mut keys: impl Iterator<Item = Key>) -> Option<Packing> {
        let first = keys.next()?.0;
        let differing = keys.fold(0, |bits, key| bits | key.0 ^ first);
        let mut bits = 0;
        let mut packed = 0u128;
        let fields = FIELDS.map(|(at, width)| {
            let field = differing >> at & ((1 << width) - 1);
            let used = u128::BITS - field.leading_zeros();
            let mask = (1u128 << used) - 1;
            packed |= mask << at;
            let to = bits.min(u64::BITS - 1);
            bits += used;
            // A field has at most 32 bits. If all together have more than 64, nothing is packed.
            PackedField {
                at,
                mask: mask as u64,
                to,
            }
        });
        (bits <= u64::BITS).then_some(Packing {
            shared: first & !packed,
            fields,
        })
    }

    fn pack(&self, key: Key) -> u64 {
        let part = |field: &PackedField| ((key.0 >> field.at) as u64 & field.mask) << field.to;
        self.fields
            .iter()
            .fold(0, |packed, field| packed | part(field))
    }

    fn unpack(&self, packed: u64) -> Key {
        let part = |field: &PackedField| u128::from(packed >> field.to & field.mask) << field.at;
        Key(self
            .fields
            .iter()
            .fold(self.shared, |key, field| key | part(field)))
    }

    /// Sorts rows by key, then by value. Needs half as much memory again as the rows.
    fn sort(&self, rows: &mut Vec<Row>) {
        let mut packed: Vec<(u64, u64)> = rows
            .iter()
            .map(|row| (self.pack(row.key), row.value))
            .collect();
        // Free this memory before the sorted rows are allocated.
        drop(std::mem::take(rows));
        packed.sort_unstable();
        *rows = packed
            .into_iter()
            .map(|(key, value)| Row {
                key: self.unpack(key),
                value,
            })
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sums::tier::Second;

    fn fields() -> impl Strategy<Value = (u32, u32, u32, u8, u32)> {
        (
            any::<u32>(),
            any::<u32>(),
            0..=WorkerNumber::MAX.0,
            0..8u8,
            any::<u32>(),
        )
    }

    proptest! {
        #[test]
        fn keys_are_ordered_as_the_rows_of_a_file(
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
            let [a, b] = [a, b].map(fields);
            let [key_a, key_b] = [a, b].map(|fields| Key::new(tier, fields));
            prop_assert_eq!(key_a.fields(tier), a);
            prop_assert_eq!(key_a.cmp(&key_b), order(a).cmp(&order(b)));
        }

        /// Keys that differ in a few bits or in nearly all of them, scattered or adjacent.
        #[test]
        fn packed_rows_sort_as_their_keys_do(
            shared in any::<u128>(), differing in prop::collection::vec((0..128u32, 1..20u32), 0..6),
            keys in prop::collection::vec(any::<u128>(), 1..200),
        ) {
            let mask = |(at, bits): (u32, u32)| ((1u128 << bits) - 1) << at;
            let differing = differing.into_iter().fold(0, |bits, range| bits | mask(range));
            let key = |key: u128| Key(shared & !differing | key & differing);
            let row = |(at, bits): (usize, u128)| Row { key: key(bits), value: at as u64 };
            let mut rows: Vec<Row> = keys.into_iter().enumerate().map(row).collect();
            let mut expected = rows.clone();
            expected.sort_by_key(|row| row.key);
            match Packing::of(rows.iter().map(|row| row.key)) {
                Some(packing) => {
                    packing.sort(&mut rows);
                    prop_assert_eq!(rows, expected);
                }
                None => {
                    let used = FIELDS.map(|(at, width)| {
                        u128::BITS - (differing >> at & ((1 << width) - 1)).leading_zeros()
                    });
                    prop_assert!(used.iter().sum::<u32>() > u64::BITS);
                }
            }
        }
    }

    #[test]
    fn rows_with_equal_keys_are_added_and_sums_saturate() {
        let mut rows = vec![row(7, 1), row(5, u64::MAX), row(7, 2), row(5, 1), row(6, 4)];
        sort_and_sum(&mut rows);
        assert_eq!(rows, [row(5, u64::MAX), row(6, 4), row(7, 3)]);
    }

    fn row(node: u32, value: u64) -> Row {
        let fields = Fields {
            ts: Period(9),
            task: NodeId(1),
            worker: WorkerNumber(2),
            kind: 3,
            node,
        };
        Row {
            key: Key::new(Tier::Second, fields),
            value,
        }
    }
}
