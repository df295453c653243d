//! A hash map in pages of its own, because a tick may not wait for the program's allocator.

use std::hash::{BuildHasher, Hash};

use rustc_hash::FxBuildHasher;

use system::page_vec::PageVec;

const SLOTS_MIN: usize = 64;

/// Like `HashMap`, in a [`PageVec`]: open addressing with linear probing, at most three quarters full.
#[derive(Debug)]
pub(in crate::sampler) struct PageMap<K, V> {
    /// A power of two, or none.
    slots: PageVec<Option<(K, V)>>,
    length: usize,
}

impl<K, V> Default for PageMap<K, V> {
    fn default() -> Self {
        PageMap {
            slots: PageVec::new(),
            length: 0,
        }
    }
}

impl<K: Eq + Hash, V> PageMap<K, V> {
    pub(in crate::sampler) fn len(&self) -> usize {
        self.length
    }

    pub(in crate::sampler) fn get(&self, key: &K) -> Option<&V> {
        let at = self.find(key)?;
        self.slots[at].as_ref().map(|(_, value)| value)
    }

    pub(in crate::sampler) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let at = self.find(key)?;
        self.slots[at].as_mut().map(|(_, value)| value)
    }

    pub(in crate::sampler) fn contains_key(&self, key: &K) -> bool {
        self.find(key).is_some()
    }

    /// Returns `false` and drops the value if there is no memory.
    pub(in crate::sampler) fn insert(&mut self, key: K, value: V) -> bool {
        if let Some(known) = self.get_mut(&key) {
            *known = value;
            return true;
        }
        if (self.length + 1) * 4 > self.slots.len() * 3 && !self.grow() {
            return false;
        }
        self.insert_new(key, value);
        true
    }

    pub(in crate::sampler) fn remove(&mut self, key: &K) -> Option<V> {
        let mut hole = self.find(key)?;
        let (_, removed) = self.slots[hole].take()?;
        self.length -= 1;
        // Entries behind the hole move up, unless they are at their own place or past it already.
        let mask = self.slots.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let Some((key, _)) = &self.slots[at] else {
                break;
            };
            let home = self.home(key);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.slots.swap(at, hole);
                hole = at;
            }
        }
        Some(removed)
    }

    pub(in crate::sampler) fn clear(&mut self) {
        self.slots.iter_mut().for_each(|slot| *slot = None);
        self.length = 0;
    }

    pub(in crate::sampler) fn values(&self) -> impl Iterator<Item = &V> {
        self.slots.iter().flatten().map(|(_, value)| value)
    }

    fn find(&self, key: &K) -> Option<usize> {
        if self.length == 0 {
            return None;
        }
        let mut at = self.home(key);
        loop {
            match &self.slots[at] {
                None => return None,
                Some((known, _)) if known == key => return Some(at),
                Some(_) => at = (at + 1) & (self.slots.len() - 1),
            }
        }
    }

    /// The slot that the key has if it is free.
    fn home(&self, key: &K) -> usize {
        // The upper bits, because a hash of a number has few different lower ones.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        let spread = FxBuildHasher.hash_one(key).wrapping_mul(SPREAD);
        (spread >> 32) as usize & (self.slots.len() - 1)
    }

    fn insert_new(&mut self, key: K, value: V) {
        let mut at = self.home(&key);
        while self.slots[at].is_some() {
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.slots[at] = Some((key, value));
        self.length += 1;
    }

    fn grow(&mut self) -> bool {
        let count = (self.slots.len() * 2).max(SLOTS_MIN);
        let mut larger = PageVec::new();
        while larger.len() < count {
            if !larger.push(None) {
                return false;
            }
        }
        let smaller = std::mem::replace(&mut self.slots, larger);
        self.length = 0;
        for (key, value) in smaller.into_iter().flatten() {
            self.insert_new(key, value);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_what_a_hash_map_holds(
            steps in prop::collection::vec((0..100u32, 0..4u8), 0..2_000),
        ) {
            let mut expected = HashMap::new();
            let mut map = PageMap::default();
            for (number, (key, step)) in steps.into_iter().enumerate() {
                // Multiples of a large power of two have the same lower bits.
                let key = u64::from(key) << 40;
                if step == 0 {
                    prop_assert_eq!(map.remove(&key), expected.remove(&key));
                } else {
                    prop_assert!(map.insert(key, number));
                    expected.insert(key, number);
                }
                prop_assert_eq!(map.get(&key), expected.get(&key));
                prop_assert_eq!(map.len(), expected.len());
            }
            for key in (0..100u64).map(|key| key << 40) {
                prop_assert_eq!(map.get(&key), expected.get(&key));
            }
            prop_assert_eq!(map.values().count(), expected.len());
            map.clear();
            prop_assert!(map.len() == 0 && !map.contains_key(&0));
        }
    }
}
