//! Entries of a table by the number that each has.

use profiler_core::hash::KeyedMap;

/// Entries by number. Writers mostly count from 1, in the order of their entries, so these need no lookup.
pub(super) struct Numbered<T> {
    /// Those that count from 1.
    counted: Vec<T>,
    others: KeyedMap<u64, T>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Numbered {
            counted: Vec::new(),
            others: KeyedMap::default(),
        }
    }
}

impl<T> Numbered<T> {
    /// Adds an entry, in place of an earlier one with its number.
    pub(super) fn insert(&mut self, number: u64, entry: T) {
        if number == self.counted.len() as u64 + 1 {
            self.others.remove(&number);
            self.counted.push(entry);
            return;
        }
        match index_of(number).and_then(|index| self.counted.get_mut(index)) {
            Some(known) => *known = entry,
            None => drop(self.others.insert(number, entry)),
        }
    }

    pub(super) fn get(&self, number: u64) -> Option<&T> {
        index_of(number)
            .and_then(|index| self.counted.get(index))
            .or_else(|| self.others.get(&number))
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        index_of(number)
            .and_then(|index| self.counted.get_mut(index))
            .or_else(|| self.others.get_mut(&number))
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.counted.iter_mut().chain(self.others.values_mut())
    }

    pub(super) fn len(&self) -> usize {
        self.counted.len() + self.others.len()
    }
}

/// Where an entry is among those that count from 1, if it is.
fn index_of(number: u64) -> Option<usize> {
    usize::try_from(number.checked_sub(1)?).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn entries_are_those_of_a_map(numbers in prop::collection::vec(prop_oneof![0..12u64, any::<u64>()], 0..40)) {
            let mut numbered = Numbered::default();
            let mut map = HashMap::new();
            for (entry, number) in numbers.iter().enumerate() {
                numbered.insert(*number, entry);
                map.insert(*number, entry);
                prop_assert_eq!(numbered.len(), map.len());
            }
            for number in numbers.into_iter().chain(0..15) {
                prop_assert_eq!(numbered.get(number), map.get(&number));
            }
        }
    }
}
