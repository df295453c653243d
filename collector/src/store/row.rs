//! The row of every counting table, packed so that sorting and merging compare one number.

use profiler_core::{NodeId, State};
use rustc_hash::FxHashMap;

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

    /// The same in a table without nodes.
    pub(crate) fn without_node(self) -> Key {
        Key(self.0 >> KIND_AT << KIND_AT)
    }

    /// The same in a table over all workers.
    pub(crate) fn over_workers(self) -> Key {
        Key(self.0 & !(u128::from(WorkerNumber::MAX.0) << WORKER_AT))
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

/// Room for the rows of one sealing, which the next one uses again: where much comes in, the kernel took
/// a quarter of the collector's time to give such pages anew each time.
#[derive(Default)]
pub(crate) struct RowBuffers {
    rows: Vec<(u64, u64)>,
}

impl std::fmt::Debug for RowBuffers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowBuffers").field("rows_max", &self.rows.capacity()).finish()
    }
}

/// Rows of one tier in order, each key once; in half the memory where keys differ in few bits.
pub(crate) struct TierRows<'a> {
    /// How the rows in `buffers` are packed; `None`: they are `wide` ones.
    packing: Option<Packing>,
    buffers: &'a mut RowBuffers,
    wide: Vec<Row>,
}

impl<'a> TierRows<'a> {
    /// Sorts and sums the `count` rows that `rows` gives, the same each time that it is called.
    pub(crate) fn of<I: Iterator<Item = Row>>(
        (rows, count): (impl Fn() -> I, usize),
        buffers: &'a mut RowBuffers,
    ) -> TierRows<'a> {
        buffers.rows.clear();
        let Some(packing) = Packing::of(rows().map(|row| row.key)) else {
            let mut wide = rows().collect();
            sort_and_sum(&mut wide);
            return TierRows { packing: None, buffers, wide };
        };
        // Room for what was much and is little again is given back.
        buffers.rows.shrink_to(count * 4);
        buffers.rows.reserve_exact(count);
        buffers.rows.extend(rows().map(|row| (packing.pack(row.key), row.value)));
        buffers.sort_and_sum();
        TierRows { packing: Some(packing), buffers, wide: Vec::new() }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Row> + '_ {
        let packed = self.packing.iter().flat_map(|packing| {
            let row = |(key, value): &(u64, u64)| Row { key: packing.unpack(*key), value: *value };
            self.buffers.rows.iter().map(row)
        });
        packed.chain(self.wide.iter().copied())
    }

    /// Makes rows of one tier those of a coarser one.
    pub(crate) fn roll_up(&mut self, from: Tier, to: Tier) {
        let coarser = |key: Key| {
            let mut fields = key.fields(from);
            fields.ts = Period(fields.ts.0 / (to.seconds() / from.seconds()));
            Key::new(to, fields)
        };
        let packing = Packing::of(self.iter().map(|row| coarser(row.key)));
        match (&self.packing, packing) {
            (Some(before), Some(packing)) => {
                for (key, _) in &mut self.buffers.rows {
                    *key = packing.pack(coarser(before.unpack(*key)));
                }
                self.buffers.sort_and_sum();
                self.packing = Some(packing);
            }
            _ => {
                let rows = self.iter().map(|row| Row { key: coarser(row.key), ..row });
                let mut wide = rows.collect();
                sort_and_sum(&mut wide);
                (self.packing, self.wide) = (None, wide);
            }
        }
    }
}

impl RowBuffers {
    fn sort_and_sum(&mut self) {
        self.rows.sort_unstable_by_key(|(key, _)| *key);
        self.rows.dedup_by(|next, sum| {
            let same = next.0 == sum.0;
            if same {
                sum.1 = sum.1.saturating_add(next.1);
            }
            same
        });
    }
}

/// Sums without their nodes.
pub(crate) fn without_nodes(rows: impl Iterator<Item = Row>) -> Vec<Row> {
    let mut sums: Vec<Row> = Vec::new();
    for Row { key, value } in rows {
        let key = key.without_node();
        match sums.last_mut() {
            // A node is what a key ends with, so those of one sum are neighbours.
            Some(sum) if sum.key == key => sum.value = sum.value.saturating_add(value),
            _ => sums.push(Row { key, value }),
        }
    }
    sums
}

/// Sums over all workers. Rows of one task and period stand together before and after, so only sums
/// are sorted.
pub(crate) fn over_workers(rows: impl Iterator<Item = Row>) -> Vec<Row> {
    let mut sums: Vec<Row> = Vec::new();
    let mut part: FxHashMap<Key, u64> = FxHashMap::default();
    let mut end_part = |part: &mut FxHashMap<Key, u64>| {
        let begin = sums.len();
        sums.extend(part.drain().map(|(key, value)| Row { key, value }));
        sums[begin..].sort_unstable_by_key(|row| row.key);
    };
    let mut of_task = None;
    for Row { key, value } in rows {
        if of_task.replace(key.of_task()) != Some(key.of_task()) {
            end_part(&mut part);
        }
        let sum = part.entry(key.over_workers()).or_default();
        *sum = sum.saturating_add(value);
    }
    end_part(&mut part);
    sums
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

    proptest! {
        /// Against sums by key: near each other in time and ids, or so far that no packing fits.
        #[test]
        fn rows_of_every_tier_are_the_sums_of_the_seconds_whatever_their_keys(
            rows in prop::collection::vec(fields(), 1..200),
            mask in prop_oneof![Just(u32::MAX), Just(0xfff), Just(0x3ffff)],
        ) {
            let rows = rows.into_iter().zip(1u64..).map(|((second, task, worker, kind, node), value)| {
                let fields = Fields {
                    ts: Period(1 << 29 | second & mask >> 4),
                    task: NodeId(task & mask),
                    worker: WorkerNumber(worker & mask),
                    kind,
                    node: node & mask,
                };
                (fields, value)
            });
            let rows: Vec<(Fields, u64)> = rows.collect();
            let key = |tier: Tier, fields: Fields| {
                let ts = Period(fields.ts.0 / tier.seconds());
                Key::new(tier, Fields { ts, ..fields })
            };
            let seconds = || {
                rows.iter().map(|(fields, value)| Row { key: key(Tier::Second, *fields), value: *value })
            };
            let mut buffers = RowBuffers::default();
            let mut found = TierRows::of((seconds, rows.len()), &mut buffers);
            let mut before = Tier::Second;
            for tier in Tier::ALL {
                if tier > before {
                    found.roll_up(before, tier);
                }
                before = tier;
                let sums = |change: &dyn Fn(Fields) -> Fields| {
                    let mut sums = std::collections::BTreeMap::new();
                    for (fields, value) in &rows {
                        *sums.entry(key(tier, change(*fields))).or_insert(0) += value;
                    }
                    sums.into_iter().map(|(key, value)| Row { key, value }).collect::<Vec<_>>()
                };
                prop_assert_eq!(found.iter().collect::<Vec<_>>(), sums(&|fields| fields));
                let expected = sums(&|fields| Fields { node: 0, ..fields });
                prop_assert_eq!(without_nodes(found.iter()), expected);
                let expected = sums(&|fields| Fields { worker: WorkerNumber::ALL, ..fields });
                prop_assert_eq!(over_workers(found.iter()), expected);
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
