//! One look at one thread, and what its answers become.

use profiler_core::{State, Weight};
use rustc_hash::FxHashMap;

use super::addresses::AddressTrie;
use super::budget::Place;
use super::cost::Meter;
use super::files::{Activity, Files, Unseen};
use super::memory::{self, RemoteStack};
use super::mode::Mode;
use super::sys::maps::{self, Mapping};
use super::sys::request::{Asked, Request};
use super::sys::slots::{Sample, SlotId, Slots, StackSpan};
use super::thread::{Seen, Thread};
use super::unwind::{Registers, Stack, Unwinder};
use super::wait::WaitSite;
use crate::sys::process;

/// A blocked thread whose CPU clock moved by no more than this was woken for a moment at most, and is
/// counted where it was.
const IDLE_CPU_NS: u64 = 10_000;
/// Ticks after which a blocked thread's site is verified though its clock stands still.
const VERIFY_TICKS: u32 = 100;
/// Time that is owed for longer is counted where the thread was last seen.
const OWED_MAX_NS: u64 = 1_000_000_000;
/// A thread is contended if it waited for a processor for more than this part (one in so many) of the
/// time. Then it is asked at every clock interrupt: when one takes the processor from it, the answer
/// comes when it gets one again, before it goes on, and shows where it waited.
const CONTENDED_PART: u64 = 64;
/// A thread that ran for so long without an answer blocks the signal, and is left alone for a time.
const DEAF_AFTER_CPU_NS: u64 = 200_000_000;
const DEAF_NS: u64 = 10_000_000_000;
/// A thread that moves while it is read is read again at most so often in one tick.
const REMOTE_TRIES_MAX: u32 = 2;
/// Samples outside a thread's known stack after which it is looked for again.
const SPAN_AFTER_SAMPLES: u32 = 100;

/// What all looks share.
pub(super) struct Look {
    pub(super) addresses: AddressTrie,
    pub(super) files: Files,
    pub(super) meter: Meter,
    mode: Mode,
    /// None if running threads cannot be asked.
    slots: Option<Slots>,
    /// By slot: whose it is.
    owners: FxHashMap<SlotId, u32>,
    unwinder: Unwinder,
    pub(super) quantum_ns: u64,
    stack: Stack,
    remote: RemoteStack,
    /// A thread was found gone: the list must be read again.
    stale: bool,
}

impl Look {
    /// `slots` as far as the mode has them.
    pub(super) fn new(mode: Mode, slots: Option<Slots>, meter: Meter, quantum_ns: u64) -> Self {
        let unwinder = Unwinder::new();
        Look {
            addresses: AddressTrie::new(unwinder.modules()),
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

    /// A tick begins; takes over the loader's list of modules if it has changed.
    pub(super) fn begin_tick(&mut self, now: u64, threads: &mut [Thread]) {
        self.meter.begin_tick(process::time_stamp(), now);
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

    /// Whether the signal has been taken from us; then nobody is asked any more.
    pub(super) fn signal_is_lost(&mut self, threads: &mut [Thread]) -> bool {
        if self.slots.as_ref().is_none_or(Slots::are_ours) {
            return false;
        }
        threads.iter_mut().for_each(|thread| self.stop_asking(thread));
        self.slots = None;
        self.mode.lose_running("the program took the signal for itself".to_owned());
        true
    }

    /// How much of the sampler works.
    pub(super) fn mode(&self) -> &Mode {
        &self.mode
    }

    /// Lets go of a thread that is gone; what it still owes is counted where it was last seen.
    pub(super) fn forget(&mut self, mut thread: Thread) {
        self.settle(&mut thread);
        self.let_go(&mut thread);
    }

    /// Counts all that a thread owes where it was last seen.
    pub(super) fn settle(&mut self, thread: &mut Thread) {
        self.count_idle(thread);
        self.settle_running(thread, true);
        self.settle_off(thread, true);
    }

    /// Closes what is open for a thread's sake.
    fn let_go(&mut self, thread: &mut Thread) {
        self.files.close(&mut thread.files);
        self.stop_asking(thread);
    }

    fn stop_asking(&mut self, thread: &mut Thread) {
        if let (Some(request), Some(slots)) = (thread.request.take(), &mut self.slots) {
            self.owners.remove(&request.slot);
            slots.release(request.slot);
        }
    }

    /// Takes in the answers that came before the tick `now`. `index` says where in `threads` each one
    /// is, by its id.
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
            // A thread that went meanwhile has no slot any more.
            let owner = self.owners.get(&slot).and_then(|id| index.get(id));
            if let Some(thread) = owner.map(|index| &mut threads[*index]) {
                self.take_sample(thread, &sample, now);
            }
        });
        self.slots = Some(slots);
    }

    fn take_sample(&mut self, thread: &mut Thread, sample: &Sample<'_>, now: u64) {
        let Some(cpu_ns) = process::thread_cpu_ns(thread.id) else {
            return self.lose(thread);
        };
        if let Some(request) = &mut thread.request {
            request.heard_cpu_ns = cpu_ns;
        }
        if sample.task_word.is_none() && thread.cell.is_some() {
            // It began its first task after it was asked. The time waits for a sample that knows.
            return;
        }
        let sp = sample.sp();
        let registers = Registers::all(sample.registers);
        self.unwinder.unwind(registers, memory::copied(sp & !7, sample.stack), &mut self.stack);
        let own = (thread.span.low..thread.span.end).contains(&sp);
        if own && sample.cut && !self.stack.complete && !thread.span.deep {
            // Again with a larger buffer; the time waits for that.
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
        let since = thread.time.reckoned_to_ns();
        if since < now {
            thread.time.advance(now, cpu_ns);
            if let Some(delayed) = self.learn_delay(thread) {
                thread.contended = delayed > (now - since) / CONTENDED_PART;
            }
        }
        let place = self.place(thread, sample.task_word.unwrap_or(0));
        let weight = thread.time.take_sampled(self.meter.time_of(sample.stamp), self.quantum_ns);
        self.count(thread, place, State::Cpu, weight);
    }

    /// Asks the kernel how long the thread waited for a processor; gives how much is new, if it knows.
    fn learn_delay(&mut self, thread: &mut Thread) -> Option<u64> {
        let delay_ns = self.files.run_delay_ns(thread.id, &mut thread.files)?;
        Some(thread.time.know_delay(delay_ns))
    }

    /// Counts what the thread owes of being blocked, at `place`.
    fn count_blocked(&mut self, thread: &mut Thread, place: Place, state: State) {
        let weight = thread.time.take_off(state, self.quantum_ns);
        self.count(thread, place, state, weight);
    }

    fn count(&mut self, thread: &mut Thread, place: Place, state: State, weight: Weight) {
        self.addresses.add(place, weight);
        thread.note(place, state);
    }

    /// The place of the stack that was unwound last, of a thread under `task_word`.
    fn place(&mut self, thread: &mut Thread, task_word: u64) -> Place {
        let top = thread.top(task_word);
        let node = self.addresses.node_of(&top, &self.stack);
        self.addresses.place(node, &top, thread)
    }

    /// Looks at a thread at the tick `now`.
    pub(super) fn look(&mut self, thread: &mut Thread, now: u64) {
        let Some(cpu_ns) = process::thread_cpu_ns(thread.id) else {
            return self.lose(thread);
        };
        if self.still_blocked(thread, cpu_ns, now) {
            return;
        }
        self.count_idle(thread);
        thread.time.advance(now, cpu_ns);
        if self.mode.is_blocked_seen() {
            match self.files.activity(thread.id, &mut thread.files) {
                Ok(Activity::Blocked(site)) => self.read_blocked(thread, site, cpu_ns, now),
                Ok(Activity::Running) => thread.seen = Seen::Ready,
                Err(unseen) => self.give_up(thread, &unseen),
            }
        }
        if thread.time.owes_running() {
            self.ask(thread, cpu_ns, now);
        }
        self.settle_old(thread, now);
    }

    fn give_up(&mut self, thread: &mut Thread, unseen: &Unseen) {
        match unseen {
            Unseen::Gone => self.lose(thread),
            // Its time goes to its next sight.
            Unseen::Refused(error) => tracing::debug!("a thread could not be looked at: {error}"),
        }
    }

    /// The thread has ended.
    fn lose(&mut self, thread: &mut Thread) {
        thread.gone = true;
        self.stale = true;
    }

    /// Counts what has been owed for too long, or to a sight that will never come.
    fn settle_old(&mut self, thread: &mut Thread, now: u64) {
        let patience_ns = |can_come| if can_come { OWED_MAX_NS } else { 0 };
        let can_answer = self.slots.is_some() && thread.deaf_until_ns <= now;
        if !can_answer && matches!(thread.seen, Seen::Ready) {
            // No sample will tell it from waiting, nor where that was.
            self.learn_delay(thread);
        }
        if thread.time.running_owed_for_ns() > patience_ns(can_answer) {
            self.settle_running(thread, can_answer);
        }
        let can_be_read = self.mode.is_blocked_seen();
        if thread.time.off_owed_for_ns() > patience_ns(can_be_read) {
            self.settle_off(thread, can_be_read);
        }
    }

    fn settle_running(&mut self, thread: &mut Thread, where_last_seen: bool) {
        let place = self.last_place(thread, where_last_seen);
        let weight = thread.time.take_running(self.quantum_ns);
        self.addresses.add(place, weight);
        if !where_last_seen {
            // As much as is seen of it: what comes later belongs here, and not to where it was blocked before.
            thread.note(place, State::Cpu);
        }
    }

    fn settle_off(&mut self, thread: &mut Thread, where_last_seen: bool) {
        let place = self.last_place(thread, where_last_seen);
        let state = match thread.seen {
            Seen::Blocked { state, .. } => state,
            // Never seen blocked, neither on a processor nor in the kernel's count of waiting for
            // one: the machine below this one took the processor.
            Seen::Ready if where_last_seen => State::Runnable,
            Seen::Ready => State::Other,
        };
        let weight = thread.time.take_off(state, self.quantum_ns);
        self.addresses.add(place, weight);
    }

    /// Where the thread was last counted, or `[truncated]`.
    fn last_place(&mut self, thread: &mut Thread, where_last_seen: bool) -> Place {
        match thread.last.filter(|_| where_last_seen) {
            Some(last) => last.place,
            None => {
                self.stack.addresses.clear();
                self.stack.complete = false;
                self.place(thread, thread.task_word())
            }
        }
    }

    /// Counts a thread again that has not run since it was last seen blocked.
    fn still_blocked(&mut self, thread: &mut Thread, cpu_ns: u64, now: u64) -> bool {
        let Seen::Blocked { site, state, mut place, task_word, ticks } = thread.seen else {
            return false;
        };
        if thread.time.ran_ns(cpu_ns) > IDLE_CPU_NS || task_word != thread.task_word() {
            return false;
        }
        let verify = ticks >= VERIFY_TICKS;
        if verify && !self.is_still_at(thread, site) {
            return false;
        }
        if verify {
            // It may no longer be young.
            place = self.addresses.place(place.node, &thread.top(task_word), thread);
        }
        let ticks = if verify { 0 } else { ticks + 1 };
        thread.seen = Seen::Blocked { site, state, place, task_word, ticks };
        thread.idle_to_ns = now;
        if verify {
            // It has been asleep for a while: what it owes, it owes here.
            self.count_idle(thread);
            self.settle_running(thread, true);
            self.let_go(thread);
        }
        true
    }

    /// Counts the time in which a thread stayed where it was seen blocked: once for many ticks, as
    /// nothing changes in between.
    pub(super) fn count_idle(&mut self, thread: &mut Thread) {
        let idle_to_ns = std::mem::take(&mut thread.idle_to_ns);
        if let Seen::Blocked { state, place, .. } = thread.seen
            && idle_to_ns > 0
        {
            thread.time.advance_idle(idle_to_ns);
            self.count_blocked(thread, place, state);
        }
    }

    fn is_still_at(&mut self, thread: &mut Thread, site: WaitSite) -> bool {
        let activity = self.files.activity(thread.id, &mut thread.files);
        matches!(activity, Ok(Activity::Blocked(now)) if now == site)
    }

    /// Asks a thread that ran where it runs; the answer is taken at a later tick.
    fn ask(&mut self, thread: &mut Thread, cpu_ns: u64, now: u64) {
        let Some(slots) = self.slots.as_mut().filter(|_| thread.deaf_until_ns <= now) else {
            return;
        };
        if thread.request.is_none() {
            if process::blocks(thread.id, slots.signal()) == Some(true) {
                thread.deaf_until_ns = now + DEAF_NS;
                return;
            }
            match Request::new(slots, thread.id, cpu_ns) {
                Ok(request) => {
                    self.owners.insert(request.slot, thread.id);
                    thread.request = Some(request);
                }
                Err(Asked::Gone) => return self.lose(thread),
                // Its time goes to its next sight.
                Err(_) => {}
            }
        }
        let Some(request) = &mut thread.request else {
            return;
        };
        match request.send(slots, thread.cell.as_ref(), thread.span, thread.contended) {
            Asked::Open if cpu_ns.saturating_sub(request.heard_cpu_ns) > DEAF_AFTER_CPU_NS => {
                // It may have blocked the signal only lately; `ask` looks when it is asked again.
                self.stop_asking(thread);
            }
            Asked::Gone => self.lose(thread),
            Asked::Yes | Asked::Open | Asked::Refused => {}
        }
    }

    /// Unwinds a blocked thread from outside, and believes the result only if the thread has not run
    /// meanwhile: a clock that stands still from before the site was read until after the stack was
    /// copied says so to the nanosecond.
    fn read_blocked(&mut self, thread: &mut Thread, site: WaitSite, cpu_ns: u64, now: u64) {
        let (mut site, mut cpu_ns) = (site, cpu_ns);
        for _ in 0..REMOTE_TRIES_MAX {
            let task_word = thread.task_word();
            let Look { unwinder, remote, stack, .. } = self;
            remote.reset(site.sp);
            let registers = Registers::of_caller(site.pc, site.sp, None);
            unwinder.unwind(registers, |address| remote.read(address), stack);
            let state = site.state();
            let Some(cpu_after) = process::thread_cpu_ns(thread.id) else {
                return self.lose(thread);
            };
            if cpu_after == cpu_ns {
                let place = self.place(thread, task_word);
                thread.seen = Seen::Blocked { site, state, place, task_word, ticks: 0 };
                self.count_blocked(thread, place, state);
                return;
            }
            cpu_ns = cpu_after;
            thread.time.advance(now, cpu_ns);
            match self.files.activity(thread.id, &mut thread.files) {
                Ok(Activity::Blocked(after)) => site = after,
                Ok(Activity::Running) => break,
                Err(unseen) => return self.give_up(thread, &unseen),
            }
        }
        // It moves too fast to be read. Its time goes to its next sight.
        thread.seen = Seen::Ready;
    }
}

/// Looks for the thread's stack, from a stack pointer that was within it.
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
/// A mapping may go on past the stack's end, where other memory was joined to it that may be
/// unmapped at any time. The C library puts the thread's own block at the upper end of the stacks
/// that it makes, so that bounds them; the main thread's stack is a mapping of its own. Any other
/// stack (of a fiber, say) has no known end and is copied by checked reads only.
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
    fn a_stack_ends_where_the_threads_own_block_begins() {
        let mapping = |main_stack| Some(Mapping { low: 0x1000, end: 0x9000, main_stack });
        let span = |low, end| Some(StackSpan { low, end, deep: false });
        assert_eq!(own_span(0x4000, 0x8008, mapping(false)), span(0x1000, 0x8008));
        assert_eq!(own_span(0x4000, 0xf000, mapping(false)), None, "a fiber's stack");
        assert_eq!(own_span(0x4000, 0x3000, mapping(false)), None, "a block below");
        assert_eq!(own_span(0x4000, 0xf000, mapping(true)), span(0x1000, 0x9000));
        assert_eq!(own_span(0x4000, 0x8008, None), None);
    }
}
