//! Values by name, of a limited number of names: those with the most time, wherever they come in the data.
//! A name may have several parts.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::limits::WEIGHED_NAMES_MAX;

/// The name of the values of all other names.
pub(super) const OVERFLOW: &str = "[overflow]";

/// Values by name. The data is visited once if it has few names. Otherwise [`ByName::choose`] chooses those
/// with the most time, and all data is visited again, so that the values of each name are whole.
pub(super) struct ByName<T, N = Arc<str>> {
    pub(super) names: BTreeMap<N, T>,
    names_max: usize,
    /// Time by name, until names are chosen.
    weights: BTreeMap<N, u64>,
    chosen: Option<BTreeSet<N>>,
}

/// A name that has values.
pub(super) trait Name: Ord + Clone {
    /// The name of the values of this one if it has none of its own.
    fn overflow(&self) -> Self;
}

impl Name for Arc<str> {
    fn overflow(&self) -> Arc<str> {
        OVERFLOW.into()
    }
}

impl<T: Default, N: Name> ByName<T, N> {
    pub(super) fn new(names_max: usize) -> ByName<T, N> {
        ByName {
            names: BTreeMap::new(),
            names_max,
            weights: BTreeMap::new(),
            chosen: None,
        }
    }

    /// The values of a name, which has so much time more.
    pub(super) fn of(&mut self, name: &N, weight_ns: u64) -> &mut T {
        if self.chosen.is_none() {
            self.weigh(name, weight_ns);
        }
        let has_room = match &self.chosen {
            Some(chosen) => chosen.contains(name),
            None => self.names.len() < self.names_max || self.names.contains_key(name),
        };
        let name = if has_room {
            name.clone()
        } else {
            name.overflow()
        };
        self.names.entry(name).or_default()
    }

    /// The values of a name that was visited before.
    pub(super) fn again(&mut self, name: &N) -> &mut T {
        let is_own = self.names.contains_key(name);
        self.names
            .entry(if is_own {
                name.clone()
            } else {
                name.overflow()
            })
            .or_default()
    }

    /// Whether all data must be visited again, because there are more names than may have values: then the
    /// values are empty again.
    pub(super) fn choose(&mut self) -> bool {
        if self.chosen.is_some() || self.weights.len() <= self.names_max {
            return false;
        }
        keep_heaviest(&mut self.weights, self.names_max);
        self.chosen = Some(std::mem::take(&mut self.weights).into_keys().collect());
        self.names.clear();
        true
    }

    fn weigh(&mut self, name: &N, weight_ns: u64) {
        if let Some(known_ns) = self.weights.get_mut(name) {
            *known_ns = known_ns.saturating_add(weight_ns);
            return;
        }
        self.weights.insert(name.clone(), weight_ns);
        if self.weights.len() > WEIGHED_NAMES_MAX.max(2 * self.names_max) {
            let kept = self.weights.len() / 2;
            keep_heaviest(&mut self.weights, kept);
        }
    }
}

/// Removes all but so many names, those with the most time; of equal ones the first in order stay.
fn keep_heaviest<N: Name>(weights: &mut BTreeMap<N, u64>, count: usize) {
    let mut order: Vec<(Reverse<u64>, N)> = weights
        .iter()
        .map(|(name, weight_ns)| (Reverse(*weight_ns), name.clone()))
        .collect();
    order.sort_unstable();
    order.drain(..count.min(order.len()));
    for (_, name) in order {
        weights.remove(&name);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_names_with_most_time_have_whole_values_in_any_order(
            entries in prop::collection::vec((0..40u32, 0..1_000u64), 0..200).prop_shuffle(),
            names_max in 1..20usize,
        ) {
            let name = |number: u32| -> Arc<str> { format!("n{number:02}").into() };
            let mut exact: BTreeMap<Arc<str>, u64> = BTreeMap::new();
            for (number, weight_ns) in &entries {
                *exact.entry(name(*number)).or_default() += weight_ns;
            }
            let mut kept = exact.clone();
            keep_heaviest(&mut kept, names_max);
            let others: u64 = exact.iter().filter(|(name, _)| !kept.contains_key(*name)).map(|(_, ns)| ns).sum();
            let has_others = exact.len() > kept.len();

            let mut values = ByName::<u64>::new(names_max);
            loop {
                for (number, weight_ns) in &entries {
                    *values.of(&name(*number), *weight_ns) += weight_ns;
                }
                if !values.choose() {
                    break;
                }
            }
            let overflow = values.names.remove(OVERFLOW);
            prop_assert_eq!(values.names, kept);
            prop_assert_eq!(overflow, has_others.then_some(others));
        }
    }
}
