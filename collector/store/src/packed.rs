//! The weights of a window, as kept in memory and in the log: about 4 bytes an entry, where a
//! [`Delta`](profiler_core::Delta) takes 16.

use profiler_core::wire::WireError;
use profiler_core::{NodeId, State};
use prost::bytes::BufMut;
use prost::encoding::{decode_varint, encode_varint, encoded_len_varint};

/// A node of the collector's tree, and its nanoseconds in one state.
pub type Entry = (NodeId, State, u64);

/// Nanoseconds by node of the collector's tree and state. Each pair occurs once, in the order of
/// the tables: by task, state and node.
///
/// The encoding, all varints, for each task and state with weight: the gap to the previous task's
/// id; the state's number plus 8 times the length of what follows, in bytes; and for each node,
/// ascending, the gap to the previous id (for the first: to the task's id) and the weight in
/// quanta.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PackedWeights {
    quantum_ns: u64,
    total_ns: u64,
    bytes: Box<[u8]>,
}

/// The time of one task in one state.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The first-level node.
    pub task: NodeId,
    pub state: State,
    quantum_ns: u64,
    bytes: &'a [u8],
}

/// Task, state and node are packed into one number to sort by. A task is a node too.
const NODE_BITS: u32 = 30;
const STATE_BITS: u32 = 3;
const _: () =
    assert!(State::ALL.len() <= 1 << STATE_BITS && 2 * NODE_BITS + STATE_BITS < u64::BITS);

/// Most nodes that a tree may have.
pub const NODES_MAX: usize = 1 << NODE_BITS;

fn key_of(task: NodeId, state: State, node: NodeId) -> u64 {
    assert!(
        node.index() < NODES_MAX && task <= node,
        "node {node:?} of task {task:?}"
    );
    (u64::from(task.0) << STATE_BITS | state as u64) << NODE_BITS | u64::from(node.0)
}

/// Why decoding the result of [`PackedWeights::of`] cannot fail.
const OURS: &str = "it was packed by us, or checked";

impl PackedWeights {
    /// Packs entries, which may be in any order; those of the same node and state are summed.
    /// `task_of` returns the first-level node above a node.
    ///
    /// # Panics
    /// If a weight is not a multiple of `quantum_ns`: the remainder would be lost.
    pub fn of(
        entries: impl IntoIterator<Item = Entry>,
        quantum_ns: u64,
        task_of: impl Fn(NodeId) -> NodeId,
    ) -> PackedWeights {
        let key = |(node, state, nanoseconds): Entry| {
            assert!(
                nanoseconds.is_multiple_of(quantum_ns),
                "{nanoseconds} of {quantum_ns}"
            );
            (key_of(task_of(node), state, node), nanoseconds / quantum_ns)
        };
        let mut entries: Vec<(u64, u64)> = entries.into_iter().map(key).collect();
        sum_by_key(&mut entries);
        entries.retain(|(_, quanta)| *quanta > 0);
        let quanta = entries
            .iter()
            .fold(0u64, |sum, (_, quanta)| sum.saturating_add(*quanta));
        // As long as what is written: a longer buffer would not shrink, because allocators leave a block that is cut by
        // less than half as it is.
        let mut bytes = Vec::with_capacity(packed_length(&entries));
        let mut last_task = 0;
        for part in entries.chunk_by(is_same_part) {
            let part_key = part[0].0 >> NODE_BITS;
            let task = part_key >> STATE_BITS;
            let state = part_key & ((1 << STATE_BITS) - 1);
            encode_varint(task - last_task, &mut bytes);
            let length = weights_length(task, part) as u64;
            encode_varint(length << STATE_BITS | state, &mut bytes);
            each_gap(task, part, |gap, quanta| {
                put_varint(gap, &mut bytes);
                put_varint(quanta, &mut bytes);
            });
            last_task = task;
        }
        let total_ns = quanta.saturating_mul(quantum_ns);
        PackedWeights {
            quantum_ns,
            total_ns,
            bytes: bytes.into(),
        }
    }

    /// Decodes bytes from the log, which may have any order and refer to a tree of any size.
    ///
    /// # Errors
    /// If the bytes are invalid, or a weight or the sum of all exceeds 64 bits.
    pub fn decode(quantum_ns: u64, bytes: &[u8]) -> Result<Vec<Entry>, WireError> {
        let mut entries = Vec::new();
        let mut total = 0u64;
        if quantum_ns == 0 && !bytes.is_empty() {
            return Err(WireError::Unreadable);
        }
        for part in (Parts {
            quantum_ns,
            bytes,
            task: 0,
        }) {
            let part = part?;
            for entry in part.checked_entries() {
                let (node, nanoseconds) = entry?;
                total = total
                    .checked_add(nanoseconds)
                    .ok_or(WireError::Unreadable)?;
                entries.push((node, part.state, nanoseconds));
            }
        }
        Ok(entries)
    }

    /// The parts, by task and state, ascending.
    pub fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        let parts = Parts {
            quantum_ns: self.quantum_ns,
            bytes: &self.bytes,
            task: 0,
        };
        parts.map(|part| part.expect(OURS))
    }

    /// All entries, by part.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        self.parts().flat_map(|part| {
            part.entries()
                .map(move |(node, nanoseconds)| (node, part.state, nanoseconds))
        })
    }

    /// The same weights by nodes of another tree. `task_of` is of that tree.
    pub fn translated(
        &self,
        node_of: impl Fn(NodeId) -> NodeId,
        task_of: impl Fn(NodeId) -> NodeId,
    ) -> PackedWeights {
        let entries = self
            .entries()
            .map(|(node, state, nanoseconds)| (node_of(node), state, nanoseconds));
        // Without weights the quantum may be 0.
        PackedWeights::of(entries, self.quantum_ns.max(1), task_of)
    }

    /// The sum of all weights.
    pub fn total_ns(&self) -> u64 {
        self.total_ns
    }

    pub fn quantum_ns(&self) -> u64 {
        self.quantum_ns
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl<'a> Part<'a> {
    /// Writes [`Part::written_bytes`] bytes: what [`Part::read`] needs besides task and state.
    pub fn write(&self, mut to: impl BufMut) {
        encode_varint(self.quantum_ns, &mut to);
        to.put_slice(self.bytes);
    }

    pub fn written_bytes(&self) -> usize {
        encoded_len_varint(self.quantum_ns) + self.bytes.len()
    }

    pub fn read(task: NodeId, state: State, mut bytes: &'a [u8]) -> Part<'a> {
        let quantum_ns = varint(&mut bytes).expect(OURS);
        Part {
            task,
            state,
            quantum_ns,
            bytes,
        }
    }

    /// Visits the entries, in the order of [`Part::entries`].
    pub fn each(self, mut show: impl FnMut(NodeId, u64)) {
        let Part {
            task: NodeId(mut node),
            quantum_ns,
            mut bytes,
            ..
        } = self;
        while !bytes.is_empty() {
            let gap = varint(&mut bytes).expect(OURS);
            node += u32::try_from(gap).expect(OURS);
            let quanta = varint(&mut bytes).expect(OURS);
            show(NodeId(node), quanta * quantum_ns);
        }
    }

    /// Nodes, ascending, and their nanoseconds, which are never 0.
    pub fn entries(self) -> impl Iterator<Item = (NodeId, u64)> + 'a {
        self.checked_entries().map(|entry| entry.expect(OURS))
    }

    #[inline]
    fn checked_entries(self) -> impl Iterator<Item = Result<(NodeId, u64), WireError>> + 'a {
        let Part {
            task,
            quantum_ns,
            mut bytes,
            ..
        } = self;
        let mut last = task.0;
        std::iter::from_fn(move || {
            if bytes.is_empty() {
                return None;
            }
            let gap = varint(&mut bytes)
                .ok()
                .and_then(|gap| u32::try_from(gap).ok());
            let node = gap.and_then(|gap| last.checked_add(gap));
            let quanta = varint(&mut bytes).ok();
            let nanoseconds = quanta.and_then(|quanta| quanta.checked_mul(quantum_ns));
            let entry = node.zip(nanoseconds).ok_or(WireError::Unreadable);
            match entry {
                Ok((node, _)) => last = node,
                Err(_) => bytes = &[],
            }
            Some(entry.map(|(node, nanoseconds)| (NodeId(node), nanoseconds)))
        })
    }
}

/// Whether two entries are of the same task and state.
fn is_same_part(a: &(u64, u64), b: &(u64, u64)) -> bool {
    a.0 >> NODE_BITS == b.0 >> NODE_BITS
}

/// Calls `show` with the gap to the node before and the quanta of each entry of a part.
#[inline]
fn each_gap(task: u64, part: &[(u64, u64)], mut show: impl FnMut(u64, u64)) {
    let mut last = task;
    for (key, quanta) in part {
        let node = key & ((1 << NODE_BITS) - 1);
        // A node's ancestors have smaller ids.
        show(node - last, *quanta);
        last = node;
    }
}

/// Bytes of the nodes and weights of a part.
fn weights_length(task: u64, part: &[(u64, u64)]) -> usize {
    let mut length = 0;
    each_gap(task, part, |gap, quanta| {
        length += encoded_len_varint(gap) + encoded_len_varint(quanta);
    });
    length
}

/// Bytes of all parts.
fn packed_length(entries: &[(u64, u64)]) -> usize {
    let mut last_task = 0;
    let mut length = 0;
    for part in entries.chunk_by(is_same_part) {
        let task = part[0].0 >> NODE_BITS >> STATE_BITS;
        let weights = weights_length(task, part);
        let head = encoded_len_varint(task - last_task);
        length += head + encoded_len_varint((weights as u64) << STATE_BITS) + weights;
        last_task = task;
    }
    length
}

/// Sorts by key and sums the values of equal keys, saturating.
fn sum_by_key(sums: &mut Vec<(u64, u64)>) {
    sums.sort_unstable_by_key(|(key, _)| *key);
    sums.dedup_by(|next, sum| {
        let same = next.0 == sum.0;
        if same {
            sum.1 = sum.1.saturating_add(next.1);
        }
        same
    });
}

/// Decodes parts; ends at the first error.
struct Parts<'a> {
    quantum_ns: u64,
    bytes: &'a [u8],
    /// The task of the previous part.
    task: u32,
}

impl<'a> Iterator for Parts<'a> {
    type Item = Result<Part<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        let part = self.read();
        if part.is_err() {
            self.bytes = &[];
        }
        Some(part)
    }
}

impl<'a> Parts<'a> {
    fn read(&mut self) -> Result<Part<'a>, WireError> {
        let gap = u32::try_from(varint(&mut self.bytes)?).ok();
        let task = gap.and_then(|gap| self.task.checked_add(gap));
        self.task = task.ok_or(WireError::Unreadable)?;
        let head = varint(&mut self.bytes)?;
        let state = State::ALL.get((head & ((1 << STATE_BITS) - 1)) as usize);
        let length = usize::try_from(head >> STATE_BITS).ok();
        let parts = length.and_then(|length| self.bytes.split_at_checked(length));
        let ((bytes, rest), state) = parts.zip(state).ok_or(WireError::Unreadable)?;
        self.bytes = rest;
        Ok(Part {
            task: NodeId(self.task),
            state: *state,
            quantum_ns: self.quantum_ns,
            bytes,
        })
    }
}

/// A varint; most have one byte.
#[inline]
fn put_varint(value: u64, to: &mut Vec<u8>) {
    match u8::try_from(value) {
        Ok(byte) if byte < 0x80 => to.push(byte),
        _ => encode_varint(value, to),
    }
}

#[inline]
fn varint(bytes: &mut &[u8]) -> Result<u64, WireError> {
    decode_varint(bytes).map_err(|_| WireError::Unreadable)
}

#[cfg(test)]
mod tests {
    use profiler_core::Delta;
    use proptest::prelude::*;

    use super::*;

    /// Makes every hundredth node a task.
    fn task_of(node: NodeId) -> NodeId {
        NodeId(node.0 / 100 * 100)
    }

    fn entries() -> impl Strategy<Value = Vec<(NodeId, State, u64)>> {
        let node = prop_oneof![1..900u32, 1..1u32 << NODE_BITS];
        let entry = (node, prop::sample::select(&State::ALL[..]), 0..1u64 << 30);
        prop::collection::vec(
            entry.prop_map(|(node, state, quanta)| (NodeId(node), state, quanta)),
            0..60,
        )
    }

    proptest! {
        #[test]
        fn packing_sums_entries_in_the_order_of_tables(
            entries in entries(), quantum_ns in 1..2_000_000u64,
        ) {
            let entries = || entries.iter().map(|(node, state, quanta)| (*node, *state, quanta * quantum_ns));
            let packed = PackedWeights::of(entries(), quantum_ns, task_of);
            let sums: Delta = entries().collect();
            let mut expected = sums.entries().to_vec();
            expected.sort_by_key(|(node, state, _)| (task_of(*node), *state as u8, *node));
            prop_assert_eq!(packed.entries().collect::<Vec<_>>(), &expected[..]);
            for part in packed.parts() {
                prop_assert!(part.entries().all(|(node, _)| task_of(node) == part.task));
                let mut bytes = Vec::new();
                part.write(&mut bytes);
                prop_assert_eq!(bytes.len(), part.written_bytes());
                let same = Part::read(part.task, part.state, &bytes);
                prop_assert!(same.entries().eq(part.entries()));
                let mut sums = Vec::new();
                same.each(|node, nanoseconds| sums.push((node, nanoseconds)));
                prop_assert!(part.entries().eq(sums));
            }
            prop_assert_eq!(packed.total_ns(), sums.total().total_ns());
            prop_assert_eq!(PackedWeights::decode(quantum_ns, packed.bytes()), Ok(expected));
        }

        #[test]
        fn any_bytes_decode_or_are_rejected(
            bytes in prop::collection::vec(any::<u8>(), 0..80), quantum_ns in any::<u64>(),
            cut in any::<prop::sample::Index>(), entries in entries(),
        ) {
            let _ = PackedWeights::decode(quantum_ns, &bytes);
            let packed = PackedWeights::of(entries, 1, task_of);
            let cut = cut.index(packed.bytes().len() + 1);
            let _ = PackedWeights::decode(quantum_ns, &packed.bytes()[..cut]);
        }
    }

    /// Windows are most of what an agent's session keeps. They were cut from longer buffers, which allocators do not
    /// shrink.
    #[test]
    fn packing_allocates_as_much_as_it_keeps_and_a_list_to_sort() {
        let entries = || (1..=300u32).map(|node| (NodeId(node * 7), State::Cpu, 2));
        let sort_bytes = 300 * size_of::<(u64, u64)>() as u64;
        let mut packed = PackedWeights::default();
        let taken = allocation_counter::measure(|| {
            packed = PackedWeights::of(entries(), 1, task_of);
        });
        let kept = packed.bytes().len() as u64;
        assert_eq!(taken.count_total, 2);
        assert_eq!(taken.bytes_total, sort_bytes + kept);
        assert_eq!(taken.bytes_current, kept as i64);
    }

    #[test]
    fn weights_beyond_64_bits_are_rejected() {
        check_decodes(&[u64::MAX - 1, 1], 1, true);
        check_decodes(&[u64::MAX, 1], 1, false);
        check_decodes(&[u64::MAX / 2], 3, false);
        check_decodes(&[u64::MAX / 3, 1], 3, false);
        check_decodes(&[], u64::MAX, true);
        check_decodes(&[1], 0, false);
    }

    fn check_decodes(quanta: &[u64], quantum_ns: u64, expected: bool) {
        let entries = quanta
            .iter()
            .zip(1..)
            .map(|(quanta, node)| (NodeId(node), State::Cpu, *quanta));
        let packed = PackedWeights::of(entries, 1, |_| NodeId(1));
        assert_eq!(
            PackedWeights::decode(quantum_ns, packed.bytes()).is_ok(),
            expected,
            "{quanta:?}"
        );
    }
}
