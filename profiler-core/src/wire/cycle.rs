//! Deltas on the wire: gaps between (node, state) positions, each with a weight in quanta. A steady
//! second takes about two bytes a pair.
//!
//! A list of weights begins with a number of bits. The position of a (node, state) is 7 × node +
//! state. Each pair is the distance from the previous position, shifted left by those bits; the low
//! bits hold the weight less one. If the low bits are all ones, the rest of the weight follows as
//! the next number. Most weights of a real program are below 32 quanta, so with five bits most
//! pairs are one varint of one or two bytes. Where weights are larger than gaps, zero bits are
//! shorter. The sender picks the shorter of the two.
//!
//! Waits for an interpreter's lock are in these lists as `lock`, and again in a list of their own, which says how much
//! of `lock` they are. So an older receiver, which skips that list, counts all time, and a list of an older sender means
//! what it meant.

use prost::encoding::{decode_varint, encode_varint, encoded_len_varint};

use super::{WireError, v1};
use crate::{Delta, NodeId, State, TimeRange, Timestamp};

/// States that a position tells apart: all but [`State::Interpreter`].
const STATES: u64 = 7;
const _: () = assert!(State::Interpreter as u64 == STATES);

/// Numbers of bits that the encoder tries. On a simulated fleet and on the demo's workers, no other
/// number is 2 % shorter than the better of these.
const BITS_TRIED: [u64; 2] = [0, 5];

/// Most bits that the decoder accepts.
const BITS_MAX: u64 = 7;

/// Encodes `delta` over `range` of the agent's clock. Ticks stay 0.
///
/// # Panics
/// If a weight is not a multiple of `quantum_ns`: the remainder would be lost.
#[must_use]
pub fn encode_cycle(delta: &Delta, range: TimeRange, quantum_ns: u64) -> v1::Cycle {
    v1::Cycle {
        start_ns: range.start().unix_ns(),
        stop_ns: range.stop().unix_ns(),
        quantum_ns,
        samples: encode_weights(delta, quantum_ns),
        samples_interpreter: encode_interpreter(delta, quantum_ns),
        ..v1::Cycle::default()
    }
}

/// Adds the time by thread to a cycle, in its quantum.
///
/// # Panics
/// Like [`encode_cycle`].
#[must_use]
pub fn with_threads(cycle: v1::Cycle, threads: &Delta) -> v1::Cycle {
    v1::Cycle {
        threads: encode_weights(threads, cycle.quantum_ns),
        threads_interpreter: encode_interpreter(threads, cycle.quantum_ns),
        ..cycle
    }
}

/// Encodes a list of weights, in which waits for an interpreter's lock are waits for a lock.
fn encode_weights(delta: &Delta, quantum_ns: u64) -> Vec<u8> {
    let mut entries = delta.entries().iter();
    if !entries.any(|(_, state, _)| *state == State::Interpreter) {
        return encode_list(delta, quantum_ns);
    }
    let as_locks = delta.entries().iter().map(|(node, state, weight)| {
        let state = match state {
            State::Interpreter => State::Lock,
            state => *state,
        };
        (*node, state, *weight)
    });
    encode_list(&as_locks.collect(), quantum_ns)
}

/// Encodes the waits for an interpreter's lock, as waits for a lock.
fn encode_interpreter(delta: &Delta, quantum_ns: u64) -> Vec<u8> {
    let waits = delta
        .entries()
        .iter()
        .filter(|(_, state, _)| *state == State::Interpreter)
        .map(|(node, _, weight)| (*node, State::Lock, *weight));
    encode_list(&waits.collect(), quantum_ns)
}

fn encode_list(delta: &Delta, quantum_ns: u64) -> Vec<u8> {
    if delta.is_empty() {
        return Vec::new();
    }
    let pairs = pairs(delta, quantum_ns);
    let bytes = |bits: &u64| -> usize {
        let numbers = pairs.iter().map(|(distance, quanta)| {
            let (first, more) = numbers_of(*distance, *quanta, *bits);
            encoded_len_varint(first) + more.map_or(0, encoded_len_varint)
        });
        numbers.sum()
    };
    let bits = BITS_TRIED
        .map(|bits| (bytes(&bits), bits))
        .into_iter()
        .min();
    let (bytes, bits) = bits.expect("some are tried");
    let mut list = Vec::with_capacity(encoded_len_varint(bits) + bytes);
    encode_varint(bits, &mut list);
    for (distance, quanta) in pairs {
        let (first, more) = numbers_of(distance, quanta, bits);
        encode_varint(first, &mut list);
        more.into_iter()
            .for_each(|more| encode_varint(more, &mut list));
    }
    list
}

/// Upper bound on the bytes that a weight adds to the lists of a cycle, after one at the node `before` (for the first,
/// the root).
#[must_use]
pub fn weight_bytes_max(before: NodeId, node: NodeId, state: State, quanta: u64) -> usize {
    let pair = |before: NodeId| {
        let distance = (u64::from(node.0 - before.0) + 1) * STATES;
        encoded_len_varint(distance) + encoded_len_varint(quanta)
    };
    match state {
        // Its pair in the list of its own may be the first.
        State::Interpreter => pair(before) + pair(NodeId::ROOT),
        _ => pair(before),
    }
}

/// Distances and weights in quanta, in the order of positions, which is the delta's own.
fn pairs(delta: &Delta, quantum_ns: u64) -> Vec<(u64, u64)> {
    let mut last = 0;
    let pairs = delta.entries().iter().map(|(node, state, weight)| {
        assert!(
            weight % quantum_ns == 0,
            "{weight} is not in quanta of {quantum_ns}"
        );
        let position = u64::from(node.0) * STATES + *state as u64;
        let distance = position - last;
        last = position;
        (distance, weight / quantum_ns)
    });
    pairs.collect()
}

/// Encodes one pair of nonzero weight.
fn numbers_of(distance: u64, quanta: u64, bits: u64) -> (u64, Option<u64>) {
    let most = (1 << bits) - 1;
    let low = (quanta - 1).min(most);
    (
        distance << bits | low,
        (low == most).then(|| quanta - 1 - most),
    )
}

/// Distances and weights in quanta of any list. The weight is `None` if it is missing, exceeds 64
/// bits or cannot be read; an unreadable distance is out of range.
fn read(mut list: &[u8]) -> impl Iterator<Item = (u64, Option<u64>)> {
    let bits = next(&mut list).unwrap_or(0).min(BITS_MAX);
    let most = (1 << bits) - 1;
    std::iter::from_fn(move || {
        if list.is_empty() {
            return None;
        }
        let Some(first) = next(&mut list) else {
            return Some((u64::MAX, None));
        };
        let low = first & most;
        let more = if low == most {
            next(&mut list)
        } else {
            Some(0)
        };
        Some((
            first >> bits,
            more.and_then(|more| more.checked_add(low + 1)),
        ))
    })
}

/// The next varint; `None`, and the end of the list, if there is none.
#[inline]
fn next(list: &mut &[u8]) -> Option<u64> {
    let number = decode_varint(list).ok();
    if number.is_none() {
        *list = &[];
    }
    number
}

/// Sum of the weights of a list in quanta, modulo 2^64. Defined for any list, so that both ends of
/// a stream compute the same.
pub(super) fn sum_of_quanta(list: &[u8]) -> u64 {
    read(list).fold(0, |sum, (_, quanta)| sum.wrapping_add(quanta.unwrap_or(0)))
}

/// Sum of the weights by stack of a cycle in nanoseconds, whether or not it can be decoded. At most `u64::MAX`.
#[must_use]
pub fn cycle_weight_ns(cycle: &v1::Cycle) -> u64 {
    let quanta = read(&cycle.samples).filter_map(|(_, quanta)| quanta);
    quanta
        .fold(0u64, u64::saturating_add)
        .saturating_mul(cycle.quantum_ns)
}

/// Decodes a cycle over a tree of `node_count` nodes, including the root. Returns its range by the
/// agent's clock, and its weights by the agent's nodes.
///
/// # Errors
/// If the range is empty or reversed, the quantum is 0, a node is outside the tree, the weights or their sum exceed 64
/// bits, or waits for an interpreter's lock exceed those for a lock.
pub fn decode_cycle(cycle: &v1::Cycle, node_count: u32) -> Result<(TimeRange, Delta), WireError> {
    let start = Timestamp::from_unix_ns(cycle.start_ns);
    let stop = Timestamp::from_unix_ns(cycle.stop_ns);
    let range = TimeRange::new(start, stop).ok_or(WireError::Invalid {
        what: "the cycle's stop - start",
        value: i128::from(cycle.stop_ns) - i128::from(cycle.start_ns),
        allowed: "above 0",
    })?;
    if cycle.quantum_ns == 0 {
        let what = "the cycle's quantum_ns";
        return Err(WireError::Invalid {
            what,
            value: 0,
            allowed: "above 0",
        });
    }
    let all = decode_weights(&cycle.samples, cycle.quantum_ns, node_count)?;
    let interpreter = decode_weights(&cycle.samples_interpreter, cycle.quantum_ns, node_count)?;
    Ok((range, split_locks(all, &interpreter)?))
}

/// Decodes the time by thread of a cycle, over a tree of `node_count` nodes, including the root.
///
/// # Errors
/// Like [`decode_cycle`].
pub fn decode_threads(cycle: &v1::Cycle, node_count: u32) -> Result<Delta, WireError> {
    let all = decode_weights(&cycle.threads, cycle.quantum_ns, node_count)?;
    let interpreter = decode_weights(&cycle.threads_interpreter, cycle.quantum_ns, node_count)?;
    split_locks(all, &interpreter)
}

/// Divides waits for locks: those in `interpreter` are for an interpreter's.
fn split_locks(all: Delta, interpreter: &Delta) -> Result<Delta, WireError> {
    if interpreter.is_empty() {
        return Ok(all);
    }
    let mut rest = interpreter.entries().iter().peekable();
    let mut entries = Vec::with_capacity(all.entries().len() + interpreter.entries().len());
    for (node, state, nanoseconds) in all.entries() {
        let is_lock = *state == State::Lock;
        let part = rest.next_if(|(of, kind, _)| is_lock && (of, kind) == (node, state));
        let part_ns = part.map_or(0, |(_, _, part_ns)| *part_ns);
        let others_ns = nanoseconds.checked_sub(part_ns);
        entries.push((*node, *state, others_ns.ok_or(interpreter_exceeds(*node))?));
        if part_ns > 0 {
            entries.push((*node, State::Interpreter, part_ns));
        }
    }
    match rest.next() {
        Some((node, _, _)) => Err(interpreter_exceeds(*node)),
        None => Ok(entries.into_iter().collect()),
    }
}

fn interpreter_exceeds(node: NodeId) -> WireError {
    WireError::Interpreter {
        node: node.0.into(),
    }
}

fn decode_weights(list: &[u8], quantum_ns: u64, node_count: u32) -> Result<Delta, WireError> {
    if let Some(bits) = next(&mut &*list).filter(|bits| *bits > BITS_MAX) {
        return Err(WireError::Invalid {
            what: "the number of bits of a cycle's weights",
            value: i128::from(bits),
            allowed: "at most 7",
        });
    }
    // Most pairs take two bytes.
    let mut entries = Vec::with_capacity(list.len() / 2);
    let mut position = 0u64;
    let mut total = 0u128;
    for (distance, quanta) in read(list) {
        position = position.saturating_add(distance);
        let node = position / STATES;
        let state = position % STATES;
        if node == 0 || node >= u64::from(node_count) {
            let count = u64::from(node_count);
            return Err(WireError::OutOfRange {
                what: "node",
                index: node,
                count,
            });
        }
        if distance == 0 {
            let what = "the distance of a weight from the one before";
            return Err(WireError::Invalid {
                what,
                value: 0,
                allowed: "above 0",
            });
        }
        let nanoseconds = quanta
            .and_then(|quanta| quanta.checked_mul(quantum_ns))
            .ok_or(WireError::Weight { node })?;
        total += u128::from(nanoseconds);
        let id = NodeId(u32::try_from(node).expect("it is below node_count"));
        entries.push((id, State::ALL[state as usize], nanoseconds));
    }
    // Sums saturate; more than an agent could ever count would lose weight silently.
    if total > u128::from(u64::MAX) {
        let what = "the sum of the cycle's weights";
        let value = i128::try_from(total).expect("a message has too few weights of 64 bits");
        let allowed = "small enough for 64 bits of nanoseconds";
        return Err(WireError::Invalid {
            what,
            value,
            allowed,
        });
    }
    Ok(Delta::rising(entries))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range() -> TimeRange {
        TimeRange::new(Timestamp::from_unix_ns(-5), Timestamp::from_unix_ns(7)).unwrap()
    }

    proptest! {
        #[test]
        fn decoding_gives_back_what_was_encoded(
            entries in prop::collection::vec(
                (1..500u32, prop::sample::select(&State::ALL[..]), 1..u64::from(u32::MAX)), 0..200,
            ),
            quantum_ns in 1..2_000_000u64,
        ) {
            let delta: Delta = entries
                .into_iter()
                .map(|(id, state, quanta)| (NodeId(id), state, quanta * quantum_ns))
                .collect();
            let cycle = encode_cycle(&delta, range(), quantum_ns);
            let cycle = with_threads(cycle, &delta);
            prop_assert_eq!(decode_threads(&cycle, 500), Ok(delta.clone()));
            prop_assert_eq!(decode_cycle(&cycle, 500), Ok((range(), delta.clone())));
            // An older receiver skips the list of interpreters, and has as much time.
            let older = v1::Cycle { samples_interpreter: Vec::new(), ..cycle };
            let seen = decode_cycle(&older, 500).unwrap().1.total();
            let sent = delta.total();
            prop_assert_eq!(seen.total_ns(), sent.total_ns());
            prop_assert_eq!(seen.get(State::Lock), sent.get(State::Lock) + sent.get(State::Interpreter));
        }

        #[test]
        fn arbitrary_lists_are_decoded_whole_or_rejected(
            list in list(),
            quantum_ns in prop_oneof![0..3u64, any::<u64>()],
            start_ns in any::<i64>(), stop_ns in any::<i64>(),
            node_count in prop_oneof![0..200u32, any::<u32>()],
        ) {
            let model = model(&list);
            let samples = bytes_of(&list);
            let cycle = v1::Cycle { start_ns, stop_ns, quantum_ns, samples, ..Default::default() };
            if let Ok((range, delta)) = decode_cycle(&cycle, node_count) {
                prop_assert_eq!((range.start().unix_ns(), range.stop().unix_ns()), (start_ns, stop_ns));
                prop_assert!(delta.entries().iter().all(|(node, _, _)| node.0 < node_count));
                let entries = model.unwrap();
                let sum: u64 = entries.iter().map(|(_, quanta)| quanta).sum();
                prop_assert_eq!(sum_of_quanta(&cycle.samples), sum);
                prop_assert_eq!(cycle_weight_ns(&cycle), delta.total().total_ns());
                let expected = entries.into_iter().map(|(position, quanta)| {
                    let node = u32::try_from(position / 7).unwrap();
                    let state = position % 7;
                    (NodeId(node), State::ALL[state as usize], quanta * quantum_ns)
                });
                prop_assert_eq!(delta, expected.collect());
            }
            // Both ends compute with it before it is checked.
            let _ = (sum_of_quanta(&cycle.samples), cycle_weight_ns(&cycle));
        }
    }

    fn bytes_of(list: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        list.iter()
            .for_each(|number| encode_varint(*number, &mut bytes));
        bytes
    }

    /// Content of a list by position; `None` if it is malformed.
    fn model(list: &[u64]) -> Option<Vec<(u64, u64)>> {
        let Some((bits, mut rest)) = list.split_first() else {
            return Some(Vec::new());
        };
        let mut entries = Vec::new();
        let mut position = 0u64;
        let shift = 1u64.checked_shl(u32::try_from(*bits).ok()?)?;
        while let [first, after @ ..] = rest {
            position = position.checked_add(first / shift)?;
            rest = after;
            let mut quanta = first % shift + 1;
            if quanta == shift {
                quanta += *rest.first()?;
                rest = &rest[1..];
            }
            entries.push((position, quanta));
        }
        Some(entries)
    }

    /// Mostly a valid list.
    fn list() -> impl Strategy<Value = Vec<u64>> {
        let pairs = prop::collection::vec((1..60u64, 1..100u64), 0..9);
        let good = (0..=BITS_MAX, pairs).prop_map(|(bits, pairs)| {
            let numbers = pairs.into_iter().flat_map(|(distance, quanta)| {
                let (first, more) = numbers_of(distance, quanta, bits);
                [first].into_iter().chain(more)
            });
            [bits].into_iter().chain(numbers).collect()
        });
        let number = prop_oneof![0..9u64, any::<u64>()];
        prop_oneof![9 => good, 1 => prop::collection::vec(number, 0..9)]
    }

    #[test]
    fn a_broken_list_is_rejected() {
        let weight = "the weight of node 1 is missing, or exceeds 64 bits of nanoseconds";
        check_list(&[0, 7], weight);
        check_list(&[0, 7, 1 << 24], weight);
        check_list(&[0, 7, u64::MAX], weight);
        check_list(&[2, 7 << 2 | 3], weight);
        check_list(
            &[8],
            "the number of bits of a cycle's weights is 8; it must be at most 7",
        );
        check_list(&[0, 6, 1], "node 0 is outside its table of 9");
        check_list(&[0, 35, 1, 28, 1], "node 9 is outside its table of 9");
        check_list(
            &[0, 7, 1, u64::MAX, 1],
            "node 2635249153387078802 is outside its table of 9",
        );
        let distance = "the distance of a weight from the one before is 0; it must be above 0";
        check_list(&[0, 7, 1, 0, 1], distance);
        check_list(&[5, 7 << 5, 3], distance);
        let sum = "the sum of the cycle's weights is 18446745173221179392; it must be small enough \
                   for 64 bits of nanoseconds";
        check_bytes(
            &[0, 0x80],
            "node 2635249153387078802 is outside its table of 9",
        );
        check_bytes(&[0, 7, 0x80], weight);
        check_list(&[0, 7, (1 << 23) - 1, 1, (1 << 23) - 1, 7, 0], sum);
    }

    fn check_list(list: &[u64], expected: &str) {
        check_bytes(&bytes_of(list), expected)
    }

    fn check_bytes(list: &[u8], expected: &str) {
        let quantum_ns = 1 << 40;
        for of_threads in [false, true] {
            let mut cycle = v1::Cycle {
                stop_ns: 1,
                quantum_ns,
                ..Default::default()
            };
            let encoded = if of_threads {
                &mut cycle.threads
            } else {
                &mut cycle.samples
            };
            *encoded = list.to_vec();
            let decoded = decode_cycle(&cycle, 9).and_then(|_| decode_threads(&cycle, 9));
            assert_eq!(decoded.unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn waits_for_an_interpreter_are_a_part_of_those_for_a_lock() {
        let check = |lists: [&[u64]; 2], expected: Result<&[(u32, State, u64)], &str>| {
            let [samples, samples_interpreter] = lists.map(bytes_of);
            let cycle = v1::Cycle {
                stop_ns: 1,
                quantum_ns: 1,
                threads: samples.clone(),
                threads_interpreter: samples_interpreter.clone(),
                samples,
                samples_interpreter,
                ..v1::Cycle::default()
            };
            let delta_of = |entries: &[(u32, State, u64)]| -> Delta {
                let entries = entries.iter();
                entries
                    .map(|(id, state, ns)| (NodeId(*id), *state, *ns))
                    .collect()
            };
            let expected = expected.map(delta_of).map_err(str::to_owned);
            let samples = decode_cycle(&cycle, 9).map(|(_, delta)| delta);
            for decoded in [samples, decode_threads(&cycle, 9)] {
                assert_eq!(decoded.map_err(|error| error.to_string()), expected);
            }
        };
        // Of node 1: 5 ns in a lock; of node 2: 3 ns on a CPU and 4 ns in a lock.
        let all = &[0, 9, 4, 5, 2, 2, 3][..];
        check(
            [all, &[0, 9, 4]],
            Ok(&[
                (1, State::Interpreter, 5),
                (2, State::Cpu, 3),
                (2, State::Lock, 4),
            ]),
        );
        check(
            [all, &[0, 9, 1, 7, 3]],
            Ok(&[
                (1, State::Lock, 3),
                (1, State::Interpreter, 2),
                (2, State::Cpu, 3),
                (2, State::Interpreter, 4),
            ]),
        );
        let exceeds =
            |node| format!("the waits of node {node} for an interpreter exceed those for a lock");
        check([all, &[0, 9, 5]], Err(&exceeds(1)));
        check([all, &[0, 14, 0]], Err(&exceeds(2)));
        check([all, &[0, 23, 0]], Err(&exceeds(3)));
        check([&[], &[0, 9, 0]], Err(&exceeds(1)));
        check([all, &[0, 6, 1]], Err("node 0 is outside its table of 9"));
    }

    #[test]
    fn the_shorter_encoding_is_chosen() {
        assert_eq!(encoded(&[]), bytes_of(&[]));
        // Small weights share a varint with their distances; a weight of 32 quanta is the first
        // that does not.
        let small = [
            (1, State::Cpu, 10),
            (1, State::Runnable, 10),
            (1, State::Lock, 310),
            (2, State::Cpu, 320),
        ];
        assert_eq!(
            encoded(&small),
            bytes_of(&[5, 7 << 5, 1 << 5, 1 << 5 | 30, 5 << 5 | 31, 0])
        );
        // Large weights do not, and would only take bits from the distances.
        let large = [(10, State::Cpu, 1_000), (20, State::Cpu, 1_000)];
        assert_eq!(encoded(&large), bytes_of(&[0, 70, 99, 70, 99]));
    }

    fn encoded(entries: &[(u32, State, u64)]) -> Vec<u8> {
        let entries = entries
            .iter()
            .map(|(node, state, time)| (NodeId(*node), *state, *time));
        encode_cycle(&entries.collect(), range(), 10).samples
    }

    #[test]
    fn a_reversed_cycle_is_rejected_with_its_length() {
        let cycle = v1::Cycle {
            start_ns: 9,
            stop_ns: 2,
            quantum_ns: 1,
            ..Default::default()
        };
        let error = decode_cycle(&cycle, 1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the cycle's stop - start is -7; it must be above 0"
        );
    }
}
