//! Numbers of the receiver by those of the agent: a list for each agent of a fleet.

/// Indices of a [`Word`].
const WORD: u32 = u64::BITS;

/// Numbers by index.
///
/// Agents of one program meet its stacks in different orders, but a new stack is a row of new nodes at each of
/// them, and mostly one in the receiver's tree too. So the list is mostly runs of consecutive numbers, and a run is
/// one difference: of each of its numbers from its index. A node takes about a byte, and next to nothing where the
/// order is the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Ids {
    count: u32,
    /// Those in which a run starts. A run starts at index 0.
    words: Vec<Word>,
    /// By run. All arithmetic with them is modulo 2^32.
    differences: Differences,
    /// Of the last run.
    last_difference: u32,
}

/// The starts of runs among 64 indices.
#[derive(Clone, Copy, Debug)]
struct Word {
    /// The first index, divided by 64.
    at: u32,
    runs_before: u32,
    /// A bit for each index at which a run starts.
    starts: u64,
}

impl Ids {
    /// A list of one number.
    pub(super) fn of(number: u32) -> Ids {
        let mut ids = Ids::default();
        ids.push(number);
        ids
    }

    /// The numbers from 0 on, at least one.
    pub(super) fn counted(count: u32) -> Ids {
        Ids {
            count: count.max(1),
            ..Ids::of(0)
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count as usize
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<u32> {
        let index = u32::try_from(index).ok()?;
        if index >= self.count {
            return None;
        }
        let word = self.words[self.word_of(index / WORD)];
        let later = if word.at == index / WORD {
            WORD - 1 - index % WORD
        } else {
            0
        };
        let run = word.runs_before + (word.starts << later).count_ones() - 1;
        Some(index.wrapping_add(self.differences.get(run)))
    }

    /// Index of the last word that starts at or before these indices.
    #[inline]
    fn word_of(&self, at: u32) -> usize {
        // Lists in an order of their own have runs in all words.
        if self
            .words
            .get(at as usize)
            .is_some_and(|word| word.at == at)
        {
            return at as usize;
        }
        self.words.partition_point(|word| word.at <= at) - 1
    }

    pub(super) fn contains(&self, number: u32) -> bool {
        let mut found = false;
        self.each_from(0, |known| found |= known == number);
        found
    }

    /// Calls `visit` with all numbers from an index on.
    pub(super) fn each_from(&self, index: usize, mut visit: impl FnMut(u32)) {
        let Some(first) = u32::try_from(index)
            .ok()
            .filter(|first| *first < self.count)
        else {
            return;
        };
        let mut words = self.words[self.word_of(first / WORD)..].iter().peekable();
        while let Some(word) = words.next() {
            let end = words.peek().map_or(self.count, |next| next.at * WORD);
            let mut run = word.runs_before;
            // The run that goes on from the words before.
            let mut difference = run
                .checked_sub(1)
                .map_or(0, |run| self.differences.get(run));
            for index in word.at * WORD..end {
                let bit = index - word.at * WORD;
                if bit < WORD && word.starts >> bit & 1 == 1 {
                    difference = self.differences.get(run);
                    run += 1;
                }
                if index >= first {
                    visit(index.wrapping_add(difference));
                }
            }
        }
    }

    pub(super) fn push(&mut self, number: u32) {
        let index = self.count;
        let difference = number.wrapping_sub(index);
        if index == 0 || difference != self.last_difference {
            self.start_run(index, difference);
        }
        self.count = index.checked_add(1).expect("the limits keep tables small");
    }

    fn start_run(&mut self, index: u32, difference: u32) {
        let at = index / WORD;
        if self.words.last().is_none_or(|word| word.at != at) {
            make_room(&mut self.words);
            self.words.push(Word {
                at,
                runs_before: self.differences.count,
                starts: 0,
            });
        }
        if let Some(word) = self.words.last_mut() {
            word.starts |= 1 << (index % WORD);
        }
        self.differences.push(difference);
        self.last_difference = difference;
    }

    /// Memory of the list, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.words.capacity() * size_of::<Word>()
            + self.differences.bits.capacity() * size_of::<u64>()
    }
}

/// Numbers near the first of them, in as many bits as the farthest takes.
#[derive(Clone, Debug, Default)]
struct Differences {
    first: u32,
    count: u32,
    /// Bits of a distance from the first, which has a sign.
    width: u32,
    bits: Vec<u64>,
}

impl Differences {
    #[inline]
    fn get(&self, index: u32) -> u32 {
        if self.width == 0 {
            return self.first;
        }
        let bit = u64::from(index) * u64::from(self.width);
        let word = (bit / 64) as usize;
        let shift = (bit % 64) as u32;
        let mut distance = self.bits[word] >> shift;
        if shift + self.width > 64 {
            distance |= self.bits[word + 1] << (64 - shift);
        }
        let unused = 64 - self.width;
        let distance = ((distance << unused) as i64) >> unused;
        self.first.wrapping_add(distance as u32)
    }

    fn push(&mut self, number: u32) {
        if self.count == 0 {
            self.first = number;
        }
        let width = bits_of(number.wrapping_sub(self.first));
        if width > self.width {
            self.widen(width);
        }
        self.append(number);
    }

    fn widen(&mut self, width: u32) {
        let mut wider = Differences {
            first: self.first,
            count: 0,
            width,
            bits: Vec::new(),
        };
        let bits = u64::from(self.count + 1) * u64::from(width);
        wider.bits.reserve_exact(bits.div_ceil(64) as usize);
        (0..self.count).for_each(|index| wider.append(self.get(index)));
        *self = wider;
    }

    /// Appends a number whose distance has at most as many bits as others.
    fn append(&mut self, number: u32) {
        let bit = u64::from(self.count) * u64::from(self.width);
        self.count += 1;
        if self.width == 0 {
            return;
        }
        let distance = u64::from(number.wrapping_sub(self.first)) & ((1 << self.width) - 1);
        let shift = (bit % 64) as u32;
        if shift == 0 {
            make_room(&mut self.bits);
            self.bits.push(distance);
            return;
        }
        let word = (bit / 64) as usize;
        self.bits[word] |= distance << shift;
        if shift + self.width > 64 {
            make_room(&mut self.bits);
            self.bits.push(distance >> (64 - shift));
        }
    }
}

/// Bits that a distance takes, with its sign.
fn bits_of(distance: u32) -> u32 {
    let signed = distance as i32;
    match signed {
        0 => 0,
        _ => 1 + u32::BITS - (signed ^ (signed >> 31)).leading_zeros(),
    }
}

/// Reserves with little slack: there are as many lists as agents.
fn make_room<T>(list: &mut Vec<T>) {
    if list.len() == list.capacity() {
        list.reserve_exact((list.len() / 8).max(4));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn packed_numbers_are_those_that_were_added(
            runs in prop::collection::vec(
                (prop_oneof![0..2_000u32, any::<u32>()], 1..200u32),
                1..60,
            ),
        ) {
            let mut ids = Ids::default();
            let mut numbers = Vec::new();
            for (first, length) in runs {
                for number in (0..length).map(|more| first.wrapping_add(more)) {
                    ids.push(number);
                    numbers.push(number);
                    prop_assert_eq!(ids.get(numbers.len() - 1), Some(number));
                }
            }
            prop_assert_eq!(ids.len(), numbers.len());
            for (index, number) in numbers.iter().enumerate() {
                prop_assert_eq!(ids.get(index), Some(*number));
            }
            prop_assert_eq!(ids.get(numbers.len()), None);
            for start in [0, 1, 63, 64, 65, numbers.len() / 2, numbers.len()] {
                let mut rest = Vec::new();
                ids.each_from(start, |number| rest.push(number));
                prop_assert_eq!(&rest[..], numbers.get(start..).unwrap_or_default());
            }
            for number in [numbers[0], numbers[numbers.len() / 2], 7] {
                prop_assert_eq!(ids.contains(number), numbers.contains(&number));
            }
        }
    }

    #[test]
    fn a_list_in_the_receivers_order_takes_next_to_nothing() {
        let mut ids = Ids::default();
        (5..100_005).for_each(|number| ids.push(number));
        assert_eq!(ids.get(99_999), Some(100_004));
        assert!(ids.bytes() <= 64, "{}", ids.bytes());
    }

    #[test]
    fn numbers_in_any_order_take_the_bits_of_the_largest_and_a_few_more() {
        let mut ids = Ids::default();
        (0..2_048_u32).for_each(|number| ids.push(number.wrapping_mul(1_013) % 2_048));
        // 12 bits with the sign, 2 for the starts of runs, and slack.
        assert!(ids.bytes() <= 2_048 * 17 / 8, "{}", ids.bytes());
    }
}
