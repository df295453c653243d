//! Selects the threads to visit at a tick. Every thread is visited now and then: one that moves is
//! visited often, and one that has been idle for long about once a second.
//!
//! The distance of two visits follows the stays of the thread: it is half of the shortest recent one,
//! and less while the current stay is short. So a thread that waits in one place after another is seen
//! in each, and the number of visits in a tick depends on how many threads move, not on how many there
//! are. Distances vary by chance, so that visits do not keep step with a thread that repeats itself.
//! Due visits wait in a queue, and a tick makes as many of them as its budget allows; the rest come
//! first at the next tick. A thread whose timer expired is looked at without waiting for its visit.

use super::pages::page_queue::PageQueue;
use super::thread::Thread;
use super::thread_table::ThreadTable;
use system::page_vec::PageVec;

/// Ticks that the wheel covers.
const WHEEL_TICKS: u64 = 128;
/// Most ticks between two visits of a thread, and about the time between two.
const PACE_TICKS_MAX: u64 = 100;
const PACE_NS_MAX: u64 = 1_000_000_000;
/// The part of a stay after which the next visit follows, while the stay is short and when it has
/// become longer than the recent ones.
const YOUNG_STAY_PART: u64 = 2;
const OLD_STAY_PART: u64 = 16;
/// The part of the shortest recent stay that is between two visits.
const SHORTEST_STAY_PART: u64 = 2;

/// When a thread is visited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Since when it has been seen in one place.
    stay_tick: u64,
    /// Ticks of its shortest recent stay: at most doubled by each longer one.
    shortest_ticks: u64,
    due_tick: u64,
    /// Where in the wheel it is, if it is there.
    wheel_tick: Option<u64>,
    is_queued: bool,
    /// The tick at which it was last looked at.
    seen_tick: u64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            stay_tick: 0,
            shortest_ticks: PACE_TICKS_MAX * SHORTEST_STAY_PART,
            due_tick: 0,
            wheel_tick: None,
            is_queued: false,
            seen_tick: 0,
        }
    }
}

impl Pace {
    /// The thread was looked at, and has moved since the last time or not.
    fn update_stay(&mut self, tick: u64, moved: bool) {
        if moved {
            let stayed = tick.saturating_sub(self.stay_tick).max(1);
            self.shortest_ticks = stayed.min(self.shortest_ticks * 2);
            self.stay_tick = tick;
        }
    }

    /// Ticks until the next visit, on average.
    fn distance(&self, tick: u64) -> u64 {
        let stayed = tick.saturating_sub(self.stay_tick);
        let young = 1 + stayed / YOUNG_STAY_PART;
        young
            .min(self.shortest_ticks / SHORTEST_STAY_PART)
            .max(stayed / OLD_STAY_PART)
    }
}

/// The index of the first entry of a chain.
type Chain = Option<usize>;

/// A thread in the wheel.
#[derive(Clone, Copy, Debug)]
struct Entry {
    id: u32,
    next: Chain,
}

/// The due visits, and a wheel of the later ones.
#[derive(Debug)]
pub(super) struct Visits {
    tick: u64,
    /// Thread ids by the tick at which they become due, modulo its length.
    wheel: [Chain; WHEEL_TICKS as usize],
    /// The entries of all chains, and those that are free.
    entries: PageVec<Entry>,
    free: Chain,
    /// Thread ids, the longest due first.
    queue: PageQueue<u32>,
    /// Most ticks between two visits.
    ticks_max: u64,
    random: u64,
}

impl Visits {
    pub(super) fn new(interval_ns: u64) -> Visits {
        let mut visits = Visits {
            tick: 1,
            wheel: [None; WHEEL_TICKS as usize],
            entries: PageVec::new(),
            free: None,
            queue: PageQueue::default(),
            ticks_max: 1,
            random: 1,
        };
        visits.set_interval(interval_ns);
        visits
    }

    /// Ticks come at this interval from now on.
    pub(super) fn set_interval(&mut self, interval_ns: u64) {
        self.ticks_max = (PACE_NS_MAX / interval_ns.max(1)).clamp(1, PACE_TICKS_MAX);
    }

    /// A tick begins: queues the visits that become due.
    pub(super) fn begin_tick(&mut self, threads: &mut ThreadTable) {
        self.tick += 1;
        let mut due = std::mem::take(&mut self.wheel[bucket(self.tick)]);
        while let Some(at) = due {
            let Entry { id, next } = std::mem::replace(
                &mut self.entries[at],
                Entry {
                    id: 0,
                    next: self.free,
                },
            );
            self.free = due;
            due = next;
            let Some(thread) = threads.get_mut(id) else {
                continue;
            };
            let pace = &mut thread.pace;
            // Another entry is the valid one if the visit was moved.
            if pace.wheel_tick == Some(self.tick) {
                pace.wheel_tick = None;
                if !pace.is_queued {
                    pace.is_queued = true;
                    self.queue.push_back(id);
                }
            }
        }
    }

    /// Visits a new thread before all others.
    pub(super) fn add(&mut self, thread: &mut Thread) {
        if !thread.pace.is_queued {
            thread.pace.is_queued = true;
            thread.pace.due_tick = self.tick;
            thread.pace.stay_tick = self.tick;
            self.queue.push_front(thread.id);
        }
    }

    /// Makes the next visit of a thread due now.
    pub(super) fn make_due(&mut self, thread: &mut Thread) {
        thread.pace.due_tick = self.tick;
        if !thread.pace.is_queued {
            thread.pace.is_queued = true;
            self.queue.push_back(thread.id);
        }
    }

    /// The thread to visit next.
    pub(super) fn next(&mut self) -> Option<u32> {
        self.queue.pop_front()
    }

    /// Puts back what [`Visits::next`] returned last.
    pub(super) fn put_back(&mut self, id: u32) {
        self.queue.push_front(id);
    }

    /// Number of visits that `next` can return.
    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// The thread was taken from the queue. Returns whether its visit is due; otherwise it was seen
    /// meanwhile, and is visited later.
    pub(super) fn is_due(&mut self, thread: &mut Thread) -> bool {
        thread.pace.is_queued = false;
        let is_due = thread.pace.due_tick <= self.tick && thread.pace.seen_tick != self.tick;
        if !is_due {
            let due_tick = thread.pace.due_tick.max(self.tick + 1);
            self.enter(thread, due_tick);
        }
        is_due
    }

    /// Whether this tick has looked at the thread. From now on it has.
    pub(super) fn mark_seen(&self, thread: &mut Thread) -> bool {
        std::mem::replace(&mut thread.pace.seen_tick, self.tick) == self.tick
    }

    /// The thread was looked at. `moved`: it may have been elsewhere since the last time.
    pub(super) fn schedule(&mut self, thread: &mut Thread, moved: bool) {
        thread.pace.update_stay(self.tick, moved);
        let distance = thread.pace.distance(self.tick);
        // Within a quarter of the distance.
        let spread = distance / 2;
        let varied = distance - spread / 2 + self.next_random() % (spread + 1);
        let pace = &mut thread.pace;
        pace.due_tick = self.tick + varied.clamp(1, self.ticks_max);
        let due_tick = pace.due_tick;
        if !pace.is_queued {
            self.enter(thread, due_tick);
        }
    }

    /// Xorshift: the visits need no better one.
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn enter(&mut self, thread: &mut Thread, due_tick: u64) {
        let pace = &mut thread.pace;
        // An earlier entry stays: when it comes, the visit moves to the due tick.
        if pace.wheel_tick.is_none_or(|tick| tick > due_tick) {
            pace.wheel_tick = Some(due_tick);
            self.add_entry(thread.id, due_tick);
        }
    }

    fn add_entry(&mut self, id: u32, due_tick: u64) {
        let chain = &mut self.wheel[bucket(due_tick)];
        let entry = Entry { id, next: *chain };
        if let Some(at) = self.free {
            self.free = self.entries[at].next;
            self.entries[at] = entry;
            *chain = Some(at);
        } else if self.entries.push(entry) {
            *chain = Some(self.entries.len() - 1);
        }
    }
}

fn bucket(tick: u64) -> usize {
    (tick % WHEEL_TICKS) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const TICK_NS: u64 = 10_000_000;

    /// Runs `ticks` ticks with a budget of `visits_max` visits each; `moved` tells which threads moved
    /// since their last visit. Returns the ticks at which each thread was visited.
    fn visits(
        threads: u32,
        ticks: u64,
        visits_max: usize,
        mut moved: impl FnMut(u32, u64) -> bool,
    ) -> BTreeMap<u32, Vec<u64>> {
        let mut visits = Visits::new(TICK_NS);
        let mut table = ThreadTable::default();
        for id in 0..threads {
            visits.add(table.insert(Thread::new(id, 0)).unwrap());
        }
        let mut visited: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for tick in 0..ticks {
            visits.begin_tick(&mut table);
            let mut made = 0;
            for _ in 0..visits.queued() {
                if made == visits_max {
                    break;
                }
                let Some(id) = visits.next() else { break };
                let thread = table.get_mut(id).unwrap();
                if visits.is_due(thread) {
                    made += 1;
                    visited.entry(id).or_default().push(tick);
                    let moved = moved(id, tick);
                    visits.schedule(thread, moved);
                }
            }
        }
        visited
    }

    #[test]
    fn an_idle_thread_is_visited_about_once_a_second() {
        let visited = visits(1, 2_000, 10, |_, _| false);
        let (first, later): (Vec<u64>, Vec<u64>) =
            visited[&0].iter().copied().partition(|tick| *tick < 1_000);
        assert!(first.len() < 40, "{first:?}");
        assert!(
            later
                .windows(2)
                .all(|pair| (75..=100).contains(&(pair[1] - pair[0]))),
            "{later:?}"
        );
    }

    #[test]
    fn a_thread_that_moves_is_visited_at_every_tick() {
        let visited = visits(3, 50, 10, |id, _| id == 1);
        assert_eq!(visited[&1].len(), 50);
        assert!(
            visited[&0].len() < 16 && visited[&2].len() < 16,
            "{visited:?}"
        );
    }

    #[test]
    fn a_short_stay_after_a_long_one_is_seen() {
        // Nine tenths of the time in one place, and a tenth in another.
        let is_short = |tick: u64| tick % 100 >= 90;
        let mut last_tick = 0;
        let visited = &visits(1, 10_000, 10, |_, tick: u64| {
            let moved = tick / 100 != last_tick / 100 || is_short(tick) != is_short(last_tick);
            last_tick = tick;
            moved
        })[&0];
        let mut seen: Vec<u64> = visited
            .iter()
            .filter(|tick| is_short(**tick))
            .map(|tick| tick / 100)
            .collect();
        seen.dedup();
        assert!(seen.len() > 95, "{} of 100", seen.len());
        assert!(visited.len() < 5_000, "{} visits", visited.len());
    }

    #[test]
    fn a_short_budget_is_shared_by_all_threads() {
        let visited = visits(30, 300, 3, |_, _| true);
        let counts: Vec<usize> = visited.values().map(Vec::len).collect();
        assert_eq!(counts.len(), 30);
        assert!(
            counts.iter().all(|count| (28..=32).contains(count)),
            "{counts:?}"
        );
    }
}
