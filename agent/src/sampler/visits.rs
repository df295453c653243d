//! Which threads are visited at a tick: every thread now and then, one that ran lately often, one
//! that has been idle for long about once a second.
//!
//! A visit of a thread that has not run lets its next one wait twice as long. So the number of visits
//! in a tick depends on how many threads run, not on how many there are. Due visits wait in a queue,
//! and a tick makes as many of them as its budget allows; the rest come first at the next tick.
//! A thread whose timer expired is looked at without waiting for its visit.

use std::collections::VecDeque;

use super::thread::Thread;
use super::thread_table::ThreadTable;

/// Ticks that the wheel covers.
const WHEEL_TICKS: u64 = 128;
/// Most ticks between two visits of a thread, and about the time between two.
const PACE_TICKS_MAX: u64 = 100;
const PACE_NS_MAX: u64 = 1_000_000_000;

/// When a thread is visited.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Pace {
    /// Ticks between its last visit and its next one.
    ticks: u64,
    due_tick: u64,
    /// Where in the wheel it is, if it is there.
    wheel_tick: Option<u64>,
    is_queued: bool,
    /// The tick at which it was last looked at.
    seen_tick: u64,
}

/// The due visits, and a wheel of the later ones.
#[derive(Debug)]
pub(super) struct Visits {
    tick: u64,
    /// Thread ids by the tick at which they become due, modulo its length.
    wheel: Vec<Vec<u32>>,
    /// Thread ids, the longest due first.
    queue: VecDeque<u32>,
    /// Most ticks between two visits.
    ticks_max: u64,
}

impl Visits {
    pub(super) fn new(interval_ns: u64) -> Visits {
        let mut visits = Visits {
            tick: 1,
            wheel: (0..WHEEL_TICKS).map(|_| Vec::new()).collect(),
            queue: VecDeque::new(),
            ticks_max: 1,
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
        for id in self.wheel[bucket(self.tick)].drain(..) {
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

    /// The thread was looked at. `ran`: visit it at the next tick.
    pub(super) fn schedule(&mut self, thread: &mut Thread, ran: bool) {
        let pace = &mut thread.pace;
        pace.ticks = if ran { 1 } else { (pace.ticks * 2).clamp(1, self.ticks_max) };
        pace.due_tick = self.tick + pace.ticks;
        let due_tick = pace.due_tick;
        if !pace.is_queued {
            self.enter(thread, due_tick);
        }
    }

    fn enter(&mut self, thread: &mut Thread, due_tick: u64) {
        let pace = &mut thread.pace;
        // An earlier entry stays: when it comes, the visit moves to the due tick.
        if pace.wheel_tick.is_none_or(|tick| tick > due_tick) {
            pace.wheel_tick = Some(due_tick);
            self.wheel[bucket(due_tick)].push(thread.id);
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

    /// Runs `ticks` ticks with a budget of `visits_max` visits each; `ran` tells which threads ran
    /// since their last visit. Returns the ticks at which each thread was visited.
    fn visits(
        threads: u32,
        ticks: u64,
        visits_max: usize,
        mut ran: impl FnMut(u32, u64) -> bool,
    ) -> BTreeMap<u32, Vec<u64>> {
        let mut visits = Visits::new(TICK_NS);
        let mut table = ThreadTable::default();
        for id in 0..threads {
            visits.add(table.insert(Thread::new(id, 0)));
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
                    let ran = ran(id, tick);
                    visits.schedule(thread, ran);
                }
            }
        }
        visited
    }

    #[test]
    fn an_idle_thread_is_visited_about_once_a_second() {
        let visited = visits(1, 1_000, 10, |_, _| false);
        let ticks = &visited[&0];
        assert_eq!(ticks[..8], [0, 1, 3, 7, 15, 31, 63, 127]);
        assert!(ticks.windows(2).skip(7).all(|pair| pair[1] - pair[0] == 100), "{ticks:?}");
    }

    #[test]
    fn a_thread_that_ran_is_visited_at_every_tick() {
        let visited = visits(3, 50, 10, |id, _| id == 1);
        assert_eq!(visited[&1].len(), 50);
        assert!(visited[&0].len() < 8 && visited[&2].len() < 8);
    }

    #[test]
    fn a_short_budget_is_shared_by_all_threads() {
        let visited = visits(30, 300, 3, |_, _| true);
        let counts: Vec<usize> = visited.values().map(Vec::len).collect();
        assert_eq!(counts.len(), 30);
        assert!(counts.iter().all(|count| (28..=32).contains(count)), "{counts:?}");
    }
}
