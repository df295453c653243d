//! Inputs of several parts, such as the messages of a stream: two bytes of length before each part.
//! Every sequence of bytes is such an input, so that no mutation is lost.

/// Bytes of a part's length.
const LENGTH_BYTES: usize = 2;

/// Most bytes of a part.
pub const PART_BYTES_MAX: usize = u16::MAX as usize;

/// The parts of an input. The last one may be shorter than it says.
#[must_use]
pub fn split(mut input: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    while let Some((length, rest)) = input.split_first_chunk::<LENGTH_BYTES>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
        let (part, others) = rest.split_at(length);
        parts.push(part);
        input = others;
    }
    parts
}

/// The input with these parts; longer ones are cut.
#[must_use]
pub fn join<P: AsRef<[u8]>>(parts: &[P]) -> Vec<u8> {
    let mut input = Vec::new();
    for part in parts {
        let whole = part.as_ref();
        let part = &whole[..whole.len().min(PART_BYTES_MAX)];
        let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
        input.extend(length.to_le_bytes());
        input.extend(part);
    }
    input
}

/// The byte at the front, 0 if there is none, and the rest.
#[must_use]
pub fn flags(input: &[u8]) -> (u8, &[u8]) {
    input
        .split_first()
        .map_or((0, input), |(first, rest)| (*first, rest))
}
