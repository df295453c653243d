//! Deltas on the wire: for each state, gaps between node ids and weights in quanta. A steady second
//! takes two bytes a pair.

use super::{WireError, v1};
use crate::{Delta, NodeId, State, TimeRange, Timestamp, Weight};

/// Encodes `delta`, whose weights must be multiples of `quantum_ns`, over `range` of the agent's
/// clock. Ticks are left 0.
///
/// # Panics
/// If a weight is not a multiple of `quantum_ns`: the rest would be lost.
#[must_use]
pub fn encode_cycle(delta: &Delta, range: TimeRange, quantum_ns: u64) -> v1::Cycle {
    let column = |state| {
        let mut column = v1::Column::default();
        let mut last = 0;
        for (node, weight) in delta.pairs() {
            let weight = weight.get(state);
            assert!(weight.is_multiple_of(quantum_ns), "{weight} is not in quanta of {quantum_ns}");
            if weight > 0 {
                column.node_gaps.push(node.0 - last);
                column.quanta.push(weight / quantum_ns);
                last = node.0;
            }
        }
        Some(column)
    };
    v1::Cycle {
        start_ns: range.start().unix_ns(),
        stop_ns: range.stop().unix_ns(),
        quantum_ns,
        cpu: column(State::Cpu),
        runnable: column(State::Runnable),
        wait: column(State::Wait),
        ticks: 0,
        ticks_expected: 0,
    }
}

/// Decodes a cycle over a tree of `node_count` nodes (with the root): its range by the agent's
/// clock, and its weights by the agent's nodes.
///
/// # Errors
/// If the range is empty or reversed, the quantum is 0, a node is outside the tree, or a sum would
/// not fit.
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
        return Err(WireError::Invalid { what, value: 0, allowed: "above 0" });
    }
    let mut pairs = Vec::new();
    let columns = [&cycle.cpu, &cycle.runnable, &cycle.wait];
    for (state, column) in State::ALL.into_iter().zip(columns) {
        let Some(column) = column else { continue };
        decode_column(column, state, cycle.quantum_ns, node_count, &mut pairs)?;
    }
    Ok((range, pairs.into_iter().collect()))
}

fn decode_column(
    column: &v1::Column,
    state: State,
    quantum_ns: u64,
    node_count: u32,
    pairs: &mut Vec<(NodeId, Weight)>,
) -> Result<(), WireError> {
    let (left, right) = (column.node_gaps.len(), column.quanta.len());
    if left != right {
        return Err(WireError::Uneven { what: "node_gaps and quanta", left, right });
    }
    let mut node = 0u64;
    for (gap, quanta) in column.node_gaps.iter().zip(&column.quanta) {
        node += u64::from(*gap);
        if *gap == 0 || node >= u64::from(node_count) {
            let count = u64::from(node_count);
            return Err(WireError::OutOfRange { what: "node", index: node, count });
        }
        let nanoseconds = quanta.checked_mul(quantum_ns).ok_or(WireError::Invalid {
            what: "a weight in quanta",
            value: i128::from(*quanta),
            allowed: "small enough for 64 bits of nanoseconds",
        })?;
        let id = NodeId(u32::try_from(node).expect("it is below node_count"));
        pairs.push((id, Weight::of(state, nanoseconds)));
    }
    Ok(())
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
            pairs in prop::collection::vec((1..500u32, 0..3usize, 1..u64::from(u32::MAX)), 0..200),
            quantum_ns in 1..2_000_000u64,
        ) {
            let delta: Delta = pairs
                .into_iter()
                .map(|(id, state, w)| (NodeId(id), Weight::of(State::ALL[state], w * quantum_ns)))
                .collect();
            let cycle = encode_cycle(&delta, range(), quantum_ns);
            prop_assert_eq!(decode_cycle(&cycle, 500), Ok((range(), delta)));
        }

        #[test]
        fn arbitrary_columns_never_panic(
            gaps in prop::collection::vec(any::<u32>(), 0..20),
            quanta in prop::collection::vec(any::<u64>(), 0..20),
            quantum_ns in any::<u64>(), start_ns in any::<i64>(), stop_ns in any::<i64>(),
            node_count in any::<u32>(),
        ) {
            let column = v1::Column { node_gaps: gaps, quanta };
            let cycle = v1::Cycle {
                start_ns, stop_ns, quantum_ns, wait: Some(column), ..Default::default()
            };
            if let Ok((_, delta)) = decode_cycle(&cycle, node_count) {
                prop_assert!(delta.pairs().iter().all(|(node, _)| node.0 < node_count));
            }
        }
    }

    #[test]
    fn a_reversed_cycle_is_refused_with_its_length() {
        let cycle = v1::Cycle { start_ns: 9, stop_ns: 2, quantum_ns: 1, ..Default::default() };
        let error = decode_cycle(&cycle, 1).unwrap_err();
        assert_eq!(error.to_string(), "the cycle's stop - start is -7; it must be above 0");
    }
}
