//! One look at one thread: by signal if it runs, by copy if it is blocked.

use profiler_core::NodeId;

use super::addresses::AddressTrie;
use super::memory::{self, RemoteStack};
use super::sys::process::{self, Activity, Mapping, WaitSite};
use super::sys::signal::{Answer, Sample, Slots, StackSpan};
use super::thread::{Request, RunTimes, Seen, Thread};
use super::unwind::{Registers, Stack, Unwinder};

/// A blocked thread whose CPU clock moved by no more than this has not run: the clock's own
/// accounting moves it a little.
const IDLE_CPU_NS: u64 = 10_000;
/// Ticks after which a blocked thread's site is verified though its clock stands still.
const VERIFY_TICKS: u32 = 100;
/// A request that waits longer meets a thread that blocks the signal.
const DEAF_AFTER_NS: u64 = 1_000_000_000;
/// A thread seldom runs if it ran for less than this part (one in so many) of the time since it was
/// last counted.
const SELDOM: u64 = 8;
/// Ticks in a row for which a thread that seems to be waking is not signalled.
const PUT_OFF_MAX: u32 = 10;
/// A thread that moves while it is read is read again at most so often in one tick.
const REMOTE_TRIES_MAX: u32 = 2;

/// What all looks share.
pub(super) struct Look {
    pub(super) addresses: AddressTrie,
    slots: Slots,
    unwinder: Unwinder,
    quantum_ns: u64,
    stack: Stack,
    remote: RemoteStack,
    /// A thread was found gone: the list must be read again.
    stale: bool,
}

impl Look {
    pub(super) fn new(slots: Slots, quantum_ns: u64) -> Self {
        let unwinder = Unwinder::new();
        Look {
            addresses: AddressTrie::new(unwinder.modules()),
            slots,
            unwinder,
            quantum_ns,
            stack: Stack::default(),
            remote: RemoteStack::default(),
            stale: false,
        }
    }

    /// Takes over the loader's list of modules if it has changed.
    pub(super) fn refresh_modules(&mut self) {
        if self.unwinder.refresh() {
            self.addresses.set_modules(self.unwinder.modules());
        }
    }

    /// Whether a thread was found gone since the last call.
    pub(super) fn take_stale(&mut self) -> bool {
        std::mem::take(&mut self.stale)
    }

    /// Lets go of a thread that is gone.
    pub(super) fn forget(&mut self, thread: Thread) {
        if let Some(request) = thread.request {
            self.slots.give_up(request.ticket);
        }
    }

    /// Takes in the answer to a signal of an earlier tick. The thread ran none of its own code
    /// between the signal and its handler, so all time up to the last tick is at the stack found.
    pub(super) fn harvest(&mut self, thread: &mut Thread, last_tick_ns: u64, now: u64) {
        let Some(mut request) = thread.request.take() else {
            return;
        };
        let Look { slots, unwinder, stack, .. } = self;
        let (ticket, found) = slots.take(request.ticket, |answer| match answer {
            Answer::Pending => None,
            Answer::Sample(sample) => {
                let registers = Registers { pc: sample.pc, sp: sample.sp, bp: Some(sample.bp) };
                unwinder.unwind(registers, memory::copied(sample.sp & !7, sample.stack), stack);
                Some(Sample { stack: &[], ..sample }).zip(Some(!sample.stack.is_empty()))
            }
        });
        if let Some(ticket) = ticket {
            if now.saturating_sub(request.since_ns) > DEAF_AFTER_NS {
                self.slots.give_up(ticket);
                thread.deaf = true;
            } else {
                request.ticket = ticket;
                thread.request = Some(request);
            }
            return;
        }
        let Some((sample, copied)) = found else {
            return;
        };
        if !copied && thread.misses == 0 {
            // The first sample shows where the stack is; the next one can copy it. This one's time
            // goes to the next.
            thread.misses = 1;
            let mapping = process::mapping_of(sample.sp);
            thread.span = own_span(sample.sp, sample.thread_pointer, mapping).unwrap_or_default();
            return;
        }
        thread.misses = u32::from(!copied);
        let node = self.addresses.node_of(thread.top(sample.task_word), &self.stack);
        self.count_ready(thread, node, last_tick_ns);
    }

    fn count_ready(&mut self, thread: &mut Thread, node: NodeId, until_ns: u64) {
        thread.seen = Seen::Running;
        let before = thread.since_running;
        let now = RunTimes {
            cpu_ns: process::thread_cpu_ns(thread.id).unwrap_or(before.cpu_ns),
            delay_ns: process::run_delay_ns(thread.id).unwrap_or(before.delay_ns),
        };
        let weight = thread.count_ready(until_ns, now, self.quantum_ns);
        self.addresses.add(node, weight);
    }

    fn count_blocked(&mut self, thread: &mut Thread, node: NodeId, until_ns: u64) {
        let weight = thread.count_blocked(until_ns, self.quantum_ns);
        self.addresses.add(node, weight);
    }

    /// Looks at a thread at the tick `now`.
    pub(super) fn look(&mut self, thread: &mut Thread, now: u64) {
        if thread.request.is_some() {
            return;
        }
        let Some(cpu_ns) = process::thread_cpu_ns(thread.id) else {
            self.stale = true;
            return;
        };
        if self.still_blocked(thread, cpu_ns, now) {
            return;
        }
        match process::activity(thread.id) {
            Ok(Activity::Running) => self.ask(thread, cpu_ns, now),
            Ok(Activity::Blocked(site)) => self.read_blocked(thread, site, cpu_ns, now),
            Err(_) => self.stale = true,
        }
    }

    /// Whether a thread that is ready to run has most likely just been woken inside a system call,
    /// where a signal would make the call fail with `EINTR`: it seldom runs, and its clock stands
    /// still at this moment, so it is still waiting for a processor. Its time goes to its next sample,
    /// unless that is put off too often.
    fn is_waking(thread: &mut Thread, cpu_ns: u64, now: u64) -> bool {
        let ran = cpu_ns.saturating_sub(thread.cpu_ns.max(thread.since_running.cpu_ns));
        let elapsed = now.saturating_sub(thread.counted_to_ns);
        let waking = ran.saturating_mul(SELDOM) < elapsed
            && thread.put_off < PUT_OFF_MAX
            && process::thread_cpu_ns(thread.id) == Some(cpu_ns);
        thread.put_off = if waking { thread.put_off + 1 } else { 0 };
        waking
    }

    /// Counts a thread again that has not run since it was last seen blocked.
    fn still_blocked(&mut self, thread: &mut Thread, cpu_ns: u64, now: u64) -> bool {
        let Seen::Blocked { site, node, task_word, ticks } = thread.seen else {
            return false;
        };
        if cpu_ns.saturating_sub(thread.cpu_ns) > IDLE_CPU_NS || task_word != thread.task_word() {
            return false;
        }
        let verify = ticks >= VERIFY_TICKS;
        let same = Ok(Activity::Blocked(site));
        if verify && process::activity(thread.id).map_err(drop) != same {
            return false;
        }
        let ticks = if verify { 0 } else { ticks + 1 };
        thread.seen = Seen::Blocked { site, node, task_word, ticks };
        self.count_blocked(thread, node, now);
        true
    }

    /// Signals a running thread; its answer is taken at the next tick.
    fn ask(&mut self, thread: &mut Thread, cpu_ns: u64, now: u64) {
        if Self::is_waking(thread, cpu_ns, now) {
            return;
        }
        if thread.deaf {
            // It runs, and will not say where.
            self.stack.addresses.clear();
            self.stack.complete = false;
            let node = self.addresses.node_of(thread.top(thread.task_word()), &self.stack);
            self.count_ready(thread, node, now);
            return;
        }
        match self.slots.request(thread.id, thread.cell.as_ref(), thread.span) {
            Ok(ticket) => {
                thread.request = ticket.map(|ticket| Request { ticket, since_ns: now });
            }
            // Gone, or too many signals are queued: its time goes to its next sample.
            Err(_) => self.stale = true,
        }
    }

    /// Unwinds a blocked thread from outside, and believes the result only if the thread has not
    /// moved meanwhile.
    fn read_blocked(&mut self, thread: &mut Thread, site: WaitSite, cpu_ns: u64, now: u64) {
        let (mut site, mut cpu_ns) = (site, cpu_ns);
        for _ in 0..REMOTE_TRIES_MAX {
            let task_word = thread.task_word();
            let Look { unwinder, remote, stack, .. } = self;
            remote.reset(site.sp);
            let registers = Registers { pc: site.pc, sp: site.sp, bp: None };
            unwinder.unwind(registers, |address| remote.read(address), stack);
            // The clock first: a thread that is at the same site by the later reading, with the same
            // clock before it, was there all along.
            let Some(cpu_after) = process::thread_cpu_ns(thread.id) else {
                self.stale = true;
                return;
            };
            match process::activity(thread.id) {
                Ok(Activity::Blocked(after)) if after == site && cpu_after == cpu_ns => {
                    let node = self.addresses.node_of(thread.top(task_word), &self.stack);
                    thread.cpu_ns = cpu_ns;
                    thread.seen = Seen::Blocked { site, node, task_word, ticks: 0 };
                    self.count_blocked(thread, node, now);
                    return;
                }
                Ok(Activity::Blocked(after)) => (site, cpu_ns) = (after, cpu_after),
                Ok(Activity::Running) => return self.ask(thread, cpu_after, now),
                Err(_) => {
                    self.stale = true;
                    return;
                }
            }
        }
        // It moves too fast to be read and is blocked whenever we look: a signal would interrupt a
        // call of the program. Its time goes to its next sample.
    }
}

/// The span of a thread's own stack that its handler may copy, from a stack pointer within it.
///
/// A mapping may go on past the stack's end, where other memory was joined to it that may be
/// unmapped at any time. The C library puts the thread's own block at the upper end of the stacks
/// that it makes, so that bounds them; the main thread's stack is a mapping of its own. Any other
/// stack (of a fiber, say) has no known end and is not copied.
fn own_span(sp: u64, thread_pointer: u64, mapping: Option<Mapping>) -> Option<StackSpan> {
    let mapping = mapping?;
    let low = mapping.low;
    if mapping.main_stack {
        return Some(StackSpan { low, end: mapping.end });
    }
    (sp < thread_pointer && thread_pointer <= mapping.end)
        .then_some(StackSpan { low, end: thread_pointer & !7 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_ends_where_the_threads_own_block_begins() {
        let mapping = |main_stack| Some(Mapping { low: 0x1000, end: 0x9000, main_stack });
        let span = |low, end| Some(StackSpan { low, end });
        assert_eq!(own_span(0x4000, 0x8008, mapping(false)), span(0x1000, 0x8008));
        assert_eq!(own_span(0x4000, 0xf000, mapping(false)), None, "a fiber's stack");
        assert_eq!(own_span(0x4000, 0x3000, mapping(false)), None, "a block below");
        assert_eq!(own_span(0x4000, 0xf000, mapping(true)), span(0x1000, 0x9000));
        assert_eq!(own_span(0x4000, 0x8008, None), None);
    }

    #[test]
    fn a_waking_thread_is_put_off_but_not_forever() {
        let (tell, told) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            tell.send(nix::unistd::gettid().as_raw().unsigned_abs()).unwrap();
            std::thread::park();
        });
        let id = told.recv().unwrap();
        // Its clock stands still once it is parked.
        while !matches!(process::activity(id), Ok(Activity::Blocked(_))) {
            std::thread::yield_now();
        }
        let cpu_ns = process::thread_cpu_ns(id).unwrap();
        let mut thread = Thread::new(id, false, 0);
        let now = cpu_ns * SELDOM + 1;
        let puts_off = (0..=PUT_OFF_MAX).map(|_| Look::is_waking(&mut thread, cpu_ns, now));
        assert_eq!(puts_off.filter(|waking| *waking).count(), PUT_OFF_MAX as usize);
        assert!(!Look::is_waking(&mut thread, cpu_ns - 1, now), "its clock has moved");
        assert!(!Look::is_waking(&mut thread, cpu_ns, cpu_ns), "it ran all the time");
        sleeper.thread().unpark();
        sleeper.join().unwrap();
    }
}
