//! Deltas on the wire: for each state, gaps between node ids and weights in quanta. A steady second
//! takes two bytes a pair.

use super::{WireError, v1};
use crate::{Delta, NodeId, State, TimeRange, Timestamp};

/// Encodes `delta`, whose weights must be multiples of `quantum_ns`, over `range` of the agent's
/// clock. Ticks are left 0.
///
/// # Panics
/// If a weight is not a multiple of `quantum_ns`: the rest would be lost.
#[must_use]
pub fn encode_cycle(delta: &Delta, range: TimeRange, quantum_ns: u64) -> v1::Cycle {
    let [cpu, runnable, lock, sleep, network, disk, other] = encode_columns(delta, quantum_ns);
    v1::Cycle {
        start_ns: range.start().unix_ns(),
        stop_ns: range.stop().unix_ns(),
        quantum_ns,
        cpu,
        runnable,
        lock,
        sleep,
        network,
        disk,
        other,
        ..v1::Cycle::default()
    }
}

/// Encodes the time of threads, which is a delta like any other; `None` if there is none.
///
/// # Panics
/// As [`encode_cycle`].
#[must_use]
pub fn encode_threads(threads: &Delta, quantum_ns: u64) -> Option<v1::Columns> {
    let [cpu, runnable, lock, sleep, network, disk, other] = encode_columns(threads, quantum_ns);
    let columns = v1::Columns { cpu, runnable, lock, sleep, network, disk, other };
    (!threads.is_empty()).then_some(columns)
}

/// One column a state, in the order of [`State::ALL`].
fn encode_columns(delta: &Delta, quantum_ns: u64) -> [Option<v1::Column>; State::ALL.len()] {
    let mut counts = State::ALL.map(|_| 0);
    delta.entries().iter().for_each(|(_, state, _)| counts[*state as usize] += 1);
    let column = |count| v1::Column {
        node_gaps: Vec::with_capacity(count),
        quanta: Vec::with_capacity(count),
    };
    let mut columns = counts.map(|count| (column(count), 0));
    for (node, state, weight) in delta.entries() {
        assert!(weight.is_multiple_of(quantum_ns), "{weight} is not in quanta of {quantum_ns}");
        let (column, last) = &mut columns[*state as usize];
        column.node_gaps.push(node.0 - *last);
        column.quanta.push(weight / quantum_ns);
        *last = node.0;
    }
    columns.map(|(column, _)| Some(column).filter(|column| !column.quanta.is_empty()))
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
    let v1::Cycle { cpu, runnable, lock, sleep, network, disk, other, .. } = cycle;
    let columns = [cpu, runnable, lock, sleep, network, disk, other];
    Ok((range, decode_columns(columns, cycle.quantum_ns, (node_count, to))?))
}

/// Decodes the time of threads of a cycle, over a tree of `node_count` nodes (with the root).
///
/// # Errors
/// As [`decode_cycle`].
pub fn decode_threads(cycle: &v1::Cycle, node_count: u32) -> Result<Delta, WireError> {
    let Some(threads) = &cycle.threads else { return Ok(Delta::default()) };
    let v1::Columns { cpu, runnable, lock, sleep, network, disk, other } = threads;
    let columns = [cpu, runnable, lock, sleep, network, disk, other];
    decode_columns(columns, cycle.quantum_ns, (node_count, |node| node))
}

/// `columns` in the order of [`State::ALL`].
fn decode_columns(
    columns: [&Option<v1::Column>; State::ALL.len()],
    quantum_ns: u64,
    (node_count, to): (u32, impl Fn(NodeId) -> NodeId),
) -> Result<Delta, WireError> {
    let count = columns.iter().copied().flatten().map(|column| column.quanta.len()).sum();
    let mut entries = Vec::with_capacity(count);
    for (state, column) in State::ALL.into_iter().zip(columns) {
        let Some(column) = column else { continue };
        let first = entries.len();
        decode_column(column, state, quantum_ns, node_count, &mut entries)?;
        entries[first..].iter_mut().for_each(|(node, _, _)| *node = to(*node));
    }
    // Sums saturate, which for more than an agent could ever count would be weight lost unseen.
    let total: i128 = entries.iter().map(|(_, _, nanoseconds)| i128::from(*nanoseconds)).sum();
    if total > i128::from(u64::MAX) {
        let what = "the sum of the cycle's weights";
        let allowed = "small enough for 64 bits of nanoseconds";
        return Err(WireError::Invalid { what, value: total, allowed });
    }
    Ok(Delta::of(entries))
}

fn decode_column(
    column: &v1::Column,
    state: State,
    quantum_ns: u64,
    node_count: u32,
    entries: &mut Vec<(NodeId, State, u64)>,
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
        entries.push((id, state, nanoseconds));
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
        fn arbitrary_columns_are_read_whole_or_refused(
            columns in prop::array::uniform7(prop::option::of(column())),
            quantum_ns in prop_oneof![0..3u64, any::<u64>()],
            start_ns in any::<i64>(), stop_ns in any::<i64>(),
            node_count in prop_oneof![0..200u32, any::<u32>()],
        ) {
            let cycle = cycle_of(columns.clone(), quantum_ns, (start_ns, stop_ns));
            if let Ok((_, delta)) = decode_cycle(&cycle, node_count) {
                prop_assert!(delta.entries().iter().all(|(node, _, _)| node.0 < node_count));
                for (state, column) in State::ALL.into_iter().zip(columns) {
                    let quanta: u64 = column.unwrap_or_default().quanta.iter().sum();
                    prop_assert_eq!(delta.total().get(state), quanta * quantum_ns);
                }
            }
        }
    }

    /// Mostly a good one: rising nodes, as many weights.
    fn column() -> impl Strategy<Value = v1::Column> {
        let good = prop::collection::vec((1..20u32, 0..1_000u64), 0..9)
            .prop_map(|pairs| pairs.into_iter().unzip());
        let any_length = prop::collection::vec(any::<u32>(), 0..9);
        let bad = (any_length, prop::collection::vec(any::<u64>(), 0..9));
        prop_oneof![20 => good, 1 => bad]
            .prop_map(|(node_gaps, quanta)| v1::Column { node_gaps, quanta })
    }

    fn cycle_of(
        columns: [Option<v1::Column>; 7],
        quantum_ns: u64,
        (start_ns, stop_ns): (i64, i64),
    ) -> v1::Cycle {
        let [cpu, runnable, lock, sleep, network, disk, other] = columns;
        let (ticks, ticks_expected, ticks_saved) = (0, 0, 0);
        v1::Cycle {
            start_ns,
            stop_ns,
            quantum_ns,
            cpu,
            runnable,
            lock,
            sleep,
            network,
            disk,
            other,
            ticks,
            ticks_expected,
            ticks_saved,
            threads: None,
        }
    }

    #[test]
    fn a_broken_column_of_any_state_is_refused() {
        for broken in 0..State::ALL.len() {
            let columns = std::array::from_fn(|index| {
                (index == broken).then(|| v1::Column { node_gaps: vec![1, 1], quanta: vec![1] })
            });
            let error = decode_cycle(&cycle_of(columns, 1, (0, 1)), 9).unwrap_err();
            assert_eq!(
                error,
                WireError::Uneven { what: "node_gaps and quanta", left: 2, right: 1 }
            );
        }
    }

    #[test]
    fn a_state_without_time_takes_no_bytes() {
        let delta = Delta::from_iter([(NodeId(3), State::Disk, 20)]);
        let cycle = encode_cycle(&delta, range(), 10);
        let column = v1::Column { node_gaps: vec![3], quanta: vec![2] };
        let columns = [None, None, None, None, None, Some(column), None];
        assert_eq!(cycle, cycle_of(columns, 10, (-5, 7)));
    }

    #[test]
    fn a_reversed_cycle_is_refused_with_its_length() {
        let cycle = v1::Cycle { start_ns: 9, stop_ns: 2, quantum_ns: 1, ..Default::default() };
        let error = decode_cycle(&cycle, 1).unwrap_err();
        assert_eq!(error.to_string(), "the cycle's stop - start is -7; it must be above 0");
    }
}
