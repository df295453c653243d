//! The tick loop.

mod checks;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use profiler_core::{FrameId, State, Ticks};

use super::audit::Audit;
use super::cycles::CycleSender;
use super::files::ThreadFiles;
use super::mode::Mode;
use super::options::SamplerOptions;
use super::overhead::{ClockReading, Meter, OverheadCounters};
use super::pages::page_map::PageMap;
use super::pages::page_trie::Full;
use super::raw::{RawCycle, RawThreadDump};
use super::schedule::Schedule;
use super::schedule::TickTimes;
use super::stops::Stops;
use super::sys::slots::Slots;
use super::task_words::TaskWords;
use super::thread::Thread;
use super::thread_list::{ThreadList, ThreadsShown};
use super::thread_probe::ThreadProbe;
use super::thread_table::ThreadTable;
use super::time_account::TimeAccount;
use super::visits::Visits;
use crate::SamplerMode;
use crate::clock::monotonic_ns;
use crate::registry::{NameId, ThreadCell};
use crate::telemetry::run;
use crate::{log, registry, threads};
use ship::control::{Control, DesiredSettings};
use system::page_vec::PageVec;
use system::{process, processor};

/// The time in a tick after which no further visit begins, whatever the budget is.
const VISITING_NS_MAX: u64 = 2_000_000;

/// Ticks between two checks of the program's handlers of all signals.
const HANDLERS_TICKS: u32 = 100;

/// While sampling is off, the cells of threads that have ended are dropped this often.
const OFF_NS: u64 = 1_000_000_000;

/// The state that lives from tick to tick.
pub(crate) struct Sampler {
    options: SamplerOptions,
    control: Arc<Control>,
    schedule: Schedule,
    threads: ThreadTable,
    thread_list: ThreadList,
    visits: Visits,
    task_words: TaskWords,
    audit: Audit,
    probe: ThreadProbe,
    own_id: u32,
    own_time: TimeAccount,
    stops: Stops,
    /// The frame of the sampler's own thread, if there was memory for it.
    own_frame: Result<FrameId, Full>,
    /// The cells of threads that have one, by id.
    cells: PageMap<u32, Arc<ThreadCell>>,
    /// Threads whose task has changed; empty between two ticks.
    changed: PageVec<u32>,
    agent_version: u64,
    /// Ticks until the handlers of all signals are checked again.
    handlers_after: u32,
    last_tick_ns: u64,
    cycle_start_ns: u64,
    /// [`run::next_id`] when the cycle began.
    next_run: u64,
    /// The latest request to flush that a cycle was sent for.
    flush_request: u64,
    /// When a cycle last ended early.
    cut_ns: u64,
    ticks: Ticks,
}

impl Sampler {
    /// Prepares to sample this process, on the thread that will do it. A refusal of the system
    /// reduces the [mode](Mode), which is logged once.
    pub(crate) fn new(
        options: SamplerOptions,
        control: Arc<Control>,
        counters: Arc<OverheadCounters>,
    ) -> Sampler {
        let mut mode = Mode::detect();
        let mut slots = None;
        if mode.uses_running() {
            match Slots::install(mode.checked_copies) {
                Ok(installed) => slots = Some(installed),
                Err(error) => {
                    mode.lose_running(format!("cannot install a signal handler: {error}"))
                }
            }
        }
        let public_mode = SamplerMode::from(&mode);
        if public_mode != SamplerMode::Full {
            let mode = public_mode.clone();
            log::emit(move || tracing::warn!("this process is not sampled in full: {mode}"));
        }
        control.start(public_mode);
        let own_id = threads::own_id();
        let now = monotonic_ns();
        let reading = ClockReading {
            stamp: processor::time_stamp(),
            ns: now,
        };
        let mut meter = Meter::new(counters, options.cpu_limit, reading);
        meter.limit_by_process(options.cpu_limit_of_process);
        let mut probe = ThreadProbe::new(mode, slots, meter, options.quantum_ns());
        if let Some(walker) = options.walker {
            probe.walk_foreign(walker);
        }
        probe.has_tasks_by_thread = options.tasks_by_thread;
        let own_name = process::thread_name(own_id);
        let own_frame = probe
            .thread_frames
            .frame(&mut probe.addresses, own_name, own_id, false);
        let mut own_time = TimeAccount::new(now);
        let cpu_ns = process::thread_cpu_ns(own_id).unwrap_or(0);
        own_time.reset(now, cpu_ns);
        probe.count_young_from(now);
        probe.meter.count_sampler(cpu_ns);
        probe.meter.count_start(cpu_ns);
        // Threads that nobody sees are in the only task, too.
        let has_one_task = options.default_task != NameId::NONE;
        let mut sampler = Sampler {
            options,
            control,
            schedule: Schedule::new(options.settings(), now),
            threads: ThreadTable::default(),
            thread_list: ThreadList::default(),
            visits: Visits::new(options.interval_ns),
            task_words: TaskWords::default(),
            audit: Audit::new(has_one_task),
            probe,
            own_id,
            own_time,
            stops: Stops::default(),
            own_frame,
            cells: live_cells(),
            changed: PageVec::new(),
            agent_version: 0,
            handlers_after: 0,
            last_tick_ns: now,
            cycle_start_ns: now,
            next_run: run::next_id(),
            cut_ns: 0,
            flush_request: 0,
            ticks: Ticks::default(),
        };
        sampler.find_first_threads(now);
        sampler
    }

    /// Finds the threads that run when sampling begins, so that their time counts from here on and not from the
    /// first tick.
    fn find_first_threads(&mut self, now: u64) {
        if self.schedule.settings.enabled {
            self.refresh_threads(now);
            self.count_own(monotonic_ns());
        }
    }

    /// Samples until `stop` is set, and sends one cycle per second to `cycles`.
    pub(crate) fn run(mut self, stop: &AtomicBool, mut cycles: CycleSender) {
        loop {
            let tick_ns = self.sleep();
            let stopping = stop.load(Ordering::Acquire);
            let last_ns = (stopping && self.schedule.settings.enabled).then(monotonic_ns);
            if let Some(now) = tick_ns.or(last_ns) {
                self.tick(now, stopping, &mut cycles);
            }
            // The thread that receives cycles has ended: by a panic, unless this one is to end too.
            if stopping || cycles.is_abandoned() {
                return;
            }
        }
    }

    fn tick(&mut self, now: u64, last: bool, cycles: &mut CycleSender) {
        let times = TickTimes {
            now_ns: now,
            last_ns: self.last_tick_ns,
        };
        self.probe.begin_tick(now, &mut self.threads);
        let ended = self.refresh_threads(now);
        self.check_handlers();
        self.probe
            .harvest(&mut self.threads, &mut self.visits, times);
        // Only now, because their samples may have arrived since the last tick.
        ended.iter().for_each(|id| self.remove_ended(*id, now));
        self.look_at_changed_tasks(times);
        self.visit_unarmed(now);
        let dump_begins = self.schedule.dump_begins(&self.control);
        self.visit_threads(now, dump_begins);
        self.remove_gone(now);
        self.probe.settle_grown(&mut self.threads, now);
        self.count_own(now);
        self.count_tick();
        self.last_tick_ns = now;
        let has_new_settings = self.schedule.new_settings(&self.control).is_some();
        let is_cut = self.is_cut(now);
        let is_complete =
            is_cut || now.saturating_sub(self.cycle_start_ns) >= self.options.cycle_ns;
        // The comparison begins at the first tick.
        let is_audited = is_complete || last || !self.audit.has_begun();
        let cpu_ns = is_audited.then(process::process_cpu_ns).flatten();
        if last {
            self.threads
                .iter_mut()
                .for_each(|thread| self.probe.count_to_the_end(thread, now));
            self.remove_gone(now);
            self.probe.finish_remainders();
        } else if has_new_settings || is_complete || self.schedule.is_dump_in_progress() {
            self.count_seen(now);
        }
        if let Some(cpu_ns) = cpu_ns {
            self.probe.meter.count_process(now, cpu_ns);
            self.audit(now, cpu_ns, last);
            let delay_ns = self.own_delay_ns();
            self.stops.set_delay(delay_ns);
        }
        let request = self.schedule.dump_due(&self.control);
        if last || has_new_settings || is_complete || request.is_some() {
            let dump =
                request.map(|request| RawThreadDump::new(request, self.threads.as_slice(), now));
            let sealed = self.seal(last, dump, cycles);
            if is_cut && sealed {
                self.cut_ns = now;
            }
            if has_new_settings && sealed {
                self.apply_settings(now);
            }
        }
    }

    /// Whether a flush is wanted or a run has started in this cycle, and ends it. A cycle counts whole to the second
    /// in which it starts, so the samples of a short run would otherwise count to the second before it. At most once
    /// per length of a cycle, so that a program with many runs and flushes has at most twice as many cycles.
    fn is_cut(&self, now: u64) -> bool {
        let cut_recently = now.saturating_sub(self.cut_ns) < self.options.cycle_ns;
        let is_wanted =
            run::next_id() != self.next_run || self.control.flush_requested() != self.flush_request;
        !cut_recently && is_wanted
    }

    /// Counts the time until this tick of the threads that were last seen blocked and have not
    /// announced that they ran, and what has waited for a sample for too long. If some of them have
    /// ended, and it is not known which, the time since then waits.
    fn count_seen(&mut self, now: u64) {
        let idle_to_ns = self
            .thread_list
            .first_end_ns()
            .map_or(now, |ended_ns| ended_ns.min(now));
        // A thread that was not looked at yet is counted when it is.
        for thread in self.threads.iter_mut().filter(|thread| !thread.is_new) {
            // One that has changed its task has left its place.
            if !thread.has_noted_change() {
                self.probe.assume_idle(thread, idle_to_ns);
            }
            self.probe.count_idle(thread);
            self.probe.attribute_overdue(thread, now);
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
        self.ticks += Ticks {
            made,
            expected: passed + throttled,
            throttled,
        };
        self.schedule
            .skip(self.probe.meter.throttle_ticks(self.options.interval_ns));
    }

    /// Looks at the threads whose task has changed since the last tick, because they ran.
    fn look_at_changed_tasks(&mut self, times: TickTimes) {
        let mut changed = std::mem::take(&mut self.changed);
        let passed_ns = times.now_ns.saturating_sub(times.last_ns);
        self.task_words
            .find_changed(&self.threads, passed_ns, &mut changed);
        for id in changed.iter().copied() {
            let Some(thread) = self.threads.get_mut(id) else {
                continue;
            };
            if !self.visits.mark_seen(thread) {
                self.probe.look_at_changed(thread, times);
                self.visits.schedule(thread, true);
            }
        }
        changed.clear();
        self.changed = changed;
    }

    /// Visits the threads without a timer that run.
    fn visit_unarmed(&mut self, now: u64) {
        let mut new_ns = 0;
        let ran = self.probe.unarmed_that_ran(&mut self.threads, now);
        for id in ran.into_iter().filter(|id| *id != 0) {
            new_ns += self.visit(id, now);
        }
        self.probe.meter.count_start(new_ns);
    }

    /// Visits a thread. Returns the CPU time of that if it was the first visit.
    fn visit(&mut self, id: u32, now: u64) -> u64 {
        let Some(thread) = self.threads.get_mut(id) else {
            return 0;
        };
        self.visits.mark_seen(thread);
        let new_from = thread
            .is_new
            .then(|| process::thread_cpu_ns(self.own_id))
            .flatten();
        let moved = self.probe.visit(thread, now);
        self.visits.schedule(thread, moved && !thread.of_agent);
        let new_to = new_from.and_then(|_| process::thread_cpu_ns(self.own_id));
        new_to.unwrap_or(0).saturating_sub(new_from.unwrap_or(0))
    }

    /// Visits the threads that are due, as far as the budget of a tick allows; `all`: every thread.
    fn visit_threads(&mut self, now: u64, all: bool) {
        self.visits.begin_tick(&mut self.threads);
        if all {
            for thread in self.threads.iter_mut() {
                self.visits.make_due(thread);
            }
        }
        let budget = self.probe.meter.visit_budget(self.options.interval_ns);
        let begin_ns = monotonic_ns();
        let mut new_ns = 0;
        for _ in 0..self.visits.queued() {
            let Some(id) = self.visits.next() else { break };
            let Some(thread) = self.threads.get_mut(id) else {
                continue;
            };
            let spent_ns = monotonic_ns().saturating_sub(begin_ns);
            let allowed_ns = match (all, thread.is_new) {
                (true, _) => VISITING_NS_MAX,
                (false, true) => budget.new_ns,
                (false, false) => budget.known_ns,
            };
            if spent_ns >= allowed_ns {
                self.visits.put_back(id);
                break;
            }
            if self.visits.is_due(thread) {
                new_ns += self.visit(id, now);
            }
        }
        self.probe.meter.count_start(new_ns);
        let spent_ns = monotonic_ns().saturating_sub(begin_ns);
        self.probe
            .meter
            .count_visits(spent_ns.saturating_sub(new_ns));
    }

    /// Removes the threads that were found gone at this tick.
    fn remove_gone(&mut self, now: u64) {
        while let Some(id) = self.probe.next_gone() {
            self.remove_ended(id, now);
        }
    }

    fn remove_ended(&mut self, id: u32, now: u64) {
        if let Some(thread) = self.threads.remove(id) {
            if self
                .cells
                .get(&id)
                .is_some_and(|cell| is_cell_of(&thread, cell))
            {
                self.cells.remove(&id);
            }
            let ended_ns = self.thread_list.take_end(now);
            self.probe.remove_ended(thread, ended_ns);
        }
    }

    /// Ends the cycle at this tick. Returns whether a new one begins; unattributed time of running
    /// threads then belongs to that.
    fn seal(&mut self, last: bool, dump: Option<RawThreadDump>, cycles: &mut CycleSender) -> bool {
        let start_ns = self.cycle_start_ns;
        let stop_ns = self.last_tick_ns;
        if stop_ns <= start_ns {
            return true;
        }
        self.check();
        self.add_own();
        let request = dump.as_ref().map(|dump| dump.request);
        let flush_request = self.control.flush_requested();
        let sealed = self.probe.addresses.seal(|tree| {
            let cycle = RawCycle {
                start_ns,
                stop_ns,
                ticks: self.ticks,
                quantum_ns: self.options.quantum_ns(),
                states: self.schedule.settings.states,
                tree,
                difference: self.audit.found(),
                dump,
                flush_request,
            };
            if last {
                // Sampling has ended, so this may wait for the symbolizer.
                return cycles.send(cycle).map_err(|back| back.tree);
            }
            // If the symbolizer is behind (or gone), go on counting into the same, longer cycle.
            cycles.try_send(cycle).map_err(|back| back.tree)
        });
        if sealed {
            self.audit.set_sent();
            self.cycle_start_ns = stop_ns;
            self.next_run = run::next_id();
            self.ticks = Ticks::default();
            self.flush_request = flush_request;
            if let Some(request) = request {
                self.schedule.dump_sent(request);
            }
        }
        sealed
    }

    /// Counts the sampler's own thread by its CPU clock, so that every profile shows what it costs.
    fn count_own(&mut self, now: u64) {
        let Some(cpu_ns) = process::thread_cpu_ns(self.own_id) else {
            return;
        };
        self.probe.meter.count_sampler(cpu_ns);
        self.own_time.advance(now, cpu_ns);
    }

    /// Adds the time of the sampler's own thread to the tree.
    fn add_own(&mut self) {
        let ThreadProbe {
            addresses,
            thread_frames,
            ..
        } = &mut self.probe;
        let attribution = thread_frames.sampler_attribution(addresses, self.own_frame);
        let quantum_ns = self.options.quantum_ns();
        let ran = self.own_time.take_running(quantum_ns);
        let slept = self.own_time.take_off_cpu(State::Sleep, quantum_ns);
        addresses.add(attribution, ran + slept);
    }

    /// Adds threads that have started. Returns those that ended.
    fn refresh_threads(&mut self, now: u64) -> PageVec<u32> {
        // The ids first: a thread that starts meanwhile is in the number, and is looked for.
        let is_wanted = self.thread_list.wants_new_ids();
        let new_ids = is_wanted.then(|| self.probe.files.new_ids());
        let shown = ThreadsShown {
            new_ids,
            count: self.probe.files.thread_count(),
        };
        let times = TickTimes {
            now_ns: now,
            last_ns: self.last_tick_ns,
        };
        self.audit.pass(now, shown.count.unwrap_or(0));
        let changes = self
            .thread_list
            .update(times, shown, &self.threads, self.own_id);
        for id in changes.started.iter() {
            self.add_thread(*id, changes.started_after_ns..now, changes.is_first);
        }
        if !changes.started.is_empty() {
            self.agent_version = 0;
            self.handlers_after = 0;
            if let Some(cpu_ns) = process::thread_cpu_ns(self.own_id) {
                // Since the last tick. Not read at each tick, because that is a system call.
                self.probe.meter.count_start(self.own_time.ran_ns(cpu_ns));
            }
        }
        for cell in registry::take_new_cells() {
            self.add_cell(cell, now);
        }
        let version = threads::version();
        if version != self.agent_version {
            self.agent_version = version;
            for thread in self.threads.iter_mut() {
                thread.of_agent = threads::is_of_agent(thread.id);
            }
        }
        changes.ended
    }

    /// Checks the program's signal handlers: all of them after threads have started, before these are
    /// asked, so that handlers that were installed before they started are known.
    fn check_handlers(&mut self) {
        let all = self.handlers_after == 0;
        self.handlers_after = if all {
            HANDLERS_TICKS
        } else {
            self.handlers_after - 1
        };
        self.probe.check_handlers(&mut self.threads, all);
    }

    /// Adds a thread that has started within `started_ns`. Its time counts from the beginning of that. `is_old`: it may
    /// have run before.
    fn add_thread(&mut self, id: u32, started_ns: Range<u64>, is_old: bool) {
        let mut thread = Thread::new(id, started_ns.start);
        thread.found_ns = started_ns.end;
        if is_old {
            if let Some(cpu_ns) = process::thread_cpu_ns(id) {
                thread.time.reset(started_ns.start, cpu_ns);
            }
        }
        let Some(thread) = self.threads.insert(thread) else {
            return;
        };
        if let Some(cell) = self.cells.get(&id) {
            self.probe.set_cell(thread, cell.clone());
            if is_old && thread.early.is_none() {
                // It may change its task before the first tick.
                drop(cell.changes.take(true));
            }
        }
        self.probe.note_found(thread);
        self.probe.watch_unarmed(thread);
        self.visits.add(thread);
    }

    /// A thread has registered. It becomes known if it is not listed yet.
    fn add_cell(&mut self, cell: Arc<ThreadCell>, now: u64) {
        let id = cell.thread.id;
        if id == self.own_id {
            return;
        }
        if self
            .threads
            .get_mut(id)
            .is_some_and(|known| !has_place_for(known, &cell))
        {
            // An earlier thread had the same id.
            self.remove_ended(id, now);
        }
        let is_known = self.threads.contains(id);
        if !is_known && (cell.is_gone() || process::thread_cpu_ns(id).is_none()) {
            if cell.is_gone() {
                self.probe.count_ended(&cell);
            }
            return;
        }
        self.cells.insert(id, cell.clone());
        if !is_known {
            return self.add_thread(id, self.last_tick_ns..now, false);
        }
        let Some(thread) = self.threads.get_mut(id) else {
            return;
        };
        self.probe.set_cell(thread, cell);
        if thread.request.is_some() {
            // The handler reads the task through the cell.
            self.probe.ask(thread, now);
        }
    }

    /// Sleeps until the next tick and returns its time, or `None` if there is none: sampling is
    /// off, or a request woke the sampler.
    fn sleep(&mut self) -> Option<u64> {
        if !self.schedule.settings.enabled {
            match self.schedule.new_settings(&self.control) {
                Some(desired) => self.change_while_off(desired),
                None => self.sleep_while_off(),
            }
            return None;
        }
        let tick_ns = self.schedule.next_tick_ns(&self.control, self.last_tick_ns);
        self.control.sleep_until(tick_ns);
        let now = monotonic_ns();
        if now < tick_ns {
            return None;
        }
        if Stops::may_be_after(tick_ns, now) {
            let delay_ns = self.own_delay_ns();
            if let Some(stop) = self.stops.find(tick_ns, now, delay_ns) {
                self.probe.set_stop(stop);
            }
            self.stops.set_delay(delay_ns);
        }
        self.schedule.pass(now);
        Some(now)
    }

    /// How long the sampler's own thread has waited for processors.
    fn own_delay_ns(&mut self) -> Option<u64> {
        let mut files = ThreadFiles::default();
        let delay = self.probe.files.run_delay(self.own_id, &mut files);
        self.probe.files.close(&mut files);
        delay.map(|delay| delay.ns)
    }

    fn sleep_while_off(&mut self) {
        for cell in registry::take_new_cells() {
            self.cells.insert(cell.thread.id, cell);
        }
        self.forget_gone_cells();
        self.control.sleep_until(monotonic_ns() + OFF_NS);
    }

    /// Applies new settings, if there are any; the cycle must be sealed.
    fn apply_settings(&mut self, now: u64) {
        let Some(desired) = self.schedule.new_settings(&self.control) else {
            return;
        };
        if !desired.settings.enabled {
            for thread in self.threads.take_all() {
                self.probe.remove(thread);
            }
            self.thread_list.clear();
            self.audit.restart();
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
            self.probe.count_young_from(now);
            self.last_tick_ns = now;
            self.cycle_start_ns = now;
            self.ticks = Ticks::default();
        }
        self.apply(desired, now);
        self.find_first_threads(now);
    }

    fn apply(&mut self, desired: DesiredSettings, now: u64) {
        self.schedule.apply(desired, now);
        self.options.interval_ns = desired.settings.interval_ns;
        self.visits.set_interval(desired.settings.interval_ns);
        self.probe.quantum_ns = self.options.quantum_ns();
        self.control.set_applied(desired.number);
    }
}

/// The cells of all threads that run, by id.
fn live_cells() -> PageMap<u32, Arc<ThreadCell>> {
    let mut cells = PageMap::default();
    for cell in registry::all_cells()
        .into_iter()
        .filter(|cell| !cell.is_gone())
    {
        cells.insert(cell.thread.id, cell);
    }
    cells
}

fn is_cell_of(thread: &Thread, cell: &Arc<ThreadCell>) -> bool {
    thread
        .cell
        .as_ref()
        .is_some_and(|known| Arc::ptr_eq(known, cell))
}

/// Whether the thread has this cell, or none yet.
fn has_place_for(thread: &Thread, cell: &Arc<ThreadCell>) -> bool {
    thread.cell.is_none() || is_cell_of(thread, cell)
}

#[cfg(test)]
mod tests;
