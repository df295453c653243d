//! Directed signals: the only way to see the stack of a thread that runs.
//!
//! The sampler puts a request into a slot and signals one thread; the handler on that thread copies
//! its registers, its current task and its stack into the slot. Nobody waits: the sampler looks at
//! the slot at its next tick.
//!
//! A slot's word holds its generation and state, and passes ownership of the rest:
//!
//! ```text
//!   sampler          sampler                handler               handler            sampler
//!    FREE ─(fill)─▶ REQUESTED ─(exchange)─▶ WRITING ─(release)─▶ DONE ─(acquire)─▶ FREE, next
//!                        └──────────(exchange: given up)──────────────────────────▶ generation
//! ```
//!
//! The signal carries the slot's index and generation, not a pointer, so that a late or forged one
//! finds nothing to do. Slots are static: a handler may run at any time, even after the agent is
//! gone.

use std::cell::UnsafeCell;
use std::io;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crate::registry::ThreadCell;

/// Most requests under way at once. Pages of a slot's stack are touched only when one is used, so
/// an ordinary process pays for two or three.
pub(in crate::sampler) const SLOTS_MAX: usize = 64;

/// Most of a stack that is copied, in words: 64 KiB.
const STACK_WORDS: usize = 64 * 1024 / 8;

/// In `si_errno`, where the kernel leaves what the sender wrote: tells ours from foreign signals.
const MARK: i32 = 0x0045_4d42;

const STATE_BITS: u64 = 0b11;
const FREE: u64 = 0;
const REQUESTED: u64 = 1;
const WRITING: u64 = 2;
const DONE: u64 = 3;
const GENERATION: u64 = STATE_BITS + 1;
/// Generations in the part of the word that a signal's value has room for beside the index.
const GENERATION_BITS: u32 = 48;

struct Slot {
    word: AtomicU64,
    /// Where a direct copy is safe: `[low, end)`; empty asks for registers alone.
    low: AtomicU64,
    end: AtomicU64,
    /// The thread's task word, or null. Kept alive by `Slots::cells`.
    task: AtomicPtr<AtomicU64>,
    registers: [AtomicU64; 3],
    task_word: AtomicU64,
    thread_pointer: AtomicU64,
    words: AtomicUsize,
    stack: UnsafeCell<[u64; STACK_WORDS]>,
}

// SAFETY: `stack` is the only part without its own synchronisation. The handler writes it between
// its exchange to WRITING and its release-store of DONE; the sampler reads it after an
// acquire-load of DONE and before it stores FREE. The word passes through these states in order,
// so the two never overlap.
unsafe impl Sync for Slot {}

impl Slot {
    const fn new() -> Slot {
        Slot {
            word: AtomicU64::new(FREE),
            low: AtomicU64::new(0),
            end: AtomicU64::new(0),
            task: AtomicPtr::new(ptr::null_mut()),
            registers: [const { AtomicU64::new(0) }; 3],
            task_word: AtomicU64::new(0),
            thread_pointer: AtomicU64::new(0),
            words: AtomicUsize::new(0),
            stack: UnsafeCell::new([0; STACK_WORDS]),
        }
    }
}

static SLOTS: [Slot; SLOTS_MAX] = [const { Slot::new() }; SLOTS_MAX];
/// The process that installed the handler; 0 until then. A forked child has another id.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// Whoever handled our signal before us, called for every signal that is not ours.
static CHAINED: AtomicPtr<libc::c_void> = AtomicPtr::new(ptr::null_mut());
static CHAINED_TAKES_INFO: AtomicBool = AtomicBool::new(false);

/// One request: which slot, and which use of it.
#[derive(Debug)]
pub(in crate::sampler) struct Ticket {
    index: usize,
    generation: u64,
}

/// What became of a request.
#[derive(Debug)]
pub(in crate::sampler) enum Answer<'s> {
    /// The thread has not run since.
    Pending,
    /// The thread's state when it was about to run again.
    Sample(Sample<'s>),
}

/// A running thread's state, as its handler copied it.
#[derive(Debug)]
pub(in crate::sampler) struct Sample<'s> {
    pub(in crate::sampler) pc: u64,
    pub(in crate::sampler) sp: u64,
    pub(in crate::sampler) bp: u64,
    /// The word of [`ThreadCell::task_word`]; 0 if the thread has no cell.
    pub(in crate::sampler) task_word: u64,
    /// The thread's own pointer, which lies at the upper end of a stack that the C library made.
    pub(in crate::sampler) thread_pointer: u64,
    /// The stack from `sp` (rounded down to a word) upwards; empty if it was not safe to copy.
    pub(in crate::sampler) stack: &'s [u64],
}

/// The span of a thread's stack that its handler may copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::sampler) struct StackSpan {
    pub(in crate::sampler) low: u64,
    pub(in crate::sampler) end: u64,
}

/// The sampler's side of the slots. There is one at a time.
#[derive(Debug)]
pub(in crate::sampler) struct Slots {
    signal: libc::c_int,
    /// By slot: keeps the thread's task word alive while a handler may read it.
    cells: Vec<Option<Arc<ThreadCell>>>,
    free: Vec<usize>,
}

impl Slots {
    /// Installs the handler, once for the life of the process: taking it away could let a signal
    /// that is still under way find the default action.
    ///
    /// # Errors
    /// If the system refuses. A signal whose default is to be ignored, so that a stray one never
    /// kills, is used: `SIGURG`, or `SIGWINCH` where the program itself handles `SIGURG`.
    pub(in crate::sampler) fn install() -> io::Result<Slots> {
        let pid = process_id();
        let signal = match handled_by_us()? {
            Some(signal) => signal,
            None => install_handler()?,
        };
        OWNER.store(pid, Ordering::Release);
        for slot in &SLOTS {
            // Left over by an agent that ended, or by the parent of this process: give it up. Only a
            // handler that runs at this moment keeps its slot, which then stays unused.
            let word = slot.word.load(Ordering::Acquire);
            if word & STATE_BITS != WRITING {
                let next = (word & !STATE_BITS).wrapping_add(GENERATION);
                let _ = slot.word.compare_exchange(
                    word,
                    next | FREE,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
            }
        }
        let is_free = |slot: &Slot| slot.word.load(Ordering::Acquire) & STATE_BITS == FREE;
        Ok(Slots {
            signal,
            cells: vec![None; SLOTS_MAX],
            free: (0..SLOTS_MAX).rev().filter(|index| is_free(&SLOTS[*index])).collect(),
        })
    }

    /// Asks `thread_id` for its stack, which its handler copies within `span`. `None` if all slots
    /// are in use: the thread's time then waits for its next sample.
    ///
    /// # Errors
    /// If the thread is gone or the system refuses.
    pub(in crate::sampler) fn request(
        &mut self,
        thread_id: u32,
        cell: Option<&Arc<ThreadCell>>,
        span: StackSpan,
    ) -> io::Result<Option<Ticket>> {
        let Some(index) = self.free.pop() else {
            return Ok(None);
        };
        let slot = &SLOTS[index];
        let task = cell.map_or(ptr::null(), |cell| ptr::from_ref(cell.task_word()));
        self.cells[index] = cell.cloned();
        slot.task.store(task.cast_mut(), Ordering::Relaxed);
        slot.low.store(span.low, Ordering::Relaxed);
        slot.end.store(span.end, Ordering::Relaxed);
        let generation = slot.word.load(Ordering::Relaxed) & !STATE_BITS;
        slot.word.store(generation | REQUESTED, Ordering::Release);
        let ticket = Ticket { index, generation };
        match self.send(thread_id, &ticket) {
            Ok(()) => Ok(Some(ticket)),
            Err(error) => {
                self.give_up(ticket);
                Err(error)
            }
        }
    }

    fn send(&self, thread_id: u32, ticket: &Ticket) -> io::Result<()> {
        /// `siginfo_t` as `rt_tgsigqueueinfo` takes it, with the fields of a queued signal.
        #[repr(C)]
        struct Info {
            signal: libc::c_int,
            errno: libc::c_int,
            code: libc::c_int,
            padding: libc::c_int,
            pid: libc::pid_t,
            uid: libc::uid_t,
            value: u64,
            rest: [u64; 12],
        }
        const _: () = assert!(size_of::<Info>() == size_of::<libc::siginfo_t>());
        let pid = OWNER.load(Ordering::Relaxed);
        let generation = ticket.generation / GENERATION % (1 << GENERATION_BITS);
        let info = Info {
            signal: self.signal,
            errno: MARK,
            code: libc::SI_QUEUE,
            padding: 0,
            pid,
            uid: 0,
            value: generation << 16 | ticket.index as u64,
            rest: [0; 12],
        };
        let call = libc::SYS_rt_tgsigqueueinfo;
        // SAFETY: the call reads one `siginfo_t`, whose size `Info` has, and keeps no pointer.
        let result = unsafe { libc::syscall(call, pid, thread_id, self.signal, &raw const info) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Looks at a request and shows the sample, if there is one, to `see`; the slot is then free.
    pub(in crate::sampler) fn take<R>(
        &mut self,
        ticket: Ticket,
        see: impl FnOnce(Answer<'_>) -> R,
    ) -> (Option<Ticket>, R) {
        let slot = &SLOTS[ticket.index];
        if slot.word.load(Ordering::Acquire) != ticket.generation | DONE {
            return (Some(ticket), see(Answer::Pending));
        }
        let words = slot.words.load(Ordering::Relaxed).min(STACK_WORDS);
        // SAFETY: the word is DONE, so no handler writes until `free` below gives the slot away.
        let stack: &[u64; STACK_WORDS] = unsafe { &*slot.stack.get() };
        let [pc, sp, bp] = slot.registers.each_ref().map(|word| word.load(Ordering::Relaxed));
        let result = see(Answer::Sample(Sample {
            pc,
            sp,
            bp,
            task_word: slot.task_word.load(Ordering::Relaxed),
            thread_pointer: slot.thread_pointer.load(Ordering::Relaxed),
            stack: &stack[..words],
        }));
        self.release(&ticket);
        (None, result)
    }

    /// Gives a request up: its thread is gone, or does not take the signal. If the signal still
    /// comes, it finds another generation. A handler at work this moment is waited out at a later
    /// call, by keeping the slot.
    pub(in crate::sampler) fn give_up(&mut self, ticket: Ticket) {
        let requested = ticket.generation | REQUESTED;
        let next = ticket.generation.wrapping_add(GENERATION) | FREE;
        let word = &SLOTS[ticket.index].word;
        match word.compare_exchange(requested, next, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => self.put_back(ticket.index),
            Err(word) if word & STATE_BITS == DONE => self.release(&ticket),
            // Writing: as its thread was thought gone, this cannot last; the slot is not used again.
            Err(_) => {}
        }
    }

    fn release(&mut self, ticket: &Ticket) {
        let next = ticket.generation.wrapping_add(GENERATION) | FREE;
        SLOTS[ticket.index].word.store(next, Ordering::Release);
        self.put_back(ticket.index);
    }

    fn put_back(&mut self, index: usize) {
        self.cells[index] = None;
        self.free.push(index);
    }
}

impl Drop for Slots {
    /// Gives up what is under way, and waits out the handlers that run at this moment, because they
    /// read the cells that are dropped next. A handler takes about a microsecond.
    fn drop(&mut self) {
        for (index, slot) in SLOTS.iter().enumerate() {
            if self.cells[index].is_none() {
                continue;
            }
            let mut word = slot.word.load(Ordering::Acquire);
            while word & STATE_BITS == REQUESTED || word & STATE_BITS == WRITING {
                let next = (word & !STATE_BITS).wrapping_add(GENERATION) | FREE;
                let taken = word & STATE_BITS == REQUESTED
                    && slot
                        .word
                        .compare_exchange(word, next, Ordering::AcqRel, Ordering::Acquire)
                        .is_ok();
                if taken {
                    break;
                }
                std::thread::yield_now();
                word = slot.word.load(Ordering::Acquire);
            }
        }
    }
}

/// Signals that do nothing by default, so that one in flight never kills: not this process, and not
/// a program that it becomes by `exec`.
const SIGNALS: [libc::c_int; 2] = [libc::SIGURG, libc::SIGWINCH];

fn current_action(signal: libc::c_int) -> io::Result<libc::sigaction> {
    // SAFETY: every byte pattern of zeros is a valid `sigaction` (no flags, default handler).
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a null new action only asks; `action` is a valid place for the answer.
    let result = unsafe { libc::sigaction(signal, ptr::null(), &raw mut action) };
    if result == 0 { Ok(action) } else { Err(io::Error::last_os_error()) }
}

/// The signal that our handler already has, from an earlier agent in this process.
fn handled_by_us() -> io::Result<Option<libc::c_int>> {
    for signal in SIGNALS {
        if current_action(signal)?.sa_sigaction == handler as *const () as usize {
            return Ok(Some(signal));
        }
    }
    Ok(None)
}

fn install_handler() -> io::Result<libc::c_int> {
    let mut chosen = None;
    for signal in SIGNALS {
        let before = current_action(signal)?;
        let unused = [libc::SIG_DFL, libc::SIG_IGN].contains(&before.sa_sigaction);
        if unused || signal == SIGNALS[SIGNALS.len() - 1] {
            chosen = Some((signal, (!unused).then_some(before)));
            break;
        }
    }
    let (signal, foreign) = chosen.ok_or(io::ErrorKind::Unsupported)?;
    if let Some(foreign) = foreign {
        let takes_info = foreign.sa_flags & libc::SA_SIGINFO != 0;
        CHAINED_TAKES_INFO.store(takes_info, Ordering::Relaxed);
        CHAINED.store(ptr::without_provenance_mut(foreign.sa_sigaction), Ordering::Release);
    }
    // SAFETY: as in `current_action`.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    // The alternate stack where there is one: small stacks (Go's, fibers) then stay whole.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: `sa_mask` is a valid signal set. Nothing nests in the handler.
    unsafe { libc::sigfillset(&raw mut action.sa_mask) };
    // SAFETY: `handler` has the type that SA_SIGINFO asks for, touches only statics and the
    // interrupted thread's own stack, and lives as long as the process.
    let result = unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
    if result == 0 { Ok(signal) } else { Err(io::Error::last_os_error()) }
}

fn process_id() -> libc::pid_t {
    // SAFETY: `getpid` takes nothing and always succeeds.
    unsafe { libc::getpid() }
}

/// Copies what the sampler asked for. It allocates nothing, takes no lock, calls no function of the
/// C library and uses no thread-local variable (errno included: nothing here changes it).
extern "C" fn handler(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: under SA_SIGINFO the kernel passes a valid `siginfo_t`.
    let info_ref = unsafe { &*info };
    if info_ref.si_code != libc::SI_QUEUE || info_ref.si_errno != MARK {
        return chain(signal, info, context);
    }
    // SAFETY: a queued signal (SI_QUEUE) has a pid.
    let sender = unsafe { info_ref.si_pid() };
    if sender != OWNER.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: a queued signal (SI_QUEUE) has a value.
    let value = unsafe { info_ref.si_value() }.sival_ptr.addr() as u64;
    let Some(slot) = SLOTS.get((value & 0xffff) as usize) else {
        return;
    };
    let word = slot.word.load(Ordering::Acquire);
    let generation = word / GENERATION % (1 << GENERATION_BITS);
    if word & STATE_BITS != REQUESTED || generation != value >> 16 {
        return;
    }
    let writing = word & !STATE_BITS | WRITING;
    if slot.word.compare_exchange(word, writing, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return;
    }
    // SAFETY: under SA_SIGINFO the kernel passes a valid `ucontext_t`.
    let machine = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
    fill(slot, machine);
    slot.word.store(word & !STATE_BITS | DONE, Ordering::Release);
}

/// Fills a slot whose word is WRITING, on the thread that was asked.
#[inline(always)]
fn fill(slot: &Slot, machine: &libc::mcontext_t) {
    let register = |index: libc::c_int| machine.gregs[index as usize].cast_unsigned();
    let [pc, sp, bp] = [libc::REG_RIP, libc::REG_RSP, libc::REG_RBP].map(register);
    slot.registers[0].store(pc, Ordering::Relaxed);
    slot.registers[1].store(sp, Ordering::Relaxed);
    slot.registers[2].store(bp, Ordering::Relaxed);
    slot.thread_pointer.store(thread_pointer(), Ordering::Relaxed);
    let task = slot.task.load(Ordering::Relaxed);
    let task_word = if task.is_null() {
        0
    } else {
        // SAFETY: the sampler keeps the cell alive while the word is REQUESTED or WRITING.
        unsafe { &*task }.load(Ordering::Relaxed)
    };
    slot.task_word.store(task_word, Ordering::Relaxed);

    let from = sp & !7;
    let low = slot.low.load(Ordering::Relaxed);
    let end = slot.end.load(Ordering::Relaxed);
    let inside = low <= from && from < end;
    let words = if inside { ((end - from) / 8).min(STACK_WORDS as u64) as usize } else { 0 };
    // SAFETY: the caller's WRITING state makes this handler the only user of `stack`, and `words`
    // is at most its length. [from, from + 8 * words) lies in [low, end), a span of the mapping that
    // holds this thread's stack, between its stack pointer and the stack's upper end: in use by this
    // thread, so mapped for as long as the thread does not return from this handler.
    unsafe { copy_words(from as *const u64, slot.stack.get().cast(), words) };
    slot.words.store(words, Ordering::Relaxed);
}

/// Copies without a call into the C library, whose `memcpy` may not be bound yet.
///
/// # Safety
/// `from` is readable and `to` writable for `words` words; they do not overlap.
#[inline(always)]
unsafe fn copy_words(from: *const u64, to: *mut u64, words: usize) {
    // SAFETY: the caller's promise; the direction flag is clear, as the ABI has it at every call.
    unsafe {
        std::arch::asm!(
            "rep movsq",
            inout("rcx") words => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
}

/// The thread's own pointer, which on x86-64 stands where it points to.
#[inline(always)]
fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: the ABI puts the thread pointer at fs:0; reading it changes nothing.
    unsafe {
        std::arch::asm!(
            "mov {}, fs:[0]",
            out(reg) pointer,
            options(nostack, preserves_flags, readonly)
        );
    }
    pointer
}

/// Hands a signal that is not ours to whoever had it before us.
fn chain(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    type WithInfo = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
    type Plain = extern "C" fn(libc::c_int);
    let before = CHAINED.load(Ordering::Acquire);
    if before.is_null() {
        return;
    }
    if CHAINED_TAKES_INFO.load(Ordering::Relaxed) {
        // SAFETY: the system had this as a handler with SA_SIGINFO, so it is one.
        let before: WithInfo = unsafe { std::mem::transmute(before) };
        before(signal, info, context);
    } else {
        // SAFETY: the system had this as a handler without SA_SIGINFO, so it is one.
        let before: Plain = unsafe { std::mem::transmute(before) };
        before(signal);
    }
}
