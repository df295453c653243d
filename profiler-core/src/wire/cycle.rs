//! Deltas on the wire: for each state, gaps between node ids, each with a weight in quanta. A steady
//! second takes two to three bytes a pair.

use super::{WireError, v1};
use crate::{Delta, NodeId, State, TimeRange, Timestamp};

/// Stands where the entries of one state end and those of the next begin.
const NEXT_STATE: u64 = 0;

/// Encodes `delta`, whose weights must be multiples of `quantum_ns`, over `range` of the agent's
/// clock. Ticks are left 0.
///
/// # Panics
/// If a weight is not a multiple of `quantum_ns`: the rest would be lost.
#[must_use]
pub fn encode_cycle(delta: &Delta, range: TimeRange, quantum_ns: u64) -> v1::Cycle {
    v1::Cycle {
        start_ns: range.start().unix_ns(),
        stop_ns: range.stop().unix_ns(),
        quantum_ns,
        samples: encode_weights(delta, quantum_ns),
        ..v1::Cycle::default()
    }
}

/// Encodes weights as they stand in a cycle, those by thread like those of samples.
///
/// # Panics
/// As [`encode_cycle`].
#[must_use]
pub fn encode_weights(delta: &Delta, quantum_ns: u64) -> Vec<u64> {
    let mut counts = State::ALL.map(|_| 0);
    delta.entries().iter().for_each(|(_, state, _)| counts[*state as usize] += 1);
    let states = counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
    // What nothing is written over stands between states.
    let separators = states.saturating_sub(1);
    let mut list = vec![NEXT_STATE; 2 * delta.entries().len() + separators];
    let mut end = 0;
    let mut places = counts.map(|count| {
        let begin = end;
        end += 2 * count + 1;
        (begin, 0)
    });
    for (node, state, weight) in delta.entries() {
        assert!(weight.is_multiple_of(quantum_ns), "{weight} is not in quanta of {quantum_ns}");
        let (place, last) = &mut places[*state as usize];
        list[*place] = u64::from(node.0 - *last);
        list[*place + 1] = weight / quantum_ns;
        (*place, *last) = (*place + 2, node.0);
    }
    list
}

/// Sum of the weights of a list, in quanta, wrapping around; of any list, so that both ends of a
/// stream reckon alike.
pub(super) fn sum_of_quanta(list: &[u64]) -> u64 {
    let (mut sum, mut rest) = (0u64, list.iter());
    while let Some(gap) = rest.next() {
        if *gap != NEXT_STATE {
            sum = sum.wrapping_add(rest.next().copied().unwrap_or(0));
        }
    }
    sum
}

/// Decodes a cycle over a tree of `node_count` nodes (with the root): its range by the agent's
/// clock, and its weights by the agent's nodes.
///
/// # Errors
/// If the range is empty or reversed, the quantum is 0, a node is outside the tree, or the weights
/// or their sum exceed 64 bits.
pub fn decode_cycle(cycle: &v1::Cycle, node_count: u32) -> Result<(TimeRange, Delta), WireError> {
    decode_cycle_moved(cycle, node_count, |node| node)
}

/// As [`decode_cycle`], with the weights at the nodes of another tree that `to` gives: what meets there
/// is added up, and sorted only once.
///
/// # Errors
/// As [`decode_cycle`]. `to` sees only nodes inside the tree.
pub fn decode_cycle_moved(
    cycle: &v1::Cycle,
    node_count: u32,
    to: impl Fn(NodeId) -> NodeId,
) -> Result<(TimeRange, Delta), WireError> {
    let start = Timestamp::from_unix_ns(cycle.start_ns);
    let stop = Timestamp::from_unix_ns(cycle.stop_ns);
    let range = TimeRange::new(start, stop).ok_or(WireError::Invalid {
        what: "the cycle's stop - start",
        value: i128::from(cycle.stop_ns) - i128::from(cycle.start_ns),
        allowed: "above 0",
    })?;
    if cycle.quantum_ns == 0 {
        let what = "the cycle's quantum_ns";
        return Err(WireError::Invalid { what, value: 0, allowed: "above 0" });
    }
    Ok((range, decode_weights(&cycle.samples, cycle.quantum_ns, (node_count, to))?))
}

/// Decodes the time of threads of a cycle, over a tree of `node_count` nodes (with the root).
///
/// # Errors
/// As [`decode_cycle`].
pub fn decode_threads(cycle: &v1::Cycle, node_count: u32) -> Result<Delta, WireError> {
    decode_weights(&cycle.threads, cycle.quantum_ns, (node_count, |node| node))
}

fn decode_weights(
    list: &[u64],
    quantum_ns: u64,
    (node_count, to): (u32, impl Fn(NodeId) -> NodeId),
) -> Result<Delta, WireError> {
    let mut entries = Vec::with_capacity(list.len() / 2);
    let (mut state, mut node, mut total) = (0, 0u64, 0u128);
    let mut rest = list.iter();
    while let Some(gap) = rest.next() {
        if *gap == NEXT_STATE {
            (state, node) = (state + 1, 0);
            let (what, size, limit) =
                ("the number of a cycle's states", state + 1, State::ALL.len());
            super::check_size(what, size, limit)?;
            continue;
        }
        node = node.saturating_add(*gap);
        if node >= u64::from(node_count) {
            let count = u64::from(node_count);
            return Err(WireError::OutOfRange { what: "node", index: node, count });
        }
        let what = "the weight of a cycle's last node";
        let quanta = rest.next().ok_or(WireError::Missing { what })?;
        let nanoseconds = quanta.checked_mul(quantum_ns).ok_or(WireError::Invalid {
            what: "a weight in quanta",
            value: i128::from(*quanta),
            allowed: "small enough for 64 bits of nanoseconds",
        })?;
        total += u128::from(nanoseconds);
        let id = NodeId(u32::try_from(node).expect("it is below node_count"));
        entries.push((to(id), State::ALL[state], nanoseconds));
    }
    // Sums saturate, which for more than an agent could ever count would be weight lost unseen.
    if total > u128::from(u64::MAX) {
        let what = "the sum of the cycle's weights";
        let value = i128::try_from(total).expect("a message has too few weights of 64 bits");
        let allowed = "small enough for 64 bits of nanoseconds";
        return Err(WireError::Invalid { what, value, allowed });
    }
    Ok(Delta::of(entries))
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
            prop_assert_eq!(decode_cycle(&cycle, 500), Ok((range(), delta)));
        }

        #[test]
        fn arbitrary_lists_are_read_whole_or_refused(
            samples in list(),
            quantum_ns in prop_oneof![0..3u64, any::<u64>()],
            start_ns in any::<i64>(), stop_ns in any::<i64>(),
            node_count in prop_oneof![0..200u32, any::<u32>()],
        ) {
            let model = model(&samples);
            let cycle = v1::Cycle { start_ns, stop_ns, quantum_ns, samples, ..Default::default() };
            if let Ok((range, delta)) = decode_cycle(&cycle, node_count) {
                prop_assert_eq!((range.start().unix_ns(), range.stop().unix_ns()), (start_ns, stop_ns));
                prop_assert!(delta.entries().iter().all(|(node, _, _)| node.0 < node_count));
                let entries = model.unwrap();
                let sum: u64 = entries.iter().map(|(.., quanta)| quanta).sum();
                prop_assert_eq!(sum_of_quanta(&cycle.samples), sum);
                let expected = entries.into_iter().map(|(state, node, quanta)| {
                    (NodeId(u32::try_from(node).unwrap()), State::ALL[state], quanta * quantum_ns)
                });
                prop_assert_eq!(delta, expected.collect());
            }
            // Both ends reckon with it before it is checked.
            let _ = sum_of_quanta(&cycle.samples);
        }
    }

    /// What a list says, state by state; `None` if it says nothing.
    fn model(list: &[u64]) -> Option<Vec<(usize, u64, u64)>> {
        let (mut entries, mut state, mut at) = (Vec::new(), 0, 0);
        let mut node = 0u64;
        while at < list.len() {
            if list[at] == 0 {
                (state, node, at) = (state + 1, 0, at + 1);
                continue;
            }
            node = node.checked_add(list[at])?;
            entries.push((state, node, *list.get(at + 1)?));
            at += 2;
        }
        Some(entries)
    }

    /// Mostly a good one: rising nodes with weights, by state.
    fn list() -> impl Strategy<Value = Vec<u64>> {
        let state = prop::collection::vec((1..20u64, 0..1_000u64), 0..5);
        let good = prop::collection::vec(state, 0..8).prop_map(|states| {
            let lists = states.into_iter().map(|entries| {
                entries.into_iter().flat_map(|(gap, quanta)| [gap, quanta]).collect::<Vec<_>>()
            });
            lists.collect::<Vec<_>>().join(&0)
        });
        let number = prop_oneof![0..3u64, any::<u64>()];
        prop_oneof![9 => good, 1 => prop::collection::vec(number, 0..9)]
    }

    #[test]
    fn a_broken_list_is_refused() {
        let check = |samples: &[u64], expected: &str| {
            let quantum_ns = 1 << 40;
            for threads in [false, true] {
                let [samples, threads] = match threads {
                    false => [samples.to_vec(), Vec::new()],
                    true => [Vec::new(), samples.to_vec()],
                };
                let cycle =
                    v1::Cycle { stop_ns: 1, quantum_ns, samples, threads, ..Default::default() };
                let decoded = decode_cycle(&cycle, 9).and_then(|_| decode_threads(&cycle, 9));
                assert_eq!(decoded.unwrap_err().to_string(), expected);
            }
        };
        check(&[1, 1, 1], "the weight of a cycle's last node is missing");
        check(&[0, 0, 0, 0, 0, 0, 0], "the number of a cycle's states is 8; at most 7 is allowed");
        check(&[5, 1, 4, 1], "node 9 is outside its table of 9");
        check(&[5, 1, u64::MAX, 1], "node 18446744073709551615 is outside its table of 9");
        let sum = "the sum of the cycle's weights is 18446745173221179392; it must be small enough for \
                   64 bits of nanoseconds";
        check(&[1, 1 << 23, 0, 1, (1 << 24) - (1 << 23), 1, 1], sum);
        let weight =
            "a weight in quanta is 16777216; it must be small enough for 64 bits of nanoseconds";
        check(&[1, 1 << 24], weight);
    }

    #[test]
    fn a_state_without_time_takes_one_byte_at_most() {
        let encoded = |entries: &[(u32, State, u64)]| {
            let entries = entries.iter().map(|(node, state, time)| (NodeId(*node), *state, *time));
            encode_cycle(&entries.collect(), range(), 10).samples
        };
        assert_eq!(encoded(&[]), []);
        assert_eq!(encoded(&[(3, State::Disk, 20)]), [0, 0, 0, 0, 0, 3, 2]);
        let both = [(3, State::Cpu, 20), (3, State::Lock, 10), (5, State::Cpu, 30)];
        assert_eq!(encoded(&both), [3, 2, 2, 3, 0, 0, 3, 1]);
    }

    #[test]
    fn a_reversed_cycle_is_refused_with_its_length() {
        let cycle = v1::Cycle { start_ns: 9, stop_ns: 2, quantum_ns: 1, ..Default::default() };
        let error = decode_cycle(&cycle, 1).unwrap_err();
        assert_eq!(error.to_string(), "the cycle's stop - start is -7; it must be above 0");
    }
}
