//! The sampler: a thread that looks at every thread of the process each tick and counts what it
//! finds. It knows no network and no names.
//!
//! A thread that runs is asked by a timer on its CPU clock, whose signal makes it copy its own stack
//! ([`sys::request`], [`sys::slots`]). A blocked thread is read without its doing, through `/proc` and
//! checked copies of its memory ([`look`]). Neither makes a system call of the program fail. A thread
//! that has not run since it was last seen blocked is counted again without any look at all.
//!
//! How long a thread ran, waited for a processor and was blocked is known from the kernel's clocks;
//! samples only say where ([`thread`]).

pub(crate) mod addresses;
mod budget;
mod cost;
mod files;
mod live;
mod look;
mod memory;
mod mode;
mod sys;
mod thread;
mod unwind;
mod wait;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SendError, SyncSender, TrySendError};
use std::time::Duration;

use profiler_core::{FrameId, Settings, State, StateSet, Ticks};
use rustc_hash::FxHashMap;

use self::addresses::Growth;
pub(crate) use self::budget::OTHER_THREADS;
pub(crate) use self::cost::Costs;
use self::cost::Meter;
pub(crate) use self::files::KeptFile;
use self::live::Live;
pub(crate) use self::live::{RawStacks, RawThread};
use self::look::Look;
use self::mode::Mode;
use self::sys::slots::Slots;
use self::thread::{Thread, TimeAccount};
use crate::SamplerMode;
use crate::clock::monotonic_ns;
use crate::control::Control;
use crate::sys::process;
use crate::{registry, threads};

/// Weights are multiples of a tenth of the interval; what is below is carried.
const QUANTA_PER_INTERVAL: u64 = 10;
/// Most threads that are looked at in one tick, and the time after which no further one is begun;
/// the next tick goes on where this one stopped. A thousand idle threads take 0.3 ms.
const LOOKS_MAX: usize = 1_000;
const LOOKING_NS_MAX: u64 = 2_000_000;
/// Looks between two readings of the clock.
const LOOKS_A_READING: usize = 16;

/// Settings of one sampler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SamplerOptions {
    pub(crate) interval_ns: u64,
    pub(crate) cycle_ns: u64,
    /// Part of one processor that sampling may use, in billionths.
    pub(crate) cpu_limit: u64,
    /// Time between two samples of resources, if they are wanted; they are the folder's.
    pub(crate) resource_interval: Option<Duration>,
    /// For the folder: most rows of ended tasks that are kept for one second.
    pub(crate) task_rows_per_second: u32,
}

impl SamplerOptions {
    /// What an agent starts with.
    pub(crate) fn settings(&self) -> Settings {
        Settings { interval_ns: self.interval_ns, enabled: true, states: StateSet::ALL }
    }

    pub(crate) fn quantum_ns(&self) -> u64 {
        (self.interval_ns / QUANTA_PER_INTERVAL).max(1)
    }
}

/// One cycle as the sampler saw it: addresses, and times of the monotonic clock.
#[derive(Debug)]
pub(crate) struct RawCycle {
    pub(crate) start_ns: u64,
    pub(crate) stop_ns: u64,
    /// Regular ticks: made, due, and left out to stay within the limit on CPU time.
    pub(crate) ticks: Ticks,
    /// Every weight is a multiple of it.
    pub(crate) quantum_ns: u64,
    /// States whose weight is wanted.
    pub(crate) states: StateSet,
    pub(crate) growth: Growth,
    /// The answer to a question, by nodes of this growth and those before.
    pub(crate) stacks: Option<RawStacks>,
}

/// Everything that lives from tick to tick.
pub(crate) struct Sampler {
    options: SamplerOptions,
    control: Arc<Control>,
    live: Live,
    threads: Vec<Thread>,
    /// By id: where in `threads`.
    index: FxHashMap<u32, usize>,
    look: Look,
    own_id: u32,
    own_time: TimeAccount,
    /// What its own thread is counted as.
    own_frame: FrameId,
    known_count: Option<u64>,
    cells_version: u64,
    agent_version: u64,
    last_tick_ns: u64,
    cycle_start_ns: u64,
    ticks: Ticks,
    /// Where the next tick's looks begin.
    turn: usize,
}

impl Sampler {
    /// Prepares to sample this process, on the thread that will do it. A system that refuses
    /// something makes a lesser [mode](Mode), said once in the log.
    pub(crate) fn new(
        options: SamplerOptions,
        control: Arc<Control>,
        costs: Arc<Costs>,
    ) -> Sampler {
        let mut mode = Mode::find();
        let slots = (mode.is_running_seen()).then(|| Slots::install(mode.checked_copies));
        let slots = slots.and_then(|installed: io::Result<Slots>| match installed {
            Ok(slots) => Some(slots),
            Err(error) => {
                mode.lose_running(format!("no signal can be handled: {error}"));
                None
            }
        });
        let shown = SamplerMode::from(&mode);
        if shown != SamplerMode::Full {
            tracing::warn!("this process is not sampled in full: {shown}");
        }
        control.start(shown);
        let own_id = threads::own_id();
        let now = monotonic_ns();
        let meter = Meter::new(costs, options.cpu_limit, (process::time_stamp(), now));
        let mut look = Look::new(mode, slots, meter, options.quantum_ns());
        let own_name = process::thread_name(own_id).into();
        let own_frame = look.addresses.thread_frame(own_name, own_id, false);
        let mut own_time = TimeAccount::new(now);
        let cpu_ns = process::thread_cpu_ns(own_id).unwrap_or(0);
        own_time.forgive(now, cpu_ns);
        look.meter.forgive_start(cpu_ns);
        Sampler {
            options,
            control,
            live: Live::new(options.settings(), now),
            threads: Vec::new(),
            index: FxHashMap::default(),
            look,
            own_id,
            own_time,
            own_frame,
            known_count: None,
            cells_version: 0,
            agent_version: 0,
            last_tick_ns: now,
            cycle_start_ns: now,
            ticks: Ticks::default(),
            turn: 0,
        }
    }

    /// Samples until `stop`, and sends a cycle to `cycles` each second.
    pub(crate) fn run(mut self, stop: &AtomicBool, cycles: &SyncSender<RawCycle>) {
        loop {
            let tick_ns = self.sleep();
            let stopping = stop.load(Ordering::Acquire);
            let last_ns = (stopping && self.live.settings.enabled).then(monotonic_ns);
            if let Some(now) = tick_ns.or(last_ns) {
                self.tick(now, stopping, cycles);
            }
            if stopping {
                return;
            }
        }
    }

    fn tick(&mut self, now: u64, last: bool, cycles: &SyncSender<RawCycle>) {
        self.look.begin_tick(now, &mut self.threads);
        self.refresh_threads();
        self.look.harvest(&mut self.threads, &self.index, now);
        self.look_around(now);
        self.count_own(now);
        self.count_tick();
        self.last_tick_ns = now;
        if last {
            self.threads.iter_mut().for_each(|thread| self.look.settle(thread));
        }
        let changes = self.has_new_settings();
        let whole = now.saturating_sub(self.cycle_start_ns) >= self.options.cycle_ns;
        if last || changes || whole || self.is_looking() {
            self.threads.iter_mut().for_each(|thread| self.look.count_idle(thread));
        }
        let stacks = self.stacks_due(now);
        if last || changes || whole || stacks.is_some() {
            let sealed = self.seal(last, stacks, cycles);
            if changes && sealed {
                self.take_settings(now);
            }
        }
    }

    /// Counts a regular tick, and those that were due before it; and leaves out the next ones, if
    /// this one has cost too much.
    fn count_tick(&mut self) {
        let passed = self.live.passed;
        if passed == 0 {
            return;
        }
        let saved = self.live.saved;
        let made = u64::from(!self.look.mode().is_off());
        self.ticks += Ticks { made, expected: passed + saved, throttled: saved };
        self.live.save(self.look.meter.save_ticks(self.options.interval_ns));
    }

    /// Looks at as many threads as there is time for, the next ones first.
    fn look_around(&mut self, now: u64) {
        let count = self.threads.len();
        let mut looks = 0;
        while looks < count.min(LOOKS_MAX) {
            let index = (self.turn + looks) % count;
            self.look.look(&mut self.threads[index], now);
            looks += 1;
            let read_clock = looks.is_multiple_of(LOOKS_A_READING);
            if read_clock && monotonic_ns().saturating_sub(now) > LOOKING_NS_MAX {
                break;
            }
        }
        // If all had their turn, another one begins next time, as slots may be scarce.
        let next = if looks == count { 1 } else { looks };
        self.turn = (self.turn + next) % count.max(1);
    }

    /// Ends the cycle at this tick; gives whether the next one begins. What running threads still owe
    /// belongs to that.
    fn seal(
        &mut self,
        last: bool,
        stacks: Option<RawStacks>,
        cycles: &SyncSender<RawCycle>,
    ) -> bool {
        let (start_ns, stop_ns) = (self.cycle_start_ns, self.last_tick_ns);
        if stop_ns <= start_ns {
            return true;
        }
        self.check();
        let (ticks, quantum_ns) = (self.ticks, self.options.quantum_ns());
        let states = self.live.settings.states;
        let number = stacks.as_ref().map(|stacks| stacks.number);
        let sealed = self.look.addresses.seal(|growth| {
            let cycle = RawCycle { start_ns, stop_ns, ticks, quantum_ns, states, growth, stacks };
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
            self.ticks = Ticks::default();
            if let Some(number) = number {
                self.stacks_sent(number);
            }
        }
        sealed
    }

    /// What is looked after once a cycle.
    fn check(&mut self) {
        self.look.meter.count_others(self.others_cpu_ns());
        if self.look.signal_is_lost(&mut self.threads) {
            let mode = SamplerMode::from(self.look.mode());
            tracing::warn!("this process is no longer sampled in full: {mode}");
            self.control.set_mode(mode);
        }
    }

    /// CPU time of the agent's other threads.
    fn others_cpu_ns(&self) -> u64 {
        let others = self.threads.iter().filter(|thread| thread.of_agent);
        others.filter_map(|thread| process::thread_cpu_ns(thread.id)).sum()
    }

    /// The sampler's own thread, by its own clock: what it costs stands in every profile.
    fn count_own(&mut self, now: u64) {
        let Some(cpu_ns) = process::thread_cpu_ns(self.own_id) else {
            return;
        };
        self.look.meter.count_sampler(cpu_ns);
        let place = self.look.addresses.sampler_place(self.own_frame);
        let quantum = self.options.quantum_ns();
        self.own_time.advance(now, cpu_ns);
        let ran = self.own_time.take_running(quantum);
        let slept = self.own_time.take_off(State::Sleep, quantum);
        self.look.addresses.add(place, ran + slept);
    }

    /// Brings the list of threads up to date, if it has changed.
    fn refresh_threads(&mut self) {
        let count = self.look.files.thread_count();
        let stale = self.look.take_stale();
        if count != self.known_count || stale {
            self.known_count = count;
            if let Ok(ids) = process::thread_ids() {
                self.replace_threads(ids);
                // Cells of threads that were listed only now.
                self.cells_version = 0;
                self.agent_version = 0;
            }
        }
        let version = registry::cells_version();
        if version != self.cells_version {
            self.take_cells(version);
        }
        let version = threads::version();
        if version != self.agent_version {
            self.agent_version = version;
            let of_agent = threads::ids();
            for thread in &mut self.threads {
                thread.of_agent = of_agent.contains(&thread.id);
            }
        }
    }

    fn replace_threads(&mut self, ids: Vec<u32>) {
        let (gone, known): (Vec<Thread>, Vec<Thread>) =
            self.threads.drain(..).partition(|thread| thread.gone);
        let mut known: HashMap<u32, Thread> =
            known.into_iter().map(|thread| (thread.id, thread)).collect();
        let since = self.last_tick_ns;
        let own = self.own_id;
        let known_or_new = |id| known.remove(&id).unwrap_or_else(|| Thread::new(id, since));
        self.threads = ids.into_iter().filter(|id| *id != own).map(known_or_new).collect();
        self.index = self.threads.iter().enumerate().map(|(at, thread)| (thread.id, at)).collect();
        for thread in gone.into_iter().chain(known.into_values()) {
            self.look.forget(thread);
        }
        self.turn %= self.threads.len().max(1);
    }

    fn take_cells(&mut self, version: u64) {
        let mut cells = HashMap::new();
        let taken = registry::try_each_cell(|cell| {
            cells.insert(cell.thread.id, Arc::clone(cell));
        });
        if taken.is_some() {
            self.cells_version = version;
            for thread in &mut self.threads {
                thread.cell = cells.remove(&thread.id);
            }
        }
    }
}
