//! The number of rows in memory that each identity holds, so that none takes the room of others.

use profiler_core::WorkerId;
use profiler_core::hash::KeyedMap;

use shares::identity::Identity;

/// Those whose rows count together: all workers of an identity. The store has no identities, so a worker
/// that sent no row since the collector started counts alone.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Holder {
    Identity(Identity),
    Worker(WorkerId),
}

/// Number of rows by worker and by holder.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    workers: KeyedMap<WorkerId, (Holder, usize)>,
    rows: KeyedMap<Holder, usize>,
    all_rows: usize,
}

impl Holdings {
    /// Counts one row more of a worker. Its rows are of that identity from now on.
    pub(super) fn add(&mut self, worker: &WorkerId, identity: Option<&Identity>) {
        let known = self.workers.remove(worker);
        let (before, count) = known.unwrap_or_else(|| (Holder::Worker(worker.clone()), 0));
        let holder = identity.map_or(before.clone(), |one| Holder::Identity(one.clone()));
        self.take(&before, count);
        *self.rows.entry(holder.clone()).or_default() += count + 1;
        self.workers.insert(worker.clone(), (holder, count + 1));
        self.all_rows += 1;
    }

    /// Counts one row less of a worker.
    pub(super) fn remove(&mut self, worker: &WorkerId) {
        let Some((holder, count)) = self.workers.get_mut(worker) else {
            return;
        };
        *count = count.saturating_sub(1);
        let holder = holder.clone();
        if *count == 0 {
            self.workers.remove(worker);
        }
        self.take(&holder, 1);
        self.all_rows -= 1;
    }

    fn take(&mut self, holder: &Holder, count: usize) {
        if let Some(rows) = self.rows.get_mut(holder) {
            *rows = rows.saturating_sub(count);
            if *rows == 0 {
                self.rows.remove(holder);
            }
        }
    }

    /// The holder of a worker's rows, if it has any.
    pub(super) fn holder(&self, worker: &WorkerId) -> Option<&Holder> {
        self.workers.get(worker).map(|(holder, _)| holder)
    }

    /// Number of all rows.
    pub(super) fn rows(&self) -> usize {
        self.all_rows
    }

    /// Number of rows of a worker's holder.
    pub(super) fn rows_with(&self, worker: &WorkerId) -> usize {
        self.holder(worker)
            .and_then(|holder| self.rows.get(holder))
            .copied()
            .unwrap_or_default()
    }
}

/// A row that may be dropped.
pub(super) struct Candidate<'a, K> {
    pub(super) holder: Option<&'a Holder>,
    /// Smaller ones are dropped first. Each is unique.
    pub(super) age: K,
}

/// The rows to drop to have at least `count` less: of the holders with most rows, so that these keep equally
/// many, and of each the oldest.
pub(super) fn surplus<'a, K: Ord>(
    candidates: impl Iterator<Item = Candidate<'a, K>>,
    count: usize,
) -> Vec<K> {
    let mut by_holder: KeyedMap<Option<&Holder>, Vec<K>> = KeyedMap::default();
    for Candidate { holder, age } in candidates {
        by_holder.entry(holder).or_default().push(age);
    }
    let sizes: Vec<usize> = by_holder.values().map(Vec::len).collect();
    let dropped =
        |kept: usize| -> usize { sizes.iter().map(|size| size.saturating_sub(kept)).sum() };
    let largest = sizes.iter().copied().max().unwrap_or_default();
    // What is dropped falls with the rows that each may keep.
    let mut kept = 0..largest;
    while kept.len() > 1 {
        let middle = usize::midpoint(kept.start, kept.end);
        kept = if dropped(middle) >= count {
            middle..kept.end
        } else {
            kept.start..middle
        };
    }
    let mut surplus = Vec::new();
    for mut ages in by_holder.into_values() {
        ages.sort_unstable();
        ages.truncate(ages.len().saturating_sub(kept.start));
        surplus.append(&mut ages);
    }
    surplus
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    fn worker(number: u8) -> WorkerId {
        WorkerId(format!("w-{number}").into())
    }

    fn identity(number: u8) -> Identity {
        Identity::Address(Ipv4Addr::new(127, 0, 0, number).into())
    }

    proptest! {
        #[test]
        fn rows_are_counted_by_the_last_identity_of_their_worker(
            changes in prop::collection::vec((0..5u8, prop::option::of(0..3u8), any::<bool>()), 0..60),
        ) {
            let mut holdings = Holdings::default();
            let mut workers: Vec<(usize, Option<u8>)> = vec![(0, None); 5];
            for (number, sender, is_added) in changes {
                let (rows, of) = &mut workers[usize::from(number)];
                if is_added {
                    holdings.add(&worker(number), sender.map(identity).as_ref());
                    *rows += 1;
                    *of = sender.or(*of);
                } else {
                    holdings.remove(&worker(number));
                    *rows = rows.saturating_sub(1);
                }
                if *rows == 0 {
                    *of = None;
                }
            }
            for (number, (rows, of)) in (0..).zip(&workers) {
                let together = workers.iter().filter(|(_, other)| of.is_some() && of == other);
                let expected = match (rows, of) {
                    (0, _) => 0,
                    (rows, None) => *rows,
                    _ => together.map(|(rows, _)| rows).sum(),
                };
                prop_assert_eq!(holdings.rows_with(&worker(number)), expected);
            }
        }

        #[test]
        fn those_with_most_rows_lose_their_oldest(
            sizes in prop::collection::vec(0..40usize, 1..6),
            count in 1..60usize,
        ) {
            let holders: Vec<Holder> = (0..6).map(|n| Holder::Worker(worker(n))).collect();
            let rows: Vec<_> = sizes.iter().zip(&holders).flat_map(|(size, holder)| {
                (0..*size).map(move |age| (holder, age))
            }).enumerate().collect();
            let candidates = rows.iter().map(|(number, (holder, age))| {
                Candidate { holder: Some(*holder), age: (*age, *number) }
            });
            let dropped = surplus(candidates, count);
            prop_assert!(dropped.len() >= count.min(rows.len()));
            prop_assert!(dropped.len() < count + sizes.len());
            let kept: Vec<usize> = holders.iter().zip(&sizes).map(|(holder, size)| {
                let lost = dropped.iter().filter(|(_, number)| rows[*number].1.0 == holder);
                let ages: Vec<usize> = lost.map(|(age, _)| *age).collect();
                assert!(ages.iter().all(|age| *age < ages.len()), "the oldest are dropped");
                size - ages.len()
            }).collect();
            let most_kept = kept.iter().copied().max().unwrap();
            for (kept, size) in kept.iter().zip(&sizes) {
                prop_assert!(kept == size || *kept + 1 >= most_kept, "{kept:?} of {sizes:?}");
            }
        }
    }
}
