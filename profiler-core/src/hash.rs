//! Hash maps for keys that others choose: names from agents, and numbers that they combine.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

/// A map whose hashes depend on a random seed, so that nobody can choose keys that collide. With an
/// unseeded hash, 100,000 strings of 33 bytes kept a collector busy for 148 s.
pub type KeyedMap<K, V> = HashMap<K, V, RandomState>;

/// A set with the hashes of a [`KeyedMap`].
pub type KeyedSet<K> = HashSet<K, RandomState>;

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher as _;

    use rustc_hash::FxBuildHasher;

    use super::*;

    /// ASCII strings of 33 bytes that have one hash under `rustc-hash`: it multiplies two states, and
    /// the bytes from 17 to 25 make the first of them 0.
    fn colliding(count: u64) -> Vec<String> {
        let starts = (0u64..).map(|number| format!("{number:016}"));
        let mut ascii = starts.filter_map(|start| {
            let middle = String::from_utf8(zeroing(&start).to_vec()).ok()?;
            Some(format!("{start}_{middle}"))
        });
        let start = ascii.next().unwrap();
        (0..count)
            .map(|number| format!("{start}{number:08}"))
            .collect()
    }

    /// The bytes after `start` that make the first state 0.
    fn zeroing(start: &str) -> [u8; 8] {
        const SEED: u64 = 0x243f_6a88_85a3_08d3;
        const ZERO_GUARD: u64 = 0xa409_3822_299f_31d0;
        let word = |at: usize| u64::from_le_bytes(start.as_bytes()[at..at + 8].try_into().unwrap());
        let product = u128::from(SEED ^ word(0)) * u128::from(ZERO_GUARD ^ word(8));
        ((product as u64) ^ (product >> 64) as u64).to_le_bytes()
    }

    #[test]
    fn names_that_collide_without_a_seed_do_not_collide_here() {
        let names = colliding(10_000);
        let distinct = |hash: &dyn Fn(&str) -> u64| {
            names
                .iter()
                .map(|name| hash(name))
                .collect::<HashSet<u64>>()
                .len()
        };
        assert_eq!(
            distinct(&|name| FxBuildHasher.hash_one(name)),
            1,
            "the attack works"
        );
        let keyed = KeyedSet::<&str>::default();
        assert_eq!(distinct(&|name| keyed.hasher().hash_one(name)), names.len());
    }

    #[test]
    fn each_map_has_a_seed_of_its_own() {
        let seeds = [(); 8].map(|()| KeyedSet::<u64>::default().hasher().hash_one(1_u64));
        assert!(seeds.iter().any(|hash| *hash != seeds[0]));
    }
}
