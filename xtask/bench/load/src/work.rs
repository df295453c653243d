//! One unit of work: typical operations of programs, at a typical stack depth.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::hint::black_box;

/// Calls between a thread's entry and the work, as in real stacks.
const DEPTH: u32 = 24;
const NUMBERS: usize = 256;

/// Does one unit, some tens of microseconds; the result depends on every step.
pub(crate) fn unit(seed: u64) -> u64 {
    outward(seed, DEPTH)
}

/// Computes for some microseconds and nothing else: no allocation, so no lock that a thread could
/// hold while it waits for a processor.
pub(crate) fn spin(seed: u64) -> u64 {
    deeper(seed, DEPTH)
}

#[inline(never)]
fn deeper(seed: u64, depth: u32) -> u64 {
    match depth {
        0 => (0..2_000u64).fold(seed, |sum, number| black_box(sum.rotate_left(5) ^ number)),
        _ => black_box(deeper(seed.rotate_left(7), depth - 1)).wrapping_add(1),
    }
}

/// Two functions alternate, so that stacks do not consist of one function. Each works after its call,
/// so that it is no tail call.
#[inline(never)]
fn outward(seed: u64, depth: u32) -> u64 {
    match depth {
        0 => sorted(seed) ^ named(seed),
        _ => black_box(inward(seed.rotate_left(7), depth - 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15),
    }
}

#[inline(never)]
fn inward(seed: u64, depth: u32) -> u64 {
    match depth {
        0 => named(seed) ^ sorted(seed),
        _ => black_box(outward(seed ^ u64::from(depth), depth - 1)).rotate_right(11),
    }
}

/// Allocates and sorts.
#[inline(never)]
fn sorted(seed: u64) -> u64 {
    let mut state = seed | 1;
    let mut numbers: Vec<u64> = (0..NUMBERS)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        })
        .collect();
    numbers.sort_by_key(|number| number.rotate_left(13));
    numbers
        .iter()
        .step_by(16)
        .fold(seed, |sum, number| sum.wrapping_mul(31) ^ number)
}

/// Formats, compares and looks up.
#[inline(never)]
fn named(seed: u64) -> u64 {
    let mut by_name = BTreeMap::new();
    for number in 0..48u64 {
        let mut name = String::new();
        let key = seed.wrapping_mul(number | 1) >> 40;
        write!(name, "row-{key}-{number}").expect("a string takes all that is written");
        by_name.insert(name, number);
    }
    by_name.iter().fold(0, |sum, (name, number)| {
        name.bytes().fold(sum ^ number, |sum, byte| {
            sum.wrapping_mul(0x100_0193) ^ u64::from(byte)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_the_same_work_each_time_and_depends_on_its_seed() {
        assert_eq!(unit(1), unit(1));
        assert_ne!(unit(1), unit(2));
    }
}
