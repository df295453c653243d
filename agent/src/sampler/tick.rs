//! The tick loop.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SendError, SyncSender, TrySendError};

use profiler_core::{FrameId, State, Ticks};
use rustc_hash::FxHashMap;

use super::mode::Mode;
use super::options::SamplerOptions;
use super::overhead::{ClockReading, Meter, OverheadCounters};
use super::raw::{RawCycle, RawThreadDump};
use super::schedule::Schedule;
use super::sys::slots::Slots;
use super::thread::{Thread, TimeAccount};
use super::thread_probe::ThreadProbe;
use crate::SamplerMode;
use crate::clock::monotonic_ns;
use crate::control::{Control, DesiredSettings};
use crate::sys::process;
use crate::{registry, threads};

/// Most threads that are probed in one tick, and the time after which no further probe begins; the
/// next tick continues where this one stopped. A thousand idle threads take 0.3 ms.
const PROBES_MAX: usize = 1_000;
const PROBING_NS_MAX: u64 = 2_000_000;
/// Probes between two readings of the clock.
const PROBES_PER_READING: usize = 16;

/// The state that lives from tick to tick.
pub(crate) struct Sampler {
    options: SamplerOptions,
    control: Arc<Control>,
    schedule: Schedule,
    threads: Vec<Thread>,
    /// By id: where in `threads`.
    index: FxHashMap<u32, usize>,
    probe: ThreadProbe,
    own_id: u32,
    own_time: TimeAccount,
    /// The frame of the sampler's own thread.
    own_frame: FrameId,
    known_count: Option<u64>,
    cells_version: u64,
    agent_version: u64,
    last_tick_ns: u64,
    cycle_start_ns: u64,
    ticks: Ticks,
    /// The thread that is probed first in the next tick.
    next_thread: usize,
}

impl Sampler {
    /// Prepares to sample this process, on the thread that will do it. What the system refuses
    /// reduces the [mode](Mode), which is logged once.
    pub(crate) fn new(
        options: SamplerOptions,
        control: Arc<Control>,
        counters: Arc<OverheadCounters>,
    ) -> Sampler {
        let mut mode = Mode::detect();
        let mut slots = None;
        if mode.samples_running() {
            match Slots::install(mode.checked_copies) {
                Ok(installed) => slots = Some(installed),
                Err(error) => {
                    mode.lose_running(format!("cannot install a signal handler: {error}"))
                }
            }
        }
        let public_mode = SamplerMode::from(&mode);
        if public_mode != SamplerMode::Full {
            tracing::warn!("this process is not sampled in full: {public_mode}");
        }
        control.start(public_mode);
        let own_id = threads::own_id();
        let now = monotonic_ns();
        let reading = ClockReading { stamp: process::time_stamp(), ns: now };
        let meter = Meter::new(counters, options.cpu_limit, reading);
        let mut probe = ThreadProbe::new(mode, slots, meter, options.quantum_ns());
        let own_name = process::thread_name(own_id).into();
        let own_frame = probe.thread_frames.frame(&mut probe.addresses, own_name, own_id, false);
        let mut own_time = TimeAccount::new(now);
        let cpu_ns = process::thread_cpu_ns(own_id).unwrap_or(0);
        own_time.reset(now, cpu_ns);
        probe.meter.exclude_startup(cpu_ns);
        Sampler {
            options,
            control,
            schedule: Schedule::new(options.settings(), now),
            threads: Vec::new(),
            index: FxHashMap::default(),
            probe,
            own_id,
            own_time,
            own_frame,
            known_count: None,
            cells_version: 0,
            agent_version: 0,
            last_tick_ns: now,
            cycle_start_ns: now,
            ticks: Ticks::default(),
            next_thread: 0,
        }
    }

    /// Samples until `stop` is set, and sends one cycle per second to `cycles`.
    pub(crate) fn run(mut self, stop: &AtomicBool, cycles: &SyncSender<RawCycle>) {
        loop {
            let tick_ns = self.sleep();
            let stopping = stop.load(Ordering::Acquire);
            let last_ns = (stopping && self.schedule.settings.enabled).then(monotonic_ns);
            if let Some(now) = tick_ns.or(last_ns) {
                self.tick(now, stopping, cycles);
            }
            if stopping {
                return;
            }
        }
    }

    fn tick(&mut self, now: u64, last: bool, cycles: &SyncSender<RawCycle>) {
        self.probe.begin_tick(now, &mut self.threads);
        self.refresh_threads();
        self.probe.harvest(&mut self.threads, &self.index, now);
        self.probe_threads(now);
        self.count_own(now);
        self.count_tick();
        self.last_tick_ns = now;
        if last {
            self.threads.iter_mut().for_each(|thread| self.probe.attribute_all(thread));
        }
        let has_new_settings = self.schedule.new_settings(&self.control).is_some();
        let is_complete = now.saturating_sub(self.cycle_start_ns) >= self.options.cycle_ns;
        if last || has_new_settings || is_complete || self.schedule.is_dump_in_progress() {
            self.threads.iter_mut().for_each(|thread| self.probe.count_idle(thread));
        }
        let request = self.schedule.dump_due(&self.control);
        if last || has_new_settings || is_complete || request.is_some() {
            let dump = request.map(|request| RawThreadDump::new(request, &self.threads, now));
            let sealed = self.seal(last, dump, cycles);
            if has_new_settings && sealed {
                self.apply_settings(now);
            }
        }
    }

    /// Counts a regular tick and those that were due before it, and skips the next ones if this one
    /// cost too much.
    fn count_tick(&mut self) {
        let passed = self.schedule.passed;
        if passed == 0 {
            return;
        }
        let throttled = self.schedule.throttled;
        let made = u64::from(!self.probe.mode().is_off());
        self.ticks += Ticks { made, expected: passed + throttled, throttled };
        self.schedule.skip(self.probe.meter.throttle_ticks(self.options.interval_ns));
    }

    /// Probes as many threads as there is time for, starting where the last tick stopped.
    fn probe_threads(&mut self, now: u64) {
        let count = self.threads.len();
        let mut probes = 0;
        while probes < count.min(PROBES_MAX) {
            let index = (self.next_thread + probes) % count;
            self.probe.probe(&mut self.threads[index], now);
            probes += 1;
            let read_clock = probes.is_multiple_of(PROBES_PER_READING);
            if read_clock && monotonic_ns().saturating_sub(now) > PROBING_NS_MAX {
                break;
            }
        }
        // If all were probed, another thread is first next time, because slots may be scarce.
        let step = if probes == count { 1 } else { probes };
        self.next_thread = (self.next_thread + step) % count.max(1);
    }

    /// Ends the cycle at this tick. Returns whether a new one begins; unattributed time of running
    /// threads then belongs to that.
    fn seal(
        &mut self,
        last: bool,
        dump: Option<RawThreadDump>,
        cycles: &SyncSender<RawCycle>,
    ) -> bool {
        let start_ns = self.cycle_start_ns;
        let stop_ns = self.last_tick_ns;
        if stop_ns <= start_ns {
            return true;
        }
        self.check();
        let request = dump.as_ref().map(|dump| dump.request);
        let sealed = self.probe.addresses.seal(|tree| {
            let cycle = RawCycle {
                start_ns,
                stop_ns,
                ticks: self.ticks,
                quantum_ns: self.options.quantum_ns(),
                states: self.schedule.settings.states,
                tree,
                dump,
            };
            if last {
                // Sampling has ended, so this may wait for the symbolizer.
                return cycles.send(cycle).map_err(|SendError(back)| back.tree);
            }
            // If the symbolizer is behind (or gone), go on counting into the same, longer cycle.
            cycles.try_send(cycle).map_err(|error| match error {
                TrySendError::Full(back) | TrySendError::Disconnected(back) => back.tree,
            })
        });
        if sealed {
            self.cycle_start_ns = stop_ns;
            self.ticks = Ticks::default();
            if let Some(request) = request {
                self.schedule.dump_sent(request);
            }
        }
        sealed
    }

    /// Checks that are made once per cycle.
    fn check(&mut self) {
        self.probe.meter.count_others(self.others_cpu_ns());
        if self.probe.signal_is_lost(&mut self.threads) {
            let mode = SamplerMode::from(self.probe.mode());
            tracing::warn!("this process is no longer sampled in full: {mode}");
            self.control.set_mode(mode);
        }
    }

    /// CPU time of the agent's other threads.
    fn others_cpu_ns(&self) -> u64 {
        let others = self.threads.iter().filter(|thread| thread.of_agent);
        others.filter_map(|thread| process::thread_cpu_ns(thread.id)).sum()
    }

    /// Counts the sampler's own thread by its CPU clock, so that every profile shows what it costs.
    fn count_own(&mut self, now: u64) {
        let Some(cpu_ns) = process::thread_cpu_ns(self.own_id) else {
            return;
        };
        let ThreadProbe { addresses, thread_frames, meter, .. } = &mut self.probe;
        meter.count_sampler(cpu_ns);
        let attribution = thread_frames.sampler_attribution(addresses, self.own_frame);
        let quantum_ns = self.options.quantum_ns();
        self.own_time.advance(now, cpu_ns);
        let ran = self.own_time.take_running(quantum_ns);
        let slept = self.own_time.take_off_cpu(State::Sleep, quantum_ns);
        addresses.add(attribution, ran + slept);
    }

    /// Updates the list of threads, if it has changed.
    fn refresh_threads(&mut self) {
        let count = self.probe.files.thread_count();
        let stale = self.probe.take_stale();
        if count != self.known_count || stale {
            self.known_count = count;
            if let Ok(ids) = process::thread_ids() {
                self.replace_threads(ids);
                // New threads may have cells already.
                self.cells_version = 0;
                self.agent_version = 0;
            }
        }
        let version = registry::cells_version();
        if version != self.cells_version {
            self.assign_cells(version);
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
        let others = ids.into_iter().filter(|id| *id != self.own_id);
        let known_or_new =
            |id| known.remove(&id).unwrap_or_else(|| Thread::new(id, self.last_tick_ns));
        self.threads = others.map(known_or_new).collect();
        self.index = self.threads.iter().enumerate().map(|(at, thread)| (thread.id, at)).collect();
        for thread in gone.into_iter().chain(known.into_values()) {
            self.probe.remove(thread);
        }
        self.next_thread %= self.threads.len().max(1);
    }

    fn assign_cells(&mut self, version: u64) {
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

    /// Sleeps until the next tick and returns its time, or `None` if there is none: sampling is
    /// off, or a request woke the sampler.
    fn sleep(&mut self) -> Option<u64> {
        if !self.schedule.settings.enabled {
            match self.schedule.new_settings(&self.control) {
                Some(desired) => self.change_while_off(desired),
                None => self.control.sleep_until(u64::MAX),
            }
            return None;
        }
        let tick_ns = self.schedule.next_tick_ns(&self.control, self.last_tick_ns);
        self.control.sleep_until(tick_ns);
        let now = monotonic_ns();
        if now < tick_ns {
            return None;
        }
        self.schedule.pass(now);
        Some(now)
    }

    /// Applies new settings, if there are any; the cycle must be sealed.
    fn apply_settings(&mut self, now: u64) {
        let Some(desired) = self.schedule.new_settings(&self.control) else {
            return;
        };
        if !desired.settings.enabled {
            for thread in self.threads.drain(..) {
                self.probe.remove(thread);
            }
            self.index.clear();
            self.known_count = None;
            self.schedule.cancel_dump();
        }
        self.apply(desired, now);
    }

    fn change_while_off(&mut self, desired: DesiredSettings) {
        let now = monotonic_ns();
        // The shipper answers requests that come while sampling is off.
        self.schedule.answered = self.control.dump_requested();
        if desired.settings.enabled {
            if let Some(cpu_ns) = process::thread_cpu_ns(self.own_id) {
                self.own_time.reset(now, cpu_ns);
            }
            self.last_tick_ns = now;
            self.cycle_start_ns = now;
            self.ticks = Ticks::default();
        }
        self.apply(desired, now);
    }

    fn apply(&mut self, desired: DesiredSettings, now: u64) {
        self.schedule.apply(desired, now);
        self.options.interval_ns = desired.settings.interval_ns;
        self.probe.quantum_ns = self.options.quantum_ns();
        self.control.set_applied(desired.number);
    }
}

#[cfg(test)]
mod tests;
