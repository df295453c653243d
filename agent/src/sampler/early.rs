//! Observations of a thread while it [measured itself](EarlyAccount). The account tells how much
//! time each task took, and samples tell where.
//!
//! The weights that the sampler finds are held back. When the thread ends or is no longer young, the
//! exact time of each task is divided among the stacks of that task, in proportion to their weights.

use std::sync::Arc;

use profiler_core::{NodeId, State, Weight};
use rustc_hash::FxHashMap;

use super::addresses::{AddressTrie, Attribution};
use crate::registry::EarlyAccount;

/// Most stacks of one young thread that are remembered.
const STACKS_MAX: usize = 64;

/// A thread that measures itself, and what was seen of it.
#[derive(Debug)]
pub(super) struct EarlyThread {
    pub(super) account: Arc<EarlyAccount>,
    stacks: Vec<SeenStack>,
}

/// The weight that was found at one stack.
#[derive(Clone, Copy, Debug)]
struct SeenStack {
    /// The node of its task and phase.
    level: NodeId,
    attribution: Attribution,
    weight: Weight,
}

/// A stack and a state, and their part of a task's time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) attribution: Attribution,
    pub(super) state: State,
    pub(super) part: u64,
}

/// Time below a quantum, by node of a task and phase, and where its latest part belongs.
#[derive(Debug, Default)]
pub(super) struct Remainders(FxHashMap<NodeId, (Weight, Attribution)>);

impl EarlyThread {
    pub(super) fn new(account: Arc<EarlyAccount>) -> EarlyThread {
        EarlyThread { account, stacks: Vec::new() }
    }

    /// Whether any weight was found.
    pub(super) fn is_seen(&self) -> bool {
        !self.stacks.is_empty()
    }

    /// Holds back a weight below the node `level` of its task and phase.
    pub(super) fn add(&mut self, level: NodeId, attribution: Attribution, weight: Weight) {
        if weight.is_zero() {
            return;
        }
        if let Some(seen) = self.stacks.iter_mut().find(|seen| seen.attribution == attribution) {
            seen.weight += weight;
        } else if self.stacks.len() < STACKS_MAX {
            self.stacks.push(SeenStack { level, attribution, weight });
        }
    }

    /// The stacks below `level`, with their weights in the states that are `wanted`.
    pub(super) fn shares(&self, level: NodeId, wanted: impl Fn(State) -> bool) -> Vec<Share> {
        let stacks = self.stacks.iter().filter(|seen| seen.level == level);
        let shares = stacks.flat_map(|seen| {
            let SeenStack { attribution, weight, .. } = *seen;
            State::ALL.map(|state| Share { attribution, state, part: weight.get(state) })
        });
        shares.filter(|share| wanted(share.state) && share.part > 0).collect()
    }
}

/// Divides `total_ns` in proportion to `parts`. The results sum to it.
pub(super) fn divided(
    total_ns: u64,
    parts: impl Iterator<Item = u64> + Clone,
) -> impl Iterator<Item = u64> {
    let whole: u128 = parts.clone().map(u128::from).sum();
    let mut sum = 0;
    let mut given = 0;
    parts.map(move |part| {
        sum += u128::from(part);
        let until = u128::from(total_ns) * sum / whole.max(1);
        let until = u64::try_from(until).unwrap_or(total_ns);
        let next = until - given;
        given = until;
        next
    })
}

impl Remainders {
    /// Adds time below `level` to the tree, in whole quanta; keeps the remainder for the next time.
    pub(super) fn add(
        &mut self,
        tree: &mut AddressTrie,
        quantum_ns: u64,
        level: NodeId,
        time: Share,
    ) {
        let new = (Weight::ZERO, time.attribution);
        let (weight, attribution) = self.0.entry(level).or_insert(new);
        *attribution = time.attribution;
        let rest = weight.get_mut(time.state);
        let sum = *rest + time.part;
        *rest = sum % quantum_ns;
        tree.add(time.attribution, Weight::of(time.state, sum - *rest));
    }

    /// Sampling ends: rounds each remainder to whole quanta.
    pub(super) fn finish(&mut self, tree: &mut AddressTrie, quantum_ns: u64) {
        for (weight, attribution) in self.0.drain().map(|(_, rest)| rest) {
            for state in State::ALL.into_iter().filter(|it| weight.get(*it) * 2 >= quantum_ns) {
                tree.add(attribution, Weight::of(state, quantum_ns));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_total_is_divided_without_loss(
            total_ns in 0..u64::from(u32::MAX),
            parts in prop::collection::vec(1..1_000_000_000u64, 1..30),
        ) {
            let divided: Vec<u64> = divided(total_ns, parts.iter().copied()).collect();
            prop_assert_eq!(divided.iter().sum::<u64>(), total_ns);
            let whole: u64 = parts.iter().sum();
            for (part, ns) in parts.iter().zip(divided) {
                let exact = u128::from(total_ns) * u128::from(*part) / u128::from(whole);
                prop_assert!(u128::from(ns).abs_diff(exact) <= 1);
            }
        }
    }

    #[test]
    fn remainders_of_ended_threads_add_up() {
        let mut tree = AddressTrie::new(&[]);
        let mut remainders = Remainders::default();
        let attribution = Attribution { node: NodeId::ROOT, thread: NodeId::ROOT };
        for _ in 0..25 {
            let time = Share { attribution, state: State::Cpu, part: 300 };
            remainders.add(&mut tree, 1_000, NodeId(1), time);
            remainders.add(&mut tree, 1_000, NodeId(2), time);
        }
        let mut counted = 0;
        tree.seal(|sealed| {
            counted = sealed.delta.total().total_ns();
            Ok(())
        });
        // Twice for each, because a weight counts at its stack and at its thread.
        assert_eq!(counted, 2 * 2 * 7_000);
        remainders.finish(&mut tree, 1_000);
        tree.seal(|sealed| {
            counted = sealed.delta.total().total_ns();
            Ok(())
        });
        assert_eq!(counted, 2 * 2 * 1_000, "500 ns are rounded up");
    }
}
