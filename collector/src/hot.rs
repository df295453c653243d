//! The last minutes, in memory, by start.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use profiler_core::{Epoch, Ticks, TimeRange, Timestamp, Window};

use crate::limits::nanoseconds;

/// A window as it is kept: times by the collector's clock, and what they were made from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StoredWindow {
    pub(crate) window: Window,
    pub(crate) epoch: Epoch,
    /// Its start by the agent's clock.
    pub(crate) raw_start: Timestamp,
    /// How far the collector's and the agent's clocks may be apart beside the known offset.
    pub(crate) clock_error_ns: u64,
    pub(crate) ticks: Ticks,
}

impl StoredWindow {
    /// Memory that it takes, in bytes.
    fn bytes(&self) -> usize {
        /// A node of the map, and the counts of an `Arc`.
        const ENTRY_BYTES: usize = 64;
        size_of::<StoredWindow>() + ENTRY_BYTES + self.window.delta.bytes()
    }
}

/// What had to go to make room, or because it was old.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Evicted {
    pub(crate) windows: u64,
    pub(crate) weight_ns: u64,
}

/// The windows of all workers that started within a fixed time before now.
#[derive(Debug)]
pub(crate) struct HotWindow {
    /// By start and arrival: what comes late still lands in its place.
    windows: BTreeMap<(Timestamp, u64), Arc<StoredWindow>>,
    arrivals: u64,
    bytes: usize,
    evicted: Evicted,
    length_ns: i64,
    bytes_max: usize,
}

impl HotWindow {
    pub(crate) fn new(length: Duration, bytes_max: usize) -> HotWindow {
        HotWindow {
            windows: BTreeMap::new(),
            arrivals: 0,
            bytes: 0,
            evicted: Evicted::default(),
            length_ns: nanoseconds(length),
            bytes_max,
        }
    }

    /// Adds a window, then makes room.
    pub(crate) fn insert(&mut self, window: StoredWindow, now: Timestamp) {
        self.bytes += window.bytes();
        self.arrivals += 1;
        let place = (window.window.range.start(), self.arrivals);
        self.windows.insert(place, Arc::new(window));
        self.evict(now);
    }

    /// Drops what started too long before `now`, then the oldest until the rest fits.
    pub(crate) fn evict(&mut self, now: Timestamp) {
        let oldest = now.shifted(-self.length_ns);
        while let Some(first) = self.windows.first_entry() {
            if first.key().0 >= oldest && self.bytes <= self.bytes_max {
                break;
            }
            let window = first.remove();
            self.bytes -= window.bytes();
            self.evicted.windows += 1;
            let weight_ns = window.window.delta.total().total_ns();
            self.evicted.weight_ns = self.evicted.weight_ns.saturating_add(weight_ns);
        }
    }

    /// The windows that start in `range`. Costs one count of an `Arc` each, so that the lock around
    /// this is short and the weights are read without it.
    pub(crate) fn starting_in(&self, range: TimeRange) -> Vec<Arc<StoredWindow>> {
        let places = (range.start(), 0)..(range.stop(), 0);
        self.windows.range(places).map(|(_, window)| window.clone()).collect()
    }

    /// From the first start to the last one's stop; `None` if nothing is held.
    pub(crate) fn span(&self) -> Option<TimeRange> {
        let first = self.windows.first_key_value()?.1.window.range;
        let last = self.windows.last_key_value()?.1.window.range;
        Some(first.hull(last))
    }

    pub(crate) fn count(&self) -> usize {
        self.windows.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn evicted(&self) -> Evicted {
        self.evicted
    }
}

#[cfg(test)]
mod tests {
    use profiler_core::{NodeId, State, WorkerId};

    use super::*;
    use crate::testing::{at, range};

    /// A second of one node's time that starts at `start_s`.
    fn window(start_s: i64) -> StoredWindow {
        let entry = (NodeId(1), State::Cpu, start_s.unsigned_abs() + 1);
        let window = Window {
            worker: WorkerId("w".into()),
            range: range(start_s, start_s + 1),
            delta: [entry].into_iter().collect(),
        };
        StoredWindow {
            window,
            epoch: Epoch(1),
            raw_start: at(start_s),
            clock_error_ns: 0,
            ticks: Ticks::default(),
        }
    }

    /// Inserts windows of these seconds at 100 s, with room for `count_max`; the seconds then held,
    /// and what was evicted.
    fn check(starts_s: &[i64], count_max: usize, held: &[i64], evicted: (u64, u64)) {
        let bytes_max = count_max * window(0).bytes();
        let mut hot = HotWindow::new(Duration::from_secs(60), bytes_max);
        for start_s in starts_s {
            hot.insert(window(*start_s), at(100));
        }
        let found = hot.starting_in(TimeRange::ALL);
        let starts: Vec<_> = found.iter().map(|stored| stored.window.range.start()).collect();
        assert_eq!(starts, held.iter().map(|start_s| at(*start_s)).collect::<Vec<_>>());
        let (windows, weight_ns) = evicted;
        assert_eq!(hot.evicted(), Evicted { windows, weight_ns });
        assert_eq!(hot.bytes(), held.len() * window(0).bytes());
        let span = held.first().map(|first| range(*first, held[held.len() - 1] + 1));
        assert_eq!(hot.span(), span);
        hot.evict(at(1_000));
        assert_eq!((hot.count(), hot.bytes(), hot.span()), (0, 0, None));
    }

    #[test]
    fn the_oldest_go_first_and_are_counted() {
        check(&[], 9, &[], (0, 0));
        check(&[50, 51, 52], 9, &[50, 51, 52], (0, 0));
        // What comes late lands in its place.
        check(&[52, 50, 51, 50], 9, &[50, 50, 51, 52], (0, 0));
        // A minute before 100 s is 40 s.
        check(&[39, 40, 41], 9, &[40, 41], (1, 40));
        check(&[50, 51, 52, 53], 2, &[52, 53], (2, 51 + 52));
        check(&[53, 52, 51, 50], 2, &[52, 53], (2, 52 + 51));
        check(&[50], 0, &[], (1, 51));
    }

    #[test]
    fn a_window_is_in_the_range_that_holds_its_start() {
        let mut hot = HotWindow::new(Duration::from_secs(60), usize::MAX);
        (50..55).for_each(|start_s| hot.insert(window(start_s), at(100)));
        let count = |from, to| hot.starting_in(range(from, to)).len();
        assert_eq!((count(50, 55), count(50, 51), count(51, 54), count(55, 99)), (5, 1, 3, 0));
    }
}
