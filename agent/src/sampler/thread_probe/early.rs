//! Threads that measure themselves while they are young: from when on, until when, and how their own
//! accounts are counted at the stacks that were seen.

use std::sync::Arc;

use profiler_core::NodeId;

use super::early_waits::{EarlyWaits, ReportedDelay};
use super::*;
use crate::clock::monotonic_ns;
use crate::registry::{EarlyAccount, EarlyTime, EarlyTimes, ThreadCell};
use crate::sampler::addresses::TaskLevels;
use crate::sampler::audit::Times;
use crate::sampler::early::{EarlyThread, divided};
use system::task_list::ThreadName;

/// A thread measures itself for this long after its first task.
const YOUNG_NS: u64 = 500_000_000;
/// A thread that may have waited for longer between its start and its first turn is asked when it
/// started.
const START_WAIT_MIN_NS: u64 = 20_000_000;
/// Most threads in a tick that are no longer young from then on; others wait for the next tick.
const SETTLED_PER_TICK_MAX: usize = 256;
/// Attempts to close an account that the thread is changing, which takes some nanoseconds.
const CLOSE_TRIES_MAX: u32 = 1_000;

/// A part of a young thread's time in a task.
struct EarlyPart {
    ns: u64,
    /// Its state; [`State::Other`] if only samples tell it.
    state: State,
    /// The states whose stacks divide it.
    wanted: fn(State) -> bool,
}

/// The threads that measure themselves.
#[derive(Debug, Default)]
pub(super) struct YoungThreads {
    /// Their ids, the oldest first; those that have ended may be among them.
    ids: PageQueue<u32>,
    /// Time before this is not counted.
    counts_from_ns: u64,
}

impl ThreadProbe {
    /// Time of young threads counts from `now`.
    pub(in crate::sampler) fn count_young_from(&mut self, now: u64) {
        self.young.counts_from_ns = now;
    }

    /// Rounds the remainders of all threads, at the end of sampling.
    pub(in crate::sampler) fn finish_remainders(&mut self) {
        self.remainders.finish(&mut self.addresses, self.quantum_ns);
    }

    /// All time that was counted.
    pub(in crate::sampler) fn counted(&self) -> Times {
        self.addresses.added() + self.remainders.sum()
    }

    /// Sets the thread's cell.
    pub(in crate::sampler) fn set_cell(&mut self, thread: &mut Thread, cell: Arc<ThreadCell>) {
        if thread.cell.is_none() && cell.early.claim() {
            self.begin_early(thread, &cell.early);
        }
        thread.cell = Some(cell);
        thread.seen_task_word = thread.task_word();
    }

    /// Counts a thread that ended before it was seen.
    pub(in crate::sampler) fn count_ended(&mut self, cell: &ThreadCell) {
        if !cell.early.claim() {
            return;
        }
        let began = cell.early.began();
        let mut thread = Thread::new(cell.thread.id, began.ns);
        thread.first_name = Some(ThreadName::from(&*cell.thread.name));
        thread.gone = true;
        self.begin_early(&mut thread, &cell.early);
        if thread.early.is_some() {
            self.settle_early(&mut thread);
        }
    }

    /// From the moment at which the thread began to measure itself, its own account counts. The caller
    /// has claimed it. Earlier time belongs to no task.
    fn begin_early(&mut self, thread: &mut Thread, account: &Arc<EarlyAccount>) {
        let began = account.began();
        let is_counted = thread.time.accounted_to_ns() > began.ns && thread.last.is_some();
        if is_counted || began.ns < self.young.counts_from_ns {
            // The sampler goes on counting, as for a thread without an account.
            let _ = close(account);
            return;
        }
        if thread.is_new && thread.time.cpu_ns() == 0 {
            // A thread runs from its start to its first task, and the kernel does not tell its start
            // exactly. On a busy machine it waits for its processor first.
            let ran_ns = began.cpu_ns.min(began.ns - self.young.counts_from_ns);
            let ran_from_ns = began.ns - ran_ns;
            let listed_ns = thread.time.accounted_to_ns();
            let may_have_waited = ran_from_ns.saturating_sub(listed_ns) > START_WAIT_MIN_NS;
            let stat = if may_have_waited {
                ThreadStat::read(thread.id)
            } else {
                None
            };
            let about_ns = match stat {
                Some(stat) => stat.started_ns + START_ROUNDED_NS / 2,
                // It has ended. It started between two looks at the list.
                None if may_have_waited => listed_ns.midpoint(thread.found_ns),
                None => ran_from_ns,
            };
            let started_ns = about_ns.max(listed_ns).min(ran_from_ns);
            thread.time.restart(Moment {
                ns: started_ns,
                cpu_ns: 0,
            });
        }
        thread.time.advance(began.ns, began.cpu_ns);
        if !thread.gone {
            self.update_run_delay(thread);
        }
        self.attribute_all(thread);
        thread.time.restart(began);
        thread.time.begin_tasks();
        thread.turns_before = thread.turns;
        // Its earlier observations were outside of its tasks.
        thread.observation = LastObservation::Ready;
        thread.last = None;
        thread.last_sample = None;
        thread.early = Some(EarlyThread::new(account.clone()));
        if !thread.gone {
            self.young.ids.push_back(thread.id);
        }
    }

    /// Settles the accounts of threads that are no longer young.
    pub(in crate::sampler) fn settle_grown(&mut self, threads: &mut ThreadTable, now: u64) {
        let mut settled = 0;
        while settled < SETTLED_PER_TICK_MAX {
            let Some(id) = self.young.ids.pop_front() else {
                return;
            };
            let Some(thread) = threads.get_mut(id) else {
                continue;
            };
            let began_ns = thread.early.as_ref().map(|early| early.account.began().ns);
            if began_ns.is_some_and(|began_ns| now.saturating_sub(began_ns) < YOUNG_NS) {
                self.young.ids.push_front(id);
                return;
            }
            settled += 1;
            // One that has been blocked since it was first seen may have no weight yet.
            self.assume_idle(thread, now);
            self.count_idle(thread);
            self.settle_early(thread);
            if thread.early.is_some() {
                self.young.ids.push_back(id);
            }
        }
    }

    /// Settles the account of a thread that could not add another task to it.
    pub(super) fn settle_full(&mut self, thread: &mut Thread) {
        if thread.early.as_ref().is_some_and(|early: &EarlyThread| {
            !early.account.is_open() && early.account.ended().is_none()
        }) {
            self.settle_early(thread);
        }
    }

    /// Counts the time that a thread has measured itself at the stacks that were seen. From now on the
    /// sampler measures it.
    pub(super) fn settle_early(&mut self, thread: &mut Thread) {
        let Some(mut early) = thread.early.take() else {
            return;
        };
        let Some(times) = close(&early.account) else {
            thread.early = Some(early);
            return;
        };
        let EarlyTimes {
            word, since, usage, ..
        } = times;
        let lives = !thread.gone && early.account.ended().is_none();
        thread.usage = Some(usage);
        if let Some(cell) = &thread.cell {
            // From now on it notes the changes of its task.
            drop(cell.changes.take(true));
        }
        let is_reported = !thread.gone && self.update_run_delay(thread).is_some();
        let delay_ns = thread.time.delay_in_tasks_ns();
        if lives && times.times().next().is_none() && !early.is_seen() {
            // Its time waits for a sample, as that of older threads does: on a busy machine half a second
            // is too short for one.
            let now = now_of(thread, since);
            thread.time.restart(since);
            thread.time.set_off_cpu_in_tasks(0);
            thread.time.expect_run_delay(delay_ns);
            thread.time.advance(now.ns, now.cpu_ns);
            thread.known_off_cpu_ns = if self.waits_since(thread, now) {
                0
            } else {
                thread.time.unattributed_off_cpu_ns()
            };
            self.to_ask.push_back(thread.id);
            return;
        }
        let until = early
            .account
            .ended()
            .unwrap_or_else(|| now_of(thread, since));
        let mut last = EarlyTime {
            word,
            elapsed_ns: until.ns.saturating_sub(since.ns),
            cpu_ns: until.cpu_ns.saturating_sub(since.cpu_ns),
            blocks: u64::from(!lives || self.may_have_blocked(thread, &early, word)),
            preemptions: 0,
        };
        let unseen_ns = if lives {
            self.take_unseen(thread, &early, &mut last)
        } else {
            0
        };
        let all = times.times().chain([last]);
        let reported = is_reported.then(|| ReportedDelay {
            ns: delay_ns,
            is_waiting: lives && self.waits_since(thread, until),
        });
        let mut waits = EarlyWaits::new(self.waits, reported, all.clone());
        for time in all.filter(|time| time.elapsed_ns > 0) {
            let wait = waits.of(time);
            self.count_early(thread, &early, time, wait);
        }
        self.seen.forget(&mut early);
        thread.time.restart(until.before(unseen_ns));
        thread.time.set_off_cpu_in_tasks(waits.off_cpu_ns());
        thread.time.set_delay_ahead(waits.unreported_ns());
        thread.time.advance(until.ns, until.cpu_ns);
        thread.known_off_cpu_ns = 0;
        thread.owed = None;
    }

    /// Whether a thread, whose present is `now`, waits for a processor.
    fn waits_since(&mut self, thread: &mut Thread, now: Moment) -> bool {
        process::thread_cpu_ns(thread.id) == Some(now.cpu_ns)
            && matches!(
                self.files.activity(thread.id, &mut thread.files),
                Ok(Activity::Running)
            )
    }

    /// Whether a thread that lives may have blocked in the task that it is in: it was seen blocked there,
    /// or it is now.
    fn may_have_blocked(&mut self, thread: &mut Thread, early: &EarlyThread, word: u64) -> bool {
        let level = self.level_of(&thread.levels(word));
        matches!(thread.observation, LastObservation::Blocked(_))
            || self
                .seen
                .shares(early, level, |state: State| {
                    !matches!(state, State::Cpu | State::Runnable)
                })
                .next()
                .is_some()
            || !matches!(
                self.files.activity(thread.id, &mut thread.files),
                Ok(Activity::Running)
            )
    }

    /// Takes the CPU time out of the last part of an account, if no sample has said where the thread
    /// ran: it waits for the next one. Returns how much that is.
    fn take_unseen(&mut self, thread: &Thread, early: &EarlyThread, last: &mut EarlyTime) -> u64 {
        let level = self.level_of(&thread.levels(last.word));
        if self
            .seen
            .shares(early, level, |state| state == State::Cpu)
            .next()
            .is_some()
        {
            return 0;
        }
        let cpu_ns = last.cpu_ns.min(last.elapsed_ns);
        last.cpu_ns = 0;
        last.elapsed_ns -= cpu_ns;
        cpu_ns
    }

    /// Counts a part of the thread's own account. `waited_ns` is how long it waited for a processor, if that is known.
    fn count_early(
        &mut self,
        thread: &mut Thread,
        early: &EarlyThread,
        time: EarlyTime,
        waited_ns: Option<u64>,
    ) {
        let levels = thread.levels(time.word);
        let level = self.level_of(&levels);
        let off_cpu_ns = time.off_cpu_ns();
        let is_cpu = |state: State| state == State::Cpu;
        let is_wait = |state: State| !matches!(state, State::Cpu | State::Runnable);
        let waited = match waited_ns {
            Some(ns) => ns,
            // What was seen divides it.
            None if self.seen.shares(early, level, is_wait).next().is_some() => 0,
            None => {
                let turns = time.blocks + time.preemptions;
                (self.mean_wait_ns(thread) * turns).min(off_cpu_ns)
            }
        };
        let parts: [EarlyPart; 3] = [
            EarlyPart {
                ns: time.elapsed_ns - off_cpu_ns,
                state: State::Cpu,
                wanted: is_cpu,
            },
            // It waited for a processor where it ran before and after.
            EarlyPart {
                ns: waited,
                state: State::Runnable,
                wanted: is_cpu,
            },
            EarlyPart {
                ns: off_cpu_ns - waited,
                state: State::Other,
                wanted: if waited_ns.is_some() {
                    is_wait
                } else {
                    |state| state != State::Cpu
                },
            },
        ];
        for part in parts.into_iter().filter(|part| part.ns > 0) {
            self.count_early_part(thread, early, &levels, part);
        }
    }

    fn count_early_part(
        &mut self,
        thread: &mut Thread,
        early: &EarlyThread,
        levels: &TaskLevels,
        part: EarlyPart,
    ) {
        let level = self.level_of(levels);
        let EarlyPart { ns, state, wanted } = part;
        if self.seen.shares(early, level, wanted).next().is_none() {
            let reason = self.no_stack_reason(thread, self.samples_running());
            let attribution = self.without_stack_below(thread, levels, reason);
            let time = Share {
                attribution,
                state,
                part: ns,
            };
            return self
                .remainders
                .add(&mut self.addresses, self.quantum_ns, level, time);
        }
        let ThreadProbe {
            seen,
            remainders,
            addresses,
            quantum_ns,
            ..
        } = self;
        let shares = seen.shares(early, level, wanted);
        let parts = divided(ns, shares.clone().map(|share| share.part));
        for (share, part) in shares.zip(parts) {
            let state = if state == State::Other {
                share.state
            } else {
                state
            };
            remainders.add(
                addresses,
                *quantum_ns,
                level,
                Share {
                    part,
                    state,
                    ..share
                },
            );
        }
    }

    /// The node of the task and phase that `attribution` is in.
    pub(super) fn level_at(&self, attribution: Attribution) -> NodeId {
        let thread = self.addresses.trie.node(attribution.thread);
        thread.map_or(NodeId::ROOT, |(level, _)| level)
    }

    pub(super) fn level_of(&mut self, levels: &TaskLevels) -> NodeId {
        let (first, level) = self.addresses.insert_levels(levels);
        level.unwrap_or(first)
    }

    /// Counts a weight of a thread, or holds it back while the thread measures itself.
    pub(super) fn add(&mut self, thread: &mut Thread, attribution: Attribution, weight: Weight) {
        match &mut thread.early {
            None => self.addresses.add(attribution, weight),
            Some(early) => {
                let level = self.level_at(attribution);
                self.seen.add(early, level, attribution, weight);
            }
        }
    }

    /// Weights of a thread are multiples of this.
    pub(super) fn quantum_of(&self, thread: &Thread) -> u64 {
        if thread.early.is_some() {
            1
        } else {
            self.quantum_ns
        }
    }
}

fn close(account: &EarlyAccount) -> Option<EarlyTimes> {
    (0..CLOSE_TRIES_MAX).find_map(|_| {
        std::hint::spin_loop();
        account.close()
    })
}

/// The present of a thread whose account begins its last part at `since`; if the thread is gone, when
/// it was last seen.
fn now_of(thread: &Thread, since: Moment) -> Moment {
    let seen = Moment {
        ns: thread.time.accounted_to_ns(),
        cpu_ns: thread.time.cpu_ns(),
    };
    let moment = match process::thread_cpu_ns(thread.id) {
        Some(cpu_ns) if !thread.gone => Moment {
            ns: monotonic_ns(),
            cpu_ns,
        },
        _ => seen,
    };
    Moment {
        ns: moment.ns.max(since.ns),
        cpu_ns: moment.cpu_ns.max(since.cpu_ns),
    }
}
