//! Observations of a thread while it [measured itself](EarlyAccount). The account tells how much
//! time each task took, and samples tell where.
//!
//! The weights that the sampler finds are held back. When the thread ends or is no longer young, the
//! exact time of each task is divided among the stacks of that task, in proportion to their weights.

use std::sync::Arc;

use profiler_core::{NodeId, State, Weight};

use super::addresses::{AddressTrie, Attribution};
use super::audit::Times;
use super::pages::page_map::PageMap;
use crate::registry::EarlyAccount;
use system::page_vec::PageVec;

/// Most stacks and states of one young thread that are remembered.
const SEEN_MAX: usize = 64;
/// Most of all young threads together: 8 MiB.
const ALL_SEEN_MAX: usize = 256 << 10;

/// A thread that measures itself, and what was seen of it.
#[derive(Debug)]
pub(super) struct EarlyThread {
    pub(super) account: Arc<EarlyAccount>,
    /// Its first entry in [`SeenStacks`].
    seen: Option<u32>,
}

/// The stacks at which young threads were seen, by thread: a chain for each.
#[derive(Debug, Default)]
pub(super) struct SeenStacks {
    entries: PageVec<SeenStack>,
    /// The first free entry.
    free: Option<u32>,
}

/// The time that was found at one stack in one state.
#[derive(Clone, Copy, Debug)]
struct SeenStack {
    /// The node of its task and phase.
    level: NodeId,
    share: Share,
    next: Option<u32>,
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
pub(super) struct Remainders(PageMap<NodeId, (Weight, Attribution)>);

impl EarlyThread {
    pub(super) fn new(account: Arc<EarlyAccount>) -> EarlyThread {
        EarlyThread {
            account,
            seen: None,
        }
    }

    /// Whether any weight was found.
    pub(super) fn is_seen(&self) -> bool {
        self.seen.is_some()
    }
}

impl SeenStacks {
    fn of<'s>(
        &'s self,
        thread: &EarlyThread,
    ) -> impl Iterator<Item = (u32, &'s SeenStack)> + Clone {
        let entry = |at: u32| self.entries.get(at as usize).map(|seen| (at, seen));
        std::iter::successors(thread.seen.and_then(entry), move |(_, seen)| {
            seen.next.and_then(entry)
        })
    }

    /// Holds back a weight below the node `level` of its task and phase.
    pub(super) fn add(
        &mut self,
        thread: &mut EarlyThread,
        level: NodeId,
        attribution: Attribution,
        weight: Weight,
    ) {
        for state in State::ALL
            .into_iter()
            .filter(|state| weight.get(*state) > 0)
        {
            self.add_share(
                thread,
                level,
                Share {
                    attribution,
                    state,
                    part: weight.get(state),
                },
            );
        }
    }

    fn add_share(&mut self, thread: &mut EarlyThread, level: NodeId, share: Share) {
        let is_same = |seen: &SeenStack| {
            seen.share.attribution == share.attribution && seen.share.state == share.state
        };
        let known = self
            .of(thread)
            .find(|(_, seen)| is_same(seen))
            .map(|(at, _)| at);
        if let Some(at) = known {
            self.entries[at as usize].share.part += share.part;
            return;
        }
        if self.of(thread).count() >= SEEN_MAX {
            return;
        }
        let new = SeenStack {
            level,
            share,
            next: thread.seen,
        };
        if let Some(at) = self.free {
            self.free = self.entries[at as usize].next;
            self.entries[at as usize] = new;
            thread.seen = Some(at);
        } else if self.entries.len() < ALL_SEEN_MAX && self.entries.push(new) {
            thread.seen = Some(self.entries.len() as u32 - 1);
        }
    }

    /// Forgets what was seen of a thread.
    pub(super) fn forget(&mut self, thread: &mut EarlyThread) {
        while let Some(at) = thread.seen {
            let entry = &mut self.entries[at as usize];
            thread.seen = entry.next;
            entry.next = self.free;
            self.free = Some(at);
        }
    }

    /// The stacks of a thread below `level`, with their weights in the states that are `wanted`.
    pub(super) fn shares(
        &self,
        thread: &EarlyThread,
        level: NodeId,
        wanted: impl Fn(State) -> bool + Copy,
    ) -> impl Iterator<Item = Share> + Clone {
        let below = self.of(thread).filter(move |(_, seen)| seen.level == level);
        below
            .map(|(_, seen)| seen.share)
            .filter(move |share| wanted(share.state))
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
        if !self.0.contains_key(&level) {
            self.0.insert(level, (Weight::ZERO, time.attribution));
        }
        let Some((weight, attribution)) = self.0.get_mut(&level) else {
            // No memory for what is less than a quantum.
            let whole = time.part - time.part % quantum_ns;
            return tree.add(time.attribution, Weight::of(time.state, whole));
        };
        *attribution = time.attribution;
        let rest = weight.get_mut(time.state);
        let sum = *rest + time.part;
        *rest = sum % quantum_ns;
        tree.add(time.attribution, Weight::of(time.state, sum - *rest));
    }

    /// The sum of all remainders.
    pub(super) fn sum(&self) -> Times {
        self.0.values().fold(Times::default(), |sum, (weight, _)| {
            sum + Times::of(*weight)
        })
    }

    /// Sampling ends: rounds each remainder to whole quanta.
    pub(super) fn finish(&mut self, tree: &mut AddressTrie, quantum_ns: u64) {
        for (weight, attribution) in self.0.values() {
            for state in State::ALL
                .into_iter()
                .filter(|it| weight.get(*it) * 2 >= quantum_ns)
            {
                tree.add(*attribution, Weight::of(state, quantum_ns));
            }
        }
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::addresses::{AddressFrame, TaskLevels};
    use super::*;
    use crate::registry::NameId;

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
        let levels = TaskLevels {
            first: AddressFrame::NoTask,
            phase: NameId::NONE,
        };
        let node = tree.insert_levels(&levels).0;
        let attribution = Attribution { node, thread: node };
        for _ in 0..25 {
            let time = Share {
                attribution,
                state: State::Cpu,
                part: 300,
            };
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
