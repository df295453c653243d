//! Windows that are in no table yet, and the version of the tables that lacks them.
//!
//! Both change under one lock. So a reader gets a version and exactly the windows that it lacks,
//! and sees each sample once.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use profiler_core::{TimeRange, Timestamp};

use store::rows::StoredWindow;
use store::{Coverage, DataSpan, Manifest, Second};

/// Snapshot that one query reads: complete and immutable.
#[derive(Clone, Debug)]
pub struct WindowSnapshot {
    pub manifest: Arc<Manifest>,
    /// Windows of the requested seconds that are in no table of the manifest, by start.
    pub windows: Vec<Arc<StoredWindow>>,
    /// Of all unsealed windows, requested or not.
    pub unsealed: Option<DataSpan>,
}

/// Windows by second, then by arrival: a late window is inserted at its time.
#[derive(Default, Debug)]
struct Windows {
    by_second: BTreeMap<(Second, u64), Arc<StoredWindow>>,
    /// [`StoredWindow::end`] of each.
    ends: BTreeSet<Second>,
    bytes: usize,
}

/// The unsealed windows of all workers, and the readers' version of the tables.
#[derive(Debug)]
pub struct UnsealedWindows {
    manifest: Arc<Manifest>,
    open: Windows,
    /// Windows being written to tables. Readers find them here until [`UnsealedWindows::sealed`].
    sealing: Windows,
    arrivals: u64,
}

impl UnsealedWindows {
    pub fn new(manifest: Arc<Manifest>) -> UnsealedWindows {
        UnsealedWindows {
            manifest,
            open: Windows::default(),
            sealing: Windows::default(),
            arrivals: 0,
        }
    }

    pub fn insert(&mut self, window: StoredWindow) {
        self.open.bytes += window.bytes();
        self.open.ends.insert(window.end());
        self.arrivals += 1;
        self.open
            .by_second
            .insert((window.second(), self.arrivals), Arc::new(window));
    }

    /// All windows, by start.
    pub fn all(&self) -> impl Iterator<Item = &Arc<StoredWindow>> {
        let parts = [&self.sealing, &self.open];
        parts.into_iter().flat_map(|part| part.by_second.values())
    }

    /// The version of the tables and the windows of `seconds` that it lacks. Clones an `Arc` per
    /// window, so that the lock is short and the weights are read without it.
    pub fn view(&self, seconds: Range<Second>, now: Timestamp) -> WindowSnapshot {
        let places = (seconds.start, 0)..(seconds.end.max(seconds.start), 0);
        let parts = [&self.sealing, &self.open];
        let windows = parts
            .iter()
            .flat_map(|part| part.by_second.range(places.clone()));
        WindowSnapshot {
            manifest: self.manifest.clone(),
            windows: windows.map(|(_, window)| window.clone()).collect(),
            unsealed: self.unsealed_span(now),
        }
    }

    /// All windows, to be written to tables. They stay here until [`UnsealedWindows::sealed`]; if
    /// the write fails, the next call returns them again.
    pub fn take_for_sealing(&mut self) -> Vec<Arc<StoredWindow>> {
        self.sealing.bytes += std::mem::take(&mut self.open.bytes);
        self.sealing.by_second.append(&mut self.open.by_second);
        self.sealing.ends.append(&mut self.open.ends);
        self.sealing.by_second.values().cloned().collect()
    }

    #[must_use = "to be dropped when the lock is free again"]
    pub fn sealed(&mut self, manifest: Arc<Manifest>) -> impl Sized + use<> {
        self.manifest = manifest;
        std::mem::take(&mut self.sealing)
    }

    /// Replaces the version by one whose tables hold the same, or less by expired data.
    pub fn set_manifest(&mut self, manifest: Arc<Manifest>) {
        self.manifest = manifest;
    }

    pub fn count(&self) -> usize {
        self.open.by_second.len() + self.sealing.by_second.len()
    }

    pub fn bytes(&self) -> usize {
        self.open.bytes + self.sealing.bytes
    }

    /// The readers' version of the tables.
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// The span of all samples, here or in tables.
    pub fn data(&self, now: Timestamp) -> Option<TimeRange> {
        let sealed = Coverage::of(&self.manifest).data(now);
        [sealed, self.unsealed_span(now)]
            .into_iter()
            .flatten()
            .reduce(DataSpan::hull)?
            .range()
    }

    fn unsealed_span(&self, now: Timestamp) -> Option<DataSpan> {
        let parts = [&self.open, &self.sealing];
        let first = parts
            .iter()
            .filter_map(|part| Some(part.by_second.first_key_value()?.0.0))
            .min()?;
        let ends = parts.iter().flat_map(|part| newest_ends(&part.ends, now));
        Some(DataSpan::of(first, ends, now))
    }
}

/// The last of these seconds, and the last that is not ahead of `now`.
fn newest_ends(ends: &BTreeSet<Second>, now: Timestamp) -> impl Iterator<Item = Second> {
    let past = ends.range(..=Second::first_from(now)).next_back();
    ends.last().into_iter().chain(past).copied()
}

#[cfg(test)]
mod tests {
    use profiler_core::{Epoch, NodeId, State, Ticks, WorkerId};
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{START_S, at, range};
    use store::packed::PackedWeights;

    /// One node's time in the second that starts at `start_s`.
    fn window(start_s: i64) -> StoredWindow {
        let entry = (NodeId(1), State::Cpu, start_s.unsigned_abs() + 1);
        StoredWindow {
            worker: WorkerId("w".into()),
            range: range(start_s, start_s + 1).shifted(999_999_999).unwrap(),
            samples: PackedWeights::of([entry], 1, |_| NodeId(1)),
            epoch: Epoch(1),
            raw_start: at(start_s),
            clock_error_ns: 0,
            ticks: Ticks::default(),
            threads: PackedWeights::default(),
        }
    }

    fn second(start_s: i64) -> Second {
        Second(u32::try_from(START_S + start_s).unwrap())
    }

    fn starts(windows: &[Arc<StoredWindow>]) -> Vec<i64> {
        windows
            .iter()
            .map(|window| i64::from(window.second().0) - START_S)
            .collect()
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(i64),
        Take,
        Seal,
        Ask(i64, i64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => (0..20i64).prop_map(Step::Insert),
            1 => Just(Step::Take),
            1 => Just(Step::Seal),
            3 => (0..22i64, 0..22i64).prop_map(|(from, to)| Step::Ask(from, to)),
        ];
        prop::collection::vec(step, 0..60)
    }

    proptest! {
        /// Lists stand for tables: version n holds what the first n sealings wrote.
        #[test]
        fn every_view_has_each_window_once(steps in steps()) {
            let mut hot = UnsealedWindows::new(Arc::new(Manifest::default()));
            let mut versions = vec![Vec::new()];
            let mut taken = None;
            let mut all = Vec::new();
            for step in steps {
                match step {
                    Step::Insert(start_s) => {
                        hot.insert(window(start_s));
                        all.push(start_s);
                    }
                    Step::Take => taken = Some(starts(&hot.take_for_sealing())),
                    Step::Seal => {
                        let Some(taken) = taken.take() else { continue };
                        let version = versions.len() as u64;
                        versions.push([versions[versions.len() - 1].clone(), taken].concat());
                        drop(hot.sealed(Arc::new(Manifest { version, ..Manifest::default() })));
                    }
                    Step::Ask(from, to) => {
                        let view = hot.view(second(from)..second(to), Timestamp::MAX);
                        let mut found = starts(&view.windows);
                        let stored = &versions[view.manifest.version as usize];
                        found.extend(stored.iter().filter(|at| (from..to).contains(at)));
                        found.sort_unstable();
                        let mut expected = all.clone();
                        expected.retain(|at| (from..to).contains(at));
                        expected.sort_unstable();
                        prop_assert_eq!(found, expected);
                        let held = starts(&hot.view(Second(0)..Second(u32::MAX), Timestamp::MAX).windows);
                        let edges = held.iter().min().zip(held.iter().max()).map(|(first, last)| range(*first, last + 1));
                        prop_assert_eq!(view.unsealed.and_then(DataSpan::range), edges);
                        prop_assert_eq!(hot.count(), held.len());
                        prop_assert_eq!(hot.bytes(), held.len() * window(0).bytes());
                    }
                }
            }
        }
    }
}
