//! The signal handler: the only way to read the stack of a running thread.
//!
//! The sampler arms a slot and a timer on one thread's CPU clock. When the timer expires, the
//! kernel sends the signal to that thread, and the handler copies its registers, its current task
//! and its stack into a buffer. Nothing waits: the sampler reads the buffers at its next tick.
//! [`protocol`](super::protocol) defines which side may access what, and when.
//!
//! The signal carries the slot's index and generation, not a pointer, so that a late or forged
//! signal has no effect. Slots and buffers are static, because a handler may run at any time, even
//! after the agent is gone. Unused buffers are never touched and take no memory.

use std::cell::UnsafeCell;
use std::io;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};
use std::sync::{Mutex, OnceLock};

use nix::sys::signal::Signal;

use super::protocol::{BufferWord, ExpiredSlots, SlotWord};
use crate::foreign::{ForeignFrame, FrameWalker, Walk, Walker};
use crate::sampler::foreign::FRAMES_MAX as FOREIGN_FRAMES_MAX;
use system::processor::{self, REGISTERS, SP};
use system::{process, task_list};

/// Most threads that can be asked at the same time. Slots that no thread has used are never touched
/// and take no memory.
pub(super) const SLOTS_MAX: usize = 16_384;
/// Most samples that can wait to be read. They come with the kernel's clock interrupt, at most
/// 1,000 times a second per processor. A handler that finds no free buffer only announces that its
/// thread ran; the thread's time waits for the next sample.
pub(super) const COMMON_BUFFERS: usize = 128;
/// Most words of a stack that are copied: 64 KiB.
pub(super) const COMMON_WORDS: usize = 64 * 1024 / 8;
/// Buffers for deeper stacks, as many as threads are usually deep within a tick. The outer frames of a further one are
/// missing. Those that no stack needed take no memory.
pub(super) const DEEP_BUFFERS: usize = 16;
const DEEP_WORDS: usize = 512 * 1024 / 8;
/// Most bytes that are copied of a stack whose end is not known.
const CHECKED_BYTES: usize = 32 * 1024;
/// A stack pointer that is at most so far below the thread's control block is on the stack that the
/// C library made: none is smaller than 16 KiB, with its guard page and the control block.
const SURELY_OWN_BYTES: u64 = 8 * 1024;

/// The task word of a thread whose cell the sampler did not know. No name has this number.
pub(super) const NO_WORD: u64 = u64::MAX;

/// The upper part of a signal's value, which distinguishes our timers from the program's.
const MARK: u64 = 0x454d;

/// The data that a handler needs about its thread.
pub(super) struct Slot {
    pub(super) word: SlotWord,
    /// The range `[low, end)` in which a direct copy is safe; empty if there is none.
    pub(super) low: AtomicU64,
    pub(super) end: AtomicU64,
    /// Whether a stack outside of the range may be copied by a system call.
    pub(super) checked: AtomicBool,
    /// Whether every signal is answered, not just one, until the sampler changes it.
    pub(super) repeat: AtomicBool,
    /// The thread's task word, or null. The sampler keeps it alive until the slot is retired.
    pub(super) task: AtomicPtr<AtomicU64>,
}

/// A handler's sample without the stack.
pub(super) struct Buffer {
    pub(super) slot: AtomicUsize,
    pub(super) generation: AtomicU32,
    /// Unwinding the innermost frame may need any of them.
    pub(super) registers: [AtomicU64; REGISTERS],
    pub(super) task_word: AtomicU64,
    pub(super) thread_pointer: AtomicU64,
    /// Words of the stack that were copied.
    pub(super) words: AtomicUsize,
    /// Whether the stack continues above them.
    pub(super) cut: AtomicBool,
    /// The sample's number: those of a thread rise.
    pub(super) number: AtomicU64,
    /// The time-stamp counter when the handler began, and how many ticks of it the handler took; 0 and
    /// 0 if the handler did not read it.
    pub(super) stamp: AtomicU64,
    pub(super) took: AtomicU64,
    /// Frames of an interpreter, and whether the last one is the outermost.
    pub(super) foreign: AtomicUsize,
    pub(super) foreign_complete: AtomicBool,
}

/// Memory for the frames of an interpreter.
struct ForeignFrames(UnsafeCell<[ForeignFrame; FOREIGN_FRAMES_MAX]>);

// SAFETY: as for `Stack`: the states of the buffer with the same number keep its users apart.
unsafe impl Sync for ForeignFrames {}

/// Memory for the copy of a stack.
struct Stack<const WORDS: usize>(UnsafeCell<[u64; WORDS]>);

// SAFETY: a handler writes a stack between `claim` and `publish` of the buffer that has its number,
// the sampler reads it between `is_full` and `free`; the buffer's word passes through these states
// in order, so the two never overlap.
unsafe impl<const WORDS: usize> Sync for Stack<WORDS> {}

impl Slot {
    const fn new() -> Slot {
        Slot {
            word: SlotWord(AtomicU64::new(0)),
            low: AtomicU64::new(0),
            end: AtomicU64::new(0),
            checked: AtomicBool::new(false),
            repeat: AtomicBool::new(false),
            task: AtomicPtr::new(ptr::null_mut()),
        }
    }
}

impl Buffer {
    const fn new() -> Buffer {
        Buffer {
            slot: AtomicUsize::new(0),
            generation: AtomicU32::new(0),
            registers: [const { AtomicU64::new(0) }; REGISTERS],
            task_word: AtomicU64::new(0),
            thread_pointer: AtomicU64::new(0),
            words: AtomicUsize::new(0),
            cut: AtomicBool::new(false),
            number: AtomicU64::new(0),
            stamp: AtomicU64::new(0),
            took: AtomicU64::new(0),
            foreign: AtomicUsize::new(0),
            foreign_complete: AtomicBool::new(false),
        }
    }
}

pub(super) static SLOTS: [Slot; SLOTS_MAX] = [const { Slot::new() }; SLOTS_MAX];
pub(super) static EXPIRED: ExpiredSlots<AtomicU64, { SLOTS_MAX / 64 }> = ExpiredSlots {
    summary: AtomicU64::new(0),
    words: [const { AtomicU64::new(0) }; SLOTS_MAX / 64],
};
/// The states of all buffers, next to each other because the sampler reads all of them each tick.
pub(super) static BUFFER_WORDS: [BufferWord; COMMON_BUFFERS + DEEP_BUFFERS] =
    [const { BufferWord(AtomicU64::new(0)) }; COMMON_BUFFERS + DEEP_BUFFERS];
/// The common buffers, then the deep ones.
pub(super) static BUFFERS: [Buffer; COMMON_BUFFERS + DEEP_BUFFERS] =
    [const { Buffer::new() }; COMMON_BUFFERS + DEEP_BUFFERS];
static COMMON_STACKS: [Stack<COMMON_WORDS>; COMMON_BUFFERS] =
    [const { Stack(UnsafeCell::new([0; COMMON_WORDS])) }; COMMON_BUFFERS];
static DEEP_STACKS: [Stack<DEEP_WORDS>; DEEP_BUFFERS] =
    [const { Stack(UnsafeCell::new([0; DEEP_WORDS])) }; DEEP_BUFFERS];

static FOREIGN_FRAMES: [ForeignFrames; COMMON_BUFFERS + DEEP_BUFFERS] = [const {
    let none = ForeignFrame {
        code: 0,
        at: 0,
        anchor: 0,
    };
    ForeignFrames(UnsafeCell::new([none; FOREIGN_FRAMES_MAX]))
};
    COMMON_BUFFERS + DEEP_BUFFERS];
/// Walks the frames of an interpreter. It stays for the life of the process, because a handler may run at any time.
static WALKER: OnceLock<&'static dyn FrameWalker> = OnceLock::new();

/// Lets handlers walk the frames of an interpreter too. The first walker of a process stays.
pub(in crate::sampler) fn set_walker(walker: Walker) {
    let _ = WALKER.set(walker.0);
}

/// The memory for the stack of a buffer, and its size in words.
#[inline(always)]
fn stack_of(buffer: usize) -> (*mut u64, usize) {
    match buffer.checked_sub(COMMON_BUFFERS) {
        None => (COMMON_STACKS[buffer].0.get().cast(), COMMON_WORDS),
        Some(deep) => (DEEP_STACKS[deep].0.get().cast(), DEEP_WORDS),
    }
}

/// Sampler: calls `see` with the content of buffer `index`, if it is full, and frees the buffer. The second slice has the
/// frames of an interpreter.
pub(super) fn take_stack(index: usize, see: impl FnOnce(&Buffer, &[u64], &[ForeignFrame])) {
    let buffer = &BUFFERS[index];
    if !BUFFER_WORDS[index].is_full() {
        return;
    }
    let (stack, words_max) = stack_of(index);
    let words = buffer.words.load(Ordering::Relaxed).min(words_max);
    // SAFETY: `stack` is valid for `words_max` words. The buffer is full, so no handler writes to
    // it until it is freed below, after the last use of this slice.
    let stack = unsafe { std::slice::from_raw_parts(stack, words) };
    // SAFETY: likewise.
    let foreign = unsafe { &*FOREIGN_FRAMES[index].0.get() };
    let count = buffer.foreign.load(Ordering::Relaxed);
    see(buffer, stack, &foreign[..count.min(FOREIGN_FRAMES_MAX)]);
    BUFFER_WORDS[index].free();
}

/// Number of the next sample.
static NEXT_SAMPLE: AtomicU64 = AtomicU64::new(0);
/// The first sample that may use a deep buffer. There is none until a stack needed one: much of what is above a thread's
/// frames, such as long arguments of the program, would be copied in vain.
static FIRST_DEEP: AtomicU64 = AtomicU64::new(NEVER);
const NEVER: u64 = u64::MAX;
/// The process in which handlers may copy memory by a checked system call; 0 for none.
static CHECKED_IN: AtomicI32 = AtomicI32::new(0);
/// The handler that was installed before ours; it is called for every signal that is not ours.
static CHAINED: AtomicPtr<libc::c_void> = AtomicPtr::new(ptr::null_mut());
static CHAINED_TAKES_INFO: AtomicBool = AtomicBool::new(false);
/// Whether it is called for one signal only.
static CHAINED_ONCE: AtomicBool = AtomicBool::new(false);
/// The signal action that was installed before our handler. Locked without waiting, because a
/// forked child may have inherited a locked one.
static REPLACED: Mutex<Option<Replaced>> = Mutex::new(None);

#[derive(Clone, Copy)]
struct Replaced {
    signal: Signal,
    action: libc::sigaction,
}

/// Signals that are ignored by default, so that a pending one never kills this process, nor a
/// program that it becomes by `exec`.
const SIGNALS: [Signal; 2] = [Signal::SIGURG, Signal::SIGWINCH];

/// Installs the handler until [`restore`]. `checked` lets handlers copy stacks whose end is not known
/// by `process_vm_readv`.
///
/// The signal is `SIGURG`, or `SIGWINCH` if the program itself handles `SIGURG`, unless one is `wanted`. If the program
/// handles both, its own handler is still called for its signals, with the flags and the mask that
/// it was installed with.
///
/// # Errors
/// If the system refuses.
pub(super) fn install(checked: bool, wanted: Option<Signal>) -> io::Result<Signal> {
    let pid = if checked {
        nix::unistd::getpid().as_raw()
    } else {
        0
    };
    CHECKED_IN.store(pid, Ordering::Relaxed);
    let is_wanted = |signal: &Signal| wanted.is_none_or(|wanted| wanted == *signal);
    for signal in SIGNALS.into_iter().filter(is_wanted) {
        if is_ours(signal) {
            return Ok(signal);
        }
    }
    let [first, second] = SIGNALS;
    let signal = match wanted {
        Some(wanted) => wanted,
        None if is_unused(&current_action(first)?) => first,
        None => second,
    };
    install_handler(signal)
}

/// The signal that can be used instead of this one.
pub(super) fn other(signal: Signal) -> Signal {
    let [first, second] = SIGNALS;
    if signal == first { second } else { first }
}

/// Whether the program does not handle the signal.
pub(super) fn is_free(signal: Signal) -> bool {
    current_action(signal).is_ok_and(|action| is_unused(&action))
}

/// Lets handlers copy stacks that do not fit a common buffer into a deep one. Returns the number of the first sample for
/// which they do.
pub(in crate::sampler) fn use_deep_buffers() -> u64 {
    let next = NEXT_SAMPLE.load(Ordering::Relaxed);
    let before = FIRST_DEEP.compare_exchange(NEVER, next, Ordering::Relaxed, Ordering::Relaxed);
    before.err().unwrap_or(next)
}

/// Restores the signal action that was installed before our handler. The caller has deleted all timers.
///
/// Our handler stays if the program has replaced it meanwhile. It also stays if one of our signals
/// is pending on a thread that blocks it, because that signal would reach the program's handler.
pub(super) fn restore() {
    let Ok(mut replaced) = REPLACED.try_lock() else {
        return;
    };
    let Some(Replaced { signal, mut action }) = *replaced else {
        return;
    };
    if !is_ours(signal) {
        *replaced = None;
        return;
    }
    if !is_unused(&action) {
        if is_pending_on_a_thread(signal) {
            return;
        }
        if CHAINED.load(Ordering::Acquire).is_null() {
            // It asked to be called once, and was.
            action.sa_sigaction = libc::SIG_DFL;
        }
    }
    // SAFETY: `action` was installed before, so it is valid.
    let result =
        unsafe { libc::sigaction(signal as libc::c_int, &raw const action, ptr::null_mut()) };
    if result == 0 {
        *replaced = None;
    }
}

/// Whether the signal was sent to a thread that blocks it; `true` if that cannot be determined.
fn is_pending_on_a_thread(signal: Signal) -> bool {
    let Ok(threads) = task_list::thread_ids() else {
        return true;
    };
    // Threads that end meanwhile have nothing pending.
    threads
        .into_iter()
        .any(|thread| process::has_pending(thread, signal).unwrap_or(false))
}

fn is_unused(action: &libc::sigaction) -> bool {
    [libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction)
}

/// Whether our handler is installed for `signal`. The program may install its own at any time.
pub(super) fn is_ours(signal: Signal) -> bool {
    current_action(signal).is_ok_and(|action| action.sa_sigaction == handler as *const () as usize)
}

/// The value that a signal for a slot carries.
pub(super) fn value_of(slot: usize, generation: u32) -> isize {
    (MARK << 48 | u64::from(generation) << 16 | slot as u64) as isize
}

fn current_action(signal: Signal) -> io::Result<libc::sigaction> {
    // SAFETY: all zeros are a valid `sigaction` (no flags, default handler).
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: with a null new action this only reads; `action` is valid for writing.
    let result = unsafe { libc::sigaction(signal as libc::c_int, ptr::null(), &raw mut action) };
    if result == 0 {
        Ok(action)
    } else {
        Err(io::Error::last_os_error())
    }
}

fn install_handler(signal: Signal) -> io::Result<Signal> {
    let before = current_action(signal)?;
    // SAFETY: as in `current_action`.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    if is_unused(&before) {
        CHAINED.store(ptr::null_mut(), Ordering::Release);
        // Not on the alternate stack, which may have no room for a frame.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        // SAFETY: `sa_mask` is a valid signal set.
        unsafe { libc::sigfillset(&raw mut action.sa_mask) };
        // Timers of the process expire at the same clock interrupt as ours. If this handler blocked their signals, the
        // kernel would pass them on to other threads, whose calls would fail with `EINTR`. Their handlers nest, mostly
        // before this one has begun.
        for nesting in [libc::SIGPROF, libc::SIGVTALRM] {
            // SAFETY: as above.
            unsafe { libc::sigdelset(&raw mut action.sa_mask, nesting) };
        }
    } else {
        let has = |flag| before.sa_flags & flag != 0;
        CHAINED_TAKES_INFO.store(has(libc::SA_SIGINFO), Ordering::Relaxed);
        CHAINED_ONCE.store(has(libc::SA_RESETHAND), Ordering::Relaxed);
        CHAINED.store(
            ptr::without_provenance_mut(before.sa_sigaction),
            Ordering::Release,
        );
        // The program's calls are interrupted or restarted, and its handler is nested, as it wants.
        action.sa_flags = before.sa_flags & !libc::SA_RESETHAND | libc::SA_SIGINFO;
        action.sa_mask = before.sa_mask;
    }
    action.sa_sigaction = handler as *const () as usize;
    // SAFETY: `handler` has the type that SA_SIGINFO requires, accesses only statics and the
    // interrupted thread's own stack, and lives as long as the process.
    let result =
        unsafe { libc::sigaction(signal as libc::c_int, &raw const action, ptr::null_mut()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    if let Ok(mut replaced) = REPLACED.try_lock() {
        *replaced = Some(Replaced {
            signal,
            action: before,
        });
    }
    Ok(signal)
}

/// Copies the thread's state if the sampler requested it. Allocates nothing, takes no lock, calls
/// no function of the C library and uses no thread-local variable; in particular it does not change
/// errno.
///
/// The thread may be in a sandbox that kills it at any system call and at any reading of the time-stamp
/// counter. So there is no system call but for stacks that need one ([`Slot::checked`]), and the counter
/// is read only on threads that read the clock themselves, because they are in a task.
extern "C" fn handler(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: under SA_SIGINFO the kernel passes a valid `siginfo_t`.
    let info_ref = unsafe { &*info };
    if info_ref.si_code != libc::SI_TIMER {
        return chain(signal, info, context);
    }
    // SAFETY: a timer's signal (SI_TIMER) has a value.
    let value = unsafe { info_ref.si_value() }.sival_ptr.addr() as u64;
    if value >> 48 != MARK {
        return chain(signal, info, context);
    }
    let index = (value & 0xffff) as usize;
    let generation = (value >> 16) as u32;
    let Some(slot) = SLOTS.get(index) else {
        return;
    };
    if !slot.word.is_of(generation) {
        return;
    }
    if slot.word.take(generation) {
        // SAFETY: under SA_SIGINFO the kernel passes a valid `ucontext_t`.
        let machine = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
        let task_word = task_word_of(slot);
        let is_in_task = task_word != NO_WORD && task_word != 0;
        let begin = if is_in_task {
            processor::time_stamp()
        } else {
            0
        };
        answer_taken(
            slot,
            machine,
            Stamp {
                index,
                generation,
                task_word,
                begin,
            },
        );
    }
    EXPIRED.add(index);
}

/// The task word of the thread of a slot that this handler has taken.
#[inline(always)]
fn task_word_of(slot: &Slot) -> u64 {
    let task = slot.task.load(Ordering::Relaxed);
    if task.is_null() {
        return NO_WORD;
    }
    // SAFETY: the sampler keeps the cell alive while the slot is armed or taken.
    unsafe { &*task }.load(Ordering::Relaxed)
}

/// Answers for a slot that this handler has taken, and puts it down.
#[inline(always)]
fn answer_taken(slot: &Slot, machine: &libc::mcontext_t, stamp: Stamp) {
    let deep = COMMON_BUFFERS..COMMON_BUFFERS + DEEP_BUFFERS;
    let own = own_stack(slot, processor::register(machine, SP) & !7);
    let is_deep = (own.end - own.start) / 8 > COMMON_WORDS as u64;
    let uses_deep = is_deep && FIRST_DEEP.load(Ordering::Relaxed) != NEVER;
    let answered = uses_deep && answer(deep, slot, machine, stamp, &own);
    if !answered {
        answer(0..COMMON_BUFFERS, slot, machine, stamp, &own);
    }
    slot.word.put_down(slot.repeat.load(Ordering::Relaxed));
}

/// The slot and generation that are answered, the thread's task word, and when the handler began.
#[derive(Clone, Copy)]
struct Stamp {
    index: usize,
    generation: u32,
    task_word: u64,
    /// 0 if the counter is not read.
    begin: u64,
}

/// Answers in the first free buffer of `candidates`. Returns `false` if there is none. `own` is [`own_stack`] from the
/// stack pointer on.
#[inline(always)]
fn answer(
    mut candidates: Range<usize>,
    slot: &Slot,
    machine: &libc::mcontext_t,
    stamp: Stamp,
    own: &Range<u64>,
) -> bool {
    let Some(index) = candidates.find(|index| BUFFER_WORDS[*index].claim()) else {
        return false;
    };
    let buffer = &BUFFERS[index];
    fill(buffer, machine, stamp);
    let (stack, words_max) = stack_of(index);
    // SAFETY: this handler claimed the buffer, so it is the only user of its stack.
    let (words, cut) = unsafe { copy_stack(slot, own, stack, words_max) };
    buffer.words.store(words, Ordering::Relaxed);
    buffer.cut.store(cut, Ordering::Relaxed);
    walk_foreign(buffer, index, own.clone());
    let is_timed = stamp.begin != 0;
    let took = if is_timed {
        processor::time_stamp().wrapping_sub(stamp.begin)
    } else {
        0
    };
    buffer.took.store(took, Ordering::Relaxed);
    BUFFER_WORDS[index].publish();
    true
}

/// Fills a claimed buffer except the stack.
#[inline(always)]
fn fill(buffer: &Buffer, machine: &libc::mcontext_t, stamp: Stamp) {
    buffer.slot.store(stamp.index, Ordering::Relaxed);
    buffer.generation.store(stamp.generation, Ordering::Relaxed);
    buffer.number.store(
        NEXT_SAMPLE.fetch_add(1, Ordering::Relaxed),
        Ordering::Relaxed,
    );
    buffer.stamp.store(stamp.begin, Ordering::Relaxed);
    for (index, slot) in buffer.registers.iter().enumerate() {
        slot.store(processor::register(machine, index), Ordering::Relaxed);
    }
    buffer
        .thread_pointer
        .store(processor::thread_pointer(), Ordering::Relaxed);
    buffer.task_word.store(stamp.task_word, Ordering::Relaxed);
}

/// Walks the frames of an interpreter, if the program has a walker, into the memory of a buffer that this handler has
/// claimed.
#[inline(always)]
fn walk_foreign(buffer: &Buffer, index: usize, stack: Range<u64>) {
    let mut walk = Walk {
        frames: 0,
        is_complete: true,
    };
    if let Some(walker) = WALKER.get() {
        // SAFETY: this handler claimed the buffer, so it is the only user of its frames.
        let frames = unsafe { &mut *FOREIGN_FRAMES[index].0.get() };
        walk = walker.walk_own(stack, frames);
    }
    buffer.foreign.store(walk.frames, Ordering::Relaxed);
    buffer
        .foreign_complete
        .store(walk.is_complete, Ordering::Relaxed);
}

/// The part of this thread's stack from `from` on that is in use, and that a direct read may touch; empty if it is not
/// known.
#[inline(always)]
fn own_stack(slot: &Slot, from: u64) -> Range<u64> {
    let low = slot.low.load(Ordering::Relaxed);
    let end = slot.end.load(Ordering::Relaxed);
    let control_block = processor::thread_pointer() & !7;
    if end == 0 && control_block.wrapping_sub(from) <= SURELY_OWN_BYTES {
        from..control_block
    } else if low <= from && from < end {
        from..end
    } else {
        from..from
    }
}

/// Copies the stack from the start of `own` upwards. Returns the number of words copied, and whether the stack
/// continues.
///
/// # Safety
/// `own` is [`own_stack`] from the stack pointer on. `to` is writable for `words_max` words, and only this handler uses it.
#[inline(always)]
unsafe fn copy_stack(
    slot: &Slot,
    own: &Range<u64>,
    to: *mut u64,
    words_max: usize,
) -> (usize, bool) {
    let from = own.start;
    if !own.is_empty() {
        let whole = (own.end - from) / 8;
        let words = whole.min(words_max as u64) as usize;
        // SAFETY: [from, from + 8 * words) lies in `own`, a span of the mapping that holds
        // this thread's stack, between its stack pointer and the stack's upper end (or between its
        // stack pointer and the control block, on the same stack): in use by this thread, so mapped
        // for as long as the thread does not return from this handler.
        unsafe { processor::copy_words(from as *const u64, to, words) };
        return (words, whole > words as u64);
    }
    let pid = CHECKED_IN.load(Ordering::Relaxed);
    if pid == 0 || !slot.checked.load(Ordering::Relaxed) {
        return (0, false);
    }
    let bytes = CHECKED_BYTES.min(words_max * 8);
    // SAFETY: the caller guarantees that `to` is writable for this length.
    let copied = unsafe { processor::read_memory(pid, from, to, bytes) };
    (copied / 8, copied == bytes)
}

/// Passes a signal that is not ours to the handler that was installed before ours.
fn chain(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    type WithInfo = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
    type Plain = extern "C" fn(libc::c_int);
    let before = if CHAINED_ONCE.load(Ordering::Relaxed) {
        CHAINED.swap(ptr::null_mut(), Ordering::AcqRel)
    } else {
        CHAINED.load(Ordering::Acquire)
    };
    if before.is_null() {
        return;
    }
    if CHAINED_TAKES_INFO.load(Ordering::Relaxed) {
        // SAFETY: it was installed as a handler with SA_SIGINFO, so it has this type.
        let before: WithInfo = unsafe { std::mem::transmute(before) };
        before(signal, info, context);
    } else {
        // SAFETY: it was installed as a handler without SA_SIGINFO, so it has this type.
        let before: Plain = unsafe { std::mem::transmute(before) };
        before(signal);
    }
}
