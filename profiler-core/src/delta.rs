//! The weight that one cycle adds to a tree.

use std::cmp::Ordering;

use crate::{NodeId, State, TimeRange, Weight, WorkerId};

/// Nanoseconds by (node, state) of one tree. Each pair appears once, in rising order. Merging
/// deltas of the same tree is addition.
///
/// Most nodes are seen in one or two states, so an entry takes 16 bytes where a node with its whole
/// [`Weight`] would take 64.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Delta {
    entries: Vec<(NodeId, State, u64)>,
}

const _: () = assert!(size_of::<(NodeId, State, u64)>() == 16);

impl Delta {
    /// The entries, in rising order of (node, state); none is 0 ns.
    #[must_use]
    pub fn entries(&self) -> &[(NodeId, State, u64)] {
        &self.entries
    }

    /// Memory that the entries take, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(self.entries())
    }

    /// Whether nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Sum of all weights.
    #[must_use]
    pub fn total(&self) -> Weight {
        let mut total = Weight::ZERO;
        for (_, state, nanoseconds) in &self.entries {
            total.count(*state, *nanoseconds);
        }
        total
    }

    /// Removes all but the first `count` entries and returns them.
    ///
    /// # Panics
    /// If there are fewer entries.
    #[must_use]
    pub fn split_off(&mut self, count: usize) -> Delta {
        let entries = self.entries.split_off(count);
        self.entries.shrink_to_fit();
        Delta { entries }
    }

    /// The sum of two deltas of the same tree.
    #[must_use]
    pub fn merge(&self, other: &Delta) -> Delta {
        let mut left = &self.entries[..];
        let mut right = &other.entries[..];
        let mut entries = Vec::with_capacity(left.len().max(right.len()));
        while let ([a, left_rest @ ..], [b, right_rest @ ..]) = (left, right) {
            let order = (a.0, a.1).cmp(&(b.0, b.1));
            entries.push(match order {
                Ordering::Less => *a,
                Ordering::Greater => *b,
                Ordering::Equal => (a.0, a.1, a.2.saturating_add(b.2)),
            });
            left = if order.is_le() { left_rest } else { left };
            right = if order.is_ge() { right_rest } else { right };
        }
        entries.extend_from_slice(left);
        entries.extend_from_slice(right);
        Delta { entries }
    }
}

impl Delta {
    /// Builds a delta from entries that are already in order, each (node, state) once. It may keep
    /// spare capacity.
    pub(crate) fn rising(mut entries: Vec<(NodeId, State, u64)>) -> Delta {
        debug_assert!(
            entries.is_sorted_by(|a, b| (a.0, a.1) < (b.0, b.1)),
            "{entries:?}"
        );
        entries.retain(|(_, _, nanoseconds)| *nanoseconds > 0);
        Delta { entries }
    }
}

impl FromIterator<(NodeId, State, u64)> for Delta {
    /// Sums entries of the same node and state; the order does not matter.
    fn from_iter<I: IntoIterator<Item = (NodeId, State, u64)>>(entries: I) -> Self {
        let mut entries: Vec<_> = entries.into_iter().collect();
        entries.retain(|(_, _, nanoseconds)| *nanoseconds > 0);
        entries.sort_unstable_by_key(|(node, state, _)| u64::from(node.0) << 8 | *state as u64);
        entries.dedup_by(|next, sum| {
            let same = (next.0, next.1) == (sum.0, sum.1);
            if same {
                sum.2 = sum.2.saturating_add(next.2);
            }
            same
        });
        entries.shrink_to_fit();
        Delta { entries }
    }
}

impl FromIterator<(NodeId, Weight)> for Delta {
    /// Sums weights of the same node; the order does not matter.
    fn from_iter<I: IntoIterator<Item = (NodeId, Weight)>>(pairs: I) -> Self {
        let entries = pairs.into_iter().flat_map(|(node, weight)| {
            State::ALL
                .into_iter()
                .map(move |state| (node, state, weight.get(state)))
        });
        entries.collect()
    }
}

/// A sealed span of one worker's time. A range contains a window if it contains its start, so any
/// split of a range sums to the whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Window {
    /// The worker that was sampled.
    pub worker: WorkerId,
    /// Its time by the collector's clock.
    pub range: TimeRange,
    /// Its weight, by nodes of the collector's tree.
    pub delta: Delta,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn deltas() -> impl Strategy<Value = Delta> {
        let state = prop::sample::select(&State::ALL[..]);
        prop::collection::vec(((0..40u32).prop_map(NodeId), state, 0..1_000u64), 0..60)
            .prop_map(|entries| entries.into_iter().collect())
    }

    proptest! {
        #[test]
        fn merging_is_commutative_and_associative_and_keeps_weight(
            a in deltas(), b in deltas(), c in deltas()
        ) {
            prop_assert_eq!(a.merge(&b), b.merge(&a));
            prop_assert_eq!(a.merge(&b).merge(&c), a.merge(&b.merge(&c)));
            prop_assert_eq!(a.merge(&Delta::default()), a.clone());
            prop_assert_eq!(a.merge(&b).total(), a.total() + b.total());
            let mut first = a.clone();
            let rest = first.split_off(a.entries().len() / 2);
            prop_assert_eq!(first.merge(&rest), a.clone());
            let model: Delta = a.entries().iter().chain(b.entries()).copied().collect();
            prop_assert_eq!(a.merge(&b), model);
        }

        #[test]
        fn entries_rise_and_none_is_zero(a in deltas()) {
            let key = |(node, state, _): (NodeId, State, u64)| (node, state);
            prop_assert!(a.entries().windows(2).all(|pair| key(pair[0]) < key(pair[1])));
            prop_assert!(a.entries().iter().all(|(_, _, nanoseconds)| *nanoseconds > 0));
        }
    }
}
