//! Probing one thread at one tick, and attributing its time to the stacks that are found.

mod attribute;
mod blocked;
mod change;
mod early;
mod early_waits;
mod handlers;
mod rename;
mod request;
mod span;
mod unarmed;

use std::ops::Range;

use profiler_core::{NoStack, State, Weight};

use self::early::YoungThreads;
use self::early_waits::Waits;
use self::handlers::{HandlerChanges, SignalChange};
use self::rename::NameTurn;
use self::span::learn_span;
use self::unarmed::UnarmedThread;
use super::addresses::{AddressTrie, Attribution};
use super::early::{Remainders, SeenStacks, Share};
use super::files::{Activity, Files, ProbeError, RunDelay};
use super::foreign::ForeignFrames;
use super::memory::{self, RemoteStack};
use super::mode::Mode;
use super::overhead::{ClockReading, Meter};
use super::pages::page_queue::PageQueue;
use super::schedule::TickTimes;
use super::sys::maps::{self, Mapping};
use super::sys::request::{Request, RequestOutcome};
use super::sys::signal;
use super::sys::slots::{Sample, Slots, StackSpan};
use super::thread::{BlockedAt, LastObservation, LastSample, OwedDelay, Thread};
use super::thread_frames::ThreadFrames;
use super::thread_table::ThreadTable;
use super::unwind::{Registers, Stack, Unwinder};
use super::visits::Visits;
use super::wait::WaitSite;
use crate::foreign::Walker;
use crate::log;
use crate::registry::Moment;
use system::page_vec::PageVec;
use system::task_list::ThreadStat;
use system::{process, processor};

/// The unit in which the kernel tells when a thread started.
const START_ROUNDED_NS: u64 = 10_000_000;
/// A thread is contended if it waited for a processor for more than 1/64 of the time. Then it is
/// asked at every clock interrupt: when one takes the processor from it, the thread answers when it
/// gets a processor again, before it goes on, and so shows where it waited.
const CONTENDED_PART: u64 = 64;

/// Time off the processor from which on a thread that answered is also looked for where it blocks.
const OFF_CPU_MIN_NS: u64 = 500_000;
/// Most threads that are asked again in a tick while the sampler has spent more than it may.
const ASKED_IN_DEBT: usize = 2;
/// Most threads of a tick that are looked at for their waits, and the time between two looks.
const WAITING_PER_TICK_MAX: usize = 8;
const WAITING_NS: u64 = 500_000_000;
/// Ticks between two looks at the loader's list of modules, unless unknown code is found.
const MODULES_TICKS: u32 = 8;

/// The state that all probes share.
pub(super) struct ThreadProbe {
    pub(super) addresses: AddressTrie,
    pub(super) thread_frames: ThreadFrames,
    pub(super) files: Files,
    pub(super) meter: Meter,
    mode: Mode,
    /// `None` if running threads cannot be sampled.
    slots: Option<Slots>,
    /// Thread ids by the number of their slot; 0 for none.
    owners: PageVec<u32>,
    /// Threads whose timers have expired since the last tick.
    expired: PageVec<u32>,
    /// Threads that answered and have not been asked again, the first to answer first.
    to_ask: PageQueue<u32>,
    /// Where in the table of threads the next one is looked at for its waits.
    next_waiting: usize,
    name_turn: NameTurn,
    /// Threads without a timer.
    unarmed: PageQueue<UnarmedThread>,
    /// No timer is created before this time.
    refused_until_ns: u64,
    /// When the whole process was stopped last.
    stop: Range<u64>,
    unwinder: Unwinder,
    modules_after: u32,
    handlers: HandlerChanges,
    signal_change: SignalChange,
    /// The program has replaced our signal handler since the mode was last updated.
    signal_lost: bool,
    pub(super) quantum_ns: u64,
    /// Time below a quantum.
    remainders: Remainders,
    young: YoungThreads,
    seen: SeenStacks,
    waits: Waits,
    stack: Stack,
    remote: RemoteStack,
    /// `None` if the program has no interpreter that is walked.
    foreign: Option<ForeignFrames>,
    /// Whether threads that are in no task are in one of their name.
    pub(super) has_tasks_by_thread: bool,
    /// Threads that were found gone.
    gone: PageVec<u32>,
}

impl ThreadProbe {
    /// `slots` is `None` if running threads cannot be sampled.
    pub(super) fn new(mode: Mode, slots: Option<Slots>, meter: Meter, quantum_ns: u64) -> Self {
        let unwinder = Unwinder::new();
        ThreadProbe {
            addresses: AddressTrie::new(unwinder.modules()),
            thread_frames: ThreadFrames::default(),
            files: Files::new(),
            meter,
            mode,
            slots,
            owners: PageVec::new(),
            expired: PageVec::new(),
            to_ask: PageQueue::default(),
            next_waiting: 0,
            name_turn: NameTurn::default(),
            unarmed: PageQueue::default(),
            refused_until_ns: 0,
            stop: 0..0,
            unwinder,
            modules_after: 0,
            handlers: HandlerChanges::default(),
            signal_change: SignalChange::default(),
            signal_lost: false,
            quantum_ns,
            remainders: Remainders::default(),
            young: YoungThreads::default(),
            seen: SeenStacks::default(),
            waits: Waits::default(),
            stack: Stack::default(),
            remote: RemoteStack::default(),
            foreign: None,
            has_tasks_by_thread: false,
            gone: PageVec::new(),
        }
    }

    /// From now on, walks the frames of an interpreter too.
    pub(super) fn walk_foreign(&mut self, walker: Walker) {
        if self.mode.checked_copies {
            signal::set_walker(walker);
            self.foreign = Some(ForeignFrames::new(walker, self.unwinder.modules()));
        }
    }

    /// No thread ran in that time, and none waited for a processor.
    pub(super) fn set_stop(&mut self, stop: Range<u64>) {
        self.stop = stop;
    }

    /// A tick begins; now and then reads the loader's list of modules if it has changed.
    pub(super) fn begin_tick(&mut self, now: u64, threads: &mut ThreadTable) {
        self.meter.begin_tick(ClockReading {
            stamp: processor::time_stamp(),
            ns: now,
        });
        self.files.begin_tick();
        if self.files.must_close() {
            threads
                .iter_mut()
                .for_each(|thread| self.files.close(&mut thread.files));
        }
        if let Some(foreign) = &mut self.foreign {
            foreign.begin_tick();
        }
        if self.modules_after == 0 {
            self.refresh_modules();
        }
        self.modules_after = self.modules_after.saturating_sub(1);
    }

    /// Reads the loader's list of modules if it has changed. Returns whether it had.
    fn refresh_modules(&mut self) -> bool {
        self.modules_after = MODULES_TICKS;
        let changed = self.unwinder.refresh();
        if changed {
            self.addresses.set_modules(self.unwinder.modules());
            if let Some(foreign) = &mut self.foreign {
                foreign.set_modules(self.unwinder.modules());
            }
        }
        changed
    }

    /// A thread that was found gone.
    pub(super) fn next_gone(&mut self) -> Option<u32> {
        self.gone.pop()
    }

    /// Checks what still works; returns whether that has changed.
    pub(super) fn update_mode(&mut self) -> bool {
        let signal_lost = std::mem::take(&mut self.signal_lost);
        self.mode.update() || signal_lost
    }

    /// Whether running threads answer.
    fn samples_running(&self) -> bool {
        self.slots.is_some() && self.mode.samples_running()
    }

    /// How much of the sampler works.
    pub(super) fn mode(&self) -> &Mode {
        &self.mode
    }

    /// Removes a thread that ended, at `ended_ns` unless it told when. Its unattributed time is
    /// counted where it was last seen.
    pub(super) fn remove_ended(&mut self, mut thread: Thread, ended_ns: u64) {
        if let Some(end) = thread.end() {
            self.count_until_changes(&mut thread, end, None, None);
            let ran_since = end.ns.saturating_sub(thread.time.ran_ns(end.cpu_ns));
            self.assume_idle(&mut thread, ran_since);
            self.count_idle(&mut thread);
            thread.time.advance(end.ns, end.cpu_ns);
            if thread.early.is_none() && matches!(thread.observation, LastObservation::Ready) {
                self.count_waits_of_ended(&mut thread);
            }
        } else if matches!(thread.observation, LastObservation::Blocked(_)) {
            self.assume_idle(&mut thread, ended_ns);
        } else {
            let was_running = thread.last_sample.is_some() && !thread.contended;
            thread.time.advance_ended(ended_ns, was_running);
        }
        thread.gone = true;
        self.remove(thread);
    }

    /// Removes a thread; its unattributed time is counted where it was last seen.
    pub(super) fn remove(&mut self, mut thread: Thread) {
        self.attribute_all(&mut thread);
        if let Some(early) = &mut thread.early {
            self.seen.forget(early);
        }
        self.files.close(&mut thread.files);
        self.release_slot(&mut thread);
    }

    /// Counts all time of a thread until `now`, at the end of sampling; or finds that it is gone.
    pub(super) fn count_to_the_end(&mut self, thread: &mut Thread, now: u64) {
        let Some(cpu_ns) = thread.read_clock() else {
            return self.mark_gone(thread);
        };
        self.count_until_changes(thread, Moment { ns: now, cpu_ns }, None, None);
        self.assume_idle(thread, now.saturating_sub(thread.time.ran_ns(cpu_ns)));
        self.count_idle(thread);
        thread.time.advance(now, cpu_ns);
        self.update_run_delay(thread);
        self.attribute_all(thread);
    }

    /// Deletes the thread's timer, until the thread may be asked again.
    fn stop_asking(&mut self, thread: &mut Thread) {
        self.release_slot(thread);
        self.watch_unarmed(thread);
    }

    fn release_slot(&mut self, thread: &mut Thread) {
        if let (Some(request), Some(slots)) = (thread.request.take(), &mut self.slots) {
            if let Some(owner) = self.owners.get_mut(request.slot.index()) {
                *owner = 0;
            }
            slots.release(request.slot);
        }
    }

    /// Counts the samples that arrived before this tick, and looks at all threads that ran: those
    /// whose timers have expired.
    pub(super) fn harvest(
        &mut self,
        threads: &mut ThreadTable,
        visits: &mut Visits,
        tick: TickTimes,
    ) {
        let Some(mut slots) = self.slots.take() else {
            return;
        };
        let mut expired = std::mem::take(&mut self.expired);
        let owner_of = |slot: usize| self.owners.get(slot).copied().filter(|id| *id != 0);
        slots.take_expired(|slot| expired.extend(owner_of(slot)));
        if !expired.is_empty() {
            slots.harvest(|slot, sample| {
                self.meter.count_sample(sample.time.map(|time| time.took));
                // A thread that ended meanwhile has no slot any more.
                let owner = self
                    .owners
                    .get(slot.index())
                    .and_then(|id| threads.get_mut(*id));
                let asked = |thread: &&mut Thread| {
                    thread
                        .request
                        .as_ref()
                        .is_some_and(|request| request.slot == slot)
                };
                if let Some(thread) = owner.filter(asked) {
                    self.count_sample(thread, &sample, tick);
                }
            });
        }
        self.slots = Some(slots);
        for id in expired.iter().copied() {
            if let Some(thread) = threads.get_mut(id) {
                self.look_at_expired(thread, tick);
                visits.mark_seen(thread);
                visits.schedule(thread, !thread.of_agent);
            }
        }
        expired.clear();
        self.expired = expired;
        self.ask_again(threads, tick.now_ns);
        self.look_at_waiting(threads, tick);
        self.look_at_name(threads);
    }

    /// Reads how long threads have waited for a processor that were not looked at for a while, a few in turn:
    /// the kernel tells it only while they live.
    fn look_at_waiting(&mut self, threads: &mut ThreadTable, tick: TickTimes) {
        for _ in 0..threads.len().min(WAITING_PER_TICK_MAX) {
            self.next_waiting = (self.next_waiting + 1) % threads.len();
            let Some(thread) = threads.at_mut(self.next_waiting) else {
                return;
            };
            let since_ns = tick.now_ns.saturating_sub(thread.time.accounted_to_ns());
            let is_ready = matches!(thread.observation, LastObservation::Ready);
            if since_ns > WAITING_NS && is_ready && !thread.is_new {
                self.advance_running(thread, tick, None);
            }
        }
    }

    /// Asks threads that answered for their next sample: all of them, or a few in turn if the
    /// sampler has spent more than it may.
    fn ask_again(&mut self, threads: &mut ThreadTable, now: u64) {
        let asked = if self.meter.is_in_debt() {
            ASKED_IN_DEBT
        } else {
            usize::MAX
        };
        for _ in 0..asked.min(self.to_ask.len()) {
            let id = self.to_ask.pop_front();
            if let Some(thread) = id.and_then(|id| threads.get_mut(id)) {
                self.ask(thread, now);
            }
        }
    }

    /// Looks at a thread whose timer expired, after its samples were counted.
    fn look_at_expired(&mut self, thread: &mut Thread, tick: TickTimes) {
        let Some(request) = &mut thread.request else {
            return;
        };
        request.set_expired();
        self.to_ask.push_back(thread.id);
        self.look_at_changed(thread, tick);
        if let Some(request) = &mut thread.request {
            request.answered_cpu_ns = thread.time.cpu_ns();
            request.is_late = false;
        }
    }

    /// Looks at a thread that ran since the last tick.
    pub(super) fn look_at_changed(&mut self, thread: &mut Thread, tick: TickTimes) {
        if !self.advance_running(thread, tick, None) {
            return;
        }
        self.set_task(thread, thread.task_word());
        let is_sampled = thread
            .last_sample
            .is_some_and(|last| last.at_ns == tick.now_ns);
        if !is_sampled || thread.time.unattributed_off_cpu_ns() > OFF_CPU_MIN_NS {
            self.find_blocked(thread, tick.now_ns);
        }
        self.attribute_overdue(thread, tick.now_ns);
    }

    /// Adds the time until this tick to the account of a thread that ran since the last one, with `sample` if
    /// there is one. Until then it had stayed where it was seen blocked. Returns whether the thread exists.
    fn advance_running(
        &mut self,
        thread: &mut Thread,
        tick: TickTimes,
        sample: Option<LastSample>,
    ) -> bool {
        let TickTimes { now_ns, last_ns } = tick;
        if thread.time.accounted_to_ns() >= now_ns {
            return !thread.gone;
        }
        let cpu_ns = thread.read_clock();
        if cpu_ns.is_none() {
            self.mark_gone(thread);
        }
        // A thread that told when it ended has samples from before that.
        let to = cpu_ns
            .map(|cpu_ns| Moment { ns: now_ns, cpu_ns })
            .or_else(|| thread.end());
        let Some(Moment { ns: to_ns, cpu_ns }) = to else {
            return false;
        };
        let delay = self.files.run_delay(thread.id, &mut thread.files);
        self.count_until_changes(thread, Moment { ns: to_ns, cpu_ns }, delay, sample);
        let waited_ns = delay.map_or(0, |delay| thread.time.new_delay_ns(delay.ns));
        // It left the place where it was blocked when it was woken, and then waited for a processor.
        let woken_ns = to_ns.saturating_sub(thread.time.ran_ns(cpu_ns) + waited_ns);
        self.assume_idle(thread, last_ns.min(woken_ns));
        self.count_idle(thread);
        let since = thread.time.accounted_to_ns();
        thread.time.advance(to_ns, cpu_ns);
        let before = std::mem::replace(&mut thread.observation, LastObservation::Ready);
        if matches!(before, LastObservation::Blocked(_)) {
            thread.woken_ns = to_ns;
        }
        self.settle_full(thread);
        if let Some(delayed) = delay.map(|delay| self.set_run_delay(thread, delay)) {
            thread.contended = delayed.ns > to_ns.saturating_sub(since) / CONTENDED_PART;
            self.split_run_delay(thread, &before, delayed);
        }
        true
    }

    /// A thread that was seen blocked has stayed there until `until_ns`, unless it ended before.
    pub(super) fn assume_idle(&mut self, thread: &mut Thread, until_ns: u64) {
        if !matches!(thread.observation, LastObservation::Blocked(_)) {
            return;
        }
        let end_ns = thread.end().map_or(u64::MAX, |end| end.ns);
        let until_ns = until_ns.min(end_ns);
        if until_ns > thread.time.accounted_to_ns() {
            thread.idle_to_ns = thread.idle_to_ns.max(until_ns);
        }
    }

    /// A thread that was seen blocked has run since then, and nothing tells when: it is taken to have
    /// stayed for half of the time.
    fn assume_half_idle(&mut self, thread: &mut Thread, cpu_ns: u64, now: u64) {
        if let LastObservation::Blocked(at) = thread.observation {
            let ran_since = now.saturating_sub(thread.time.ran_ns(cpu_ns));
            self.assume_idle(thread, at.seen_ns.midpoint(ran_since));
        }
    }

    fn count_sample(&mut self, thread: &mut Thread, sample: &Sample<'_>, tick: TickTimes) {
        if sample.task_word.is_none() && thread.cell.is_some() {
            // It began its first task after it was asked. Its time waits for a sample with a task.
            return;
        }
        let sp = sample.sp();
        self.unwind_sample(sample);
        let own = (thread.span.low..thread.span.end).contains(&sp);
        if own && !self.stack.complete {
            let is_early = sample.stack.is_empty()
                || (sample.cut && sample.number < signal::use_deep_buffers());
            if is_early {
                // It was asked before its stack was known, or before the process was known to have deep ones: its time
                // waits for the next sample. One of each thread is no bias.
                return;
            }
        }
        if !own && learn_span(thread, sample) && !self.stack.complete && sample.stack.is_empty() {
            // Its time waits for the next sample.
            return;
        }
        let task_word = sample.task_word.unwrap_or(0);
        let is_late = thread
            .request
            .as_ref()
            .is_some_and(|request| request.is_late);
        let attribution = if is_late {
            let levels = thread.levels(task_word);
            self.without_stack_below(thread, &levels, NoStack::SignalBlocked)
        } else {
            self.attribution(thread, task_word)
        };
        let last_sample = LastSample {
            attribution,
            task_word,
            at_ns: tick.now_ns,
        };
        if !self.advance_running(thread, tick, Some(last_sample)) {
            return;
        }
        let part_ns = thread.time.unsampled_part_ns(sample.later);
        let sampled_ns = sample
            .time
            .map_or(part_ns, |time| self.meter.time_of(time.begin));
        if task_word != thread.seen_task_word && sampled_ns < thread.changed_ns {
            // It has noted that it left the task; its time there is counted.
            return;
        }
        self.set_task(thread, task_word);
        // Of elapsed time a part was asleep, so a share of it says little about CPU time.
        let counted_to_ns = if thread.pauses(tick.now_ns) && !thread.contended {
            part_ns
        } else {
            sampled_ns
        };
        let weight = thread
            .time
            .take_sampled(counted_to_ns, self.quantum_of(thread));
        self.count(thread, attribution, State::Cpu, weight);
        thread.last_sample = Some(last_sample);
    }

    /// Unwinds a sample, once more if that led to code of a module that was loaded meanwhile.
    fn unwind_sample(&mut self, sample: &Sample<'_>) {
        let registers = Registers::all(sample.registers);
        let sp = sample.sp() & !7;
        self.unwinder
            .unwind(registers, memory::copied(sp, sample.stack), &mut self.stack);
        if !self.stack.complete && self.refresh_modules() {
            self.unwinder
                .unwind(registers, memory::copied(sp, sample.stack), &mut self.stack);
        }
        if let Some(foreign) = &mut self.foreign {
            foreign.merge(&mut self.addresses, sample.foreign, &mut self.stack);
        }
    }

    /// Visits a thread at a tick. Returns whether it may have been elsewhere since its last visit.
    pub(super) fn visit(&mut self, thread: &mut Thread, now: u64) -> bool {
        let Some(cpu_ns) = thread.read_clock() else {
            self.mark_gone(thread);
            return false;
        };
        let was_new = thread.is_new;
        if was_new {
            self.adopt(thread, now);
        } else if self.still_blocked(thread, cpu_ns, now) {
            return false;
        }
        if thread.has_noted_change() {
            let delay = self.files.run_delay(thread.id, &mut thread.files);
            self.count_until_changes(thread, Moment { ns: now, cpu_ns }, delay, None);
        }
        self.assume_half_idle(thread, cpu_ns, now);
        self.count_idle(thread);
        thread.time.advance(now, cpu_ns);
        self.find_blocked(thread, now);
        if thread.request.is_none() && self.refused_until_ns <= now {
            self.ask(thread, now);
        }
        self.check_silence(thread, cpu_ns, now);
        self.attribute_overdue(thread, now);
        !was_new
    }

    /// Looks at a thread for the first time, and asks it for the place where it runs next.
    fn adopt(&mut self, thread: &mut Thread, now: u64) {
        thread.is_new = false;
        let Some(stat) = ThreadStat::read(thread.id) else {
            return;
        };
        if thread.time.cpu_ns() == 0 {
            // The kernel tells the start to ten milliseconds, rounded down.
            thread.set_started(stat.started_ns + START_ROUNDED_NS / 2, now);
        }
        self.request_unless_blocked(thread, &stat, now);
        thread.first_name = Some(stat.name);
        thread.kernel_name = Some(stat.name);
        if self.has_tasks_by_thread {
            thread.own_task = self
                .thread_frames
                .task_of(&mut self.addresses, stat.name, thread.id);
        }
        self.ask(thread, now);
    }

    fn give_up(&mut self, thread: &mut Thread, error: &ProbeError) {
        match error {
            ProbeError::Gone => self.mark_gone(thread),
            // Its time waits for its next observation.
            ProbeError::Refused(error) if tracing::enabled!(tracing::Level::DEBUG) => {
                let error = error.to_string();
                log::emit(move || tracing::debug!("cannot probe a thread: {error}"));
            }
            ProbeError::Refused(_) => {}
        }
    }

    /// The thread has ended.
    fn mark_gone(&mut self, thread: &mut Thread) {
        if !thread.gone {
            thread.gone = true;
            self.gone.push(thread.id);
        }
    }
}
