//! The sampler: a thread that looks at every thread of the process each tick and counts what it
//! finds. It knows no network and no names.
//!
//! A thread that runs is asked by a directed signal and answers through a slot ([`sys::signal`]). A
//! blocked thread is read without a signal, through `/proc` and checked copies of its memory, so
//! that no system call of the program ever fails with `EINTR` on our account. A thread that has not
//! run since it was last seen blocked is counted again without any look at all.

pub(crate) mod addresses;
mod look;
mod memory;
mod sys;
mod thread;
mod unwind;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SendError, SyncSender, TrySendError};

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};

use self::addresses::Growth;
use self::look::Look;
use self::sys::process;
pub(crate) use self::sys::process::lower_priority;
use self::sys::signal::Slots;
pub(crate) use self::thread::AGENT_THREAD_PREFIX;
use self::thread::{RunTimes, Thread};
use crate::clock::monotonic_ns;
use crate::registry;

/// Weights are multiples of a tenth of the interval; what is below is carried.
const QUANTA_PER_INTERVAL: u64 = 10;

/// Settings of one sampler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SamplerOptions {
    pub(crate) interval_ns: u64,
    pub(crate) cycle_ns: u64,
}

impl SamplerOptions {
    pub(crate) fn quantum_ns(&self) -> u64 {
        (self.interval_ns / QUANTA_PER_INTERVAL).max(1)
    }
}

/// One cycle as the sampler saw it: addresses, and times of the monotonic clock.
#[derive(Debug)]
pub(crate) struct RawCycle {
    pub(crate) start_ns: u64,
    pub(crate) stop_ns: u64,
    pub(crate) ticks: u64,
    pub(crate) growth: Growth,
}

/// Everything that lives from tick to tick.
pub(crate) struct Sampler {
    options: SamplerOptions,
    threads: Vec<Thread>,
    look: Look,
    own_id: u32,
    own_cpu_ns: u64,
    own_thread: Thread,
    known_count: u64,
    cells_version: u64,
    last_tick_ns: u64,
    cycle_start_ns: u64,
    ticks: u64,
    /// Where the next tick's requests start, so that scarce slots go around.
    turn: usize,
}

impl Sampler {
    /// Prepares to sample this process, on the thread that will do it.
    ///
    /// # Errors
    /// If the system refuses what no mode can do without.
    pub(crate) fn new(options: SamplerOptions) -> io::Result<Sampler> {
        let own_id = nix::unistd::gettid().as_raw().unsigned_abs();
        let now = monotonic_ns();
        Ok(Sampler {
            options,
            threads: Vec::new(),
            look: Look::new(Slots::install()?, options.quantum_ns()),
            own_id,
            own_cpu_ns: process::thread_cpu_ns(own_id).unwrap_or(0),
            own_thread: Thread::new(own_id, true, now),
            known_count: 0,
            cells_version: 0,
            last_tick_ns: now,
            cycle_start_ns: now,
            ticks: 0,
            turn: 0,
        })
    }

    /// Samples until `stop`, and sends a cycle to `cycles` each second.
    pub(crate) fn run(mut self, stop: &AtomicBool, cycles: &SyncSender<RawCycle>) {
        let interval = self.options.interval_ns;
        let mut due = self.last_tick_ns + interval;
        loop {
            sleep_until(due);
            let now = monotonic_ns();
            let stopping = stop.load(Ordering::Acquire);
            self.tick(now, stopping, cycles);
            if stopping {
                return;
            }
            // A late tick becomes weight, never a burst: skip the ticks that are already past.
            due += interval * (1 + now.saturating_sub(due) / interval);
        }
    }

    fn tick(&mut self, now: u64, last: bool, cycles: &SyncSender<RawCycle>) {
        self.look.refresh_modules();
        self.refresh_threads();
        for thread in &mut self.threads {
            self.look.harvest(thread, self.last_tick_ns, now);
        }
        self.ticks += 1;
        if last || self.last_tick_ns.saturating_sub(self.cycle_start_ns) >= self.options.cycle_ns {
            self.seal(last, cycles);
        }
        if last {
            return;
        }
        let (early, late) = self.threads.split_at_mut(self.turn);
        for thread in late.iter_mut().chain(early) {
            self.look.look(thread, now);
        }
        self.turn = (self.turn + 1) % self.threads.len().max(1);
        self.count_own(now);
        self.last_tick_ns = now;
    }

    /// Ends the cycle at the last tick, whose samples are all in.
    fn seal(&mut self, last: bool, cycles: &SyncSender<RawCycle>) {
        let (start_ns, stop_ns) = (self.cycle_start_ns, self.last_tick_ns);
        if stop_ns <= start_ns {
            return;
        }
        // This tick belongs to the next cycle; the one that ended the last cycle to this one.
        let ticks = self.ticks - 1;
        let sealed = self.look.addresses.seal(|growth| {
            let cycle = RawCycle { start_ns, stop_ns, ticks, growth };
            if last {
                // Nothing is sampled any more, so this may wait for the folder.
                return cycles.send(cycle).map_err(|SendError(back)| back.growth);
            }
            // If the folder is behind (or gone), go on counting into the same, coarser cycle.
            cycles.try_send(cycle).map_err(|error| match error {
                TrySendError::Full(back) | TrySendError::Disconnected(back) => back.growth,
            })
        });
        if sealed {
            self.cycle_start_ns = stop_ns;
            self.ticks = 1;
        }
    }

    /// The sampler's own thread, by its own clock: what it costs stands in every profile.
    fn count_own(&mut self, now: u64) {
        let cpu = process::thread_cpu_ns(self.own_id).unwrap_or(self.own_cpu_ns);
        let used = cpu.saturating_sub(self.own_cpu_ns);
        self.own_cpu_ns = cpu;
        let node = self.look.addresses.sampler_node();
        let quantum = self.options.quantum_ns();
        let ran_until = (self.own_thread.counted_to_ns + used).min(now);
        let times = RunTimes { cpu_ns: cpu, delay_ns: 0 };
        let ran = self.own_thread.count_ready(ran_until, times, quantum);
        let slept = self.own_thread.count_blocked(now, quantum);
        self.look.addresses.add(node, ran + slept);
    }

    /// Brings the list of threads up to date, if it has changed.
    fn refresh_threads(&mut self) {
        let count = process::thread_count().unwrap_or(0);
        if count != self.known_count || self.look.take_stale() {
            self.known_count = count;
            if let Ok(ids) = process::thread_ids() {
                self.replace_threads(ids);
                // Cells of threads that were listed only now.
                self.cells_version = 0;
            }
        }
        let version = registry::cells_version();
        if version != self.cells_version {
            self.take_cells(version);
        }
    }

    fn replace_threads(&mut self, ids: Vec<u32>) {
        let mut known: HashMap<u32, Thread> =
            self.threads.drain(..).map(|thread| (thread.id, thread)).collect();
        let since = self.last_tick_ns;
        let own = self.own_id;
        self.threads = ids
            .into_iter()
            .filter(|id| *id != own)
            .map(|id| {
                known.remove(&id).unwrap_or_else(|| {
                    let of_agent = process::thread_name(id).starts_with(AGENT_THREAD_PREFIX);
                    Thread::new(id, of_agent, since)
                })
            })
            .collect();
        for (_, gone) in known {
            self.look.forget(gone);
        }
        self.turn %= self.threads.len().max(1);
    }

    fn take_cells(&mut self, version: u64) {
        let mut cells = HashMap::new();
        let taken = registry::try_each_cell(|cell| {
            cells.insert(cell.thread_id, Arc::clone(cell));
        });
        if taken.is_some() {
            self.cells_version = version;
            for thread in &mut self.threads {
                thread.cell = cells.remove(&thread.id);
            }
        }
    }
}

fn sleep_until(monotonic_ns: u64) {
    let second = i64::try_from(monotonic_ns / 1_000_000_000).unwrap_or(i64::MAX);
    let rest = i64::try_from(monotonic_ns % 1_000_000_000).unwrap_or(0);
    let until = TimeSpec::new(second, rest);
    // Woken early only by a signal, which this thread takes none of; an early tick does no harm.
    let _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &until);
}
