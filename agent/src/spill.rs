//! Sums of what had no room in a thread's ring: the thread adds, the folder takes, and neither waits
//! for the other. Counts and durations stay exact however long the folder is away; what is lost is
//! detail: durations are known to an eighth, and names past the first few are `[overflow]`.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use profiler_core::bucket::bucket;
use profiler_core::{Outcome, Timestamp};

use crate::registry::NameId;

/// Sums of tasks by name and outcome, the last ones for `[overflow]` with each outcome.
const TASKS_MAX: usize = 16;
/// Sums of phases by name of task and phase, the last one for `[overflow]`.
const PHASES_MAX: usize = 32;

/// Coarse buckets of durations: four for each doubling from 2^7 ns to 2^47 ns, which is a day and a
/// half.
const DOUBLINGS: usize = 40;
const BUCKETS: usize = DOUBLINGS * PARTS;
const PARTS: usize = 4;
const LOWEST_BIT: u32 = 7;

/// See the module. Written by one thread only.
#[derive(Debug)]
pub(crate) struct Spill {
    /// Additions since the folder looked last.
    news: AtomicU32,
    tasks: Box<[TaskSum]>,
    phases: Box<[PhaseSum]>,
}

/// What was taken: tasks of one name that ended alike, or stays in one phase.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SpillSum {
    Tasks {
        name: NameId,
        outcome: Outcome,
        /// When the last one ended.
        stop: Timestamp,
        duration_ns: u64,
        /// In rising order.
        buckets: Vec<(u32, u64)>,
    },
    Phases {
        task_name: NameId,
        phase: NameId,
        stop: Timestamp,
        duration_ns: u64,
        count: u32,
    },
}

#[derive(Debug)]
struct TaskSum {
    key: AtomicU64,
    duration_ns: AtomicU64,
    stop_ns: AtomicI64,
    counts: [AtomicU32; BUCKETS],
}

#[derive(Debug, Default)]
struct PhaseSum {
    key: AtomicU64,
    duration_ns: AtomicU64,
    stop_ns: AtomicI64,
    count: AtomicU32,
}

/// A key of two names or a name and an outcome; never 0.
fn key(first: NameId, second: u32) -> u64 {
    (u64::from(first.0) << 32) | (u64::from(second) + 1)
}

impl Spill {
    pub(crate) fn new() -> Spill {
        let task = || TaskSum {
            key: AtomicU64::new(0),
            duration_ns: AtomicU64::new(0),
            stop_ns: AtomicI64::new(i64::MIN),
            counts: [const { AtomicU32::new(0) }; BUCKETS],
        };
        Spill {
            news: AtomicU32::new(0),
            tasks: (0..TASKS_MAX).map(|_| task()).collect(),
            phases: (0..PHASES_MAX).map(|_| PhaseSum::default()).collect(),
        }
    }

    /// Adds a task that ended.
    pub(crate) fn add_task(
        &self,
        name: NameId,
        outcome: Outcome,
        start: Timestamp,
        stop: Timestamp,
    ) {
        let duration_ns = stop.since_ns(start);
        let names = TASKS_MAX - Outcome::ALL.len();
        let own = key(name, outcome as u32);
        let place = find(self.tasks[..names].iter().map(|sum| &sum.key), own);
        let place = place.unwrap_or_else(|| {
            let place = names + outcome as usize;
            self.tasks[place].key.store(key(NameId::OVERFLOW, outcome as u32), Ordering::Relaxed);
            place
        });
        let sum = &self.tasks[place];
        sum.duration_ns.fetch_add(duration_ns, Ordering::Relaxed);
        sum.stop_ns.fetch_max(stop.unix_ns(), Ordering::Relaxed);
        sum.counts[coarse_bucket(duration_ns)].fetch_add(1, Ordering::Relaxed);
        self.news.fetch_add(1, Ordering::Release);
    }

    /// Adds a stay in a phase.
    pub(crate) fn add_phase(&self, task: NameId, phase: NameId, start: Timestamp, stop: Timestamp) {
        let own = key(task, phase.0);
        let place = find(self.phases[..PHASES_MAX - 1].iter().map(|sum| &sum.key), own);
        let place = place.unwrap_or_else(|| {
            let overflow = key(NameId::OVERFLOW, NameId::OVERFLOW.0);
            self.phases[PHASES_MAX - 1].key.store(overflow, Ordering::Relaxed);
            PHASES_MAX - 1
        });
        let sum = &self.phases[place];
        sum.duration_ns.fetch_add(stop.since_ns(start), Ordering::Relaxed);
        sum.stop_ns.fetch_max(stop.unix_ns(), Ordering::Relaxed);
        sum.count.fetch_add(1, Ordering::Relaxed);
        self.news.fetch_add(1, Ordering::Release);
    }

    /// Takes what was added, on the folder's thread. What is added meanwhile is taken now or the next
    /// time, and a duration may come a time before its count; nothing is taken twice or never.
    pub(crate) fn take(&self, mut each: impl FnMut(SpillSum)) {
        if self.news.swap(0, Ordering::Acquire) == 0 {
            return;
        }
        for sum in &self.tasks {
            let key = sum.key.load(Ordering::Relaxed);
            let buckets: Vec<(u32, u64)> = sum.buckets().collect();
            if key == 0 || buckets.is_empty() {
                continue;
            }
            each(SpillSum::Tasks {
                name: NameId((key >> 32) as u32),
                outcome: Outcome::ALL[(key as u32 - 1) as usize],
                stop: Timestamp::from_unix_ns(sum.stop_ns.load(Ordering::Relaxed)),
                duration_ns: sum.duration_ns.swap(0, Ordering::Relaxed),
                buckets,
            });
        }
        for sum in &self.phases {
            let (key, count) =
                (sum.key.load(Ordering::Relaxed), sum.count.swap(0, Ordering::Relaxed));
            if key == 0 || count == 0 {
                continue;
            }
            each(SpillSum::Phases {
                task_name: NameId((key >> 32) as u32),
                phase: NameId(key as u32 - 1),
                stop: Timestamp::from_unix_ns(sum.stop_ns.load(Ordering::Relaxed)),
                duration_ns: sum.duration_ns.swap(0, Ordering::Relaxed),
                count,
            });
        }
    }
}

impl TaskSum {
    /// Takes the counts, by the buckets of the ledger.
    fn buckets(&self) -> impl Iterator<Item = (u32, u64)> {
        let counts = self.counts.iter().enumerate();
        counts.filter_map(|(place, count)| {
            let count = count.swap(0, Ordering::Relaxed);
            (count > 0).then(|| (bucket(middle_ns(place)), u64::from(count)))
        })
    }
}

/// The place of `key`, which takes the first free one if it has none yet. Only the writer looks for
/// places, so nobody else takes it meanwhile.
fn find<'a>(keys: impl Iterator<Item = &'a AtomicU64>, key: u64) -> Option<usize> {
    for (place, held) in keys.enumerate() {
        let held_key = held.load(Ordering::Relaxed);
        if held_key == 0 {
            held.store(key, Ordering::Relaxed);
        }
        if held_key == 0 || held_key == key {
            return Some(place);
        }
    }
    None
}

fn coarse_bucket(nanoseconds: u64) -> usize {
    let log = nanoseconds.max(1 << LOWEST_BIT).ilog2();
    let part = (nanoseconds >> (log - 2)) as usize % PARTS;
    let part = if nanoseconds < 1 << LOWEST_BIT { 0 } else { part };
    ((log - LOWEST_BIT) as usize * PARTS + part).min(BUCKETS - 1)
}

/// The middle of a coarse bucket's durations.
fn middle_ns(place: usize) -> u64 {
    let log = LOWEST_BIT + (place / PARTS) as u32;
    let width = 1u64 << (log - 2);
    (1 << log) + (place % PARTS) as u64 * width + width / 2
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    fn at(nanoseconds: i64) -> Timestamp {
        Timestamp::from_unix_ns(nanoseconds)
    }

    #[test]
    fn a_duration_is_known_to_an_eighth() {
        for bits in 7..47 {
            for part in 0..100 {
                let duration = (1u64 << bits) + (1 << bits) / 100 * part;
                let middle = middle_ns(coarse_bucket(duration));
                assert!(middle.abs_diff(duration) <= duration / 8 + 1, "{middle} for {duration}");
            }
        }
        assert_eq!((coarse_bucket(0), coarse_bucket(127), coarse_bucket(128)), (0, 0, 0));
        assert_eq!(coarse_bucket(u64::MAX), BUCKETS - 1);
    }

    /// The folder takes all the while; in the end each count and nanosecond was taken once.
    #[test]
    fn nothing_is_taken_twice_or_never() {
        const ADDED: u64 = 300_000;
        let (spill, done) = (Spill::new(), AtomicBool::new(false));
        let mut tasks: BTreeMap<(u32, usize), (u64, u64)> = BTreeMap::new();
        let mut phases: BTreeMap<(u32, u32), (u64, u64)> = BTreeMap::new();
        let mut take = || {
            spill.take(|spilled| match spilled {
                SpillSum::Tasks { name, outcome, duration_ns, buckets, .. } => {
                    let sum = tasks.entry((name.0, outcome as usize)).or_default();
                    sum.0 += buckets.iter().map(|(_, count)| count).sum::<u64>();
                    sum.1 += duration_ns;
                }
                SpillSum::Phases { task_name, phase, duration_ns, count, .. } => {
                    let sum = phases.entry((task_name.0, phase.0)).or_default();
                    sum.0 += u64::from(count);
                    sum.1 += duration_ns;
                }
            });
        };
        thread::scope(|threads| {
            threads.spawn(|| {
                for number in 0..ADDED as i64 {
                    let outcome = if number % 3 == 0 { Outcome::Failed } else { Outcome::Ok };
                    spill.add_task(
                        NameId(number as u32 % 4 + 9),
                        outcome,
                        at(number),
                        at(2 * number),
                    );
                    spill.add_phase(NameId(9), NameId(number as u32 % 40), at(0), at(1));
                }
                done.store(true, Ordering::Release);
            });
            while !done.load(Ordering::Acquire) {
                take();
            }
        });
        take();
        let expected = |name: u64, failed: bool| {
            let numbers = (0..ADDED).filter(|n| n % 4 + 9 == name && (n % 3 == 0) == failed);
            numbers.fold((0, 0), |(count, sum), number| (count + 1, sum + number))
        };
        assert_eq!(tasks.len(), 8);
        for ((name, outcome), sum) in tasks {
            let failed = outcome == Outcome::Failed as usize;
            assert_eq!(sum, expected(u64::from(name), failed), "{name} {outcome}");
        }
        // 31 of the 40 phases have a place of their own.
        assert_eq!(phases.len(), PHASES_MAX);
        assert_eq!(phases.values().map(|(count, _)| count).sum::<u64>(), ADDED);
        assert_eq!(phases[&(9, 3)], (ADDED / 40, ADDED / 40));
        assert_eq!(phases[&(1, 1)].0, ADDED / 40 * 9);
    }

    #[test]
    fn names_past_the_room_are_overflow_by_outcome() {
        let spill = Spill::new();
        for number in 0..100 {
            spill.add_task(NameId(number + 9), Outcome::Ok, at(0), at(5));
        }
        spill.add_task(NameId(7), Outcome::Cancelled, at(0), at(9));
        let mut counts = Vec::new();
        spill.take(|spilled| {
            if let SpillSum::Tasks { name, outcome, buckets, stop, .. } = spilled {
                counts.push((name.0, outcome, buckets[0].1, stop.unix_ns()));
            }
        });
        assert_eq!(counts.len(), TASKS_MAX - Outcome::ALL.len() + 2);
        assert!(counts.contains(&(1, Outcome::Ok, 90, 5)));
        assert!(counts.contains(&(1, Outcome::Cancelled, 1, 9)));
        spill.take(|spilled| panic!("{spilled:?} again"));
    }
}
