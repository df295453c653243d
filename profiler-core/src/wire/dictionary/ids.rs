//! Numbers of the receiver by those of the agent: a list for each agent of a fleet.

use prost::encoding::{decode_varint, encode_varint};

/// Runs between two entries of the index: a lookup decodes half of them.
const RUNS_PER_BLOCK: usize = 8;

/// Fewest numbers that are packed. Lists of small programs stay plain.
const PACKED_MIN: usize = 512;

/// Numbers by index.
///
/// Agents of one program meet its stacks in different orders, but a new stack is a row of new nodes at each of
/// them, and mostly one in the receiver's tree too. So the list is mostly runs of consecutive numbers: packed,
/// it takes a quarter of the memory, and next to nothing where the order is the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Ids {
    packed: Packed,
    /// The numbers after the packed ones.
    recent: Vec<u32>,
}

impl Ids {
    /// A list of one number.
    pub(super) fn of(number: u32) -> Ids {
        Ids {
            packed: Packed::default(),
            recent: vec![number],
        }
    }

    pub(super) fn len(&self) -> usize {
        self.packed.count + self.recent.len()
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<u32> {
        match index.checked_sub(self.packed.count) {
            Some(recent) => self.recent.get(recent).copied(),
            None => Some(self.packed.get(index)),
        }
    }

    pub(super) fn contains(&self, number: u32) -> bool {
        self.recent.contains(&number)
            || (0..self.packed.blocks.len())
                .flat_map(|block| self.packed.runs(block))
                .any(|run| (run.first..run.first + run.length).contains(&number))
    }

    /// Calls `visit` with all numbers from an index on.
    pub(super) fn each_from(&self, index: usize, mut visit: impl FnMut(u32)) {
        let packed = self.packed.count;
        if index < packed {
            let runs = (0..self.packed.blocks.len()).flat_map(|block| self.packed.runs(block));
            let numbers = runs.flat_map(|run| run.first..run.first + run.length);
            numbers.skip(index).for_each(&mut visit);
        }
        let recent = self.recent.iter().skip(index.saturating_sub(packed));
        recent.copied().for_each(visit);
    }

    pub(super) fn push(&mut self, number: u32) {
        self.recent.push(number);
    }

    /// Reserves room for `more` numbers with little slack.
    pub(super) fn reserve(&mut self, more: usize) {
        let recent = &mut self.recent;
        if recent.capacity() - recent.len() < more {
            recent.reserve_exact(more.max(recent.len() / 8));
        }
    }

    /// Packs the recent numbers, if they are many next to the packed ones.
    pub(super) fn pack(&mut self) {
        if self.recent.len() >= PACKED_MIN.max(self.packed.count / 8) {
            self.packed.extend(&self.recent);
            self.recent = Vec::new();
        }
    }

    /// Memory of the list, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let Packed { bytes, blocks, .. } = &self.packed;
        bytes.capacity() + blocks.capacity() * size_of::<Block>() + self.recent.capacity() * 4
    }
}

/// Runs of consecutive numbers. Each is the length less one and, as for signed varints, the distance of its first
/// number from the end of the run before it; in a block's first run, from 0.
#[derive(Clone, Debug, Default)]
struct Packed {
    bytes: Vec<u8>,
    blocks: Vec<Block>,
    /// Of the numbers.
    count: usize,
    /// Of the last block.
    runs: usize,
    /// The number after the last run.
    end: u32,
}

/// The start of a block.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// Index of its first number.
    index: u32,
    /// Where its runs are in the bytes.
    offset: u32,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    first: u32,
    length: u32,
}

impl Packed {
    fn extend(&mut self, numbers: &[u32]) {
        for run in numbers.chunk_by(|number, next| number.checked_add(1) == Some(*next)) {
            if self.blocks.is_empty() || self.runs == RUNS_PER_BLOCK {
                self.blocks.push(Block {
                    index: number(self.count),
                    offset: number(self.bytes.len()),
                });
                self.runs = 0;
                self.end = 0;
            }
            let distance = i64::from(run[0]) - i64::from(self.end);
            encode_varint(run.len() as u64 - 1, &mut self.bytes);
            encode_varint(((distance << 1) ^ (distance >> 63)) as u64, &mut self.bytes);
            self.end = run[run.len() - 1].saturating_add(1);
            self.count += run.len();
            self.runs += 1;
        }
        self.bytes.shrink_to_fit();
        self.blocks.shrink_to_fit();
    }

    /// The number at an index below the count.
    fn get(&self, index: usize) -> u32 {
        let block = self
            .blocks
            .partition_point(|block| block.index as usize <= index)
            - 1;
        let mut left = number(index) - self.blocks[block].index;
        for Run { first, length } in self.runs(block) {
            if left < length {
                return first + left;
            }
            left -= length;
        }
        unreachable!("the blocks have as many numbers as are counted")
    }

    fn runs(&self, block: usize) -> impl Iterator<Item = Run> + '_ {
        let end = self
            .blocks
            .get(block + 1)
            .map_or(self.bytes.len(), |next| next.offset as usize);
        let mut bytes = &self.bytes[self.blocks[block].offset as usize..end];
        let mut last = 0;
        std::iter::from_fn(move || {
            if bytes.is_empty() {
                return None;
            }
            let length = next(&mut bytes) as u32 + 1;
            let coded = next(&mut bytes);
            let distance = (coded >> 1) as i64 ^ -((coded & 1) as i64);
            let first = (i64::from(last) + distance) as u32;
            last = first.saturating_add(length);
            Some(Run { first, length })
        })
    }
}

fn next(bytes: &mut &[u8]) -> u64 {
    decode_varint(bytes).expect("it was packed by us")
}

fn number(count: usize) -> u32 {
    u32::try_from(count).expect("the limits keep tables small")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn packed_numbers_are_those_that_were_added(
            runs in prop::collection::vec((any::<u32>(), 1..600u32), 1..40),
            pack_every in 1..8usize,
        ) {
            let mut ids = Ids::default();
            let mut numbers = Vec::new();
            for (index, (first, length)) in runs.into_iter().enumerate() {
                let run = (0..length).map(|more| first.saturating_add(more));
                ids.reserve(length as usize);
                for number in run {
                    ids.push(number);
                    numbers.push(number);
                }
                if index % pack_every == 0 {
                    ids.pack();
                }
            }
            prop_assert_eq!(ids.len(), numbers.len());
            for (index, number) in numbers.iter().enumerate() {
                prop_assert_eq!(ids.get(index), Some(*number));
            }
            prop_assert_eq!(ids.get(numbers.len()), None);
            for start in [0, numbers.len() / 2, numbers.len()] {
                let mut rest = Vec::new();
                ids.each_from(start, |number| rest.push(number));
                prop_assert_eq!(&rest, &numbers[start..]);
            }
            for number in [numbers[0], numbers[numbers.len() / 2], 7] {
                prop_assert_eq!(ids.contains(number), numbers.contains(&number));
            }
        }
    }

    #[test]
    fn a_list_in_the_receivers_order_takes_next_to_nothing() {
        let mut ids = Ids::default();
        (0..100_000).for_each(|number| ids.push(number));
        ids.pack();
        assert!(ids.bytes() < 64, "{}", ids.bytes());
    }
}
