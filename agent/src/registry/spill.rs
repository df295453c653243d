//! Sums of the rows that found a thread's ring full: the thread adds, the symbolizer takes, and
//! neither waits for the other. Counts and total durations stay exact however long the symbolizer
//! is busy; detail is lost: single durations are known to an eighth, and names past the first few
//! are `[overflow]`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use profiler_core::bucket::bucket;
use profiler_core::{Outcome, Timestamp};

use crate::registry::NameId;

/// Sums of tasks by name and outcome; the last ones are for `[overflow]`, one per outcome.
const TASKS_MAX: usize = 16;
/// Sums of phases by names of task and phase; the last one is for `[overflow]`.
const PHASES_MAX: usize = 32;

/// Coarse buckets of durations: four per doubling from 2^7 ns to 2^47 ns, which is a day and a
/// half.
const DOUBLINGS: usize = 40;
const BUCKETS: usize = DOUBLINGS * PARTS;
const PARTS: usize = 4;
const LOWEST_BIT: u32 = 7;

/// The sums of one thread, which alone adds to them.
#[derive(Debug, Default)]
pub(crate) struct Spill {
    /// Additions since the last [`Spill::take`].
    additions: AtomicU32,
    /// Since the first addition: they take three pages, and few threads ever fill their ring.
    sums: OnceLock<Sums>,
}

#[derive(Debug)]
struct Sums {
    tasks: Box<[TaskSum]>,
    phases: Box<[PhaseSum]>,
}

/// A sum of tasks with the same name and outcome, or of phases with the same names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SpillSum {
    Tasks {
        name: NameId,
        outcome: Outcome,
        /// When the last of them ended.
        stop: Timestamp,
        duration_ns: u64,
        /// Bucket and count, in rising order.
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

/// A key of a name and an outcome, or of two names; never 0.
fn key(first: NameId, second: u32) -> u64 {
    (u64::from(first.0) << 32) | (u64::from(second) + 1)
}

impl Default for Sums {
    fn default() -> Sums {
        let task = || TaskSum {
            key: AtomicU64::new(0),
            duration_ns: AtomicU64::new(0),
            stop_ns: AtomicI64::new(i64::MIN),
            counts: [const { AtomicU32::new(0) }; BUCKETS],
        };
        Sums {
            tasks: (0..TASKS_MAX).map(|_| task()).collect(),
            phases: (0..PHASES_MAX).map(|_| PhaseSum::default()).collect(),
        }
    }
}

impl Spill {
    /// The sums; the first call allocates them.
    fn sums(&self) -> &Sums {
        self.sums.get_or_init(Sums::default)
    }

    /// Adds an ended task.
    pub(crate) fn add_task(
        &self,
        name: NameId,
        outcome: Outcome,
        start: Timestamp,
        stop: Timestamp,
    ) {
        let tasks = &self.sums().tasks;
        let duration_ns = stop.since_ns(start);
        let names = TASKS_MAX - Outcome::ALL.len();
        let own = key(name, outcome as u32);
        let found = find(tasks[..names].iter().map(|sum| &sum.key), own);
        let index = found.unwrap_or_else(|| {
            let index = names + outcome as usize;
            tasks[index]
                .key
                .store(key(NameId::OVERFLOW, outcome as u32), Ordering::Relaxed);
            index
        });
        let sum = &tasks[index];
        sum.duration_ns.fetch_add(duration_ns, Ordering::Relaxed);
        sum.stop_ns.fetch_max(stop.unix_ns(), Ordering::Relaxed);
        sum.counts[coarse_bucket(duration_ns)].fetch_add(1, Ordering::Relaxed);
        self.additions.fetch_add(1, Ordering::Release);
    }

    /// Adds a phase.
    pub(crate) fn add_phase(&self, task: NameId, phase: NameId, start: Timestamp, stop: Timestamp) {
        let phases = &self.sums().phases;
        let own = key(task, phase.0);
        let index =
            find(phases[..PHASES_MAX - 1].iter().map(|sum| &sum.key), own).unwrap_or_else(|| {
                let overflow = key(NameId::OVERFLOW, NameId::OVERFLOW.0);
                phases[PHASES_MAX - 1]
                    .key
                    .store(overflow, Ordering::Relaxed);
                PHASES_MAX - 1
            });
        let sum = &phases[index];
        sum.duration_ns
            .fetch_add(stop.since_ns(start), Ordering::Relaxed);
        sum.stop_ns.fetch_max(stop.unix_ns(), Ordering::Relaxed);
        sum.count.fetch_add(1, Ordering::Relaxed);
        self.additions.fetch_add(1, Ordering::Release);
    }

    /// Takes the sums, on the symbolizer's thread. A sum that is added meanwhile is taken now or the next
    /// time, and a duration may come one call before its count; nothing is taken twice or missed.
    pub(crate) fn take(&self, mut each: impl FnMut(SpillSum)) {
        if self.additions.swap(0, Ordering::Acquire) == 0 {
            return;
        }
        let Some(sums) = self.sums.get() else { return };
        for sum in &sums.tasks {
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
        for sum in &sums.phases {
            let key = sum.key.load(Ordering::Relaxed);
            let count = sum.count.swap(0, Ordering::Relaxed);
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
    /// Takes the counts, as buckets of the ledger.
    fn buckets(&self) -> impl Iterator<Item = (u32, u64)> {
        let counts = self.counts.iter().enumerate();
        counts.filter_map(|(index, count)| {
            let count = count.swap(0, Ordering::Relaxed);
            (count > 0).then(|| (bucket(middle_ns(index)), u64::from(count)))
        })
    }
}

/// The index of `key`, which gets the first free one if it has none yet. Only the writing thread
/// calls this, so no other thread takes the index meanwhile.
fn find<'a>(keys: impl Iterator<Item = &'a AtomicU64>, key: u64) -> Option<usize> {
    for (index, stored) in keys.enumerate() {
        let stored_key = stored.load(Ordering::Relaxed);
        if stored_key == 0 {
            stored.store(key, Ordering::Relaxed);
        }
        if stored_key == 0 || stored_key == key {
            return Some(index);
        }
    }
    None
}

fn coarse_bucket(nanoseconds: u64) -> usize {
    let log = nanoseconds.max(1 << LOWEST_BIT).ilog2();
    let part = (nanoseconds >> (log - 2)) as usize % PARTS;
    let part = if nanoseconds < 1 << LOWEST_BIT {
        0
    } else {
        part
    };
    ((log - LOWEST_BIT) as usize * PARTS + part).min(BUCKETS - 1)
}

/// The middle of a coarse bucket's durations.
fn middle_ns(index: usize) -> u64 {
    let log = LOWEST_BIT + (index / PARTS) as u32;
    let width = 1u64 << (log - 2);
    (1 << log) + (index % PARTS) as u64 * width + width / 2
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
                assert!(
                    middle.abs_diff(duration) <= duration / 8 + 1,
                    "{middle} for {duration}"
                );
            }
        }
        assert_eq!(
            (coarse_bucket(0), coarse_bucket(127), coarse_bucket(128)),
            (0, 0, 0)
        );
        assert_eq!(coarse_bucket(u64::MAX), BUCKETS - 1);
    }

    /// Takes concurrently with adding; in the end each count and nanosecond was taken once.
    #[test]
    fn nothing_is_taken_twice_or_missed() {
        const ADDED: u64 = 300_000;
        let spill = Spill::default();
        let done = AtomicBool::new(false);
        let mut tasks: BTreeMap<(u32, usize), (u64, u64)> = BTreeMap::new();
        let mut phases: BTreeMap<(u32, u32), (u64, u64)> = BTreeMap::new();
        let mut take = || {
            spill.take(|spilled| match spilled {
                SpillSum::Tasks {
                    name,
                    outcome,
                    duration_ns,
                    buckets,
                    ..
                } => {
                    let sum = tasks.entry((name.0, outcome as usize)).or_default();
                    sum.0 += buckets.iter().map(|(_, count)| count).sum::<u64>();
                    sum.1 += duration_ns;
                }
                SpillSum::Phases {
                    task_name,
                    phase,
                    duration_ns,
                    count,
                    ..
                } => {
                    let sum = phases.entry((task_name.0, phase.0)).or_default();
                    sum.0 += u64::from(count);
                    sum.1 += duration_ns;
                }
            });
        };
        thread::scope(|threads| {
            threads.spawn(|| {
                for number in 0..ADDED as i64 {
                    let outcome = if number % 3 == 0 {
                        Outcome::Failed
                    } else {
                        Outcome::Ok
                    };
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
        // 31 of the 40 phases have a sum of their own.
        assert_eq!(phases.len(), PHASES_MAX);
        assert_eq!(phases.values().map(|(count, _)| count).sum::<u64>(), ADDED);
        assert_eq!(phases[&(9, 3)], (ADDED / 40, ADDED / 40));
        assert_eq!(phases[&(1, 1)].0, ADDED / 40 * 9);
    }

    #[test]
    fn names_past_the_limit_are_overflow_by_outcome() {
        let spill = Spill::default();
        for number in 0..100 {
            spill.add_task(NameId(number + 9), Outcome::Ok, at(0), at(5));
        }
        spill.add_task(NameId(7), Outcome::Cancelled, at(0), at(9));
        let mut counts = Vec::new();
        spill.take(|spilled| {
            if let SpillSum::Tasks {
                name,
                outcome,
                buckets,
                stop,
                ..
            } = spilled
            {
                counts.push((name.0, outcome, buckets[0].1, stop.unix_ns()));
            }
        });
        assert_eq!(counts.len(), TASKS_MAX - Outcome::ALL.len() + 2);
        assert!(counts.contains(&(1, Outcome::Ok, 90, 5)));
        assert!(counts.contains(&(1, Outcome::Cancelled, 1, 9)));
        spill.take(|spilled| panic!("{spilled:?} again"));
    }
}
