//! Probing one thread at one tick, and attributing its time to the stacks that are found.

use profiler_core::{State, Weight};
use rustc_hash::FxHashMap;

use super::addresses::{AddressTrie, Attribution};
use super::files::{Activity, Files, ProbeError};
use super::memory::{self, RemoteStack};
use super::mode::Mode;
use super::overhead::{ClockReading, Meter};
use super::sys::maps::{self, Mapping};
use super::sys::request::{Request, RequestOutcome};
use super::sys::slots::{Sample, SlotId, Slots, StackSpan};
use super::thread::{BlockedAt, LastObservation, Thread};
use super::thread_frames::ThreadFrames;
use super::unwind::{Registers, Stack, Unwinder};
use super::wait::WaitSite;
use crate::sys::process;

/// A blocked thread whose CPU clock moved by no more than this was woken for a moment at most; it
/// is counted where it was.
const IDLE_CPU_NS: u64 = 10_000;
/// Ticks after which a blocked thread's site is verified although its CPU clock stands still.
const VERIFY_TICKS: u32 = 100;
/// Time that is unattributed for longer than this is counted where the thread was last seen.
const UNATTRIBUTED_MAX_NS: u64 = 1_000_000_000;
/// A thread is contended if it waited for a processor for more than 1/64 of the time. Then it is
/// asked at every clock interrupt: when one takes the processor from it, the thread answers when it
/// gets a processor again, before it goes on, and so shows where it waited.
const CONTENDED_PART: u64 = 64;
/// A thread that ran for this long without answering may block the signal.
const ANSWER_MAX_CPU_NS: u64 = 200_000_000;
/// A thread that blocks the signal is not asked for this long.
const SIGNAL_BLOCKED_RETRY_NS: u64 = 10_000_000_000;
/// Most attempts in one tick to read a blocked thread that moves meanwhile.
const REMOTE_TRIES_MAX: u32 = 2;
/// Samples outside a thread's known stack after which the stack is looked up again.
const SPAN_AFTER_SAMPLES: u32 = 100;

/// The state that all probes share.
pub(super) struct ThreadProbe {
    pub(super) addresses: AddressTrie,
    pub(super) thread_frames: ThreadFrames,
    pub(super) files: Files,
    pub(super) meter: Meter,
    mode: Mode,
    /// `None` if running threads cannot be sampled.
    slots: Option<Slots>,
    /// Thread ids by slot.
    owners: FxHashMap<SlotId, u32>,
    unwinder: Unwinder,
    pub(super) quantum_ns: u64,
    stack: Stack,
    remote: RemoteStack,
    /// A thread was found gone, so the list must be read again.
    stale: bool,
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
            owners: FxHashMap::default(),
            unwinder,
            quantum_ns,
            stack: Stack::default(),
            remote: RemoteStack::default(),
            stale: false,
        }
    }

    /// A tick begins; reads the loader's list of modules if it has changed.
    pub(super) fn begin_tick(&mut self, now: u64, threads: &mut [Thread]) {
        self.meter.begin_tick(ClockReading { stamp: process::time_stamp(), ns: now });
        self.files.begin_tick();
        if self.files.must_close() {
            threads.iter_mut().for_each(|thread| self.files.close(&mut thread.files));
        }
        if self.unwinder.refresh() {
            self.addresses.set_modules(self.unwinder.modules());
        }
    }

    /// Whether a thread was found gone since the last call.
    pub(super) fn take_stale(&mut self) -> bool {
        std::mem::take(&mut self.stale)
    }

    /// Whether the program has replaced our signal handler; then no thread is asked any more.
    pub(super) fn signal_is_lost(&mut self, threads: &mut [Thread]) -> bool {
        if self.slots.as_ref().is_none_or(Slots::are_ours) {
            return false;
        }
        threads.iter_mut().for_each(|thread| self.stop_asking(thread));
        self.slots = None;
        self.mode.lose_running("the program installed its own handler for the signal".to_owned());
        true
    }

    /// How much of the sampler works.
    pub(super) fn mode(&self) -> &Mode {
        &self.mode
    }

    /// Removes a thread that is gone; its unattributed time is counted where it was last seen.
    pub(super) fn remove(&mut self, mut thread: Thread) {
        self.attribute_all(&mut thread);
        self.release(&mut thread);
    }

    /// Counts all unattributed time of a thread where it was last seen.
    pub(super) fn attribute_all(&mut self, thread: &mut Thread) {
        self.count_idle(thread);
        self.attribute_running(thread, true);
        self.attribute_off_cpu(thread, true);
    }

    /// Closes a thread's files and its slot.
    fn release(&mut self, thread: &mut Thread) {
        self.files.close(&mut thread.files);
        self.stop_asking(thread);
    }

    fn stop_asking(&mut self, thread: &mut Thread) {
        if let (Some(request), Some(slots)) = (thread.request.take(), &mut self.slots) {
            self.owners.remove(&request.slot);
            slots.release(request.slot);
        }
    }

    /// Counts the samples that arrived before the tick `now`. `index` is the position of each
    /// thread in `threads`, by its id.
    pub(super) fn harvest(
        &mut self,
        threads: &mut [Thread],
        index: &FxHashMap<u32, usize>,
        now: u64,
    ) {
        let Some(mut slots) = self.slots.take() else {
            return;
        };
        slots.harvest(|slot, sample| {
            self.meter.count_sample(sample.took);
            // A thread that ended meanwhile has no slot any more.
            let owner = self.owners.get(&slot).and_then(|id| index.get(id));
            if let Some(thread) = owner.map(|index| &mut threads[*index]) {
                self.count_sample(thread, &sample, now);
            }
        });
        self.slots = Some(slots);
    }

    fn count_sample(&mut self, thread: &mut Thread, sample: &Sample<'_>, now: u64) {
        let Some(cpu_ns) = process::thread_cpu_ns(thread.id) else {
            return self.mark_gone(thread);
        };
        if let Some(request) = &mut thread.request {
            request.answered_cpu_ns = cpu_ns;
        }
        if sample.task_word.is_none() && thread.cell.is_some() {
            // It began its first task after it was asked. Its time waits for a sample with a task.
            return;
        }
        let sp = sample.sp();
        let registers = Registers::all(sample.registers);
        self.unwinder.unwind(registers, memory::copied(sp & !7, sample.stack), &mut self.stack);
        let own = (thread.span.low..thread.span.end).contains(&sp);
        if own && sample.cut && !self.stack.complete && !thread.span.deep {
            // Ask again with a larger buffer; its time waits for that.
            thread.span.deep = true;
            return;
        }
        if sample.deep && sample.is_common() {
            thread.span.deep = false;
        }
        if !own {
            learn_span(thread, sample);
        }
        self.count_idle(thread);
        let since = thread.time.accounted_to_ns();
        if since < now {
            thread.time.advance(now, cpu_ns);
            if let Some(delayed) = self.update_run_delay(thread) {
                thread.contended = delayed > (now - since) / CONTENDED_PART;
            }
        }
        let attribution = self.attribution(thread, sample.task_word.unwrap_or(0));
        let weight = thread.time.take_sampled(self.meter.time_of(sample.stamp), self.quantum_ns);
        self.count(thread, attribution, State::Cpu, weight);
    }

    /// Reads how long the thread has waited for a processor. Returns by how much that rose; `None`
    /// if the kernel does not count it.
    fn update_run_delay(&mut self, thread: &mut Thread) -> Option<u64> {
        let delay_ns = self.files.run_delay_ns(thread.id, &mut thread.files)?;
        Some(thread.time.set_run_delay(delay_ns))
    }

    /// Counts unattributed time off the processor at `attribution`.
    fn count_blocked(&mut self, thread: &mut Thread, attribution: Attribution, state: State) {
        let weight = thread.time.take_off_cpu(state, self.quantum_ns);
        self.count(thread, attribution, state, weight);
    }

    fn count(
        &mut self,
        thread: &mut Thread,
        attribution: Attribution,
        state: State,
        weight: Weight,
    ) {
        self.addresses.add(attribution, weight);
        thread.set_counted(attribution, state);
    }

    /// Where the stack that was unwound last is counted, for a thread under `task_word`.
    fn attribution(&mut self, thread: &mut Thread, task_word: u64) -> Attribution {
        let levels = thread.levels(task_word);
        let node = self.addresses.node_of(&levels, &self.stack);
        self.thread_frames.attribution(&mut self.addresses, node, &levels, thread)
    }

    /// Probes a thread at the tick `now`.
    pub(super) fn probe(&mut self, thread: &mut Thread, now: u64) {
        let Some(cpu_ns) = process::thread_cpu_ns(thread.id) else {
            return self.mark_gone(thread);
        };
        if self.still_blocked(thread, cpu_ns, now) {
            return;
        }
        self.count_idle(thread);
        thread.time.advance(now, cpu_ns);
        if self.mode.samples_blocked() {
            match self.files.activity(thread.id, &mut thread.files) {
                Ok(Activity::Blocked(site)) => self.read_blocked(thread, site, cpu_ns, now),
                Ok(Activity::Running) => thread.observation = LastObservation::Ready,
                Err(error) => self.give_up(thread, &error),
            }
        }
        if thread.time.has_unattributed_cpu() {
            self.ask(thread, cpu_ns, now);
        }
        self.attribute_overdue(thread, now);
    }

    fn give_up(&mut self, thread: &mut Thread, error: &ProbeError) {
        match error {
            ProbeError::Gone => self.mark_gone(thread),
            // Its time waits for its next observation.
            ProbeError::Refused(error) => tracing::debug!("cannot probe a thread: {error}"),
        }
    }

    /// The thread has ended.
    fn mark_gone(&mut self, thread: &mut Thread) {
        thread.gone = true;
        self.stale = true;
    }

    /// Counts time that has been unattributed for too long, or waits for a sample that will never
    /// come.
    fn attribute_overdue(&mut self, thread: &mut Thread, now: u64) {
        let max_ns = |can_come| if can_come { UNATTRIBUTED_MAX_NS } else { 0 };
        let can_answer = self.slots.is_some() && thread.signal_blocked_until_ns <= now;
        if !can_answer && matches!(thread.observation, LastObservation::Ready) {
            // No sample will come that updates it.
            self.update_run_delay(thread);
        }
        if thread.time.running_unattributed_for_ns() > max_ns(can_answer) {
            self.attribute_running(thread, can_answer);
        }
        let can_be_read = self.mode.samples_blocked();
        if thread.time.off_cpu_unattributed_for_ns() > max_ns(can_be_read) {
            self.attribute_off_cpu(thread, can_be_read);
        }
    }

    fn attribute_running(&mut self, thread: &mut Thread, where_last_seen: bool) {
        let attribution = self.last_attribution(thread, where_last_seen);
        let weight = thread.time.take_running(self.quantum_ns);
        self.addresses.add(attribution, weight);
        if !where_last_seen {
            // No better observation will come: later time belongs here, not where it was blocked
            // before.
            thread.set_counted(attribution, State::Cpu);
        }
    }

    fn attribute_off_cpu(&mut self, thread: &mut Thread, where_last_seen: bool) {
        let attribution = self.last_attribution(thread, where_last_seen);
        let state = match thread.observation {
            LastObservation::Blocked(at) => at.state,
            // Never seen blocked, and neither on a processor nor waiting for one as the kernel
            // counts it: the hypervisor took the processor.
            LastObservation::Ready if where_last_seen => State::Runnable,
            LastObservation::Ready => State::Other,
        };
        let weight = thread.time.take_off_cpu(state, self.quantum_ns);
        self.addresses.add(attribution, weight);
    }

    /// Where the thread was last counted, or `[truncated]`.
    fn last_attribution(&mut self, thread: &mut Thread, where_last_seen: bool) -> Attribution {
        match thread.last.filter(|_| where_last_seen) {
            Some(last) => last.attribution,
            None => {
                self.stack.addresses.clear();
                self.stack.complete = false;
                self.attribution(thread, thread.task_word())
            }
        }
    }

    /// Counts a thread again if it has not run since it was last seen blocked. Returns whether it
    /// has not.
    fn still_blocked(&mut self, thread: &mut Thread, cpu_ns: u64, now: u64) -> bool {
        let LastObservation::Blocked(mut at) = thread.observation else {
            return false;
        };
        if thread.time.ran_ns(cpu_ns) > IDLE_CPU_NS || at.task_word != thread.task_word() {
            return false;
        }
        let verify = at.ticks >= VERIFY_TICKS;
        if verify && !self.is_still_at(thread, at.site) {
            return false;
        }
        at.ticks += 1;
        if verify {
            at.ticks = 0;
            // Its frame may change, because it may no longer be young.
            let levels = thread.levels(at.task_word);
            let node = at.attribution.node;
            at.attribution =
                self.thread_frames.attribution(&mut self.addresses, node, &levels, thread);
        }
        thread.observation = LastObservation::Blocked(at);
        thread.idle_to_ns = now;
        if verify {
            // It has been blocked for a while: unattributed time belongs here.
            self.count_idle(thread);
            self.attribute_running(thread, true);
            self.release(thread);
        }
        true
    }

    /// Counts the time in which a thread stayed where it was seen blocked: once for many ticks,
    /// because nothing changes in between.
    pub(super) fn count_idle(&mut self, thread: &mut Thread) {
        let idle_to_ns = std::mem::take(&mut thread.idle_to_ns);
        if let LastObservation::Blocked(at) = thread.observation
            && idle_to_ns > 0
        {
            thread.time.advance_idle(idle_to_ns);
            self.count_blocked(thread, at.attribution, at.state);
        }
    }

    fn is_still_at(&mut self, thread: &mut Thread, site: WaitSite) -> bool {
        let activity = self.files.activity(thread.id, &mut thread.files);
        matches!(activity, Ok(Activity::Blocked(now)) if now == site)
    }

    /// Asks a thread that ran for its stack; the answer is harvested at a later tick.
    fn ask(&mut self, thread: &mut Thread, cpu_ns: u64, now: u64) {
        let Some(slots) = self.slots.as_mut().filter(|_| thread.signal_blocked_until_ns <= now)
        else {
            return;
        };
        if thread.request.is_none() {
            if process::blocks(thread.id, slots.signal()) == Some(true) {
                thread.signal_blocked_until_ns = now + SIGNAL_BLOCKED_RETRY_NS;
                return;
            }
            match Request::new(slots, thread.id, cpu_ns) {
                Ok(request) => {
                    self.owners.insert(request.slot, thread.id);
                    thread.request = Some(request);
                }
                Err(RequestOutcome::Gone) => return self.mark_gone(thread),
                // Its time waits for its next observation.
                Err(_) => {}
            }
        }
        let Some(request) = &mut thread.request else {
            return;
        };
        match request.send(slots, thread.cell.as_ref(), thread.span, thread.contended) {
            RequestOutcome::Pending
                if cpu_ns.saturating_sub(request.answered_cpu_ns) > ANSWER_MAX_CPU_NS =>
            {
                // It may have blocked the signal recently; the next `ask` checks that.
                self.stop_asking(thread);
            }
            RequestOutcome::Gone => self.mark_gone(thread),
            RequestOutcome::Sent | RequestOutcome::Pending | RequestOutcome::Refused => {}
        }
    }

    /// Unwinds a blocked thread from outside. The result is used only if the thread has not run
    /// meanwhile: its CPU clock, exact to the nanosecond, must stand still from before its site was
    /// read until after its stack was copied.
    fn read_blocked(&mut self, thread: &mut Thread, site: WaitSite, cpu_ns: u64, now: u64) {
        let mut site = site;
        let mut cpu_ns = cpu_ns;
        for _ in 0..REMOTE_TRIES_MAX {
            let task_word = thread.task_word();
            let ThreadProbe { unwinder, remote, stack, .. } = self;
            remote.reset(site.sp);
            let registers = Registers::of_caller(site.pc, site.sp, None);
            unwinder.unwind(registers, |address| remote.read(address), stack);
            let state = site.state();
            let Some(cpu_after) = process::thread_cpu_ns(thread.id) else {
                return self.mark_gone(thread);
            };
            if cpu_after == cpu_ns {
                let attribution = self.attribution(thread, task_word);
                thread.observation = LastObservation::Blocked(BlockedAt {
                    site,
                    state,
                    attribution,
                    task_word,
                    ticks: 0,
                });
                self.count_blocked(thread, attribution, state);
                return;
            }
            cpu_ns = cpu_after;
            thread.time.advance(now, cpu_ns);
            match self.files.activity(thread.id, &mut thread.files) {
                Ok(Activity::Blocked(after)) => site = after,
                Ok(Activity::Running) => break,
                Err(error) => return self.give_up(thread, &error),
            }
        }
        // It moves too fast to be read. Its time waits for its next observation.
        thread.observation = LastObservation::Ready;
    }
}

/// Looks up the bounds of the thread's stack, from a stack pointer within it.
fn learn_span(thread: &mut Thread, sample: &Sample<'_>) {
    if thread.span_after > 0 {
        thread.span_after -= 1;
        return;
    }
    thread.span_after = SPAN_AFTER_SAMPLES;
    let mapping = maps::mapping_of(sample.sp());
    if let Some(span) = own_span(sample.sp(), sample.thread_pointer, mapping) {
        thread.span = span;
    }
}

/// The span of a thread's own stack that its handler may copy, from a stack pointer within it.
///
/// A mapping may extend past the stack's end: the kernel joins adjacent mappings, and the other
/// memory may be unmapped at any time. The C library puts the thread's control block at the upper
/// end of the stacks that it creates, so that is the bound; the main thread's stack is a mapping of
/// its own. Any other stack (of a fiber, for example) has no known end and is copied by checked
/// reads only.
fn own_span(sp: u64, thread_pointer: u64, mapping: Option<Mapping>) -> Option<StackSpan> {
    let mapping = mapping?;
    let low = mapping.low;
    if mapping.main_stack {
        return Some(StackSpan { low, end: mapping.end, deep: false });
    }
    (sp < thread_pointer && thread_pointer <= mapping.end).then_some(StackSpan {
        low,
        end: thread_pointer & !7,
        deep: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_ends_at_the_threads_control_block() {
        let mapping = |main_stack| Some(Mapping { low: 0x1000, end: 0x9000, main_stack });
        let span = |low, end| Some(StackSpan { low, end, deep: false });
        assert_eq!(own_span(0x4000, 0x8008, mapping(false)), span(0x1000, 0x8008));
        assert_eq!(own_span(0x4000, 0xf000, mapping(false)), None, "a fiber's stack");
        assert_eq!(own_span(0x4000, 0x3000, mapping(false)), None, "a control block below");
        assert_eq!(own_span(0x4000, 0xf000, mapping(true)), span(0x1000, 0x9000));
        assert_eq!(own_span(0x4000, 0x8008, None), None);
    }
}
