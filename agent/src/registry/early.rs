//! A thread's own account of its first moments, by task.
//!
//! The sampler sees a thread that lives a few milliseconds late or never. So a young thread measures
//! itself: each time its task changes, and when it ends, it adds the elapsed time and its CPU time to
//! a sum of that task. The sampler takes the sums when the thread has ended or is no longer young, and
//! attributes them to the stacks that it saw meanwhile.
//!
//! One thread writes. The sampler reads a consistent copy by the version, which is odd during a
//! change, and closes the account by the same word, so that later changes have no effect. Each moment
//! is counted either here or by the sampler.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use system::process;

/// Most tasks (with their phases) in one account; the next one closes it.
const SUMS_MAX: usize = 8;
/// A shorter part of a task counts as CPU time without a reading of the CPU clock, which is a system
/// call. The next reading corrects it.
const UNREAD_NS_MAX: u64 = 20_000;
/// After this time an account that no sampler has closed closes itself.
const OPEN_NS_MAX: u64 = 1_000_000_000;

/// In the version: the account is closed.
const CLOSED: u64 = 1 << 63;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct EarlyAccount {
    version: AtomicU64,
    /// Whether the sampler counts this account. Set once.
    claimed: AtomicBool,
    began_ns: AtomicU64,
    began_cpu_ns: AtomicU64,
    /// The current task, since when, and the CPU clock then.
    word: AtomicU64,
    since_ns: AtomicU64,
    since_cpu_ns: AtomicU64,
    /// How often the thread had blocked and lost its processor when that was last read.
    since_blocks: AtomicU64,
    since_preemptions: AtomicU64,
    ended_ns: AtomicU64,
    ended: SharedUsage,
    sums: [Sum; SUMS_MAX],
}

/// The time of one task word.
#[derive(Debug, Default)]
struct Sum {
    /// Whether it is in use.
    used: AtomicBool,
    word: AtomicU64,
    elapsed_ns: AtomicU64,
    cpu_ns: AtomicU64,
    blocks: AtomicU64,
    preemptions: AtomicU64,
}

/// Counts that the kernel keeps of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) cpu_ns: u64,
    /// How often it has blocked. In a time in which it did not, it waited for a processor whenever it
    /// did not run.
    pub(crate) blocks: u64,
    /// How often it has lost its processor to another thread.
    pub(crate) preemptions: u64,
}

impl Usage {
    /// The number of turns on a processor, the present one included.
    pub(crate) fn turns(self) -> u64 {
        self.blocks + self.preemptions + 1
    }

    pub(crate) fn of_own_thread() -> Usage {
        let [blocks, preemptions] = process::own_switches();
        Usage {
            cpu_ns: process::own_cpu_ns(),
            blocks,
            preemptions,
        }
    }
}

/// Counts that one thread writes and another reads, in the order that another atomic gives.
#[derive(Debug, Default)]
pub(super) struct SharedUsage {
    cpu_ns: AtomicU64,
    blocks: AtomicU64,
    preemptions: AtomicU64,
}

impl SharedUsage {
    pub(super) fn set(&self, usage: Usage) {
        self.cpu_ns.store(usage.cpu_ns, Ordering::Relaxed);
        self.blocks.store(usage.blocks, Ordering::Relaxed);
        self.preemptions.store(usage.preemptions, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> Usage {
        Usage {
            cpu_ns: self.cpu_ns.load(Ordering::Relaxed),
            blocks: self.blocks.load(Ordering::Relaxed),
            preemptions: self.preemptions.load(Ordering::Relaxed),
        }
    }
}

/// A moment of a thread: the monotonic clock and the thread's CPU clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Moment {
    pub(crate) ns: u64,
    pub(crate) cpu_ns: u64,
}

impl Moment {
    /// The moment that lies `ran_ns` earlier, if the thread ran in between.
    pub(crate) fn before(self, ran_ns: u64) -> Moment {
        let ns = self.ns.saturating_sub(ran_ns);
        Moment {
            ns,
            cpu_ns: self.cpu_ns.saturating_sub(ran_ns),
        }
    }
}

/// Time of one task word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EarlyTime {
    pub(crate) word: u64,
    pub(crate) elapsed_ns: u64,
    pub(crate) cpu_ns: u64,
    /// How often the thread blocked meanwhile, and how often it lost its processor to another thread.
    pub(crate) blocks: u64,
    pub(crate) preemptions: u64,
}

impl EarlyTime {
    pub(crate) fn off_cpu_ns(&self) -> u64 {
        self.elapsed_ns.saturating_sub(self.cpu_ns)
    }
}

/// The content of a closed account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct EarlyTimes {
    /// Without those that are not in use.
    times: [Option<EarlyTime>; SUMS_MAX],
    /// The task since the last change.
    pub(crate) word: u64,
    /// When that was.
    pub(crate) since: Moment,
    /// The kernel's counts of the thread then.
    pub(crate) usage: Usage,
}

impl EarlyTimes {
    /// The time of each task word.
    pub(crate) fn times(&self) -> impl Iterator<Item = EarlyTime> + Clone {
        self.times.into_iter().flatten()
    }
}

impl EarlyAccount {
    /// A closed account without any time.
    pub(crate) fn new() -> EarlyAccount {
        EarlyAccount {
            version: AtomicU64::new(CLOSED),
            claimed: AtomicBool::new(false),
            began_ns: AtomicU64::new(0),
            began_cpu_ns: AtomicU64::new(0),
            word: AtomicU64::new(0),
            since_ns: AtomicU64::new(0),
            since_cpu_ns: AtomicU64::new(0),
            since_blocks: AtomicU64::new(0),
            since_preemptions: AtomicU64::new(0),
            ended_ns: AtomicU64::new(0),
            ended: SharedUsage::default(),
            sums: Default::default(),
        }
    }
}

/// The thread's side.
impl EarlyAccount {
    /// Opens the account, under the current task.
    pub(crate) fn begin(&self, word: u64, now_ns: u64, usage: Usage) {
        let now = Moment {
            ns: now_ns,
            cpu_ns: usage.cpu_ns,
        };
        self.since_blocks.store(usage.blocks, Ordering::Relaxed);
        self.since_preemptions
            .store(usage.preemptions, Ordering::Relaxed);
        self.began_ns.store(now.ns, Ordering::Relaxed);
        self.began_cpu_ns.store(now.cpu_ns, Ordering::Relaxed);
        self.set_since(word, now);
        self.version.store(0, Ordering::Release);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.version.load(Ordering::Relaxed) & CLOSED == 0
    }

    /// The task changes at `now_ns`; `read` asks the kernel about the thread.
    pub(crate) fn switch(&self, word: u64, now_ns: u64, read: impl FnOnce() -> Usage) {
        let version = self.version.load(Ordering::Relaxed);
        let since = self.since();
        let elapsed_ns = now_ns.saturating_sub(since.ns);
        let usage = if elapsed_ns < UNREAD_NS_MAX {
            let blocks = self.since_blocks.load(Ordering::Relaxed);
            let preemptions = self.since_preemptions.load(Ordering::Relaxed);
            Usage {
                cpu_ns: since.cpu_ns + elapsed_ns,
                blocks,
                preemptions,
            }
        } else {
            read()
        };
        if !self.begin_change(version) {
            return;
        }
        let is_added = self.add(now_ns, usage);
        if is_added {
            self.word.store(word, Ordering::Relaxed);
        }
        let is_last = !is_added || now_ns.saturating_sub(self.began().ns) >= OPEN_NS_MAX;
        let closed = if is_last { CLOSED } else { 0 };
        self.version
            .store((version + 2) | closed, Ordering::Release);
    }

    /// The thread ends. Called once, whether the account is open or not.
    pub(crate) fn end(&self, now_ns: u64, usage: Usage) {
        let version = self.version.load(Ordering::Relaxed);
        if self.begin_change(version) {
            // Without room for another task the sampler attributes its time.
            self.add(now_ns, usage);
            self.version
                .store((version + 2) | CLOSED, Ordering::Release);
        }
        self.ended.set(usage);
        self.ended_ns.store(now_ns, Ordering::Release);
    }

    /// Marks the account as being changed. Fails if the sampler has closed it.
    fn begin_change(&self, version: u64) -> bool {
        if version & CLOSED != 0 {
            return false;
        }
        let changing = version + 1;
        let is_mine = self
            .version
            .compare_exchange(version, changing, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        fence(Ordering::Release);
        is_mine
    }

    /// Adds the time since the last change to the sum of the current task. Returns whether there
    /// was room for it.
    fn add(&self, now_ns: u64, usage: Usage) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        let Some(sum) = self.sums.iter().find(|sum: &&Sum| {
            !sum.used.load(Ordering::Relaxed) || sum.word.load(Ordering::Relaxed) == word
        }) else {
            return false;
        };
        let since = self.since();
        let elapsed_ns = now_ns.saturating_sub(since.ns);
        // More than the elapsed time comes from rounding before; the rest counts at the next change.
        let ran_ns = usage.cpu_ns.saturating_sub(since.cpu_ns).min(elapsed_ns);
        let blocks = self.since_blocks.swap(usage.blocks, Ordering::Relaxed);
        let preemptions = self
            .since_preemptions
            .swap(usage.preemptions, Ordering::Relaxed);
        sum.used.store(true, Ordering::Relaxed);
        sum.word.store(word, Ordering::Relaxed);
        // No other thread writes.
        let add = |total: &AtomicU64, part: u64| {
            total.store(total.load(Ordering::Relaxed) + part, Ordering::Relaxed);
        };
        add(&sum.elapsed_ns, elapsed_ns);
        add(&sum.cpu_ns, ran_ns);
        add(&sum.blocks, usage.blocks.saturating_sub(blocks));
        add(
            &sum.preemptions,
            usage.preemptions.saturating_sub(preemptions),
        );
        self.set_since(
            word,
            Moment {
                ns: now_ns,
                cpu_ns: since.cpu_ns + ran_ns,
            },
        );
        true
    }

    fn set_since(&self, word: u64, now: Moment) {
        self.word.store(word, Ordering::Relaxed);
        self.since_ns.store(now.ns, Ordering::Relaxed);
        self.since_cpu_ns.store(now.cpu_ns, Ordering::Relaxed);
    }
}

/// The sampler's side.
impl EarlyAccount {
    /// Lets the caller count this account. Returns `false` if it was claimed before.
    pub(crate) fn claim(&self) -> bool {
        !self.claimed.swap(true, Ordering::AcqRel)
    }

    /// The moment at which the account was opened; zeros if it never was.
    pub(crate) fn began(&self) -> Moment {
        Moment {
            ns: self.began_ns.load(Ordering::Relaxed),
            cpu_ns: self.began_cpu_ns.load(Ordering::Relaxed),
        }
    }

    /// When the thread ended, if it has.
    pub(crate) fn ended(&self) -> Option<Moment> {
        let ns = self.ended_ns.load(Ordering::Acquire);
        (ns > 0).then(|| Moment {
            ns,
            cpu_ns: self.ended.get().cpu_ns,
        })
    }

    /// The kernel's counts of the thread when it ended, if it has.
    pub(crate) fn ended_usage(&self) -> Option<Usage> {
        self.ended().map(|_| self.ended.get())
    }

    /// Closes the account and returns its content. `None` while the thread changes it: the caller
    /// tries again.
    pub(crate) fn close(&self) -> Option<EarlyTimes> {
        let version = self.version.load(Ordering::Acquire);
        if version & 1 != 0 {
            return None;
        }
        let times = self.sums.each_ref().map(|sum| {
            sum.used.load(Ordering::Relaxed).then(|| EarlyTime {
                word: sum.word.load(Ordering::Relaxed),
                elapsed_ns: sum.elapsed_ns.load(Ordering::Relaxed),
                cpu_ns: sum.cpu_ns.load(Ordering::Relaxed),
                blocks: sum.blocks.load(Ordering::Relaxed),
                preemptions: sum.preemptions.load(Ordering::Relaxed),
            })
        });
        let word = self.word.load(Ordering::Relaxed);
        let since = self.since();
        let usage = Usage {
            cpu_ns: since.cpu_ns,
            blocks: self.since_blocks.load(Ordering::Relaxed),
            preemptions: self.since_preemptions.load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        let closed = version | CLOSED;
        let unchanged = self
            .version
            .compare_exchange(version, closed, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        unchanged.then_some(EarlyTimes {
            times,
            word,
            since,
            usage,
        })
    }

    fn since(&self) -> Moment {
        Moment {
            ns: self.since_ns.load(Ordering::Relaxed),
            cpu_ns: self.since_cpu_ns.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn usage(cpu_ns: u64) -> Usage {
        Usage {
            cpu_ns,
            ..Usage::default()
        }
    }

    #[test]
    fn a_task_has_the_blocks_and_preemptions_of_its_time() {
        let account = EarlyAccount::new();
        let usage = |cpu_ns, blocks, preemptions| Usage {
            cpu_ns,
            blocks,
            preemptions,
        };
        account.begin(1, 1, usage(0, 4, 10));
        account.switch(2, 1_000_001, || usage(300_000, 4, 13));
        account.switch(1, 2_000_001, || usage(400_000, 5, 13));
        account.end(3_000_001, usage(500_000, 5, 14));
        let times = account.close().unwrap();
        let counts = times
            .times()
            .map(|time| (time.word, time.blocks, time.preemptions));
        assert_eq!(counts.collect::<Vec<_>>(), [(1, 0, 4), (2, 1, 0)]);
    }

    /// One part of a thread's life under a task: how long, and how much of it on a processor.
    fn parts() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
        let part = (1..6u64, 1..2_000_000u64, 0..=100u64);
        prop::collection::vec(part, 1..60)
    }

    proptest! {
        /// Elapsed time by task is exact, and so is CPU time to what was not read; whenever the
        /// account is closed, what it holds and what comes later are the whole life.
        #[test]
        fn each_moment_counts_once(parts in parts(), closed_after in 0..80usize) {
            let account = EarlyAccount::new();
            let mut now = Moment { ns: 1_000, cpu_ns: 50 };
            account.begin(parts[0].0, now.ns, usage(now.cpu_ns));
            let mut expected: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
            let mut unread_ns = 0;
            let mut taken = None;
            for (index, (word, elapsed_ns, percent)) in parts.iter().copied().enumerate() {
                if index == closed_after {
                    taken = account.close();
                    break;
                }
                let ran_ns = elapsed_ns * percent / 100;
                now = Moment { ns: now.ns + elapsed_ns, cpu_ns: now.cpu_ns + ran_ns };
                unread_ns += if elapsed_ns < UNREAD_NS_MAX { elapsed_ns - ran_ns } else { 0 };
                let sum = expected.entry(word).or_default();
                sum.0 += elapsed_ns;
                sum.1 += ran_ns;
                let next = parts.get(index + 1).map_or(0, |part| part.0);
                account.switch(next, now.ns, || usage(now.cpu_ns));
            }
            let at_end = taken.is_none();
            if at_end {
                account.end(now.ns, usage(now.cpu_ns));
            }
            let times = taken.or_else(|| account.close()).unwrap();
            prop_assert_eq!(times.since.ns, now.ns);
            prop_assert_eq!(account.ended().is_some(), at_end);
            let elapsed: u64 = times.times().map(|time| time.elapsed_ns).sum();
            prop_assert_eq!(elapsed, now.ns - 1_000);
            let cpu: u64 = times.times().map(|time| time.cpu_ns).sum();
            prop_assert_eq!(cpu, times.since.cpu_ns - 50, "later time begins where this one ends");
            for time in times.times().filter(|time| time.elapsed_ns > 0) {
                let (elapsed_ns, cpu_ns) = expected[&time.word];
                prop_assert_eq!(time.elapsed_ns, elapsed_ns);
                prop_assert!(time.cpu_ns.abs_diff(cpu_ns) <= unread_ns, "{:?} {}", time, cpu_ns);
            }
            account.switch(9, now.ns + 5_000_000, || usage(now.cpu_ns + 5_000_000));
            prop_assert_eq!(account.close().unwrap().times, times.times, "nothing after the end");
        }
    }

    #[test]
    fn an_account_closes_itself_when_it_is_full_or_old() {
        let account = EarlyAccount::new();
        assert!(!account.is_open() && account.claim() && !account.claim());
        account.begin(0, 1, usage(0));
        for word in 1..=SUMS_MAX as u64 {
            account.switch(word, 1 + word * 100_000, || usage(word * 100_000));
            assert!(account.is_open());
        }
        account.switch(99, 2_000_000, || usage(1_000_000));
        assert!(!account.is_open());
        let times = account.close().unwrap();
        assert_eq!(times.times().count(), SUMS_MAX);
        // The sampler attributes the time of the task that found no room.
        assert_eq!(
            (times.word, times.since),
            (
                8,
                Moment {
                    ns: 800_001,
                    cpu_ns: 800_000
                }
            )
        );

        let account = EarlyAccount::new();
        account.begin(1, 1, usage(0));
        account.switch(2, OPEN_NS_MAX + 1, || usage(7));
        assert!(!account.is_open());
        assert_eq!(
            account.close().unwrap().since,
            Moment {
                ns: OPEN_NS_MAX + 1,
                cpu_ns: 7
            }
        );
    }

    /// A reader that closes at any moment and a thread that changes tasks: together they have the
    /// whole time.
    #[test]
    fn a_reader_and_the_thread_never_count_the_same_moment() {
        for round in 0..300 {
            let account = EarlyAccount::new();
            account.begin(1, 0, usage(0));
            let times = std::thread::scope(|threads| {
                let reader = threads.spawn(|| {
                    for _ in 0..round {
                        std::hint::spin_loop();
                    }
                    loop {
                        if let Some(times) = account.close() {
                            return times;
                        }
                    }
                });
                for step in 1..=200u64 {
                    account.switch(1 + step % 3, step * 30_000, || usage(step * 30_000));
                }
                reader.join().unwrap()
            });
            let elapsed: u64 = times.times().map(|time| time.elapsed_ns).sum();
            assert_eq!(elapsed, times.since.ns);
            assert_eq!(times.since.ns / 30_000 % 3 + 1, times.word);
        }
    }
}
