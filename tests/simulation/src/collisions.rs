//! Names that collide in a table whose hash has no key, here that of the crate `rustc-hash`: it multiplies
//! two states, and a text that makes one of them 0 hashes to its length.

/// Constants of `rustc-hash` 2.
const SEED_1: u64 = 0x243f_6a88_85a3_08d3;
const GUARD: u64 = 0xa409_3822_299f_31d0;

fn mixed(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// The state before the last block of a name that begins with `head`.
fn state(head: &[u8; 16]) -> u64 {
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| head[at + index]));
    mixed(SEED_1 ^ word(0), GUARD ^ word(8))
}

/// Returns different names of 33 bytes with equal hashes.
#[must_use]
pub fn colliding_names(count: usize) -> Vec<String> {
    // One head in 256 has a state of ASCII bytes, which the last block can then cancel.
    let (head, state) = (0u64..)
        .map(|number| {
            let mut head = *b"0000000000000000";
            head.iter_mut()
                .zip(format!("{number:016}").bytes())
                .for_each(|(to, byte)| *to = byte);
            (head, state(&head).to_le_bytes())
        })
        .find(|(_, state)| state.is_ascii())
        .expect("one in 256 is found");
    (0..count)
        .map(|number: usize| {
            let mut name = head.to_vec();
            name.push(b'-');
            name.extend(state);
            name.extend(format!("{number:08}").bytes());
            String::from_utf8(name).expect("it is ASCII")
        })
        .collect()
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails where it stands"
)]
mod tests {
    use super::*;

    const SEED_2: u64 = 0x1319_8a2e_0370_7344;

    /// Two blocks of 16, and a last one that overlaps the second.
    const NAME_BYTES: usize = 33;

    /// The hash of `rustc-hash` 2 for a name of this length.
    fn hash(name: &str) -> u64 {
        let bytes = name.as_bytes();
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let first = mixed(SEED_1 ^ word(0), GUARD ^ word(8));
        let second = mixed(SEED_2 ^ word(16), GUARD ^ word(24));
        mixed(first ^ word(NAME_BYTES - 16), second ^ word(NAME_BYTES - 8)) ^ NAME_BYTES as u64
    }

    #[test]
    fn all_names_are_different_and_have_one_hash() {
        let names = colliding_names(1_000);
        assert!(names.iter().all(|name| name.len() == NAME_BYTES));
        assert!(names.iter().all(|name| hash(name) == NAME_BYTES as u64));
        let different: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(different.len(), names.len());
    }
}
